"""Tools declared in YAML: every mistake at its place, and nothing that an argument could turn into code, an origin or an option."""

from __future__ import annotations

from pathlib import Path

import pytest

from agiwo.definition.contract import Effect
from agiwo.errors import Problem
from agiwo.tools.declared import Declarations, declared_tools
from agiwo.wiring.toolbox import ToolsRefused, toolbox


def read(tmp_path: Path, text: str, allowed: tuple[str, ...] | None = None) -> Declarations:
    (tmp_path / "tools.yaml").write_text(text)
    return declared_tools(tmp_path, allowed)


GET = """\
name: crm.customer
description: Looks a customer up.
parameters: {id: {type: integer}, fields: {type: string, default: all}}
http:
  url: "https://crm.example.com/customers/{{ parameters.id }}"
"""


def test_effect_follows_from_the_method_unless_it_is_said(tmp_path: Path) -> None:
    for method, effect in (("GET", Effect.READ), ("PUT", Effect.IDEMPOTENT_WRITE), ("POST", Effect.WRITE), ("PATCH", Effect.WRITE)):
        found = read(tmp_path, GET + f"  method: {method}\n")
        assert found.tools[0][1].contract.effect is effect
    assert read(tmp_path, GET + "  method: POST\neffect: read\n").tools[0][1].contract.effect is Effect.READ


def test_short_parameters_are_needed_unless_they_have_a_default(tmp_path: Path) -> None:
    schema = read(tmp_path, GET).tools[0][1].contract.parameters
    assert schema["required"] == ["id"] and schema["additionalProperties"] is False


def test_a_file_has_many_documents_and_a_folder_many_files(tmp_path: Path) -> None:
    second = GET.replace("crm.customer", "crm.other")
    (tmp_path / "more.yml").write_text("tools:\n  - " + GET.replace("crm.customer", "crm.third").replace("\n", "\n    ").rstrip() + "\n")
    (tmp_path / "notes.txt").write_text("no tools")
    found = read(tmp_path, f"# ours\n---\n{GET}---\n{second}---\n")
    assert not found.problems
    assert [tool.name for _, tool in found.tools] == ["crm.third", "crm.customer", "crm.other"]
    assert [place for place, _ in found.tools] == ["more.yml, line 2", "tools.yaml, line 3", "tools.yaml, line 9"]


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        (GET.replace("description", "descripton"), 2, 1, "did you mean `description`"),
        (GET.replace("  url", "  ulr"), 5, 3, "did you mean `url`"),
        (GET.replace("parameters.id }}", "parameters.idd }}"), 5, 8, "`parameters` has no `idd`; did you mean `id`"),
        (GET.replace("parameters.id }}", "input.id }}"), 5, 8, "`input` is not known in a declared tool"),
        (GET.replace("parameters.id }}", "parameters.id | nosuch }}"), 5, 8, "nosuch"),
        (GET.replace("crm.example.com/", "{{ parameters.fields }}/"), 5, 8, "scheme and host written out"),
        (GET.replace("https://crm.example.com", "https://user:pw@crm.example.com"), 5, 8, "credentials in a URL"),
        (GET.replace("https", "gopher"), 5, 8, "scheme and host written out"),
        (GET.replace("https://crm.example.com", ""), 5, 8, "scheme and host written out"),
        (GET + "  auth: {bearer: A, basic: {user: u, password: P}}\n", 6, 9, "one of bearer, basic and connection"),
        (GET + "  auth: {connection: crm}\n", 5, 8, "a path below its base"),
        (GET + "  errors: {4O4: {type: NotFound}}\n", 6, 12, "is not a status or a range"),
        (GET + "  errors: {404: {type: notfound}}\n", 6, 24, "did you mean `NotFound`"),
        (GET + "  errors: {404: {type: NotFound, retry: true}}\n", 6, 41, "is not tried again by itself"),
        (GET + "  errors: {500-400: {type: NotFound}}\n", 6, 12, "ends before it begins"),
        (GET + "  result: bdy.x\n", 6, 11, "did you mean `body`"),
        (GET + "  result: /bdy/x\n", 6, 11, "an answer has no"),
        (GET + "effect: harmless\n", 6, 9, "expected one of pure, read"),
        (GET + "uses: {idd: html}\n", 6, 8, "there is no parameter `idd`; did you mean `id`"),
        (GET + "command: [/bin/true]\n", 1, 1, "either `http` or `command`"),
        (GET + "timeout: soon\n", 6, 10, "soon"),
        (GET + f"---\n{GET}", 7, 7, "declared twice, first in tools.yaml, line 1"),
        (GET + "--- {{{\n", 7, 1, "no YAML"),
        ("name: a.b\ndescription: x\ncommand: [wc, -c]\n", 3, 11, "its absolute path, written out"),
        ('name: a.b\ndescription: x\nparameters: {p: {type: string}}\ncommand: ["{{ parameters.p }}"]\n', 4, 11, "its absolute path"),
        ("name: a.b\ndescription: x\ncommand: /bin/ls /tmp\n", 3, 10, "a list of arguments"),
        (
            "name: a.b\ndescription: x\ncommand: [/bin/ls]\nreconcile: {url: 'https://h.example/'}\n",
            4,
            1,
            "only an `http` tool has a probe",
        ),
        ("name: a b\ndescription: x\ncommand: [/bin/ls]\n", 1, 7, "a tool name"),
    ],
)
def test_each_mistake_is_named_with_file_line_and_column(tmp_path: Path, text: str, line: int, column: int, said: str) -> None:
    problems = [problem for _, problem in read(tmp_path, text).problems]
    assert [(p.line, p.column) for p in problems if said in p.message] == [(line, column)], problems
    with pytest.raises(ToolsRefused) as caught:
        toolbox(declared=tmp_path)
    assert f"{tmp_path / 'tools.yaml'}:{line}:{column}: error: " in caught.value.message


def test_command_is_off_until_the_operator_names_its_tool(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text("name: a.list\ndescription: x\neffect: read\ncommand: [/bin/ls]\n")
    warned: list[Problem] = []
    assert "a.list" not in toolbox(warn=warned.append, declared=tmp_path, commands=["a.other"])
    assert [problem.message for problem in warned if problem.code == "command_off"] == [
        "the command a.list is off: name it in `commands_allowed` to have it run"
    ]
    assert "a.list" in toolbox(declared=tmp_path, commands=["a.list"])


def test_command_that_says_no_effect_is_a_write_with_a_warning(tmp_path: Path) -> None:
    ((_, tool),) = read(tmp_path, "name: a.list\ndescription: x\ncommand: [/bin/ls]\n").tools
    assert tool.contract.effect is Effect.WRITE and [p.code for p in tool.warnings()] == ["effect_undeclared"]


def test_name_of_a_built_in_tool_is_taken(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text(GET.replace("crm.customer", "http.request"))
    with pytest.raises(ToolsRefused, match="tools.yaml, line 1: a tool named 'http.request' is registered already"):
        toolbox(declared=tmp_path)


def test_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolsRefused, match="cannot be read: No such file or directory"):
        toolbox(declared=tmp_path / "nowhere")
