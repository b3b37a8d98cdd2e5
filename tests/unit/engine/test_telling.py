"""What webhooks are told of a write: which records are events, what they say, and that nothing is written for nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from agiwo.engine.telling import EVENTS, LONGEST_MESSAGE, LONGEST_OUTPUT
from agiwo.errors import Failure
from agiwo.machine.reports import Failed, Succeeded
from agiwo.machine.state import ENDED_INSTANCE
from agiwo.machine.transitions import INSTANCE, STEP
from agiwo.ports.webhooks import Subscription
from kit.engine import Calls, World, row, tool

HOOK = UUID("0193d000-0000-7000-8000-000000000001")


class Feed:
    """Webhooks as the test says."""

    def __init__(self, *wanted: Subscription) -> None:
        self.wanted: Sequence[Subscription] = wanted
        self.number = 1

    async def news(self) -> int:
        return self.number

    async def subscriptions(self) -> Sequence[Subscription]:
        return self.wanted


def wants(*events: str, **more: Any) -> Subscription:
    return Subscription(HOOK, "default", events, **more)


async def told(world: World, *wanted: Subscription) -> list[dict[str, Any]]:
    """The events of one instance, run to its end."""
    node = await world.node(feed=Feed(*wanted))
    _, ended = await world.begin(node)
    await ended
    return [dict(row.body["event"]) for row in world.shelf.outbox]


def test_every_event_is_a_record_of_the_machine() -> None:
    ends = {name for name in EVENTS if name.startswith("instance.")} - set(INSTANCE)
    assert len(ends) == len(ENDED_INSTANCE)
    assert set(EVENTS) - ends <= set(STEP) | set(INSTANCE)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (("*",), ["instance.started", "step.started", "step.succeeded", "instance.succeeded"]),
        (("step.*",), ["step.started", "step.succeeded"]),
        (("instance.succeeded", "instance.failed"), ["instance.succeeded"]),
        (("step.failed",), []),
    ],
)
async def test_a_webhook_gets_what_it_asked_for(world: Callable[..., World], wanted: tuple[str, ...], names: list[str]) -> None:
    assert [event["type"] for event in await told(world(row(tool("a"))), wants(*wanted))] == names


async def test_nothing_is_written_for_webhooks_of_other_workflows_and_tenants(world: Callable[..., World]) -> None:
    other = Subscription(HOOK, "other", ("*",))
    made = world(row(tool("a")))
    assert await told(made, other, wants("*", workflow="another")) == []


async def test_an_error_is_told_short_and_without_its_details(world: Callable[..., World]) -> None:
    failure = Failure("ToolError", "x" * 5000, status=422, details={"secret": "card 4711"})
    made = world(row(tool("a")), Calls(lambda call: Failed(failure)))
    failed, ended = await told(made, wants("step.failed", "instance.failed"))
    for event in (failed, ended):
        error = event["data"]["error"]
        assert (error["type"], error["status"], len(error["message"])) == ("ToolError", 422, LONGEST_MESSAGE)
        assert "4711" not in str(event)
    assert (failed["data"]["step"]["status"], ended["data"]["status"]) == ("FAILED", "FAILED")


async def test_an_output_is_told_to_who_asked_for_it_and_a_long_one_is_left_out(world: Callable[..., World]) -> None:
    (short,) = await told(world(row(tool("a"))), wants("step.succeeded", include_output=True))
    assert short["data"]["output"] == {"of": "a"}
    (plain,) = await told(world(row(tool("a"))), wants("step.succeeded"))
    assert "output" not in plain["data"]
    made = world(row(tool("a")), Calls(lambda call: Succeeded("y" * LONGEST_OUTPUT)))
    (long,) = await told(made, wants("step.succeeded", include_output=True))
    assert "output" not in long["data"] and str(LONGEST_OUTPUT + 2) in long["data"]["output_omitted"]


async def test_webhooks_are_read_anew_only_when_one_has_changed(world: Callable[..., World]) -> None:
    made = world(row(tool("a")))
    feed = Feed(wants("*"))
    node = await made.node(feed=feed)
    assert node.subscriptions.by_tenant == {"default": (wants("*"),)}
    feed.wanted = ()
    await node.subscriptions.round()
    assert node.subscriptions.by_tenant == {"default": (wants("*"),)}
    feed.number += 1
    await node.subscriptions.round()
    assert node.subscriptions.by_tenant == {}
