"""What docs/cli.md shows, the real parser takes; and it shows every command and every exit status."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from agiwo.cli.commands import app
from agiwo.cli.screen import FAILED, NOT_REACHED, WRONG_USE
from kit.process import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()
SHOWN = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
#: `agiwo …` within the text of any page, and lines of blocks for a shell.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def command_of(words: list[str]) -> tuple[Any, str, list[str]]:
    """The command that words call, its name, and the words that are left; raises KeyError for an unknown one."""
    command: Any = typer.main.get_command(app)
    names: list[str] = []
    while hasattr(command, "commands"):
        command = command.commands[words[0]]
        names.append(words[0])
        words = words[1:]
    return command, " ".join(names), words


@pytest.mark.parametrize("line", [line for line in SHOWN if "completion" not in line])
def test_every_line_is_taken_by_the_parser(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "agiwo"
    command, name, rest = command_of(words)
    with command.make_context(name, rest):
        pass


def test_the_lines_on_completion_name_options_of_the_program() -> None:
    options = {option for parameter in typer.main.get_command(app).params for option in parameter.opts}
    lines = [line for line in SHOWN if "completion" in line]
    assert lines and all(line.removeprefix("agiwo ") in options for line in lines)


def test_the_table_has_every_command_and_no_other() -> None:
    def names(group: Any, before: str = "") -> set[str]:
        found = set()
        for name, command in group.commands.items():
            found |= names(command, f"{before}{name} ") if hasattr(command, "commands") else set() if command.hidden else {before + name}
        return found

    table = PAGE.partition("| command | does |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`agiwo ([a-z ]+)`", table)) == names(typer.main.get_command(app))


def test_the_table_of_statuses_is_that_of_the_code() -> None:
    statuses = [int(number) for number in re.findall(r"^\| (\d+) \| ", PAGE, re.MULTILINE)]
    assert statuses == [0, FAILED, WRONG_USE, NOT_REACHED, 130, 141]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_any_page_names_are_there(page: Any) -> None:
    for line in re.findall(r"`agiwo ([^`\n]+)`", page.read_text()):
        words = [word for word in re.split(r"[\s=|]+", line) if word and word != "…"]
        if words[0].startswith("-"):
            continue
        command, _, rest = command_of(words)
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert [word for word in rest if word.startswith("--") and word not in options] == [], line
