"""Operations of an OpenAPI document as tools, and documents that mean no good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agiwo.definition.contract import Effect
from agiwo.schema import Schema
from agiwo.tools.declared import Declarations, declared_tools
from agiwo.tools.tool import Tool

PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "http://169.254.169.254/"}],
    "security": [{"key": []}],
    "paths": {
        "/pets/{id}": {
            "parameters": [{"$ref": "#/components/parameters/Id"}],
            "get": {
                "operationId": "getPet",
                "summary": "Gives one pet.",
                "parameters": [
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "required": True, "schema": {"type": "string"}},
                    {"name": "id", "in": "query", "schema": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
                ],
                "responses": {"200": {"$ref": "#/components/responses/Pet"}, "404": {"description": "none"}},
            },
            "delete": {"operationId": "pets.delete", "responses": {"204": {"description": "gone"}}},
        },
        "/pets": {
            "post": {
                "operationId": "add pet",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
                "responses": {"201": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}},
            },
            "get": {"responses": {}},
        },
    },
    "components": {
        "parameters": {"Id": {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}},
        "responses": {"Pet": {"content": {"application/json; charset=utf-8": {"schema": {"$ref": "#/components/schemas/Pet"}}}}},
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "example": "Rex"},
                    "owner": {"type": "string", "nullable": True},
                    "children": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
                    "nullable": {"type": "boolean"},
                },
            },
            "Unused": {"type": "object"},
        },
    },
}


def read(folder: Path, document: Any = PETS, **more: Any) -> Declarations:
    (folder / "pets.json").write_text(json.dumps(document))
    spec = {"document": "pets.json", "prefix": "pets", "base_url": "https://pets.example.com/v1", **more}
    (folder / "tools.yaml").write_text(json.dumps({"openapi": {name: one for name, one in spec.items() if one is not None}}))
    return declared_tools(folder / "tools.yaml")


def tools(folder: Path, document: Any = PETS, **more: Any) -> dict[str, Tool]:
    found = read(folder, document, **more)
    assert not found.problems
    return {tool.name: tool for _, tool in found.tools}


def refused(folder: Path, document: Any = PETS, **more: Any) -> str:
    found = read(folder, document, **more)
    assert found.broken
    return "\n".join(problem.message for _, problem in found.problems)


def changed(**operation: Any) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "paths": {"/x": {"get": {"operationId": "x", **operation}}},
        "components": {"schemas": {"A": {"type": "string"}}},
    }


def test_operations_become_tools_with_schemas_that_stand_on_their_own(tmp_path: Path) -> None:
    found = tools(tmp_path)
    assert {name: tool.contract.effect for name, tool in found.items()} == {
        "pets.getPet": Effect.READ,
        "pets.pets.delete": Effect.IDEMPOTENT_WRITE,
        "pets.add_pet": Effect.WRITE,
    }
    get = found["pets.getPet"].contract
    assert get.description == "Gives one pet." and get.parameters["required"] == ["id"]
    assert set(get.parameters["properties"]) == {"id", "fields", "X-Trace", "id_query"}
    assert get.parameters["properties"]["id_query"] == {"type": "integer", "exclusiveMinimum": 0}
    assert get.result is not None and set(get.result["$defs"]) == {"Pet"}
    result = Schema.compile(get.result)
    pet = {"name": "Rex", "owner": None, "children": [{"name": "Max", "children": [{"name": "Mia"}]}]}
    assert result.fits(pet)
    assert not result.fits({"name": "Rex", "children": [{"name": "Max", "children": [{"owner": "x"}]}]})
    assert found["pets.pets.delete"].contract.result == {"type": "null"}
    assert found["pets.add_pet"].contract.parameters["required"] == ["body"]


def test_operator_chooses_operations_and_says_what_they_do(tmp_path: Path) -> None:
    found = tools(tmp_path, operations=["add pet"], effects={"add pet": "idempotent_write"})
    assert [(name, tool.contract.effect) for name, tool in found.items()] == [("pets.add_pet", Effect.IDEMPOTENT_WRITE)]
    assert "did you mean `getPet`" in refused(tmp_path, operations=["getPets"])
    assert "did you mean `getPet`" in refused(tmp_path, effects={"getpet": "write"})


def test_document_may_stand_in_place(tmp_path: Path) -> None:
    spec = {"document": PETS, "prefix": "in.place", "auth": {"connection": "pets"}}
    (tmp_path / "tools.yaml").write_text(json.dumps({"openapi": spec}))
    assert "in.place.getPet" in [tool.name for _, tool in declared_tools(tmp_path).tools]


def test_document_never_says_where_or_as_whom_to_call(tmp_path: Path) -> None:
    assert "where the service is" in refused(tmp_path, base_url=None)
    assert "where the service is" in refused(tmp_path, auth={"connection": "pets"})
    assert "credentials in a URL" in refused(tmp_path, base_url="https://me:pw@pets.example.com")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"swagger": "2.0"}, "OpenAPI 3.0 or 3.1"),
        ([], "an OpenAPI document is an object"),
        (changed(parameters=[{"$ref": "https://evil.example/p.json"}]), "leads out of the document"),
        (changed(parameters=[{"$ref": "file:///etc/passwd"}]), "leads out of the document"),
        (changed(parameters=[{"$ref": "other.yaml#/x"}]), "leads out of the document"),
        (changed(parameters=[{"$ref": "#/components/nothing"}]), "leads nowhere"),
        (changed(parameters=[{"$ref": "#/paths/~1x/get/parameters/0"}]), "leads nowhere"),
        (changed(parameters={"$ref": "#"}), "parameters are no list"),
        (changed(parameters=[{"name": "q", "in": "query", "schema": {"$ref": "http://evil.example/s"}}]), "no other is followed"),
        (changed(parameters=[{"name": "q", "in": "query", "schema": {"$ref": "#/components/schemas/None"}}]), "leads nowhere"),
        (changed(parameters=[{"name": "q", "in": "query", "schema": {"type": "strange"}}]), "strange"),
        (changed(parameters=[{"name": "q", "in": "query", "style": "deepObject", "schema": {}}]), "in a way that is not sent"),
        (changed(parameters=[{"name": "q", "in": "cookie", "required": True, "schema": {}}]), "which is not sent"),
        (changed(parameters=[{"name": 1, "in": "query"}]), "no name or no place"),
        (changed(requestBody={"required": True, "content": {"multipart/form-data": {}}}), "its body is not JSON"),
        ({"openapi": "3.1.0", "paths": {"/{id}": {"get": {"operationId": "x"}}}}, "no such parameter"),
        ({"openapi": "3.1.0", "paths": {"//evil.example/": {"get": {"operationId": "x"}}}}, "does not begin with one /"),
        ({"openapi": "3.1.0", "paths": {"/a/../b": {"get": {"operationId": "x"}}}}, "its path has"),
        ({"openapi": "3.1.0", "paths": {"/a?x={{ secrets.K }}": {"get": {"operationId": "x"}}}}, "its path has"),
        (
            {"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "x"}, "put": {"operationId": "x"}}}},
            "two operations would be the tool",
        ),
    ],
)
def test_what_cannot_be_imported_is_named_and_nothing_is_fetched(tmp_path: Path, document: Any, said: str) -> None:
    assert said in refused(tmp_path, document)


def test_references_that_go_round_end(tmp_path: Path) -> None:
    round_about = changed(parameters=[{"$ref": "#/components/parameters/A"}])
    round_about["components"] = {"parameters": {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}}
    assert "go round" in refused(tmp_path, round_about)


def test_schemas_that_double_at_every_step_are_counted_once(tmp_path: Path) -> None:
    """Each refers twice to the next: written out they would be 2^60 parts."""
    schemas: dict[str, Any] = {
        f"S{n}": {"properties": {"a": {"$ref": f"#/components/schemas/S{n + 1}"}, "b": {"$ref": f"#/components/schemas/S{n + 1}"}}}
        for n in range(60)
    }
    document = changed(responses={"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}})
    document["components"]["schemas"] = {**schemas, "S60": {"type": "string"}}
    (tool,) = tools(tmp_path, document).values()
    assert tool.contract.result is not None and len(tool.contract.result["$defs"]) == 61


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "x" * 1_100_000, "at most 1,000,000 bytes"),
        ("[" * 5_000, "nested deeper"),
        (
            "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + "".join(f"d{n}: &d{n} [*c, *c, *c, *c]\n" for n in range(9_000)),
            "100,000 values",
        ),
        ("openapi: 3.0.0\nopenapi: 3.1.0\n", "stands twice"),
        ("\x00", "NUL"),
    ],
)
def test_hostile_document_is_bounded(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "evil.yaml").write_text(text)
    (tmp_path / "tools.yml").write_text(json.dumps({"openapi": {"document": "evil.yaml", "prefix": "e", "base_url": "https://h.example"}}))
    problems = [problem.message for _, problem in declared_tools(tmp_path / "tools.yml").problems]
    assert any("evil.yaml:" in message and said in message for message in problems), problems


@pytest.mark.parametrize("path", ["../pets.json", "/etc/hostname", "nothing.json"])
def test_document_lies_below_the_folder_of_its_file(tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    (tmp_path / "in" / "t.yaml").write_text(json.dumps({"openapi": {"document": path, "prefix": "e", "base_url": "https://h.example"}}))
    found = declared_tools(tmp_path / "in")
    assert found.broken and not found.tools
