"""What holds for every route that there is, read from the OpenAPI document, so that a new route is held to it by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from kit.api import World

#: Of nobody: what all tenants share.
SHARED = ("/v1/tools", "/v1/schema")
NOBODY = "01a22ed9-3172-731c-bdcf-4bb99f4bea97"
Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
async def document(world: World) -> dict[str, Any]:
    return (await world.anonymous.get("/openapi.json")).json()


@pytest.fixture(scope="module")
async def owned(world: World) -> dict[str, str]:
    """A name for every path parameter, of things that tenant `default` has."""
    view = await world.run("report", input={"week": "1"})
    key = (await world.client.post("/v1/admin/keys", json={"name": f"k{uuid4().hex}", "roles": ["viewer"]})).json()
    return {
        "instance_id": view["instance_id"], "workflow_id": "report", "version": "1.0", "path": "write",
        "approval_id": view["waiting_for"][0]["approval_id"], "key_id": key["key_id"],
    }  # fmt: skip


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/v1/") and not path.startswith("/v1/callbacks"):
                yield path, method, operation


def address(path: str, owned: dict[str, str], operation: dict[str, Any]) -> str:
    """The path with its parameters, and the query parameters that are needed; one that no tenant owns here stands for an unknown thing."""
    needed = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query" and p.get("required")]
    filled = re.sub(r"\{(\w+)\}", lambda found: quote(owned.get(found[1], NOBODY), safe=""), path)
    return filled + ("?" + "&".join(f"{name}={owned['version']}" for name in needed) if needed else "")


def example(operation: dict[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return content.get("example", {})


async def test_another_tenants_ids_look_unknown_on_every_route_and_nothing_changes(
    world: World, document: dict[str, Any], owned: dict[str, str]
) -> None:
    """REQ-46."""
    unknown = dict.fromkeys(owned, NOBODY) | {"workflow_id": "unknown", "version": "1.0", "path": "write"}
    before = (await world.client.get(f"/v1/instances/{owned['instance_id']}")).json()
    tried = 0
    for path, method, operation in operations(document):
        if "{" not in path or path.startswith(SHARED):
            continue
        tried += 1
        answers = []
        for ids in (owned, unknown):
            sent = {"json": example(operation)} if method != "get" else {}
            answers.append(await world.stranger.request(method.upper(), address(path, ids, operation), **sent))
        theirs, nothing = answers
        assert theirs.status_code == nothing.status_code == 404, (method, path, theirs.text, nothing.text)
        strip = [str(value) for value in (*owned.values(), *unknown.values())]
        texts = [re.sub("|".join(map(re.escape, sorted(strip, key=len, reverse=True))), "…", answer.text) for answer in answers]
        assert texts[0] == texts[1], path
    assert tried > 20
    assert (await world.client.get(f"/v1/instances/{owned['instance_id']}")).json() == before


async def test_lists_hold_nothing_of_another_tenant(world: World, document: dict[str, Any], owned: dict[str, str]) -> None:
    """REQ-46."""
    for path, method, _ in operations(document):
        if method == "get" and "{" not in path and not path.startswith(SHARED):
            answer = await world.stranger.get(path)
            assert answer.status_code in (200, 403, 422), (path, answer.text)
            for name in ("instance_id", "approval_id", "key_id"):
                assert owned[name] not in answer.text, path


def spoiled(parameter: dict[str, Any]) -> Iterator[str]:
    """Values, as they stand in a query, that this parameter must not take."""
    schema = parameter["schema"]
    kinds = [schema, *schema.get("anyOf", ())]
    types = {kind.get("type") for kind in kinds}
    yield "%00"
    yield "%ff"
    if types & {"integer", "number"}:
        least = min(kind["minimum"] for kind in kinds if "minimum" in kind)
        yield from ("-1", "x", "", "1e3", str(2**63), "1.5", "%20")
        if least > 0:
            yield "0"
        if any("maximum" in kind for kind in kinds):
            yield str(max(kind["maximum"] for kind in kinds if "maximum" in kind) + 1)
    if "boolean" in types:
        yield from ("x", "", "2")
    if any("enum" in kind or "$ref" in kind for kind in kinds):
        yield from ("unknown", "", "id;drop")
    if any(kind.get("format") == "uuid" for kind in kinds):
        yield from ("x", "", "1")
    if any(kind.get("format") == "date-time" for kind in kinds):
        yield from ("2024-13-01", "2024-01-01T00:00:00", "x", "")
    longest = [kind["maxLength"] for kind in kinds if "maxLength" in kind]
    if longest:
        yield "x" * (max(longest) + 1)
    if any(kind.get("minLength") for kind in kinds):
        yield ""


async def test_every_query_parameter_of_every_route_is_checked_at_the_border(
    world: World, document: dict[str, Any], owned: dict[str, str]
) -> None:
    """REQ-36."""
    tried = 0
    for path, method, operation in operations(document):
        here = address(path, owned, {})
        sent = {"json": example(operation)} if method != "get" else {}
        named = [parameter for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
        queries = ["nosuch=1", "sort=id;drop"]
        for parameter in named:
            queries += [f"{parameter['name']}={value}" for value in spoiled(parameter)]
            if parameter["schema"].get("type") != "array" and not any("items" in kind for kind in parameter["schema"].get("anyOf", ())):
                queries.append(f"{parameter['name']}=1&{parameter['name']}=1")
        for query in queries:
            tried += 1
            answer = await world.client.request(method.upper(), f"{here}?{query}", **sent)
            assert answer.status_code in (400, 422), (method, here, query, answer.status_code, answer.text[:300])
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"] in ("invalid_parameters", "malformed", "bad_cursor", "invalid_input"), answer.text
            assert "SELECT" not in answer.text
    assert tried > 200


async def test_a_cursor_counts_for_its_own_list_and_tenant_alone(world: World, document: dict[str, Any]) -> None:
    """REQ-36."""
    lists = [
        path
        for path, method, operation in operations(document)
        if method == "get" and "{" not in path and any(parameter["name"] == "cursor" for parameter in operation.get("parameters", ()))
    ]
    assert len(lists) >= 5
    foreign = [world.services.cursors.at("other", "instances", NOBODY), world.services.cursors.at("default", "elsewhere", NOBODY), "x", "é"]
    for path in lists:
        for cursor in foreign:
            answer = await world.client.get(path, params={"cursor": cursor})
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor"), path


async def test_every_route_documents_what_any_request_may_be_answered_with(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        wanted = {"400", "401", "403", "414", "422", "431", "503"} | ({"408", "409", "413"} if method != "get" else set())
        if "{" in path:
            wanted.add("404")
        assert wanted <= set(operation["responses"]), path
        for status, answer in operation["responses"].items():
            assert answer["description"], path
            if int(status) >= 400 and path != "/readyz":
                assert answer["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}, (path, status)
