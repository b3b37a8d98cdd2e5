"""What makes the attempts of each kind of step, with all that holds calls back: circuits, rates, limits of models, threads, processes.

Each executor here stands around the next; what an attempt is the engine says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

from agiwo.clock import Clock
from agiwo.definition.compiled import Kind
from agiwo.executors.breakers import Breakers
from agiwo.executors.guarded import GuardedCalls, model_circuit, tool_circuit
from agiwo.executors.llm_task import ModelTasks
from agiwo.executors.rated import Rate, RatedCalls
from agiwo.executors.recalling import RecallingCalls
from agiwo.executors.tool_call import Callbacks, ToolCalls
from agiwo.leases.local_rates import LocalRateLimits
from agiwo.models.limits import LocalModelLimits
from agiwo.ports.executor import Executor
from agiwo.settings import Settings
from agiwo.telemetry.log import Log
from agiwo.tools.processes import ToolProcesses
from agiwo.tools.threads import ToolThreads
from agiwo.wiring.channels import Channels
from agiwo.wiring.signals import SignalsFromSteps
from agiwo.wiring.storage import Storage
from agiwo.wiring.world import World


@dataclass(frozen=True, slots=True)
class Execution:
    """The executors by kind, and the parts of them that operators look at."""

    executors: Mapping[Kind, Executor]
    breakers: Breakers
    threads: ToolThreads
    processes: ToolProcesses


@asynccontextmanager
async def execution(
    settings: Settings,
    storage: Storage,
    world: World,
    log: Log,
    clock: Clock,
    random: Random,
    *,
    callbacks: Callbacks,
    channels: Channels,
    signals: SignalsFromSteps,
) -> AsyncIterator[Execution]:
    """Executors over what definitions can reach; at the end they let go of what they hold, the ways to models too.

    `callbacks` makes the addresses at which calls are answered later, `channels` and `signals` are what tools tell people and instances by.
    """
    shared = storage.shared
    rates = LocalRateLimits(clock, storage.nodes) if shared is None else shared.rates
    limits = LocalModelLimits(clock, random, rates, news=None if shared is None else shared.pauses)
    models = ModelTasks(world.profiles, lambda profile: world.providers[profile.name], clock, secrets=world.secrets, limits=limits)
    threads, processes = ToolThreads(settings.threads), ToolProcesses(settings.threads)
    tools = ToolCalls(
        world.registry,
        clock,
        connections=world.connections,
        secrets=world.secrets,
        threads=threads,
        processes=processes,
        callbacks=callbacks,
        tell=channels.tell,
        signals=signals,
        log=log.tool,
    )
    breakers = Breakers(clock, policies=settings.breaker_policies(), news=None if shared is None else shared.news)
    rated = RatedCalls(tools, rates, {name: Rate(one.limit, one.per) for name, one in settings.rates.items()})
    recalling = RecallingCalls(GuardedCalls(rated, breakers, tool_circuit), storage.last_good, clock)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(processes.close)
        for provider in world.providers.values():
            stack.push_async_callback(provider.close)
        stack.push_async_callback(recalling.settled)
        for hearing in (breakers.listen(), limits.listen()):
            listening = asyncio.create_task(hearing)
            stack.push_async_callback(asyncio.wait, [listening])
            stack.callback(listening.cancel)
        executors: Mapping[Kind, Executor] = {Kind.TOOL_CALL: recalling, Kind.LLM_TASK: GuardedCalls(models, breakers, model_circuit)}
        yield Execution(executors, breakers, threads, processes)
