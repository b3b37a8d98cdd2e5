"""Model profiles: where a model is asked, with what key, within what limits, at what price.

A profile comes from the service's configuration and is never part of a workflow; a step may lower what it allows and never raise it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from agiwo.models.reading import Reader

KINDS = ("openai",)
STRUCTURED_MODES = ("json_schema",)
_KEYS = (
    "kind", "base_url", "api_key", "model", "models", "structured", "timeout", "price", "max_tokens", "max_tokens_field", "temperature",
)  # fmt: skip
_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to connect, between two reads, and for one whole call; `total` holds whatever the other side does."""

    connect: float = 5.0
    read: float = 120.0
    total: float = 180.0


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for `per` tokens; cached input costs `cache_read`, or as much as other input where none is given."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    per: int = 1_000_000
    as_of: str | None = None

    def micro_usd(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int:
        """Cost in millionths of a dollar; `cached_tokens` are part of `input_tokens`."""
        cached = min(cached_tokens, input_tokens)
        rate = self.input if self.cache_read is None else self.cache_read
        dollars = ((input_tokens - cached) * self.input + cached * rate + output_tokens * self.output) / self.per
        return int((dollars * 1_000_000).to_integral_value(ROUND_HALF_EVEN))


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What one step asks for, checked against its profile; None leaves the matter to the endpoint."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    structured: str = "json_schema"


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A named way to a model.

    `models` are the other models that a step may name; `max_tokens` is the most that a step may ask for, and what is asked for where it
    says nothing; `max_tokens_field` is the wire's name of that limit (newer models of some vendors take only `max_completion_tokens`).
    """

    name: str
    model: str
    base_url: str
    kind: str = "openai"
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ()
    structured: tuple[str, ...] = STRUCTURED_MODES
    timeout: Timeouts = Timeouts()
    price: Price | None = None
    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    temperature: float | None = None

    @staticmethod
    def from_mapping(name: str, data: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> ModelProfile:
        """A profile from configuration; `api_key: env:NAME` is looked up in `environment`.

        Raises InvalidInput with a Problem for everything that is wrong, pointers counted from the profile's own mapping.
        """
        reader = Reader(data)
        reader.known(*_KEYS)
        profile = ModelProfile(
            name=name,
            kind=reader.choice("kind", KINDS, "openai"),
            base_url=reader.url("base_url"),
            api_key=_secret(reader, environment or {}),
            model=reader.text("model"),
            models=reader.texts("models", ()),
            structured=reader.texts("structured", STRUCTURED_MODES, among=STRUCTURED_MODES),
            timeout=_timeouts(reader),
            price=_price(reader),
            max_tokens=reader.whole("max_tokens"),
            max_tokens_field=reader.choice("max_tokens_field", _LIMIT_FIELDS, "max_tokens"),
            temperature=reader.number("temperature"),
        )
        reader.finish(f"model profile {name!r}")
        return profile

    def options(self, llm: Mapping[str, Any]) -> CallOptions:
        """What a step's `llm` mapping asks of this profile, its own key `profile` aside.

        Raises InvalidInput with a Problem for every key that is unknown, ill typed, or asks for more than the profile allows.
        """
        reader = Reader(llm)
        reader.known("profile", "model", "max_tokens", "temperature", "seed", "structured")
        options = CallOptions(
            model=reader.choice("model", (self.model, *self.models), self.model),
            max_tokens=reader.whole("max_tokens", most=self.max_tokens) or self.max_tokens,
            temperature=reader.number("temperature", self.temperature),
            seed=reader.whole("seed", least=0),
            structured=reader.choice("structured", self.structured, self.structured[0] if self.structured else "json_schema"),
        )
        reader.finish(f"a step's use of the model profile {self.name!r}")
        return options


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
    inner.known("in", "out", "cache_read", "per", "as_of")
    rates = {key: inner.money(key) for key in ("in", "out", "cache_read")}
    for key in ("in", "out"):
        if key not in inner.data:
            inner.wrong(key, "a price needs `in` and `out`", None, "US dollars")
    as_of = inner.data.get("as_of")
    return Price(
        input=rates["in"] or Decimal(0),
        output=rates["out"] or Decimal(0),
        cache_read=rates["cache_read"],
        per=inner.count("per", 1_000_000),
        as_of=None if as_of is None else str(as_of),
    )
