"""Carries out an `llm_task` step: one question to a model, with every call that it took kept as sent and as answered.

It decides nothing about the flow, and lets a step lower what its profile allows, never raise it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agiwo.clock import Clock
from agiwo.errors import Failure, InvalidInput, StepError
from agiwo.executors.secrets import Lent
from agiwo.machine.commands import StartAttempt, StartProbe
from agiwo.machine.reports import Failed, Succeeded
from agiwo.models.ladder import Rungs
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelProvider
from agiwo.models.task import ModelTask, Way, run_model_task
from agiwo.ports.executor import Circumstances, ProbeAnswer
from agiwo.ports.model_limits import ModelLimits
from agiwo.tools.context import ToolContext

DEFAULT_PROFILE = "default"
#: The share of an attempt's time, and the seconds at most, that are kept for writing down what the calls came to when time runs out.
_LAST_WORDS = (0.05, 0.5)
#: Characters of the shortest key of an endpoint that is taken out of its answers; a shorter one is a placeholder, such as `none`.
_LEAST_KEY = 16


class ModelTasks:
    """The executor of `llm_task`.

    `profiles` are the service's model profiles by name; `provider_for` gives the open way to one; `limits` holds calls back (None: never).
    """

    def __init__(
        self,
        profiles: Mapping[str, ModelProfile],
        provider_for: Callable[[ModelProfile], ModelProvider],
        clock: Clock,
        *,
        secrets: Mapping[str, str] | None = None,
        limits: ModelLimits | None = None,
    ) -> None:
        self._profiles = profiles
        self._provider_for = provider_for
        self._clock = clock
        self._secrets = secrets or {}
        self._limits = limits
        self._rungs = Rungs(clock)
        self._providers: dict[str, ModelProvider] = {}

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        lent = Lent(self._secrets)
        try:
            arguments = lent.fill(call.arguments, call.secrets)
            ways = self._ways(call.step.llm)
            lent.along(key for way in ways if (key := way.profile.api_key) is not None and len(key) >= _LEAST_KEY)
            task = self._task(call, where, arguments, lent)
            result = await run_model_task(ways, task, self._clock, rungs=self._rungs, limits=self._limits)
        except InvalidInput as exc:
            reason = "; ".join(problem.message for problem in exc.problems) or exc.message
            return Failed(Failure("ValidationError", f"the model profile does not allow this step's `llm`: {reason}", not_done=True))
        except StepError as exc:
            return _failed(exc, lent)
        except Exception as exc:
            # A mistake of ours or of a provider; what it says may quote what was lent.
            return Failed(lent.hidden(Failure("ToolError", f"{type(exc).__name__}: {exc}")))
        calls = [call.to_json() for call in result.calls]
        return Succeeded(lent.hide(result.output), model=result.model(), calls=calls)

    async def probe(self, call: StartProbe, where: Circumstances) -> ProbeAnswer:
        """Nobody can be asked what a model once answered."""
        return ProbeAnswer("unavailable")

    async def close(self) -> None:
        """Close the ways to the models that were opened here."""
        for provider in self._providers.values():
            await provider.close()
        self._providers.clear()

    def _ways(self, llm: Mapping[str, Any]) -> list[Way]:
        """The profile that the step names, and those that it falls back on."""
        first = self._profile(llm.get("profile", DEFAULT_PROFILE))
        ways = [Way(first, self._provider(first), first.options(llm))]
        for name in llm.get("fallback", ()):
            profile = self._profile(name)
            ways.append(Way(profile, self._provider(profile), profile.fallback_options(llm)))
        return ways

    def _profile(self, name: str) -> ModelProfile:
        profile = self._profiles.get(name)
        if profile is None:
            there = ", ".join(sorted(self._profiles)) or "none"
            raise StepError(f"there is no model profile {name!r} on this node; there are: {there}", type="NotFound", not_done=True)
        return profile

    def _provider(self, profile: ModelProfile) -> ModelProvider:
        provider = self._providers.get(profile.name)
        if provider is None:
            provider = self._providers[profile.name] = self._provider_for(profile)
        return provider

    def _task(self, call: StartAttempt, where: Circumstances, arguments: Mapping[str, Any], lent: Lent) -> ModelTask:
        step = call.step
        trace = ToolContext(
            instance_id=str(where.instance_id),
            step=call.path,
            iteration=call.iteration,
            attempt=call.attempt,
            trace_id=where.trace_id or "0" * 32,
        )
        share, most = _LAST_WORDS
        return ModelTask(
            task_prompt=arguments["task_prompt"],
            system_prompt=arguments.get("system_prompt"),
            include=arguments.get("include"),
            output_schema=None if step.output_schema is None else step.output_schema.source,
            repairs=step.repair_attempts,
            deadline=call.timeout - min(call.timeout * share, most),
            headers={"traceparent": trace.traceparent()},
            mask=lent.hide,
            last_try=call.attempt >= step.retry.max_attempts,
        )


def _failed(exc: StepError, lent: Lent) -> Failed:
    failure = lent.hidden(exc.failure())
    calls = None
    if isinstance(failure.details, dict) and "calls" in failure.details:
        details = dict(failure.details)
        calls = details.pop("calls")
        failure = replace(failure, details=details or None)
    return Failed(failure, calls=calls)
