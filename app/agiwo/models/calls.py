"""The record of the calls that a model step took: what was sent, what came, what it used and cost.

Values only; who makes the calls is told in `task`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agiwo.models.protocol import Mode, Usage
from agiwo.values import JSON


class Purpose(StrEnum):
    """Why a call was made."""

    MAIN = "main"  # the author's question
    REPAIR = "repair"  # the same question with what was wrong with the answer
    RAISED = "raised"  # the same question with more room for the answer
    FALLBACK = "fallback"  # the author's question to another profile


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The record of one call; `cost_micro_usd` is None where no price is known.

    `at` in seconds since 1970; `asked` is the model that was asked for, `model` the one that answered; `mode` is how JSON was asked for;
    `blocks` names what stands in the prompt beside the author's templates. `request` is the body as sent and `raw` the body as received,
    both masked and at most 64 KB; `problem` says why the answer gave no output, `error` why there was no answer; `latency` counts seconds.
    """

    purpose: Purpose
    at: float
    profile: str
    kind: str
    asked: str
    request: JSON
    model: str
    mode: Mode | None = None
    blocks: tuple[str, ...] = ()
    price_version: str | None = None
    raw: JSON = None
    finish_reason: str | None = None
    usage: Usage | None = None
    cost_micro_usd: int | None = None
    latency: float | None = None
    request_id: str | None = None
    problem: Mapping[str, JSON] | None = None
    error: Mapping[str, JSON] | None = None

    @property
    def refused(self) -> bool:
        """Whether the endpoint turned the call away before any model saw it."""
        status = None if self.error is None else self.error.get("status")
        return isinstance(status, int) and 400 <= status < 500

    def to_json(self) -> dict[str, JSON]:
        return {
            "purpose": self.purpose.value,
            "at": self.at,
            "profile": self.profile,
            "kind": self.kind,
            "asked": self.asked,
            "model": self.model,
            "mode": None if self.mode is None else self.mode.value,
            "blocks": list(self.blocks),
            "request": self.request,
            "raw": self.raw,
            "finish_reason": self.finish_reason,
            "usage": None if self.usage is None else self.usage.to_json(),
            "cost_micro_usd": self.cost_micro_usd,
            "price_version": self.price_version,
            "latency": self.latency,
            "request_id": self.request_id,
            "problem": None if self.problem is None else dict(self.problem),
            "error": None if self.error is None else dict(self.error),
        }


@dataclass(frozen=True, slots=True)
class ModelResult:
    """The output of a model step and every call that led to it; `source` says where in the answer the output stood."""

    output: JSON
    calls: tuple[ModelCall, ...]
    source: str

    @property
    def usage(self) -> Usage:
        """Tokens of all calls."""
        return sum((call.usage for call in self.calls if call.usage is not None), Usage())

    @property
    def cost_micro_usd(self) -> int | None:
        """Cost of all calls; None if any is unknown. A call that the endpoint refused to look at costs nothing."""
        costs = [call.cost_micro_usd for call in self.calls if not call.refused]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def model(self) -> dict[str, JSON]:
        """What templates see at `steps.ID.model`."""
        last = self.calls[-1]
        return {
            "name": last.model,
            "profile": last.profile,
            "mode": None if last.mode is None else last.mode.value,
            "finish_reason": last.finish_reason,
            "usage": self.usage.to_json(),
            "cost_micro_usd": self.cost_micro_usd,
            "calls": len(self.calls),
        }
