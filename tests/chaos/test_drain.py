"""SIGTERM in the middle of calls: an orderly end loses nothing that a kill would have kept, and doubts only what it really cut off."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agiwo.testing.model_server import Stall
from kit.chaos import Site, site
from kit.killing_mail import KillingMail

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NAMES = [f"r{number}" for number in range(6)]
RECORDED_BY_NO_DEPLOY = {"step.failed", "step.cancelled", "instance.ending", "instance.cancel_asked"}


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[KillingMail]:
    async with KillingMail(tmp_path) as made:
        yield made


@pytest.fixture
async def world(database: str, tmp_path: Path, mail: KillingMail) -> AsyncIterator[Site]:
    async with site(tmp_path, database, mail=mail) as made:
        yield made


async def handing_over(world: Site, mail: KillingMail) -> dict[str, str]:
    """Reports whose mails lie at the server and are not answered."""
    instances = {name: await world.trigger(name) for name in NAMES}
    for instance in instances.values():
        await world.approve(await world.asked(instance))

    async def found() -> bool:
        return mail.handed_over == len(NAMES)

    await world.until("all mails at the server", found)
    return instances


async def records(world: Site, instance: str) -> Counter[str]:
    return Counter(record["type"] for record in await world.history(instance))


async def test_calls_under_way_are_finished_before_the_end(world: Site, mail: KillingMail) -> None:
    """REQ-44."""
    mail.open.clear()
    await world.start(AGIWO_DRAIN="60")
    instances = await handing_over(world, mail)
    world.signal(signal.SIGTERM)
    assert await world.ended(0.5) is None, "it waits for its calls"
    mail.open.set()
    assert await world.ended() == 0, world.log_end()
    assert len(world.reports()) == len(NAMES)
    await world.start()
    await world.succeeded(instances)
    for instance in instances.values():
        assert world.calls(instance)[instance, "send_email"] == 1
        assert not (await records(world, instance)).keys() & {*RECORDED_BY_NO_DEPLOY, "step.unknown"}


async def test_calls_that_take_too_long_are_cut_off_and_only_those_are_in_doubt(world: Site, mail: KillingMail) -> None:
    """REQ-44."""
    mail.open.clear()
    await world.start(AGIWO_DRAIN="1")
    instances = await handing_over(world, mail)
    waiting = await world.trigger("waiting")
    await world.asked(waiting)
    world.model.script.append(Stall())
    before = len(world.model.requests)
    writing = await world.trigger("writing")
    await world.model.seen(before + 1)
    world.sales.rename(world.folder / "away.sqlite")
    retrying = await world.trigger("retrying")
    await world.at(retrying, "fetch_sales_data", "RETRYING")
    world.signal(signal.SIGTERM)
    assert await world.ended() == 0, world.log_end()

    mail.open.set()
    (world.folder / "away.sqlite").rename(world.sales)
    await world.start()
    undisturbed = {"waiting": waiting, "writing": writing, "retrying": retrying}
    for instance in undisturbed.values():
        await world.approve(await world.asked(instance))
    await asyncio.gather(*(world.over(instance) for instance in [*instances.values(), *undisturbed.values()]))
    await world.succeeded(instances | undisturbed)
    for instance in instances.values():
        assert not (await records(world, instance)).keys() & RECORDED_BY_NO_DEPLOY
    for instance in undisturbed.values():
        assert not (await records(world, instance)).keys() & {*RECORDED_BY_NO_DEPLOY, "step.unknown"}
