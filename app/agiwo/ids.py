"""Ids: time-ordered uuids that carry their shard, and keys derived from what they stand for.

Time and random bits are given, never taken here, so that the same input gives the same id.
"""

from __future__ import annotations

import hashlib
from uuid import UUID

SHARDS = 256


def uuid7(at: float, bits: int, shard: int) -> UUID:
    """A uuidv7 (RFC 9562) of time `at` (seconds since 1970) whose byte 7 is `shard` (0 to 255).

    `bits` gives the 66 other free bits. RFC 9562 leaves rand_a to us: its low eight bits carry the shard, so an id alone finds its row.
    """
    milliseconds = int(at * 1000)
    rand_a = ((bits & 0xF) << 8) | (shard & 0xFF)
    rand_b = (bits >> 4) & ((1 << 62) - 1)
    return UUID(int=(milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b)


def shard_of(value: UUID) -> int:
    """The shard that an id carries (0 to 255)."""
    return value.bytes[7]


def derived_uuid(near: UUID, *parts: str | int) -> UUID:
    """An id derived from what it stands for, on the shard and in the time partition of `near`."""
    seed = hashlib.sha256("\x1f".join([str(near), *map(str, parts)]).encode()).digest()
    bits = int.from_bytes(seed[:9], "big")
    milliseconds = near.int >> 80
    return uuid7((milliseconds + 0.5) / 1000, bits, shard_of(near))


def told_id(near: UUID, at: float, *parts: str | int) -> UUID:
    """An id derived from what it stands for, on the shard of `near`, that sorts by `at` (seconds since 1970)."""
    seed = hashlib.sha256("\x1f".join([str(near), *map(str, parts)]).encode()).digest()
    return uuid7(at, int.from_bytes(seed[:9], "big"), shard_of(near))


def idempotency_key(instance: UUID, path: str) -> str:
    """The key that all attempts of one step run hand to their tool; `path` holds the iteration, so each run has its own."""
    return hashlib.sha256(f"{instance}\x1f{path}".encode()).hexdigest()[:40]
