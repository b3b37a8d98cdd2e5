"""What a provider of models must do, and the values that go to it and come back.

Names no vendor: an adapter turns a `ModelRequest` into its own wire form and shows that form before it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agiwo.values import JSON


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls; what was read from or written to a cache is part of the input, `reasoning_tokens` of the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def to_json(self) -> dict[str, int]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


class Mode(StrEnum):
    """How an endpoint is asked for JSON of a schema, the surest first."""

    JSON_SCHEMA = "json_schema"  # the endpoint enforces the schema
    TOOL = "tool"  # the answer comes as the arguments of the one function that the model must call
    JSON_OBJECT = "json_object"  # the endpoint enforces JSON, the schema stands in the prompt
    PROMPT = "prompt"  # the schema stands in the prompt


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The form that the answer is asked to have: a JSON Schema under a name; `strict` where the endpoint may enforce it.

    Where `mode` carries no schema over the wire, it stands in the messages already.
    """

    mode: Mode
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

    `text` is None where the model gave none; `arguments` is the JSON text with which it called the function that it was given, None if it
    called none; `finish_reason` is the endpoint's own word; `usage` None where it did not say; `raw` is the body as received, fit to be
    stored; `latency` counts seconds.
    """

    text: str | None
    finish_reason: str
    refusal: str | None
    usage: Usage | None
    raw: JSON
    model: str
    request_id: str | None
    latency: float
    arguments: str | None = None


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
