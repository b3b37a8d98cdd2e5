"""One model step's question: ask, check the answer, ask again with the validator's words, and keep every call.

Adds no word to the author's prompt that the record does not show, and never retries: a failed call is the engine's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from agiwo.clock import Clock, SystemClock
from agiwo.errors import StepError, is_a
from agiwo.models.calls import ModelCall, ModelResult, Purpose
from agiwo.models.ladder import Rungs
from agiwo.models.profile import CallOptions, ModelProfile
from agiwo.models.protocol import Message, Mode, ModelProvider, ModelReply, ModelRequest, ResponseFormat
from agiwo.models.raw import kept
from agiwo.models.strict import DIALECTS
from agiwo.models.structured import Expected, OutputProblem, Parsed, compiled_schema, expect, parse_reply
from agiwo.ports.model_limits import Allowance, ModelLimits
from agiwo.values import JSON, encode

INCLUDED = "include"
SHOWN_SCHEMA = "output_schema"


def _as_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Way:
    """A way to a model, with what the step asks of it."""

    profile: ModelProfile
    provider: ModelProvider
    options: CallOptions


@dataclass(frozen=True, slots=True)
class ModelTask:
    """The question of one model step.

    `task_prompt` and `system_prompt` are rendered texts and go out as they are; `include` is data that the model is shown in one block
    before them, None for none. `repairs` is how often an answer that does not fit `output_schema` is asked for again; `deadline` the
    seconds for all calls together; `headers` go along with every call; `mask` takes secrets out of a text, and is applied to all that is
    kept. With `last_try` no later attempt will come, so that an endpoint that is over its limits is fallen back from.
    """

    task_prompt: str
    system_prompt: str | None = None
    include: JSON = None
    output_schema: Mapping[str, JSON] | None = None
    schema_name: str = "output"
    repairs: int = 2
    deadline: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    mask: Callable[[str], str] = _as_is
    last_try: bool = False


async def run_model_task(
    ways: Sequence[Way],
    task: ModelTask,
    clock: Clock | None = None,
    *,
    rungs: Rungs | None = None,
    limits: ModelLimits | None = None,
) -> ModelResult:
    """Ask the first of `ways`, the others only where one cannot answer; hand back the output with all calls.

    `rungs` remembers what endpoints have refused, `limits` holds calls back. Raises StepError of the tree's type; its `data` is
    `{"calls": […], "reason": …, "problems": […]}`, so that what was sent, answered and used is kept for a failed attempt too.
    """
    clock = clock or SystemClock()
    return await _Asking(ways, task, clock, rungs or Rungs(clock), limits).run()


@dataclass(slots=True)
class _Turn:
    """What the next call is to be: grows by repairs and raised limits."""

    messages: tuple[Message, ...]
    purpose: Purpose
    options: CallOptions
    form: ResponseFormat | None
    expected: Expected | None
    blocks: tuple[str, ...]
    repairs: int


class _Asking:
    def __init__(self, ways: Sequence[Way], task: ModelTask, clock: Clock, rungs: Rungs, limits: ModelLimits | None) -> None:
        self._ways = ways
        self._task = task
        self._clock = clock
        self._rungs = rungs
        self._limits = limits
        self._ends = None if task.deadline is None else clock.monotonic() + task.deadline
        self._calls: list[ModelCall] = []

    async def run(self) -> ModelResult:
        if self._task.output_schema is not None:
            compiled_schema(self._task.output_schema)
        last = len(self._ways) - 1
        for number, way in enumerate(self._ways):
            try:
                return await self._by(way, Purpose.FALLBACK if number else Purpose.MAIN)
            except StepError as exc:
                if number == last or not self._elsewhere(exc):
                    raise self._with_calls(exc) from exc
        raise AssertionError("the last way returns or raises")

    def _elsewhere(self, failure: StepError) -> bool:
        """Whether another model may be asked instead: this one is away, over its limits for too long, or too small for the prompt."""
        left = self._left()
        if left is not None and left <= 0:
            return False
        if is_a(failure.type, "RateLimited"):
            return self._task.last_try or (failure.retry_after is not None and left is not None and failure.retry_after > left)
        return any(is_a(failure.type, name) for name in ("Unavailable", "NetworkError", "Timeout", "ContextTooLong"))

    async def _by(self, way: Way, purpose: Purpose) -> ModelResult:
        schema = self._task.output_schema
        if schema is None:
            return await self._conversation(way, self._opening(way, None, purpose))
        profile, model = way.profile, way.options.model
        modes = self._rungs.for_schema(way.options.structured, schema, profile.kind, profile.name, model)
        for mode in modes[:-1]:
            try:
                return await self._conversation(way, self._opening(way, mode, purpose))
            except StepError as exc:
                # Only its first call can have been refused for its form: whatever was answered once is no refusal.
                asked_once = bool(self._calls) and self._calls[-1].purpose is purpose
                if not asked_once or not self._rungs.refused(exc, mode, schema, profile.name, model):
                    raise
        return await self._conversation(way, self._opening(way, modes[-1], purpose))

    def _opening(self, way: Way, mode: Mode | None, purpose: Purpose) -> _Turn:
        task = self._task
        expected = form = None
        prompt, blocks = task.task_prompt, []
        if task.include is not None:
            prompt = f"<include>\n{encode(task.include)}\n</include>\n\n{prompt}"
            blocks.append(INCLUDED)
        if mode is not None and task.output_schema is not None:
            expected = expect(task.output_schema, mode, DIALECTS[way.profile.kind])
            form = ResponseFormat(mode, task.schema_name, expected.sent.schema, expected.sent.strict)
            if mode in (Mode.JSON_OBJECT, Mode.PROMPT):
                shown = encode(dict(expected.sent.schema))
                prompt = f"{prompt}\n\nAnswer with JSON that fits this JSON Schema, and with nothing else:\n{shown}"
                blocks.append(SHOWN_SCHEMA)
        system = () if task.system_prompt is None else (Message("system", task.system_prompt),)
        return _Turn((*system, Message("user", prompt)), purpose, way.options, form, expected, tuple(blocks), task.repairs)

    async def _conversation(self, way: Way, turn: _Turn) -> ModelResult:
        while True:
            reply, answer = await self._ask(way, turn)
            if isinstance(answer, Parsed):
                return ModelResult(answer.value, tuple(self._calls), answer.source)
            raised = _raised(turn.options, answer)
            if raised is not None:
                turn.options, turn.purpose = raised, Purpose.RAISED
            elif answer.askable and turn.repairs > 0:
                said = (reply.text or "").strip() or reply.arguments or ""
                turn.messages = (*turn.messages, *((Message("assistant", said),) if said else ()), Message("user", _words(answer)))
                turn.purpose, turn.repairs = Purpose.REPAIR, turn.repairs - 1
            else:
                details = {"reason": answer.reason, "problems": [self._task.mask(text) for text in answer.problems]}
                raise StepError(self._task.mask(answer.message), type=answer.type, details=details)

    async def _ask(self, way: Way, turn: _Turn) -> tuple[ModelReply, Parsed | OutputProblem]:
        request = ModelRequest(
            messages=turn.messages,
            model=turn.options.model,
            max_tokens=turn.options.max_tokens,
            temperature=turn.options.temperature,
            seed=turn.options.seed,
            response_format=turn.form,
            headers=self._task.headers,
        )
        if self._limits is None:
            return await self._call(way, turn, request)
        profile = way.profile
        key = f"{profile.name}/{request.model}"
        tokens = sum(len(message.content) for message in request.messages) // 4 + 1
        left = self._left()
        patience = profile.timeout.total if left is None else left
        async with self._limits.call(key, Allowance(profile.rpm, profile.tpm, profile.max_concurrency), tokens, patience) as permit:
            try:
                reply, answer = await self._call(way, turn, request)
            except StepError as exc:
                if exc.retry_after is not None:
                    self._limits.cool_down(key, exc.retry_after)
                raise
            if reply.usage is not None:
                permit.tokens = reply.usage.input_tokens + reply.usage.output_tokens
            return reply, answer

    async def _call(self, way: Way, turn: _Turn, request: ModelRequest) -> tuple[ModelReply, Parsed | OutputProblem]:
        request = replace(request, deadline=self._left())
        # The copy is made before the call: whatever happens to it, what was sent can be read back.
        sent = kept(way.provider.wire(request), self._task.mask)
        call = ModelCall(
            purpose=turn.purpose,
            at=self._clock.now(),
            profile=way.profile.name,
            kind=way.profile.kind,
            asked=request.model,
            model=request.model,
            mode=None if turn.form is None else turn.form.mode,
            blocks=turn.blocks,
            request=sent,
            price_version=None if way.profile.price is None else way.profile.price.version,
        )
        began = self._clock.monotonic()
        try:
            reply = await way.provider.complete(request)
        except StepError as exc:
            self._calls.append(self._failed(call, exc, self._clock.monotonic() - began))
            raise StepError(
                self._task.mask(exc.message),
                type=exc.type,
                status=exc.status,
                not_done=exc.not_done,
                retry_after=exc.retry_after,
                details=exc.data,
            ) from exc
        answer = parse_reply(reply, turn.expected, request.max_tokens)
        self._calls.append(self._answered(call, way.profile, reply, answer))
        return reply, answer

    def _failed(self, call: ModelCall, exc: StepError, latency: float) -> ModelCall:
        data = exc.data if isinstance(exc.data, Mapping) else {}
        error = {"type": exc.type, "message": self._task.mask(exc.message), "status": exc.status}
        return replace(
            call, raw=kept(data.get("raw"), self._task.mask), request_id=self._masked(data.get("request_id")), error=error, latency=latency
        )

    def _answered(self, call: ModelCall, profile: ModelProfile, reply: ModelReply, answer: Parsed | OutputProblem) -> ModelCall:
        problem = None
        if isinstance(answer, OutputProblem):
            problem = {"type": answer.type, "reason": answer.reason, "message": self._task.mask(answer.message)}
        return replace(
            call,
            model=self._task.mask(reply.model),
            raw=kept(reply.raw, self._task.mask),
            finish_reason=self._masked(reply.finish_reason),
            usage=reply.usage,
            cost_micro_usd=None if profile.price is None or reply.usage is None else profile.price.micro_usd(reply.usage),
            latency=reply.latency,
            request_id=self._masked(reply.request_id),
            problem=problem,
        )

    def _masked(self, text: str | None) -> str | None:
        return None if text is None else self._task.mask(text)

    def _left(self) -> float | None:
        return None if self._ends is None else max(0.0, self._ends - self._clock.monotonic())

    def _with_calls(self, exc: StepError) -> StepError:
        given = exc.data if isinstance(exc.data, Mapping) else {}
        details: dict[str, JSON] = {"calls": [call.to_json() for call in self._calls]}
        details |= {key: given[key] for key in ("reason", "problems") if key in given}
        wait = exc.retry_after
        return StepError(exc.message, type=exc.type, status=exc.status, not_done=exc.not_done, retry_after=wait, details=details)


def _raised(options: CallOptions, answer: OutputProblem) -> CallOptions | None:
    """The same question with twice the room, where the answer was cut off and the step allows more."""
    if answer.type != "Truncated" or options.max_tokens is None or options.max_tokens >= (options.raise_to or -inf):
        return None
    return replace(options, max_tokens=min(options.max_tokens * 2, options.raise_to or 0))


def _words(problem: OutputProblem) -> str:
    told = "\n".join(f"- {text}" for text in problem.problems)
    return f"Your answer cannot be used:\n{told}\nReturn only the corrected JSON."
