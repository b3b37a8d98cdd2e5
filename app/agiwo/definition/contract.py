"""The contracts of tools and of model profiles: what a definition may rely on without knowing any code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from agiwo.values import digest

#: Under these names a step with `completion: callback` finds, among the secrets, the addresses at which its answer is awaited.
CALLBACK_SECRETS = ("callback_url", "callback_failure_url", "callback_heartbeat_url")


@dataclass(frozen=True, slots=True)
class Remark:
    """What a profile has to say about a step: an `error`, or a warning; `key` is the key of `llm` that it is about, None for no one key."""

    message: str
    key: str | None = None
    error: bool = True
    found: str | None = None
    expected: str | None = None


class ModelContract(Protocol):
    """What a definition can ask a model profile."""

    def remarks(self, llm: Mapping[str, Any], schema: Mapping[str, Any] | None, *, fallback: bool) -> Sequence[Remark]:
        """What is wrong with a step's `llm` and `output_schema` (None: it has none) here; `fallback`: asked only where another cannot."""
        ...


class Effect(StrEnum):
    """What calling a tool does to the world outside."""

    PURE = "pure"  # the same answer for the same arguments, nothing is touched
    READ = "read"  # looks, changes nothing
    IDEMPOTENT_WRITE = "idempotent_write"  # safe to repeat, by nature or by its idempotency key
    WRITE = "write"  # a repetition doubles the effect
    IRREVERSIBLE = "irreversible"  # as write, and nothing undoes it

    @property
    def safe_to_repeat(self) -> bool:
        return self in (Effect.PURE, Effect.READ, Effect.IDEMPOTENT_WRITE)


@dataclass(frozen=True, slots=True)
class Breaker:
    """When calls to something that fails are no longer made: after `failures` in a row, for `open_for` seconds; then one call probes it.

    Each value of the first parameter in `key` that a call has is a circuit of its own (of a URL its host counts); without `key` the tool
    has one. `counts` names types of failures that count beside the transient ones.
    """

    failures: int = 5
    open_for: float = 30.0
    key: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"failures": self.failures, "open_for": self.open_for, "key": list(self.key), "counts": list(self.counts)}


@dataclass(frozen=True, slots=True)
class ToolContract:
    """Name, schemas and promises of a tool.

    `parameters` and `result` are JSON Schemas (2020-12) of objects and of the result; `uses` says of a parameter (by name) that its text is
    `sql`, `html`, `command` or `url`; `timeout` is the default seconds of one attempt; `reconcile` whether the tool can be asked if an
    earlier call was done; `breaker` is None for a tool whose calls no circuit breaker watches; `sync` whether it is a plain function, which
    may run in a process of its own; `connections` are parameters that name a connection (no part of what is promised, so not in the
    digest). `effect_of` is pure and says for parameters as a definition writes them, templates and all, what such a call does; `effect` is
    then what it does at worst.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    result: Mapping[str, Any] | None = None
    effect: Effect = Effect.WRITE
    effect_declared: bool = True
    timeout: float | None = None
    uses: Mapping[str, str] = field(default_factory=dict)
    reconcile: bool = False
    breaker: Breaker | None = Breaker()
    sync: bool = field(default=False, compare=False)
    connections: tuple[str, ...] = ()
    effect_of: Callable[[Mapping[str, Any]], Effect] | None = field(default=None, compare=False, repr=False)

    def effect_with(self, parameters: object) -> Effect:
        """What a call with these parameters does, as the definition writes them: an expression for all of them tells nothing."""
        return self.effect if self.effect_of is None or not isinstance(parameters, Mapping) else self.effect_of(parameters)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "result": None if self.result is None else dict(self.result),
            "effect": self.effect.value,
            "timeout": self.timeout,
            "uses": dict(self.uses),
            "reconcile": self.reconcile,
            "breaker": None if self.breaker is None else self.breaker.to_json(),
        }

    @property
    def digest(self) -> str:
        """Changes when anything that a caller or an approver relies on changes; when calls are held back is the operator's matter."""
        return digest({name: value for name, value in self.to_json().items() if name != "breaker"})
