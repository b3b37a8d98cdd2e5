"""The service's public API as the commands call it: one call, or a stream of events that is taken up again where it broke.

It decides nothing about what is shown; whatever goes wrong ends the command with the exit status that it deserves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from agiwo.cli.screen import FAILED, NOT_REACHED, CommandEnds, problem_lines
from agiwo.errors import StepError, ValueRefused
from agiwo.outbound.http import Answer, HttpCalls
from agiwo.values import encode

WITHIN = 30.0
PAGE = 200  # items of a list that one call may ask for
QUIET = 60.0  # seconds without a sign, after which a stream counts as broken; the service gives one every 15
RETRY = (0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0, 5.0)  # seconds before a broken stream is taken up again


@dataclass(slots=True)
class ServerEvent:
    """One server-sent event; `data` is its JSON, `id` its number in the history."""

    id: str = ""
    name: str = "message"
    data: Any = None


@dataclass(slots=True)
class EventParser:
    """Lines to events, as the specification of server-sent events has it."""

    last_id: str = ""
    _name: str = ""
    _data: list[str] = field(default_factory=list)

    def take(self, line: str) -> ServerEvent | None:
        if not line:
            made = ServerEvent(self.last_id, self._name or "message", json.loads("\n".join(self._data))) if self._data else None
            self._name, self._data = "", []
            return made
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id":
            self.last_id = value
        return None


class Client:
    """Calls to the service at `server`, with the API key if one is given."""

    def __init__(self, server: str, key: str | None = None) -> None:
        self.server = server.rstrip("/")
        self._calls = HttpCalls()
        self._headers = {"accept": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._calls.close()

    async def get(self, path: str, **query: Any) -> Any:
        """The answer's JSON. Raises CommandEnds."""
        return await self._json("GET", _with_query(path, query))

    async def look(self, path: str, **query: Any) -> tuple[int, Any]:
        """The answer's status and JSON, whatever they say. Raises CommandEnds if nobody answers, or not in JSON."""
        answer = await self._answer("GET", _with_query(path, query))
        return answer.status, _decoded(answer)

    async def pages(self, path: str, most: int | None = None, **query: Any) -> AsyncGenerator[Any, None]:
        """The items of a list from its beginning, page by page, at most so many. Raises CommandEnds."""
        cursor, given = None, 0
        while most is None or given < most:
            limit = PAGE if most is None else min(PAGE, most - given)
            page = await self.get(path, limit=limit, cursor=cursor, **query)
            for item in page["items"]:
                yield item
            given += len(page["items"])
            if (cursor := page["next_cursor"]) is None:
                return

    async def post(self, path: str, value: Any = None, *, key: str | None = None, within: float = WITHIN) -> Any:
        """Send a JSON value, give the answer's JSON. Raises CommandEnds."""
        return await self._json("POST", path, encode({} if value is None else value).encode(), "application/json", key, within)

    async def post_text(self, path: str, text: bytes, media_type: str) -> Any:
        """Send a text as it is, give the answer's JSON. Raises CommandEnds."""
        return await self._json("POST", path, text, media_type)

    async def _json(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        media_type: str | None = None,
        key: str | None = None,
        within: float = WITHIN,
    ) -> Any:
        answer = await self._answer(method, path, body, media_type, key, within)
        if answer.status >= 400:
            raise refusal(answer)
        return _decoded(answer)

    async def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        media_type: str | None = None,
        key: str | None = None,
        within: float = WITHIN,
    ) -> Answer:
        headers = self._headers | ({"content-type": media_type} if media_type else {})
        try:
            return await self._calls.call(method, self.server + path, within=within, headers=headers, body=body, idempotency_key=key)
        except StepError as exc:
            raise self._not_reached(exc) from None

    def _not_reached(self, exc: StepError) -> CommandEnds:
        text = f"the service at {self.server} cannot be reached: {exc.message}"
        return CommandEnds(NOT_REACHED, text, {"code": "not_reached", "server": self.server, "detail": exc.message})

    async def events(self, path: str) -> AsyncGenerator[ServerEvent, None]:
        """The events of an instance, each once, to its end; a stream that breaks or stops before is taken up behind the last event.

        Raises CommandEnds.
        """
        parser = EventParser()
        failures = 0
        while True:
            headers = self._headers | {"accept": "text/event-stream"} | ({"last-event-id": parser.last_id} if parser.last_id else {})
            try:
                async with self._calls.listen(self.server + path, quiet=QUIET, headers=headers) as (head, lines):
                    if head.status >= 400:
                        if head.status < 500 or failures >= len(RETRY):
                            raise refusal(head)
                    else:
                        async for line in lines:
                            event = parser.take(line)
                            if event is not None:
                                failures = 0
                                yield event
                                if event.name == "instance.ended":
                                    return
            except StepError as exc:
                if failures >= len(RETRY):
                    raise self._not_reached(exc) from None
            if failures >= len(RETRY):
                raise self._not_reached(StepError("the stream of events ends again and again"))
            await asyncio.sleep(RETRY[failures])
            failures += 1


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    asked = {name: value for name, value in query.items() if value is not None}
    return path + (f"?{urlencode(asked, doseq=True)}" if asked else "")


def _decoded(answer: Answer) -> Any:
    if not answer.body:
        return None
    try:
        return answer.json()
    except ValueRefused:
        raise CommandEnds(FAILED, f"the answer (status {answer.status}) is no JSON; is this an Agiwo service?") from None


def refusal(answer: Answer) -> CommandEnds:
    """The end of a command for an answer that says no; the service's problem document says why."""
    try:
        document = answer.json()
    except ValueRefused:
        document = None
    if not isinstance(document, Mapping):
        return CommandEnds(FAILED, f"the service answered with status {answer.status}", {"status": answer.status})
    title = document.get("detail") or document.get("title") or f"status {answer.status}"
    errors = document.get("errors")
    lines = problem_lines(error for error in errors if isinstance(error, Mapping)) if isinstance(errors, list) else []
    return CommandEnds(FAILED, "\n".join([str(title), *lines]), document)
