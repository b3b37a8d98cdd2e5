"""What a provider of models must do, and the values that go to it and come back.

Names no vendor: an adapter turns a `ModelRequest` into its own wire form and shows that form before it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agiwo.values import JSON


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls; `cached_tokens` are part of the input and `reasoning_tokens` of the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def to_json(self) -> dict[str, int]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The form that the answer is asked to have: a JSON Schema under a name; `strict` where the endpoint may enforce it."""

    name: str
    schema: Mapping[str, JSON]
    strict: bool


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model.

    `deadline` is the most seconds that the call may take in all, None for the profile's own; `headers` go along as they are (traceparent).
    """

    messages: tuple[Message, ...]
    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    deadline: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One whole answer.

    `text` is None where the model gave none; `finish_reason` is the endpoint's own word; `usage` None where it did not say;
    `raw` is the body as received, fit to be stored; `latency` counts seconds.
    """

    text: str | None
    finish_reason: str
    refusal: str | None
    usage: Usage | None
    raw: JSON
    model: str
    request_id: str | None
    latency: float


class ModelProvider(Protocol):
    """A way to ask models."""

    def wire(self, request: ModelRequest) -> dict[str, JSON]:
        """The body that `complete` will send for this request, to the letter; touches nothing."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once, without any retry.

        Raises StepError of the tree's type; its `data` holds what came back (status, request id, body), its `not_done` whether the
        request surely never arrived. An answer without proof of its end is a failure, never a reply.
        """
        ...

    async def close(self) -> None:
        """Let go of open connections."""
        ...
