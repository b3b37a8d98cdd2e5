"""The client of the commands against a real server on loopback that says what a service, or something else, might say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agiwo.cli import client as client_module
from agiwo.cli.client import Client, EventParser, ServerEvent
from agiwo.cli.screen import CommandEnds

RECORDS = [{"seq": 1, "type": "instance.started"}, {"seq": 2, "type": "step.started"}, {"seq": 3, "type": "instance.ended"}]


def event_text(record: dict[str, object]) -> str:
    return f"id: {record['seq']}\r\nevent: {record['type']}\r\ndata: {json.dumps(record)}\r\n\r\n"


@given(st.lists(st.tuples(st.sampled_from(["a", "b.c"]), st.dictionaries(st.text(), st.integers() | st.text(), max_size=3)), max_size=5))
def test_events_come_out_as_they_were_sent(sent: list[tuple[str, dict[str, object]]]) -> None:
    parser = EventParser()
    out: list[ServerEvent] = []
    for number, (name, data) in enumerate(sent, 1):
        text = f": a comment\nid: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
        out += [event for line in text.split("\n")[:-1] if (event := parser.take(line)) is not None]
    assert [(event.id, event.name, event.data) for event in out] == [(str(n), name, data) for n, (name, data) in enumerate(sent, 1)]


async def test_a_stream_that_breaks_is_taken_up_behind_the_last_event(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RETRY", (0.0,) * 3)
    asked: list[str | None] = []

    def answer(request: Request) -> Response:
        asked.append(request.headers.get("Last-Event-ID"))
        after = int(asked[-1] or 0)
        body = event_text(RECORDS[after])  # one event, then the stream ends though the instance has not
        return Response(body, content_type="text/event-stream")

    httpserver.expect_request("/events").respond_with_handler(answer)
    async with Client(httpserver.url_for("")) as client:
        seen = [event.data async for event in client.events("/events")]
    assert seen == RECORDS
    assert asked == [None, "1", "2"]


async def test_a_stream_that_never_says_anything_ends_the_command_as_unreachable(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "RETRY", (0.0,) * 3)
    httpserver.expect_request("/events").respond_with_data("", content_type="text/event-stream")
    with pytest.raises(CommandEnds) as caught:
        async with Client(httpserver.url_for("")) as client:
            async for _ in client.events("/events"):
                raise AssertionError("nothing was sent")
    assert caught.value.status == 3
    assert len(httpserver.log) == 4


async def test_a_problem_document_becomes_lines_with_places(httpserver: HTTPServer) -> None:
    document = {
        "title": "t",
        "detail": "the input does not fit",
        "code": "input_invalid",
        "errors": [{"pointer": "/input/n", "message": "m"}],
    }
    httpserver.expect_request("/v1/x").respond_with_json(document, status=422, content_type="application/problem+json")
    async with Client(httpserver.url_for("")) as client:
        with pytest.raises(CommandEnds) as caught:
            await client.post("/v1/x", {})
    assert caught.value.status == 1
    assert caught.value.message == "the input does not fit\n/input/n: error: m"
    assert caught.value.document["code"] == "input_invalid"


@pytest.mark.parametrize("status", [200, 404, 502])
async def test_something_that_is_no_service_is_told_without_a_trace(httpserver: HTTPServer, status: int) -> None:
    httpserver.expect_request("/v1/x").respond_with_data("<html>", status=status)
    async with Client(httpserver.url_for("")) as client:
        with pytest.raises(CommandEnds) as caught:
            await client.get("/v1/x")
    assert caught.value.status == 1


async def test_the_key_goes_along_and_is_never_shown(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/x", headers={"Authorization": "Bearer k-123"}).respond_with_json({"ok": True})
    async with Client(httpserver.url_for(""), "k-123") as client:
        assert await client.get("/v1/x", a=None, b="1 2") == {"ok": True}
    assert httpserver.log[0][0].query_string == b"b=1+2"


async def test_text_with_what_python_takes_for_line_ends_comes_whole(httpserver: HTTPServer) -> None:
    record = {"seq": 1, "type": "instance.ended", "text": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"}
    whole = f"id: 1\nevent: instance.ended\ndata: {json.dumps(record, ensure_ascii=False)}\n\n"
    httpserver.expect_request("/events").respond_with_data(whole, content_type="text/event-stream")
    async with Client(httpserver.url_for("")) as client:
        assert [event.data async for event in client.events("/events")] == [record]
