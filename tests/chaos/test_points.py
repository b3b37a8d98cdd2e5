"""Kill -9 at named points of one report: it ends, and its mail came once."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from agiwo.clock import SystemClock
from agiwo.ports.records import DecisionAnswer
from agiwo.store.pool import service_engine
from agiwo.store.records import PostgresRecords
from agiwo.testing.model_server import Stall
from kit.chaos import STEPS, Point, Site, points_of, site
from kit.killing_mail import DATA, KEPT, RECIPIENT, KillingMail

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

POINTS = [
    Point("committed", None, "instance.started"),
    *(point for step in STEPS for point in points_of(step)),
    Point("committed", "generate_report", "step.approval_asked"),
    Point("claimed"),
    Point("committed", "generate_report", "step.approval_decided"),
    Point("delivered"),
    Point("committed", None, "instance.ended"),
]


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, database) as made:
        yield made


@pytest.fixture
async def killing_mail(tmp_path: Path) -> AsyncIterator[KillingMail]:
    async with KillingMail(tmp_path) as mail:
        yield mail


@pytest.mark.parametrize("point", POINTS, ids=str)
async def test_report_goes_on_after_a_kill_at(point: Point, world: Site) -> None:
    await world.start(point)
    async with world.restarted():
        instance = await world.trigger("ann")
        await world.approve(await world.asked(instance))
        await world.over(instance)
        await world.reached(2)
    await world.succeeded({"ann": instance})
    assert await world.trigger("ann") == instance
    # What was begun and not written down is done again, unless it may not be: then its own side is asked.
    again = point.happening == "attempt_started" or (point.happening == "attempt_returned" and point.step != "send_email")
    assert world.calls(instance) == {(instance, step): 2 if again and step == point.step else 1 for step in STEPS}


@pytest.mark.parametrize("moment", [RECIPIENT, DATA, KEPT])
async def test_mail_comes_once_when_the_service_is_killed_while_handing_it_over(
    moment: str, database: str, tmp_path: Path, killing_mail: KillingMail
) -> None:
    async with site(tmp_path, database, mail=killing_mail) as world:
        killing_mail.at, killing_mail.kill = moment, lambda: world.signal(signal.SIGKILL)
        await world.start()
        async with world.restarted():
            instance = await world.trigger("ann")
            await world.approve(await world.asked(instance))
            await world.over(instance)
        assert world.lives == 2
        await world.succeeded({"ann": instance})
        assert world.calls(instance)[instance, "send_email"] == (1 if moment == KEPT else 2)
        answers = [record["data"]["answer"] for record in await world.history(instance) if record["type"] == "step.probed"]
        assert answers == ["done" if moment == KEPT else "not_done"]


async def test_model_is_asked_again_when_the_service_is_killed_while_it_answers(world: Site) -> None:
    world.model.script.append(Stall())
    await world.start()
    instance = await world.trigger("ann")
    await world.model.seen(1)
    await world.kill()
    await world.start()
    await world.approve(await world.asked(instance))
    await world.over(instance)
    await world.succeeded({"ann": instance})
    assert len(world.model.requests) == 2


async def test_retry_that_is_waited_for_outlives_a_kill(world: Site) -> None:
    away = world.sales.rename(world.folder / "away.sqlite")
    await world.start(Point("committed", "fetch_sales_data", "step.retrying"))
    instance = await world.trigger("ann")
    await world.died_at_its_point()
    away.rename(world.sales)
    await world.start()
    await world.approve(await world.asked(instance))
    await world.over(instance)
    await world.succeeded({"ann": instance})
    assert world.calls(instance)[instance, "fetch_sales_data"] == 2


async def test_report_that_gets_further_between_kills_is_not_taken_for_one_that_kills(world: Site) -> None:
    await world.start(Point("attempt_returned", "fetch_sales_data"))
    instance = await world.trigger("ann")
    await world.died_at_its_point()
    for point in [
        Point("attempt_started", "fetch_sales_data"),
        Point("attempt_returned", "transform_data"),
        Point("attempt_started", "transform_data"),
        Point("attempt_started", "generate_report"),
        Point("attempt_returned", "generate_report"),
        Point("committed", "generate_report", "step.started"),
    ]:
        world.begin(point)
        await world.died_at_its_point()
    await world.start()
    approval = await world.asked(instance)
    await world.until_parked(instance)
    await world.kill()
    await world.start(Point("attempt_returned", "send_email"))
    async with world.restarted():
        await world.approve(approval)
        await world.over(instance)
    await world.succeeded({"ann": instance})


async def test_parked_report_waits_on_through_kills_without_counting_them(world: Site) -> None:
    await world.start()
    instance = await world.trigger("ann")
    await world.asked(instance)
    for _ in range(7):
        await world.until_parked(instance)
        await world.kill()
        await world.start()
    view = await world.view(instance)
    assert (view["status"], view["interrupted_at"]) == ("WAITING", "generate_report")
    await world.approve(await world.asked(instance))
    await world.over(instance)
    await world.succeeded({"ann": instance})
    assert sum(world.notices().values()) == 1


async def test_decision_that_no_owner_has_heard_of_counts_after_the_restart(world: Site) -> None:
    await world.start()
    instance = await world.trigger("ann")
    approval = await world.asked(instance)
    await world.until_parked(instance)
    await world.kill()
    # As the service does it on a click; it dies before it tells anybody.
    pool = service_engine(world.database)
    decided = await PostgresRecords(pool, SystemClock()).decide_approval(
        "default",
        UUID(approval["approval_id"]),
        action="approve",
        by="user:reviewer@example.com",
        channel="page",
        digest=approval["digest"],
    )
    await pool.dispose()
    assert decided.answer is DecisionAnswer.DECIDED
    await world.start()
    await world.over(instance)
    await world.succeeded({"ann": instance})


async def test_what_was_accepted_with_202_is_there_after_a_kill_at_once(world: Site) -> None:
    instances = {}
    for name in ("ann", "bob", "eve"):
        await world.start()
        instances[name] = await world.trigger(name)
        world.signal(signal.SIGKILL)
        await world.ended()
    await world.start()
    for instance in instances.values():
        await world.approve(await world.asked(instance))
    for instance in instances.values():
        await world.over(instance)
    await world.succeeded(instances)


async def test_triggers_whose_clients_hang_up_start_one_report_each_or_none(world: Site) -> None:
    await world.start()
    names = [f"r{number}" for number in range(20)]
    for name in names:
        await world.trigger_and_hang_up(name)
    await world.kill()
    await world.start()
    instances = {name: await world.trigger(name) for name in names}
    for instance in instances.values():
        await world.approve(await world.asked(instance))
    for instance in instances.values():
        await world.over(instance)
    await world.succeeded(instances)
