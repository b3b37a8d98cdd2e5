"""Log lines: one JSON object a line, made from events, each with its trace, instance, workflow and step where it has them.

It hides what an operator named as secret, and must never raise into what it reports on.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from agiwo.clock import rfc3339
from agiwo.engine.events import Event, Happening
from agiwo.machine.reports import Failed, NotBegun, Stopped
from agiwo.ports.executor import Circumstances
from agiwo.ports.records import RejectedTrigger
from agiwo.template import mask
from agiwo.values import encode, plain

#: The level of each event; what happens at every step is for debugging.
LEVELS: Mapping[Happening, int] = {
    Happening.COMMITTED: logging.DEBUG,
    Happening.ATTEMPT_STARTED: logging.DEBUG,
    Happening.ATTEMPT_RETURNED: logging.DEBUG,  # of a failure: WARNING
    Happening.ATTEMPT_FENCED: logging.WARNING,
    Happening.STRAGGLER_RETURNED: logging.WARNING,
    Happening.ENDED: logging.INFO,
    Happening.LET_GO: logging.DEBUG,
    Happening.SET_ASIDE: logging.ERROR,
    Happening.ITEM_REFUSED: logging.ERROR,
    Happening.REFUSED: logging.ERROR,
    Happening.JOINED: logging.INFO,
    Happening.DECLARED_DEAD: logging.WARNING,
    Happening.CLAIMED: logging.DEBUG,
    Happening.ORPHANS_RELEASED: logging.WARNING,
    Happening.BATCH_WRITTEN: logging.DEBUG,
    Happening.STORE_LOST: logging.ERROR,
    Happening.STORE_BACK: logging.INFO,
    Happening.LOOP_FAILED: logging.CRITICAL,
    Happening.LEFT: logging.INFO,
    Happening.DELIVERED: logging.INFO,
    Happening.NOT_DELIVERED: logging.WARNING,
}


class Log:
    """Writes log lines to `stream`, each with `node`; `level` is a name of the logging module, `secrets` are texts that never appear."""

    def __init__(self, stream: TextIO | None = None, level: str = "INFO", secrets: Iterable[str] = (), node: str | None = None) -> None:
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self._secrets = tuple(secrets)
        self._always: dict[str, Any] = {} if node is None else {"node": node}
        processors: list[Any] = [self._redact, _render]
        self._logger = structlog.wrap_logger(
            structlog.WriteLogger(stream or sys.stderr),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(self._level),
            context_class=dict,
            cache_logger_on_first_use=True,
        )

    def observe(self, event: Event) -> None:
        """Write the line of an engine's event."""
        level = LEVELS[event.name]
        # Every step comes by here: a line that nobody will see is not made. The beginning is the first record of its write.
        told = self._level <= logging.INFO and event.name is Happening.COMMITTED
        if told and event.data["records"][0].type == "instance.started":
            self._write(logging.INFO, "instance_started", {"at": rfc3339(event.at), **_place(event.where, None, None)})
        if event.name is Happening.ATTEMPT_RETURNED and isinstance(event.data.get("outcome"), Failed):
            level = logging.WARNING
        if level < self._level:
            return
        line = {"at": rfc3339(event.at), **_place(event.where, event.path, event.attempt)}
        for key, value in event.data.items():
            line.update(_shown(key, value))
        self._write(level, event.name.value, line)

    def refused(self, at: float, tenant: str, trigger: RejectedTrigger) -> None:
        """Write the line of a trigger that started nothing."""
        line = {
            "at": rfc3339(at),
            "tenant": tenant,
            "workflow": trigger.workflow,
            "version": trigger.version,
            "code": trigger.code,
            "actor": trigger.actor,
        }
        self._write(logging.WARNING, "trigger_refused", {**line, "trace_id": trigger.trace_id})

    def tool(self, where: Circumstances, path: str, attempt: int, message: str, fields: Mapping[str, Any]) -> None:
        """Write a line that a tool wrote."""
        line = {**_place(where, path, attempt), "message": message, "fields": dict(fields)}
        self._write(logging.INFO, "tool", line)

    def line(self, level: str, message: str, at: float, **fields: Any) -> None:
        """Write any other line: of the service's start, of a request."""
        self._write(logging.getLevelNamesMapping()[level.upper()], message, {"at": rfc3339(at), **fields})

    def said(self, message: str, at: float) -> None:
        """Write what a person at a terminal would be told, whatever the level is: that the service is ready."""
        self._write(logging.INFO, message, {"at": rfc3339(at)}, always=True)

    def _write(self, level: int, event: str, line: dict[str, Any], *, always: bool = False) -> None:
        # A stream that is closed or full must not fail what is reported on.
        with contextlib.suppress(OSError, ValueError):
            self._logger.bind(level=logging.getLevelName(level).lower()).log(
                max(level, self._level) if always else level, event, **_free({**self._always, **line})
            )

    def _redact(self, logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        # Made plain first: what is hidden must be what is written.
        hidden: MutableMapping[str, Any] = mask(plain(line), self._secrets)
        return hidden


def _place(where: Circumstances | None, path: str | None, attempt: int | None) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if where is not None:
        place = {
            "trace_id": where.trace_id,
            "instance": str(where.instance_id),
            "workflow": where.workflow,
            "version": where.version,
            "tenant": where.tenant,
        }
    if path is not None:
        place["path"] = path
    if attempt is not None:
        place["attempt"] = attempt
    return place


def _shown(key: str, value: Any) -> dict[str, Any]:
    """What a line says of one part of an event: of an outcome how it ended, never what it gave."""
    if key == "outcome":
        if isinstance(value, Failed):
            return {"outcome": "failed", "error": value.failure.type, "message": value.failure.message[:500]}
        if isinstance(value, Stopped | NotBegun):
            return {"outcome": "stopped"}
        return {"outcome": "succeeded"} if not isinstance(value, BaseException) else {"outcome": "raised", "message": str(value)[:500]}
    if key == "records":
        return {"records": [record.type for record in value]}
    if key == "error" and isinstance(value, Mapping):
        return {"error": value.get("type"), "message": str(value.get("message", ""))[:500]}
    if key == "seconds":
        return {"seconds": round(value, 6)}
    if value is None or isinstance(value, str | int | float | bool):
        return {key: value}
    return {key: str(value)}


def _free(line: dict[str, Any]) -> dict[str, Any]:
    """structlog has `event` for itself."""
    if "event" in line:
        line["event_"] = line.pop("event")
    return line


def _render(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
    return encode(line)
