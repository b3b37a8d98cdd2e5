"""The rows of the ledger that records of the history stand for: one a call of a model, whatever became of it.

Reads what executors handed in without trusting it: a call that is not told in full gives the row that it can give, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agiwo.machine.commands import Record
from agiwo.ports.store import UsageRow

OK = "ok"
_MOST = 2**63 - 1
_LONGEST = 500


def usage_rows(records: Iterable[Record], workflow: str) -> tuple[UsageRow, ...]:
    """The calls that these records tell of, in order."""
    return tuple(row for record in records if record.data is not None and "calls" in record.data for row in _rows(record, workflow))


def _rows(record: Record, workflow: str) -> Iterator[UsageRow]:
    calls = (record.data or {}).get("calls")
    if not isinstance(calls, list | tuple) or record.path is None:
        return
    for number, call in enumerate(calls, 1):
        # What names no profile was no call of a model.
        if isinstance(call, Mapping) and _text(call, "profile") is not None:
            yield _row(record, record.path, number, call, workflow)


def _row(record: Record, path: str, number: int, call: Mapping[str, Any], workflow: str) -> UsageRow:
    usage = call.get("usage")
    tokens: Mapping[str, Any] = usage if isinstance(usage, Mapping) else {}
    at, latency = call.get("at"), call.get("latency")
    failure = call.get("error") or call.get("problem")
    asked = _text(call, "asked") or ""
    return UsageRow(
        path=path,
        attempt=record.attempt or 0,
        number=number,
        workflow=workflow,
        at=float(at) if isinstance(at, int | float) and 0 <= at < 1e11 else record.at,
        purpose=_text(call, "purpose") or "main",
        profile=_text(call, "profile") or "",
        kind=_text(call, "kind") or "",
        model_asked=asked,
        model_answered=None if call.get("error") else _text(call, "model"),
        input_tokens=_whole(tokens, "input_tokens"),
        output_tokens=_whole(tokens, "output_tokens"),
        cache_read_tokens=_whole(tokens, "cache_read_tokens"),
        cache_write_tokens=_whole(tokens, "cache_write_tokens"),
        reasoning_tokens=_whole(tokens, "reasoning_tokens"),
        cost_micro_usd=_whole(call, "cost_micro_usd"),
        price_version=_text(call, "price_version"),
        status=(_text(failure, "type") or "ToolError") if isinstance(failure, Mapping) else OK,
        latency_ms=round(latency * 1000) if isinstance(latency, int | float) and 0 <= latency < 1e9 else None,
        request_id=_text(call, "request_id"),
    )


def _text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    return value[:_LONGEST] if isinstance(value, str) and value else None


def _whole(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None
