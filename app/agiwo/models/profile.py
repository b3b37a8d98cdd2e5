"""Model profiles: where a model is asked, with what key, within what limits, at what price.

A profile comes from the service's configuration and is never part of a workflow; a step may lower what it allows and never raise it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from agiwo.models.price import Price
from agiwo.models.protocol import Mode
from agiwo.models.reading import Reader

KINDS = ("openai", "anthropic")
#: What each kind of endpoint can be asked for, the surest first.
MODES: Mapping[str, tuple[Mode, ...]] = {
    "openai": (Mode.JSON_SCHEMA, Mode.TOOL, Mode.JSON_OBJECT, Mode.PROMPT),
    "anthropic": (Mode.JSON_SCHEMA, Mode.TOOL, Mode.PROMPT),
}
_KEYS = (
    "kind", "base_url", "api_key", "model", "models", "structured", "timeout", "price", "max_tokens", "max_tokens_field", "temperature",
    "sampling", "rpm", "tpm", "max_concurrency",
)  # fmt: skip
_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
#: What a step may write under `llm`, beside the profile and those to fall back on.
_ASKED = ("profile", "fallback", "model", "max_tokens", "temperature", "seed", "structured", "on_truncated")
#: How far `on_truncated: raise_limit` may go where the profile names no limit: so many times what was asked for first.
RAISED_AT_MOST = 4


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to connect, between two reads, and for one whole call; `total` holds whatever the other side does."""

    connect: float = 5.0
    read: float = 120.0
    total: float = 180.0


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What one step asks for, checked against its profile; None leaves the matter to the endpoint.

    `structured` are the modes that may be tried, in order; `raise_to` is how far `max_tokens` may be raised when an answer was cut off,
    None if it may not.
    """

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    structured: tuple[Mode, ...] = (Mode.JSON_SCHEMA,)
    raise_to: int | None = None


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A named way to a model.

    `models` are the other models that a step may name; `max_tokens` is the most that a step may ask for, and what is asked for where it
    says nothing; `max_tokens_field` is the wire's name of that limit (newer models of some vendors take only `max_completion_tokens`).
    `structured` are the modes that it may use, in order; without `sampling` neither temperature nor seed is sent. `rpm` and `tpm` are calls
    and tokens in a minute, `max_concurrency` calls at one time.
    """

    name: str
    model: str
    base_url: str
    kind: str = "openai"
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ()
    structured: tuple[Mode, ...] = MODES["openai"]
    timeout: Timeouts = Timeouts()
    price: Price | None = None
    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    temperature: float | None = None
    sampling: bool = True
    rpm: int | None = None
    tpm: int | None = None
    max_concurrency: int | None = None

    @staticmethod
    def from_mapping(name: str, data: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> ModelProfile:
        """A profile from configuration; `api_key: env:NAME` is looked up in `environment`.

        Raises InvalidInput with a Problem for everything that is wrong, pointers counted from the profile's own mapping.
        """
        reader = Reader(data)
        reader.known(*_KEYS)
        kind = reader.choice("kind", KINDS, "openai")
        modes = MODES.get(kind, MODES["openai"])
        profile = ModelProfile(
            name=name,
            kind=kind,
            base_url=reader.url("base_url"),
            api_key=_secret(reader, environment or {}),
            model=reader.text("model"),
            models=reader.texts("models", ()),
            structured=_modes(reader, modes),
            timeout=_timeouts(reader),
            price=_price(reader),
            max_tokens=reader.whole("max_tokens"),
            max_tokens_field=reader.choice("max_tokens_field", _LIMIT_FIELDS, "max_tokens"),
            temperature=reader.number("temperature"),
            sampling=reader.flag("sampling", True),
            rpm=reader.whole("rpm"),
            tpm=reader.whole("tpm"),
            max_concurrency=reader.whole("max_concurrency"),
        )
        reader.finish(f"model profile {name!r}")
        return profile

    @property
    def seeds(self) -> bool:
        """Whether the endpoint takes a seed."""
        return self.sampling and self.kind != "anthropic"

    def options(self, llm: Mapping[str, Any]) -> CallOptions:
        """What a step's `llm` mapping asks of this profile, its own key `profile` aside.

        Raises InvalidInput with a Problem for every key that is unknown, ill typed, or asks for more than the profile allows.
        """
        reader = Reader(llm)
        reader.known(*_ASKED)
        if not self.sampling and llm.get("temperature") is not None:
            reader.wrong("temperature", f"the profile {self.name!r} takes no `temperature`", llm["temperature"], "no such key")
        if not self.seeds and llm.get("seed") is not None:
            reader.wrong("seed", f"the profile {self.name!r} takes no `seed`", llm["seed"], "no such key")
        limit = reader.whole("max_tokens", most=self.max_tokens) or self.max_tokens
        mode = reader.choice("structured", tuple(str(mode) for mode in self.structured), "")
        options = CallOptions(
            model=reader.choice("model", (self.model, *self.models), self.model),
            max_tokens=limit,
            temperature=reader.number("temperature", self.temperature if self.sampling else None),
            seed=reader.whole("seed", least=0),
            structured=(Mode(mode),) if mode in self.structured else self.structured,
            raise_to=self._raise_to(limit) if reader.choice("on_truncated", ("fail", "raise_limit"), "fail") == "raise_limit" else None,
        )
        reader.finish(f"a step's use of the model profile {self.name!r}")
        return options

    def fallback_options(self, llm: Mapping[str, Any]) -> CallOptions:
        """What a step asks of this profile where another one could not answer: its own model, and of the rest what it takes and allows.

        Raises InvalidInput where even that does not fit.
        """
        taken = {key: value for key, value in llm.items() if key in ("max_tokens", "on_truncated")}
        if isinstance(taken.get("max_tokens"), int) and self.max_tokens is not None:
            taken["max_tokens"] = min(taken["max_tokens"], self.max_tokens)
        if self.sampling and "temperature" in llm:
            taken["temperature"] = llm["temperature"]
        if self.seeds and "seed" in llm:
            taken["seed"] = llm["seed"]
        if llm.get("structured") in self.structured:
            taken["structured"] = llm["structured"]
        return self.options(taken)

    def _raise_to(self, limit: int | None) -> int | None:
        if limit is None:
            return None
        most = limit * RAISED_AT_MOST
        return most if self.max_tokens is None else min(most, self.max_tokens)


def _modes(reader: Reader, modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    names = tuple(str(mode) for mode in modes)
    given = reader.texts("structured", names, among=names)
    if not given:
        reader.wrong("structured", "`structured` names no mode", [], "one or more of " + ", ".join(names))
    return tuple(Mode(name) for name in dict.fromkeys(given) if name in names) or modes


def _secret(reader: Reader, environment: Mapping[str, str]) -> str | None:
    value: str | None = reader.optional("api_key", str, "text")
    if value is not None and value.startswith("env:"):
        variable = value.removeprefix("env:")
        if variable not in environment:
            reader.wrong("api_key", f"the environment variable {variable} is not set", value, "a variable that is set")
        value = environment.get(variable)
    if value and not (value.isascii() and value.isprintable()):
        reader.wrong("api_key", "the key cannot stand in a header", None, "printable ASCII")
    return value or None


def _timeouts(reader: Reader) -> Timeouts:
    inner = reader.inside("timeout")
    inner.known("connect", "read", "total")
    standard = Timeouts()
    return Timeouts(
        connect=inner.positive("connect", standard.connect),
        read=inner.positive("read", standard.read),
        total=inner.positive("total", standard.total),
    )


def _price(reader: Reader) -> Price | None:
    if reader.data.get("price") is None:
        return None
    inner = reader.inside("price")
    inner.known("in", "out", "cache_read", "cache_write", "per", "as_of")
    rates = {key: inner.money(key) for key in ("in", "out", "cache_read", "cache_write")}
    for key in ("in", "out"):
        if key not in inner.data:
            inner.wrong(key, "a price needs `in` and `out`", None, "US dollars")
    as_of = inner.data.get("as_of")
    return Price(
        input=rates["in"] or Decimal(0),
        output=rates["out"] or Decimal(0),
        cache_read=rates["cache_read"],
        cache_write=rates["cache_write"],
        per=inner.count("per", 1_000_000),
        as_of=None if as_of is None else str(as_of),
    )
