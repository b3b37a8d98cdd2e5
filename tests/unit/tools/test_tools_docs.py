"""docs/tools.md says what the code does: its section of built-in tools comes from their contracts, its examples work."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agiwo.definition.contract import Effect
from agiwo.outbound.service import HttpService
from agiwo.settings import load_settings
from agiwo.tools.builtin import BUILT_IN
from agiwo.tools.declared import declared_tools
from agiwo.tools.tool import Tool, tool
from agiwo.wiring.world import connection_specs

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"
_MARKS = re.compile(r"(<!-- built in -->\n).*?(<!-- /built in -->)", re.DOTALL)


def kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(part) for part in schema["anyOf"]))
    found = schema.get("type", "any value")
    return " or ".join(found) if isinstance(found, list) else str(found)


def section(one: Tool) -> str:
    contract = one.contract
    effect = f"`{contract.effect.value}`" + (", or as its parameters say" if contract.effect_of else "")
    out = [f"### `{contract.name}`", "", contract.description, "", f"Effect: {effect}.", ""]
    properties = contract.parameters.get("properties", {})
    if properties:
        out += ["| parameter | is | default | |", "| --- | --- | --- | --- |"]
        for name, schema in properties.items():
            needed = name in contract.parameters.get("required", ())
            default = "needed" if needed else f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
            out.append(f"| `{name}` | {kind(schema)} | {default} | {schema.get('description', '')} |".replace("|  |", "| |"))
        out.append("")
    return "\n".join(out)


def written(page: str) -> str:
    return _MARKS.sub(lambda found: found[1] + "\n".join(map(section, BUILT_IN)) + "\n" + found[2], page)


def test_every_built_in_tool_stands_in_the_page_with_its_parameters() -> None:
    page = PAGE.read_text()
    assert page == written(page), f"write the section anew: PYTHONPATH=app python {Path(__file__).name}"
    for one in BUILT_IN:
        assert f"### `{one.name}`" in page


def test_every_argument_of_a_declaration_is_explained() -> None:
    page = PAGE.read_text()
    for name in inspect.signature(tool).parameters:
        assert f"| `{name}` |" in page, name


def test_documented_tool_is_one() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/tools.md", "exec"), names)
    assert isinstance(names["note"], Tool) and names["note"].warnings() == []


def test_documented_connections_are_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    (tmp_path / "agiwo.yaml").write_text(example)
    specs = {spec.name: spec for spec in connection_specs(load_settings(tmp_path / "agiwo.yaml"))}
    service = HttpService.of(specs["crm"])
    assert service.sent({"CRM_KEY": "k", "CRM_TOKEN": "t"}) == {"accept": "application/json", "x-api-key": "k", "authorization": "Bearer t"}
    assert specs["reports"].kind == "folder"


def test_documented_declarations_are_tools(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    (tmp_path / "tools.yaml").write_text(example)
    found = declared_tools(tmp_path, ["pdf.pages"])
    assert not found.problems
    assert {tool.name: tool.contract.effect for _, tool in found.tools} == dict.fromkeys(
        ("crm.customer", "pdf.pages", "shop.getOrder"), Effect.READ
    )


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
