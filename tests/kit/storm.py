"""Kills of the service while reports run: at random moments and at named points, with clients that repeat what was not answered."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from kit.chaos import STEPS, Point, Site, points_of
from kit.measure import emit, quantiles

POINTS: Sequence[Point] = (
    *(point for step in STEPS for point in points_of(step)),
    Point("committed", "generate_report", "step.approval_asked"),
    Point("committed", "generate_report", "step.approval_decided"),
    Point("committed", None, "instance.started"),
    Point("committed", None, "instance.ended"),
    Point("claimed"),
    Point("delivered"),
    Point("batch_written", nth=3),
)
LONGEST_LIFE = 0.8  # seconds that a service has from being ready to a kill at a random moment
MOST_IN_A_ROW = 4  # deaths of an instance without getting further, after which a life is left alone until it does; six set it aside
POINT_WITHIN = 5.0  # seconds until a named point must have come; else the kill is one at a random moment


class Storm:
    """`kills` kills, with `per_life` new reports in each life of the service; every second kill is at one of the named `points`."""

    def __init__(self, site: Site, seed: int, kills: int, per_life: int, points: Sequence[Point] = POINTS) -> None:
        self._site = site
        self._random = Random(seed)
        self._kills = kills
        self._per_life = per_life
        self._named = self._random.sample(points, len(points))
        self._deciding: set[str] = set()
        self._clients: set[asyncio.Task[Any]] = set()
        self.seed = seed
        self.instances: dict[str, str] = {}
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        """All kills, then one life in which everything must come to its end; prints what it took."""
        began = time.monotonic()
        approving = asyncio.create_task(self._approve())
        try:
            for number in range(self._kills):
                await self._one_life(number, number % 2 == 0)
            restarted = time.monotonic()
            await self._site.start()
            await asyncio.gather(*self._clients)
            for instance in self.instances.values():
                await self._site.over(instance)
            finished = time.monotonic()
        finally:
            approving.cancel()
            for client in self._clients:
                client.cancel()
            await asyncio.gather(approving, *self._clients, return_exceptions=True)
        await self._site.succeeded(self.instances)
        for name, instance in self.instances.items():
            assert await self._site.trigger(name) == instance, f"the key of {name} stands for two instances"
        await self._report(finished - restarted, finished - began)

    async def _one_life(self, number: int, named: bool) -> None:
        site, random = self._site, self._random
        if await site.stuck(MOST_IN_A_ROW):
            await self._calm_life()
        point = self._named[number // 2 % len(self._named)] if named else None
        # Some die before they are ready, while they take over what the one before has left.
        moment = random.uniform(0, LONGEST_LIFE)
        site.begin(point)
        for index in range(self._per_life):
            self._client(self._trigger(f"r{number}-{index}"))
        if await site.ready():
            status = await site.ended(moment if point is None else POINT_WITHIN)
            if status is None:
                await site.kill()
                self.done["at a random moment"] += 1
                return
        status = await site.ended()
        assert status == -signal.SIGKILL, f"ended with {status}\n{site.log_end()}"
        self.done[f"at {point}"] += 1

    async def _calm_life(self) -> None:
        """A life that ends once all that kills held up got further; more kills in a row the product does not promise to bear."""
        site = self._site

        async def found() -> bool:
            return not await site.stuck(MOST_IN_A_ROW)

        await site.start()
        await site.until("all got further", found)
        await site.kill()
        self.done["at a random moment, once all got further"] += 1

    def _client(self, work: Any) -> None:
        self._clients.add(asyncio.create_task(work))

    async def _trigger(self, name: str) -> None:
        self.instances[name] = await self._site.trigger(name)

    async def _approve(self) -> None:
        """Decides what waits, each once, some at once and some a moment later."""
        while True:
            for approval in await self._site.pending():
                if approval["approval_id"] not in self._deciding:
                    self._deciding.add(approval["approval_id"])
                    self._client(self._decide(approval, self._random.choice((0.0, 0.0, 0.3, 1.0))))
            await asyncio.sleep(0.05)

    async def _decide(self, approval: dict[str, Any], later: float) -> None:
        await asyncio.sleep(later)
        await self._site.approve(approval)

    async def _report(self, restart: float, whole: float) -> None:
        twice = Counter(path for (_, path), times in self._site.calls().items() for _ in range(times - 1))
        unknown = Counter[str]()
        for instance in self.instances.values():
            for record in await self._site.history(instance):
                if record["type"] == "step.unknown":
                    unknown[record["path"]] += 1
        notices = self._site.notices()
        emit(
            "kills", "storm", seed=self.seed, kills=sum(self.done.values()), instances=len(self.instances),
            mails=sum(map(len, self._site.reports().values())), whole_s=round(whole, 2), restart_to_all_done_s=round(restart, 3),
            restart_to_ready=quantiles(self._site.ready_after), calls=sum(self._site.calls().values()), calls_made_again=dict(twice),
            model_requests=len(self._site.model.requests), asked_what_became_of_it=dict(unknown),
            notices=sum(notices.values()), notices_again=sum(notices.values()) - len(notices),
        )  # fmt: skip
        emit("kills", "where", **dict(sorted(self.done.items())))
