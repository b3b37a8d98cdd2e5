"""A scripted model behind two real wire protocols, OpenAI's and Anthropic's, on a socket of this machine: for the demo and for tests.

It builds its answers from the prompts that it gets, or does what a test's script says; it is no model and says so at `/v1/models`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import h11

from agiwo.testing import anthropic_wire
from agiwo.testing.model_answers import fitting, schema_in, summary
from agiwo.values import JSON, encode

MODEL = "agiwo-scripted"
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
MAX_BODY = 10 * 1024 * 1024
_JSON_TYPE = ("content-type", "application/json")


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with this text; None composes one from the prompt. `usage=None` leaves the usage out.

    `finish_reason` is OpenAI's word, which is translated for the other protocol, or one of that protocol's own. Where the request makes the
    model call a function, the text is what it is called with, unless `plain`.
    """

    text: str | None = None
    finish_reason: str | None = "stop"
    refusal: str | None = None
    usage: Mapping[str, JSON] | None = field(default_factory=dict)
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with exactly this: status, headers, body (text, or a value sent as JSON)."""

    status: int = 200
    body: JSON = None
    headers: tuple[tuple[str, str], ...] = (_JSON_TYPE,)


@dataclass(frozen=True, slots=True)
class Cut:
    """Promise a whole answer, send its first `bytes` and close the connection."""

    bytes: int = 40


@dataclass(frozen=True, slots=True)
class Stall:
    """Take the request and never answer."""


@dataclass(frozen=True, slots=True)
class Drip:
    """Send a space every `every` seconds and never come to an end."""

    every: float = 0.005


Behaviour = Say | Answer | Cut | Stall | Drip


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An error as both protocols word it."""
    body = {"type": "error", "error": {"message": message, "type": code, "param": None, "code": code}}
    return Answer(status, body, (_JSON_TYPE, *(headers or {}).items()))


def html(status: int = 200) -> Answer:
    """The page that a proxy shows in the place of an answer."""
    return Answer(status, "<html><body>Sign in to the network</body></html>", (("content-type", "text/html"),))


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as it arrived; `body` is None where it was no JSON."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: JSON


class ModelServer:
    """Serves on `host`, on a free port unless one is given; asks for `api_key` where it has one.

    Each chat request takes the next behaviour of `script`; when none is left, an answer is composed. All requests are in `requests`.
    """

    def __init__(self, script: Iterable[Behaviour] = (), *, host: str = "127.0.0.1", port: int = 0, api_key: str | None = None) -> None:
        self.script: deque[Behaviour] = deque(script)
        self.requests: list[SeenRequest] = []
        self._host = host
        self._port = port
        self._api_key = api_key
        self._server: asyncio.Server | None = None
        self._served: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Condition()

    @property
    def base_url(self) -> str:
        return f"http://{self._host}:{self._port}/v1"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every open connection."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._served):
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def seen(self, count: int) -> None:
        """Wait until `count` requests have arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        try:
            # A client that goes away in the middle is no news here.
            with contextlib.suppress(ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._served.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read(reader)
        if request is None:
            return
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        behaviour, composed = self._behaviour(request)
        if isinstance(behaviour, Stall):
            await reader.read()
            return
        if isinstance(behaviour, Drip):
            await _drip(writer, behaviour.every)
            return
        await self._write(writer, request, behaviour, composed)

    def _behaviour(self, request: SeenRequest) -> tuple[Behaviour, bool]:
        refused = self._refusal(request)
        if refused is not None:
            return refused, False
        if request.method == "GET":
            return Answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "agiwo"}]}), False
        return (self.script.popleft(), False) if self.script else (Say(), True)

    def _refusal(self, request: SeenRequest) -> Answer | None:
        if self._api_key is not None and self._api_key not in (request.headers.get("x-api-key"), _bearer(request)):
            return error(401, "invalid_api_key", "Incorrect API key provided")
        if (request.method, request.path) == ("GET", "/v1/models"):
            return None
        if (request.method, request.path) not in (("POST", CHAT), ("POST", MESSAGES)):
            return error(404, "not_found", f"There is no {request.method} {request.path[:80]}")
        if not isinstance(request.body, dict) or not isinstance(request.body.get("messages"), list) or not request.body["messages"]:
            return error(400, "invalid_request_error", "The body must be a JSON object with `messages`, a list that is not empty")
        fault = anthropic_wire.fault(request.body, request.headers) if request.path == MESSAGES else None
        return None if fault is None else error(400, "invalid_request_error", fault)

    async def _write(self, writer: asyncio.StreamWriter, request: SeenRequest, behaviour: Say | Answer | Cut, composed: bool) -> None:
        number = str(len(self.requests))
        if isinstance(behaviour, Answer):
            body = behaviour.body if isinstance(behaviour.body, str) else encode(behaviour.body)
            await _send(writer, behaviour.status, (*behaviour.headers, _named(request, number)), body.encode())
            return
        say = Say() if isinstance(behaviour, Cut) else behaviour
        if request.path == MESSAGES:
            payload = json.dumps(message_of(request.body, say, number)).encode()
            headers = (_JSON_TYPE, _named(request, number))
            await _send(writer, 200, headers, payload, cut=behaviour.bytes if isinstance(behaviour, Cut) else None)
            return
        completion = completion_of(request.body, say, number)
        if request.body.get("stream"):
            include = (request.body.get("stream_options") or {}).get("include_usage", False)
            payload = b"".join(chunks_of(completion, include))
            headers = (("content-type", "text/event-stream"), ("x-request-id", number))
        else:
            payload = json.dumps(completion).encode()
            headers = (_JSON_TYPE, ("x-request-id", number))
        await _send(writer, 200, headers, payload, cut=behaviour.bytes if isinstance(behaviour, Cut) else None)


def _bearer(request: SeenRequest) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def _named(request: SeenRequest, number: str) -> tuple[str, str]:
    return ("request-id" if request.path == MESSAGES else "x-request-id", number)


async def _read(reader: asyncio.StreamReader) -> SeenRequest | None:
    connection = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = bytearray()
    async for event in _events(connection, reader):
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                return None
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            return SeenRequest(head.method.decode(), head.target.decode().partition("?")[0], headers, _loaded(bytes(body)))
    return None


async def _events(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[h11.Event]:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return
        else:
            assert isinstance(event, h11.Event)
            yield event


async def _send(
    writer: asyncio.StreamWriter, status: int, headers: Iterable[tuple[str, str]], body: bytes, *, cut: int | None = None
) -> None:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
    lines += [f"content-length: {len(body)}", "connection: close", "", ""]
    writer.write("\r\n".join(lines).encode("latin-1") + (body if cut is None else body[:cut]))
    await writer.drain()


async def _drip(writer: asyncio.StreamWriter, every: float) -> None:
    writer.write(b"HTTP/1.1 200 Scripted\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(every)


def _loaded(body: bytes) -> JSON:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def completion_of(body: Mapping[str, Any], say: Say, number: str) -> dict[str, JSON]:
    """The answer to a chat request as one object; tokens are counted as four characters each."""
    prompt = "\n\n".join(_content(message) for message in body["messages"])
    text = composed_answer(body, prompt) if say.text is None else say.text
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    finish = say.finish_reason
    if say.text is None and isinstance(limit, int) and _tokens(text) > limit:
        text, finish = text[: limit * 4], "length"
    usage = {"prompt_tokens": _tokens(prompt), "completion_tokens": _tokens(text), "total_tokens": _tokens(prompt) + _tokens(text)}
    message: dict[str, JSON] = {"role": "assistant", "content": None if say.refusal else text, "refusal": say.refusal}
    name = _forced(body)
    if name is not None and not say.plain and not say.refusal:
        called = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}}
        message |= {"content": None, "tool_calls": [called]}
    completion: dict[str, JSON] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", MODEL),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    if say.usage is not None:
        completion["usage"] = {**usage, **say.usage}
    return completion


def _forced(body: Mapping[str, Any]) -> str | None:
    """The function that the request makes the model call."""
    choice = body.get("tool_choice")
    function = choice.get("function") if isinstance(choice, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def message_of(body: Mapping[str, Any], say: Say, number: str) -> dict[str, JSON]:
    """The answer to a request of the messages protocol."""
    prompt = anthropic_wire.prompt_of(body)
    text, finish = say.text, say.finish_reason
    if text is None:
        schema = anthropic_wire.schema_of(body) or schema_in(prompt)
        text = summary(prompt) if schema is None else encode(fitting(schema, prompt))
        if _tokens(text) > body["max_tokens"]:
            text, finish = text[: body["max_tokens"] * 4], "length"
    usage = {"input_tokens": _tokens(prompt), "output_tokens": _tokens(text)}
    message = anthropic_wire.message(body, number, text, "content_filter" if say.refusal else finish, as_tool=not say.plain)
    if say.usage is not None:
        message["usage"] = {**usage, **say.usage}
    return message


def composed_answer(body: Mapping[str, Any], prompt: str) -> str:
    """What the scripted model says of its own: a value for the schema that was sent, else a summary of the prompt's data."""
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return encode(fitting(form.get("json_schema", {}).get("schema", {}), prompt))
    if _forced(body) is not None:
        return encode(fitting(body["tools"][0]["function"]["parameters"], prompt))
    schema = schema_in(prompt)
    return summary(prompt) if schema is None else encode(fitting(schema, prompt))


def chunks_of(completion: Mapping[str, Any], include_usage: bool, size: int = 16) -> Iterable[bytes]:
    """The same answer as server-sent events: role, pieces of the text, the end, the usage if asked for, `[DONE]`."""
    choice = completion["choices"][0]
    head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def event(delta: JSON, finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield event({"role": "assistant", "content": ""})
    text = choice["message"]["content"] or ""
    for start in range(0, len(text), size):
        yield event({"content": text[start : start + size]})
    if choice["message"]["refusal"]:
        yield event({"refusal": choice["message"]["refusal"]})
    yield event({}, choice["finish_reason"])
    if include_usage and "usage" in completion:
        yield _event({**head, "choices": [], "usage": completion["usage"]})
    yield b"data: [DONE]\n\n"


def _event(value: JSON) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _content(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _tokens(text: str) -> int:
    return (len(text) + 3) // 4


async def serve(port: int, api_key: str | None) -> None:
    """Serve until SIGINT or SIGTERM."""
    ended = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    async with ModelServer(port=port, api_key=api_key) as server:
        print(f"scripted model (no real one) at {server.base_url}", flush=True)
        await ended.wait()


def main() -> None:
    """`python -m agiwo.testing.model_server --port N`."""
    options = argparse.ArgumentParser(
        prog="agiwo.testing.model_server", description="A scripted model behind the OpenAI and the Anthropic protocol."
    )
    options.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    options.add_argument("--api-key", help="ask for this key; without it every request is served")
    given = options.parse_args()
    try:
        asyncio.run(serve(given.port, given.api_key))
    except OSError as exc:  # most often the port is taken
        raise SystemExit(f"{options.prog} cannot start: {exc.strerror or exc}") from None


if __name__ == "__main__":
    main()
