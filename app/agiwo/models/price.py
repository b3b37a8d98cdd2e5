"""What calls of a model cost, exactly: whole numbers of tokens times decimal prices, rounded once.

Knows no vendor's list; a price is what the operator wrote into the profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

from agiwo.models.protocol import Usage
from agiwo.values import digest

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for `per` tokens; input read from a cache costs `cache_read`, written to one `cache_write`, else as other input does."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    per: int = 1_000_000
    as_of: str | None = None

    @property
    def version(self) -> str:
        """What tells this price from a later one: its day, else a digest of its numbers."""
        if self.as_of is not None:
            return self.as_of
        rates = [None if rate is None else str(rate) for rate in (self.input, self.output, self.cache_read, self.cache_write)]
        return digest([*rates, self.per])[:12]

    def micro_usd(self, usage: Usage) -> int:
        """Cost in millionths of a dollar; cached tokens are part of the input, and of no more than there is."""
        read = min(usage.cache_read_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - read)
        parts = (
            (usage.input_tokens - read - written, self.input),
            (read, self.input if self.cache_read is None else self.cache_read),
            (written, self.input if self.cache_write is None else self.cache_write),
            (usage.output_tokens, self.output),
        )
        total = Decimal(0)
        for tokens, rate in parts:
            total = _EXACT.add(total, _EXACT.multiply(Decimal(tokens), rate))
        millionths = _EXACT.divide(_EXACT.multiply(total, Decimal(1_000_000)), Decimal(self.per))
        return int(millionths.to_integral_value(ROUND_HALF_EVEN, context=_EXACT))
