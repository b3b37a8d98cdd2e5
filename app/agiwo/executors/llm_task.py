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
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import ModelProvider
from agiwo.models.task import ModelTask, run_model_task
from agiwo.ports.executor import Circumstances, ProbeAnswer
from agiwo.tools.context import ToolContext

DEFAULT_PROFILE = "default"


class ModelTasks:
    """The executor of `llm_task`. `profiles` are the service's model profiles by name; `provider_for` gives the open way to one."""

    def __init__(
        self,
        profiles: Mapping[str, ModelProfile],
        provider_for: Callable[[ModelProfile], ModelProvider],
        clock: Clock,
        *,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._profiles = profiles
        self._provider_for = provider_for
        self._clock = clock
        self._secrets = secrets or {}
        self._providers: dict[str, ModelProvider] = {}

    async def perform(self, call: StartAttempt, where: Circumstances) -> Succeeded | Failed:
        lent = Lent(self._secrets)
        try:
            profile = self._profile(call.step.llm)
            arguments = lent.fill(call.arguments, call.secrets)
            task = self._task(call, where, profile, arguments, lent)
            result = await run_model_task(profile, self._provider(profile), task, self._clock)
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

    def _profile(self, llm: Mapping[str, Any]) -> ModelProfile:
        name = llm.get("profile", DEFAULT_PROFILE)
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

    def _task(self, call: StartAttempt, where: Circumstances, profile: ModelProfile, arguments: Mapping[str, Any], lent: Lent) -> ModelTask:
        step = call.step
        trace = ToolContext(
            instance_id=str(where.instance_id),
            step=call.path,
            iteration=call.iteration,
            attempt=call.attempt,
            trace_id=where.trace_id or "0" * 32,
        )
        return ModelTask(
            task_prompt=arguments["task_prompt"],
            options=profile.options({key: value for key, value in step.llm.items() if key != "profile"}),
            system_prompt=arguments.get("system_prompt"),
            output_schema=None if step.output_schema is None else step.output_schema.source,
            repairs=step.repair_attempts,
            deadline=call.timeout,
            headers={"traceparent": trace.traceparent()},
            mask=lent.hide,
        )


def _failed(exc: StepError, lent: Lent) -> Failed:
    failure = lent.hidden(exc.failure())
    calls = None
    if isinstance(failure.details, dict) and "calls" in failure.details:
        details = dict(failure.details)
        calls = details.pop("calls")
        failure = replace(failure, details=details or None)
    return Failed(failure, calls=calls)
