"""Kill -9 around a mail whose server cannot be asked: the step stands UNKNOWN, the API names it, and a person moves it on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kit.chaos import Point, Site, address, points_of, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

COMMITTED, STARTED, RETURNED = points_of("send_email")


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, database, probe=False) as made:
        yield made


async def doubtful(world: Site, point: Point) -> tuple[str, dict[str, Any]]:
    """A report whose service was killed there, and what the API says of it after the restart."""
    await world.start(point)
    async with world.restarted():
        instance = await world.trigger("ann")
        await world.approve(await world.asked(instance))
        await world.reached(2)
        view = await world.at(instance, "send_email", "UNKNOWN")
    return instance, view


@pytest.mark.parametrize("point", [COMMITTED, STARTED, RETURNED], ids=str)
async def test_doubtful_step_is_named_stays_so_through_kills_and_is_decided_by_a_person(point: Point, world: Site) -> None:
    instance, view = await doubtful(world, point)
    arrived = len(world.reports())
    assert arrived == (1 if point is RETURNED else 0)
    for _ in range(2):
        view = await world.at(instance, "send_email", "UNKNOWN")
        href = f"/v1/instances/{instance}/steps/send_email/reconcile"
        assert view["status"] == "WAITING"
        assert view["interrupted_at"] == "send_email"
        assert [(wait["kind"], wait["path"], wait["href"]) for wait in view["waiting_for"]] == [("outcome", "send_email", href)]
        assert {"name": "reconcile", "method": "POST", "href": href, "path": "send_email"} in view["actions"]
        steps = (await world.call("GET", f"/v1/instances/{instance}/steps"))["items"]
        assert [step["path"] for step in steps if step["status"] == "UNKNOWN"] == ["send_email"]
        await world.kill()
        await world.start()
    assert len(world.reports()) == arrived, "nothing is sent while nobody knows"
    if arrived:
        (mail,) = world.reports()[address("ann")]
        said: dict[str, Any] = {"done": True, "result": {"message_id": mail.message_id, "accepted": [address("ann")]}}
    else:
        said = {"done": False, "reason": "the mail server's log has nothing"}
    await world.call("POST", href, said)
    await world.over(instance)
    await world.succeeded({"ann": instance})
    decided = [record for record in await world.history(instance) if record["type"] == "step.outcome_decided"]
    assert [record["data"]["done"] for record in decided] == [bool(arrived)]
