"""One model step's question: ask, check the answer, ask once more with the validator's words, and keep every call.

Adds no word to the author's prompt that the record does not show, and never retries: a failed call is the engine's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agiwo.clock import Clock, SystemClock
from agiwo.errors import StepError
from agiwo.models.profile import CallOptions, ModelProfile
from agiwo.models.protocol import Message, ModelProvider, ModelReply, ModelRequest, ResponseFormat, Usage
from agiwo.models.raw import kept
from agiwo.models.structured import Expected, OutputProblem, Parsed, expect, parse_reply
from agiwo.values import JSON


class Purpose(StrEnum):
    """Why a call was made."""

    MAIN = "main"  # the author's question
    REPAIR = "repair"  # the same question with what was wrong with the answer


def _as_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class ModelTask:
    """The question of one model step.

    `task_prompt` and `system_prompt` are rendered texts and go out as they are. `repairs` is how often an answer that does not fit
    `output_schema` is asked for again; `deadline` the seconds for all calls together; `headers` go along with every call; `mask` takes
    secrets out of a text, and is applied to all that is kept.
    """

    task_prompt: str
    options: CallOptions
    system_prompt: str | None = None
    output_schema: Mapping[str, JSON] | None = None
    schema_name: str = "output"
    repairs: int = 1
    deadline: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    mask: Callable[[str], str] = _as_is


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The record of one call: what was sent, what came, what it used and cost; `cost_micro_usd` is None where no price is known.

    `request` is the body as sent and `raw` the body as received, both masked and at most 64 KB; `problem` says why the answer gave no
    output, `error` why there was no answer; `latency` counts seconds.
    """

    purpose: Purpose
    request: JSON
    model: str
    raw: JSON = None
    finish_reason: str | None = None
    usage: Usage | None = None
    cost_micro_usd: int | None = None
    latency: float | None = None
    request_id: str | None = None
    problem: Mapping[str, JSON] | None = None
    error: Mapping[str, JSON] | None = None

    def to_json(self) -> dict[str, JSON]:
        return {
            "purpose": self.purpose.value,
            "model": self.model,
            "request": self.request,
            "raw": self.raw,
            "finish_reason": self.finish_reason,
            "usage": None if self.usage is None else self.usage.to_json(),
            "cost_micro_usd": self.cost_micro_usd,
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
        """Cost of all calls; None if any is unknown."""
        costs = [call.cost_micro_usd for call in self.calls]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def model(self) -> dict[str, JSON]:
        """What templates see at `steps.ID.model`."""
        last = self.calls[-1]
        return {
            "name": last.model,
            "finish_reason": last.finish_reason,
            "usage": self.usage.to_json(),
            "cost_micro_usd": self.cost_micro_usd,
            "calls": len(self.calls),
        }


async def run_model_task(profile: ModelProfile, provider: ModelProvider, task: ModelTask, clock: Clock | None = None) -> ModelResult:
    """Ask, and hand back the output with all calls.

    Raises StepError of the tree's type; its `data` is `{"calls": […], "reason": …, "problems": […]}`, so that what was sent, answered and
    used is kept for a failed attempt too.
    """
    return await _Conversation(profile, provider, task, clock or SystemClock()).run()


class _Conversation:
    def __init__(self, profile: ModelProfile, provider: ModelProvider, task: ModelTask, clock: Clock) -> None:
        self._profile = profile
        self._provider = provider
        self._task = task
        self._clock = clock
        self._ends = None if task.deadline is None else clock.monotonic() + task.deadline
        self._expected: Expected | None = None if task.output_schema is None else expect(task.output_schema)
        self._calls: list[ModelCall] = []

    async def run(self) -> ModelResult:
        task = self._task
        messages = (*(() if task.system_prompt is None else (Message("system", task.system_prompt),)), Message("user", task.task_prompt))
        purpose = Purpose.MAIN
        for left in range(task.repairs, -1, -1):
            reply, answer = await self._ask(messages, purpose)
            if isinstance(answer, Parsed):
                return ModelResult(answer.value, tuple(self._calls), answer.source)
            if not answer.askable or not left:
                raise self._no_output(answer)
            messages = (*messages, Message("assistant", reply.text or ""), Message("user", _words(answer)))
            purpose = Purpose.REPAIR
        raise AssertionError("the last round returns or raises")

    async def _ask(self, messages: tuple[Message, ...], purpose: Purpose) -> tuple[ModelReply, Parsed | OutputProblem]:
        request = self._request(messages)
        # The copy is made before the call: whatever happens to it, what was sent can be read back.
        sent = kept(self._provider.wire(request), self._task.mask)
        began = self._clock.monotonic()
        try:
            reply = await self._provider.complete(request)
        except StepError as exc:
            raw = exc.data.get("raw") if isinstance(exc.data, dict) else None
            request_id = exc.data.get("request_id") if isinstance(exc.data, dict) else None
            message = self._task.mask(exc.message)
            error = {"type": exc.type, "message": message, "status": exc.status}
            latency = self._clock.monotonic() - began
            self._calls.append(
                ModelCall(purpose, sent, request.model, kept(raw, self._task.mask), latency=latency, request_id=request_id, error=error)
            )
            raise StepError(
                message, type=exc.type, status=exc.status, not_done=exc.not_done, retry_after=exc.retry_after, details=self._details(None)
            ) from exc
        answer = parse_reply(reply, self._expected, request.max_tokens)
        self._calls.append(self._call(purpose, sent, reply, answer))
        return reply, answer

    def _request(self, messages: tuple[Message, ...]) -> ModelRequest:
        options, task = self._task.options, self._task
        form = None
        if self._expected is not None:
            form = ResponseFormat(task.schema_name, self._expected.sent.schema, self._expected.sent.strict)
        return ModelRequest(
            messages=messages,
            model=options.model,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            seed=options.seed,
            response_format=form,
            deadline=None if self._ends is None else max(0.0, self._ends - self._clock.monotonic()),
            headers=task.headers,
        )

    def _call(self, purpose: Purpose, sent: JSON, reply: ModelReply, answer: Parsed | OutputProblem) -> ModelCall:
        price, usage = self._profile.price, reply.usage
        cost = None if price is None or usage is None else price.micro_usd(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
        problem = None
        if isinstance(answer, OutputProblem):
            problem = {"type": answer.type, "reason": answer.reason, "message": self._task.mask(answer.message)}
        return ModelCall(
            purpose=purpose,
            request=sent,
            model=reply.model,
            raw=kept(reply.raw, self._task.mask),
            finish_reason=reply.finish_reason,
            usage=usage,
            cost_micro_usd=cost,
            latency=reply.latency,
            request_id=reply.request_id,
            problem=problem,
        )

    def _no_output(self, problem: OutputProblem) -> StepError:
        return StepError(self._task.mask(problem.message), type=problem.type, details=self._details(problem))

    def _details(self, problem: OutputProblem | None) -> dict[str, JSON]:
        details: dict[str, JSON] = {"calls": [call.to_json() for call in self._calls]}
        if problem is not None:
            details["reason"] = problem.reason
            details["problems"] = [self._task.mask(text) for text in problem.problems]
        return details


def _words(problem: OutputProblem) -> str:
    told = "\n".join(f"- {text}" for text in problem.problems)
    return f"Your answer cannot be used:\n{told}\nReturn only the corrected JSON."
