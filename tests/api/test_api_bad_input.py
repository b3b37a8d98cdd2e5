"""Whatever a client sends gets a clear 4xx in one form, and the next request works."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from kit.api import World

TRIGGER = "/v1/workflows/echo/trigger"
JSON = {"content-type": "application/json"}


def is_problem(answer: httpx.Response, status: int, code: str | None = None) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, object] = answer.json()
    assert body["status"] == status
    assert body["code"]
    assert body["detail"]
    if code is not None:
        assert body["code"] == code
    assert "Traceback" not in answer.text
    assert "SELECT" not in answer.text
    return body


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "malformed"),
        (b"", 202, ""),
        (b"nul", 400, "malformed"),
        (b"[]", 422, "invalid_input"),
        (b'"x"', 422, "invalid_input"),
        (b"\xff\xfe{}", 400, "malformed"),
        (b'{"input": 1, "input": 2}', 422, "value_refused"),
        (b'{"input": NaN}', 422, "value_refused"),
        (b'{"input": -Infinity}', 422, "value_refused"),
        (b'{"input": 1e999}', 422, "value_refused"),
        (b'{"input": ' + b"9" * 300 + b"}", 422, "value_refused"),
        (b'{"input": ' + b"9" * 5000 + b"}", 422, "value_refused"),
        (b'{"input": "a\\u0000b"}', 422, "value_refused"),
        (b'{"input": {"a\\u0000b": 1}}', 422, "value_refused"),
        (b'{"input": "\\ud800"}', 422, "value_refused"),
        (b'{"input": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422, "value_refused"),
        (b'{"input": ' + b"[" * 200000 + b"]" * 200000 + b"}", 422, "value_refused"),
        (b'{"inputs": {}}', 422, "invalid_input"),
        (b'{"labels": {"a": 1}}', 422, "invalid_input"),
        (b'{"labels": []}', 422, "invalid_input"),
        (b'{"version": 1.0}', 422, "invalid_input"),
        (b'{"version": "9.9"}', 404, "version_not_found"),
        (b'{"version": "../../etc"}', 404, "version_not_found"),
        (b'{"context": {"say so": 1}}', 422, "invalid_input"),
        (b'{"correlation_key": ""}', 422, "invalid_input"),
    ],
)
async def test_bodies(world: World, content: bytes, status: int, code: str) -> None:
    answer = await world.client.post(TRIGGER, content=content, headers=JSON if content else {})
    if status == 202:
        assert answer.status_code == 202
    else:
        is_problem(answer, status, code)
    assert (await world.client.post(TRIGGER, json={})).status_code == 202


async def test_a_place_is_named_for_every_wrong_field(world: World) -> None:
    answer = await world.client.post(TRIGGER, json={"labels": {"a": 1, "b": 2}, "colour": "red", "version": 3})
    body = is_problem(answer, 422, "invalid_input")
    assert isinstance(body["errors"], list)
    assert {e["pointer"] for e in body["errors"]} == {"/labels/a", "/labels/b", "/colour", "/version"}


@pytest.mark.parametrize(
    "headers",
    [{"content-type": "text/plain"}, {"content-type": "application/json; charset=utf-16"}, JSON | {"content-encoding": "gzip"}, {}],
)
async def test_other_content_types_and_encodings_are_415(world: World, headers: dict[str, str]) -> None:
    is_problem(await world.client.post(TRIGGER, content=b"{}", headers=headers), 415)


async def test_a_large_body_is_refused_before_it_is_read(world: World) -> None:
    is_problem(await world.client.post(TRIGGER, content=b"x", headers=JSON | {"content-length": "20000000"}), 413, "too_large")
    sent = 0

    async def dripping() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(20):
            sent += 1
            yield b" " * 1_000_000

    is_problem(await world.client.post(TRIGGER, content=dripping(), headers=JSON), 413, "too_large")
    assert (await world.client.post(TRIGGER, json={})).status_code == 202


async def test_an_alias_bomb_and_an_oversized_definition_are_refused(world: World) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    for text in (bomb, "x: " + "y" * 2_000_000, "\x00", "[" * 10_000, "steps: {{ x }}", ""):
        answer = await world.client.post("/v1/workflows", content=text.encode(), headers={"content-type": "application/yaml"})
        is_problem(answer, 422, "definition_refused")


@pytest.mark.parametrize("path", ["/v1/instances", "/v1/approvals", "/v1/workflows", "/v1/admin/triggers"])
@pytest.mark.parametrize(
    "query",
    [
        "limit=-1", "limit=0", "limit=100001", "limit=x", "limit=", "limit=1e3", f"limit={2**63}", "cursor=x", "cursor=", "sort=id;drop",
        "limit=1&limit=2", "nosuch=1", "limit=%ff", "cursor=%00",
    ],
)  # fmt: skip
async def test_paging_values(world: World, path: str, query: str) -> None:
    answer = await world.client.get(f"{path}?{query}")
    assert answer.status_code in (400, 422)
    is_problem(answer, answer.status_code)


@pytest.mark.parametrize("query", ["status=unknown", "status=", "workflow=%00", "label=x", "label=a:1&label=a:2", "instance_id=x"])
async def test_filters(world: World, query: str) -> None:
    is_problem(await world.client.get(f"/v1/instances?{query}"), 422, "invalid_parameters")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/instances/not-a-uuid",
        "/v1/instances/%00",
        "/v1/approvals/1",
        "/v1/instances/00000000-0000-0000-0000-000000000000/history?after=-1",
    ],
)
async def test_ids(world: World, path: str) -> None:
    answer = await world.client.get(path)
    assert answer.status_code in (404, 422)
    is_problem(answer, answer.status_code)


@pytest.mark.parametrize("wait", ["x", "-1", "61s", "1e3", "30h", ""])
async def test_waits(world: World, wait: str) -> None:
    is_problem(await world.client.post(f"{TRIGGER}?wait={wait}", json={}), 422, "invalid_parameters")


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256])
async def test_idempotency_keys(world: World, key: str) -> None:
    is_problem(await world.client.post(TRIGGER, json={}, headers={b"idempotency-key": key.encode("latin-1")}), 422, "bad_idempotency_key")


async def test_a_wrong_method_and_a_wrong_path_are_problems_too(world: World) -> None:
    is_problem(await world.client.put(TRIGGER), 405, "method_not_allowed")
    is_problem(await world.client.get("/v1/nothing"), 404, "not_found")
    is_problem(await world.client.post("/v1/workflows/nosuch/trigger", json={}), 404, "workflow_not_found")


@pytest.mark.parametrize("credential", ["Bearer wrong", "Bearer ", "Basic c2VjcmV0LWE6", "secret-a", "Bearer é"])
@pytest.mark.parametrize("path", ["/v1/instances", "/v1/nothing", "/healthz", "/openapi.json"])
async def test_a_wrong_credential_is_401_everywhere(world: World, credential: str, path: str) -> None:
    answer = await world.anonymous.get(path, headers={b"authorization": credential.encode("latin-1")})
    is_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_no_credential_is_401_but_for_health_and_the_document(world: World) -> None:
    is_problem(await world.anonymous.get("/v1/instances"), 401)
    is_problem(await world.anonymous.post(TRIGGER, json={}), 401)
    assert (await world.anonymous.get("/healthz")).json() == {"status": "ok"}
    assert (await world.anonymous.get("/readyz")).json()["status"] == "ok"
    assert (await world.anonymous.get("/openapi.json")).json()["openapi"] == "3.1.0"


async def test_an_answer_can_be_encoded_whatever_was_sent(world: World) -> None:
    big = 10**99 + 1
    view = await world.run("echo", input={"word": [big, 1.5e300, "\U0010ffff", {"": None}]})
    assert view["output"]["said"] == [big, 1.5e300, "\U0010ffff", {"": None}]
    assert str(big) in (await world.client.get(view["links"]["history"])).text
    assert json.loads((await world.client.get(view["links"]["steps"])).content)["items"][0]["output"][0] == big


async def test_a_misspelt_field_is_told_with_the_one_that_was_meant(world: World) -> None:
    refused = await world.client.post("/v1/signals", json={"correlation_key": "k", "evnt": "paid"})
    assert refused.status_code == 422
    errors = {error["pointer"]: error for error in refused.json()["errors"]}
    assert errors["/event"]["message"] == "is required and not there"
    assert errors["/evnt"]["message"] == "there is no `evnt` here; did you mean `event`?" and errors["/evnt"]["nearest"] == "event"


async def test_a_value_that_does_not_fit_is_told_with_what_was_expected(world: World) -> None:
    refused = await world.client.get("/v1/instances?status=FAILD")
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "?status" and error["found"] == '"FAILD"'
    assert error["message"].startswith("expected 'RUNNING', 'WAITING'") and error["message"].endswith("did you mean 'FAILED'?")
