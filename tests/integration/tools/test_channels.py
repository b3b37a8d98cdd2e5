"""Channels of the settings to real servers: what a step sends by `notify.send`, and who gets the link of an approval."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agiwo.clock import SystemClock
from agiwo.errors import StepError
from agiwo.notify.webhook import WebhookNotifier
from agiwo.service.notices import ApprovalNotices
from agiwo.service.tokens import ApprovalLinks, Signer
from agiwo.settings import load_settings
from agiwo.settings.parts import SettingsRefused
from agiwo.testing.smtp import LoopbackMail
from agiwo.tools.builtin import notify, standard_registry
from agiwo.tools.calling import call_tool
from agiwo.tools.context import ToolContext
from agiwo.wiring.channels import Channels, Members, open_channels
from agiwo.wiring.credentials import hidden_texts
from agiwo.wiring.world import build_world
from kit.web import Web, answer


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web(says={"/hook-hush": answer(204), "/chat-hush": answer(200, "ok")}) as web:
        yield web


def channels(tmp_path: Path, text: str, opened: list[WebhookNotifier] | None = None) -> Channels:
    (tmp_path / "agiwo.yaml").write_text(text)
    settings = load_settings(tmp_path / "agiwo.yaml")
    made, webhooks = open_channels(settings, build_world(settings, standard_registry(), SystemClock()).connections, SystemClock())
    assert "hush" not in repr(settings) and all("hush" in hidden for hidden in hidden_texts(settings) if "hook" in hidden)
    (opened if opened is not None else []).extend(webhooks)
    return made


@pytest.fixture
async def opened() -> AsyncIterator[list[WebhookNotifier]]:
    out: list[WebhookNotifier] = []
    yield out
    for one in out:
        await one.close()


def written(web: Web, mail: LoopbackMail) -> str:
    return f"""
connections:
  post: {{kind: smtp, url: "{mail.url}", sender: agiwo@example.com}}
channels:
  mail: {{connection: post, to: [ops@example.com]}}
  hook: {{kind: webhook, url: "{web.url("/hook-hush")}"}}
  chat: {{kind: apprise, url: "json://127.0.0.1:{web.port}/chat-hush"}}
  ann: {{kind: webhook, url: "{web.url("/hook-hush")}", principal: "user:ann@example.com"}}
"""


async def test_message_of_a_step_goes_over_each_kind_of_channel(tmp_path: Path, web: Web, opened: list[WebhookNotifier]) -> None:
    async with LoopbackMail() as mail:
        made = channels(tmp_path, written(web, mail), opened)

        async def tell(channel: str, to: Any, body: Any) -> list[str]:
            return await made.tell("default", channel, to, body)

        ctx = ToolContext(idempotency_key="key-1", trace_id="ab" * 16, tell=tell)

        async def send(**given: Any) -> Any:
            return await call_tool(notify.send, {"text": "Line one {{ x }}\nline two", **given}, ctx)

        assert await send() == {"channel": "mail", "to": ["ops@example.com"]}
        assert await send(to=["a@example.com", "b@example.com"], subject="S") == {
            "channel": "mail",
            "to": ["a@example.com", "b@example.com"],
        }
        first, second = mail.messages
        assert (first.subject, first.message_id) == ("Line one {{ x }}", "<key-1@example.com>") and "line two" in first.text
        assert (second.subject, second.recipients) == ("S", ("a@example.com", "b@example.com"))
        assert await send(channel="hook") == {"channel": "hook", "to": []}
        (asked,) = web.asked
        sent = json.loads(asked.body)
        assert sent == {"subject": "Line one {{ x }}", "text": "Line one {{ x }}\nline two", "key": "key-1", "trace_id": "ab" * 16}
        assert asked.headers["idempotency-key"] == "key-1"
        assert await send(channel="chat", subject="S") == {"channel": "chat", "to": []}
        told = json.loads(web.asked[1].body)
        assert (told["title"], told["message"]) == ("S", "Line one {{ x }}\nline two")
        for path, channel, type in (("/hook-hush", "hook", "Unavailable"), ("/chat-hush", "chat", "Unavailable")):
            web.says[path] = answer(503)
            with pytest.raises(StepError) as caught:
                await send(channel=channel)
            assert caught.value.type == type and "hush" not in caught.value.message
        web.says["/hook-hush"] = answer(302, Location="http://169.254.169.254/")
        with pytest.raises(StepError, match="redirects are not followed"):
            await send(channel="hook")


async def test_link_of_an_approval_goes_only_to_a_channel_that_one_person_reads(
    tmp_path: Path, web: Web, opened: list[WebhookNotifier]
) -> None:
    """In a chat that many read a link would let each of them decide as somebody else."""
    async with LoopbackMail() as mail:
        made = channels(tmp_path, written(web, mail), opened)
        links = ApprovalLinks(Signer([b"k" * 32]), "https://agiwo.example.com")
        members = Members({"finance": ("ann@example.com", "bob@example.com"), "sales": ("eve@example.com",)})
        notices = ApprovalNotices(links, made, members, made.reader)
        id = "00000000-0000-0000-0000-000000000007"
        body: dict[str, Any] = {
            "about": "approval", "approval": id, "tenant": "default", "title": "Pay", "expires_at": 2_000_000_000.0, "workflow": "w",
            "version": "1", "path": "s", "instance": str(UUID(int=8)),
        }  # fmt: skip
        for target, to in (("mail", "finance"), ("hook", "finance"), ("ann", "finance"), ("ann", "sales")):
            await notices.deliver(target, {**body, "to": f"role:{to}"})
        assert [message.recipients for message in mail.messages] == [("ann@example.com",), ("bob@example.com",)]
        assert all("https://agiwo.example.com/approve/" in message.text for message in mail.messages)
        shared, ann, other = (json.loads(asked.body)["text"] for asked in web.asked)
        assert "/approve/" in ann
        for text in (shared, other):
            assert "/approve/" not in text and f"agiwo approve {id}" in text


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ("{kind: webhook}", "needs `url`"),
        ("{kind: webhook, url: 'http://user:hush@h/'}", "credentials in a URL are not allowed"),
        ("{kind: apprise, url: 'nosuch://hush'}", "its URL number 1 is none that the notification library takes"),
        ("{kind: apprise, url: 'env:NO_SUCH_VARIABLE'}", "NO_SUCH_VARIABLE"),
        ("{kind: mail, url: 'x'}", "a channel of kind mail has no `url`"),
        ("{connection: nothing}", "there is no connection 'nothing'"),
        ("{kind: smoke}", "mail"),
    ],
)
def test_channel_that_cannot_be_is_refused_at_start(tmp_path: Path, channel: str, said: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        channels(tmp_path, f"channels:\n  ops: {channel}\n")
    assert said in caught.value.message and "hush" not in caught.value.message
