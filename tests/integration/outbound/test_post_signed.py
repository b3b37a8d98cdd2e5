"""One signed message to a real receiver: what each of its answers means for the next try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from standardwebhooks import Webhook

from agiwo.clock import SystemClock
from agiwo.errors import StepError
from agiwo.outbound.guard import Guard
from agiwo.outbound.http import HttpCalls
from agiwo.outbound.signatures import new_secret, post_signed
from agiwo.ports.notifier import Undeliverable
from kit.web import Asked, Web, answer

SECRET = new_secret()


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web() as made:
        yield made


async def post(web: Web, *, allow: tuple[str, ...] = ("127.0.0.1",), url: str | None = None) -> int:
    calls = HttpCalls(Guard(allow))
    try:
        return await post_signed(calls, url or web.url("/hook"), "msg_1", SystemClock().now(), b'{"a":1}', [SECRET], {"x-a": "b"})
    finally:
        await calls.close()


@pytest.mark.parametrize("status", [200, 202, 204, 299])
async def test_any_2xx_is_success_whatever_the_answer_says_and_however_long(web: Web, status: int) -> None:
    web.says["/hook"] = answer(status, b"" if status == 204 else b"y" * 1_000_000)
    assert await post(web) == status
    (asked,) = web.asked
    assert Webhook(SECRET).verify(asked.body, asked.headers) == {"a": 1}
    assert (asked.headers["content-type"], asked.headers["x-a"]) == ("application/json", "b")


@pytest.mark.parametrize(
    ("status", "type"),
    [(301, "NetworkError"), (304, "NetworkError"), (400, "ToolError"), (401, "PermissionDenied"), (404, "NotFound"), (500, "Unavailable")],
)
async def test_anything_else_is_tried_again(web: Web, status: int, type: str) -> None:
    web.says["/hook"] = answer(status, location=web.url("/other"))
    with pytest.raises(StepError) as failed:
        await post(web)
    assert (failed.value.status, failed.value.type) == (status, type)
    assert not isinstance(failed.value, Undeliverable)
    assert len(web.asked) == 1, "a redirect is not followed"


async def test_a_wish_for_patience_is_handed_on(web: Web) -> None:
    web.says["/hook"] = answer(429, retry_after="120")
    with pytest.raises(StepError) as failed:
        await post(web)
    assert (failed.value.status, failed.value.retry_after) == (429, 120)


async def test_what_is_gone_or_refused_is_never_tried_again(web: Web) -> None:
    web.says["/hook"] = answer(410)
    with pytest.raises(Undeliverable) as gone:
        await post(web)
    assert gone.value.status == 410
    for url in (web.url("/hook"), "http://169.254.169.254/", "http://[::ffff:127.0.0.1]/", "ftp://x/", "http://a:b@x.example/"):
        with pytest.raises(Undeliverable):
            await post(web, allow=(), url=url)
    assert len(web.asked) == 1


async def test_a_receiver_that_dies_in_the_middle_is_tried_again(web: Web) -> None:
    async def die(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()
        writer.close()

    web.says["/hook"] = die
    with pytest.raises(StepError) as failed:
        await post(web)
    assert failed.value.type == "NetworkError" and not isinstance(failed.value, Undeliverable)
