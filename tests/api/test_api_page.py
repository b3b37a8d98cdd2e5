"""The approval page as a browser, a phone and a mail scanner meet it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import httpx
import pytest

from agiwo.console.page import marked, pieces
from agiwo.service.notices import LINK_KEPT, ApprovalNotices, link_of, mail
from agiwo.service.tokens import Link
from kit.api import World

HOSTILE = '<img src=x onerror=alert(1)></textarea></script><script>alert(1)</script>" onmouseover=x [a](javascript:alert(1))'


async def opened(world: World, workflow: str, principal: str = "user:ann@example.com", **body: Any) -> tuple[dict[str, Any], str]:
    """A waiting instance and the path of one person's page."""
    view = await world.run(workflow, **(body or {"input": {"week": "48"}}))
    approval = UUID(view["waiting_for"][0]["approval_id"])
    expires = world.services.clock.now() + 1000
    return view, world.services.links.url(Link("default", approval, principal, expires)).removeprefix("http://agiwo.test")


async def state(world: World, view: dict[str, Any]) -> str:
    return (await world.client.get(view["waiting_for"][0]["href"])).json()["status"]


def hidden(page: httpx.Response) -> dict[str, str]:
    return {"digest": re.findall(r'name="digest" value="([^"]+)"', page.text)[0]}


async def test_opening_and_scanning_a_link_decides_nothing(world: World) -> None:
    view, path = await opened(world, "report")
    for _ in range(3):
        assert (await world.anonymous.get(path, headers={"user-agent": "scanner"})).status_code == 200
        assert (await world.anonymous.head(path)).status_code == 200
    assert await state(world, view) == "pending"
    page = await world.anonymous.get(path)
    assert '<button type="submit" name="action" value="approve"' in page.text
    assert "<script" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    style = await world.anonymous.get("/console/static/approval.css")
    assert style.headers["content-type"].startswith("text/css")


async def test_the_form_decides_once_and_the_page_then_shows_who_decided_what(world: World) -> None:
    view, path = await opened(world, "report")
    form = hidden(await world.anonymous.get(path)) | {"action": "approve", "comment": "fine", "output": "All went well."}
    answer = await world.anonymous.post(path, data=form)
    assert answer.status_code == 303
    again = await world.anonymous.post(path, data=form)
    assert again.status_code == 303
    page = await world.anonymous.get(path)
    assert page.status_code == 200
    assert "user:ann@example.com" in page.text
    assert "<form" not in page.text
    decided = (await world.client.get(view["waiting_for"][0]["href"])).json()["decision"]
    assert (decided["by"], decided["channel"], decided["comment"]) == ("user:ann@example.com", "link", "fine")
    assert "output" not in decided
    contrary = await world.anonymous.post(path, data=form | {"action": "reject"})
    assert contrary.status_code == 409


async def test_an_edited_text_is_taken_with_plain_line_ends(world: World) -> None:
    world.model.answer = "\n First\r\nsecond"
    view, path = await opened(world, "report")
    page = await world.anonymous.get(path)
    shown = re.findall(r'<textarea name="output"[^>]*>\n(.*?)</textarea>', page.text, re.DOTALL)[0]
    # The browser drops one line end after the tag; the text's own stays.
    assert shown.replace("\r\n", "\n") == "\n First\nsecond"
    unchanged = hidden(page) | {"action": "approve", "output": "\r\n First\r\nsecond"}
    assert (await world.anonymous.post(path, data=unchanged)).status_code == 303
    await world.client.get(view["links"]["events"])
    assert (await world.client.get(view["links"]["self"])).json()["output"] == "\n First\r\nsecond"
    view, path = await opened(world, "report")
    changed = hidden(await world.anonymous.get(path)) | {"action": "approve", "output": "One\r\ntwo"}
    assert (await world.anonymous.post(path, data=changed)).status_code == 303
    await world.client.get(view["links"]["events"])
    assert (await world.client.get(view["links"]["self"])).json()["output"] == "One\ntwo"
    world.model.answer = "All went well."


@pytest.mark.parametrize("field", ["to", "amount"])
async def test_hostile_text_is_shown_as_text(world: World, field: str) -> None:
    _, path = await opened(world, "gate", input={"to": "Bob", "amount": 1} | {field: HOSTILE})
    page = await world.anonymous.get(path)
    assert page.status_code == 200
    for tag in ("<img", "<script", "<b>", "</script"):
        assert tag not in page.text
    assert not re.search(r'<[^>]*"\s+onmouseover', page.text)


async def test_a_hostile_model_answer_stays_in_its_field(world: World) -> None:
    world.model.answer = HOSTILE
    _, path = await opened(world, "report")
    page = await world.anonymous.get(path)
    assert "<img" not in page.text
    assert page.text.count("</textarea>") == 2
    world.model.answer = "All went well."


async def test_a_form_is_filled_in_by_type_and_what_is_wrong_is_marked(world: World) -> None:
    view, path = await opened(world, "gate", input={"to": "Bob", "amount": 12})
    page = await world.anonymous.get(path)
    assert "debug.echo" in page.text
    assert "12" in page.text
    base = hidden(page) | {"action": "approve", "comment": "kept <i>"}
    for wrong in ({}, {"field.cost_centre": "seven"}, {"field.cost_centre": "7", "field.kind": "9"}):
        answer = await world.anonymous.post(path, data=base | wrong)
        assert answer.status_code == 422
        assert "kept &lt;i&gt;" in answer.text
        assert 'class="problem"' in answer.text
    assert await state(world, view) == "pending"
    filled = {"field.cost_centre": "7", "field.urgent": "true", "field.kind": "1", "field.note": "007"}
    assert (await world.anonymous.post(path, data=base | filled)).status_code == 303
    decided = (await world.client.get(view["waiting_for"][0]["href"])).json()["decision"]
    assert decided["values"] == {"cost_centre": 7, "urgent": True, "kind": "services", "note": "007"}


async def test_the_page_speaks_chinese_to_whoever_asks_for_it(world: World) -> None:
    _, path = await opened(world, "report")
    chinese = await world.anonymous.get(path, headers={"accept-language": "fr, zh-CN;q=0.9, en;q=0.8"})
    assert '<html lang="zh">' in chinese.text
    assert "批准" in chinese.text
    assert '<html lang="en">' in (await world.anonymous.get(path, headers={"accept-language": "en-GB, zh;q=0.1"})).text


async def test_a_stranger_to_the_matter_cannot_decide_it(world: World) -> None:
    view, path = await opened(world, "gate", "user:eve@example.com", input={"to": "Bob", "amount": 1})
    form = hidden(await world.anonymous.get(path)) | {"action": "approve", "field.cost_centre": "7"}
    assert (await world.anonymous.post(path, data=form)).status_code == 403
    assert await state(world, view) == "pending"


async def test_wrong_links_are_404_expired_ones_410_and_a_changed_matter_412(world: World) -> None:
    _, path = await opened(world, "report")
    assert (await world.anonymous.get(path[:-2] + ("AA" if path[-2:] != "AA" else "BB"))).status_code == 404
    assert (await world.anonymous.get("/approve/x")).status_code == 404
    token = world.services.links.mint(Link("default", UUID(int=1), "user:a@b.c", 1.0))
    assert (await world.anonymous.get(f"/approve/{token}")).status_code == 410
    changed = await world.anonymous.post(path, data={"action": "approve", "digest": "0" * 64})
    assert changed.status_code == 412
    assert "<form" in changed.text


async def test_a_cancelled_matter_is_over_on_the_page(world: World) -> None:
    view, path = await opened(world, "report")
    await world.client.post(f"{view['links']['self']}/cancel")
    await world.client.get(view["links"]["events"])
    assert (await world.anonymous.get(path)).status_code == 410
    assert (await world.anonymous.post(path, data={"action": "approve"})).status_code == 410


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"action=approve&action=reject", "application/x-www-form-urlencoded", 400),
        (b"action=%00", "application/x-www-form-urlencoded", 422),
        (b"action=approve&output=%00", "application/x-www-form-urlencoded", 422),
        (b"action=approve&comment=%ff%fe", "application/x-www-form-urlencoded", 303),
        (b"", "application/x-www-form-urlencoded", 422),
    ],
)
async def test_odd_forms_get_a_clear_answer(world: World, content: bytes, kind: str, status: int) -> None:
    _, path = await opened(world, "report")
    answer = await world.anonymous.post(path, content=content, headers={"content-type": kind})
    assert answer.status_code == status


async def test_a_notice_becomes_a_mail_whose_link_works_for_its_recipient_alone(world: World) -> None:
    view, _ = await opened(world, "gate", input={"to": "Bob", "amount": 1})
    approval = (await world.client.get(view["waiting_for"][0]["href"])).json()
    body = {
        "about": "approval", "approval": approval["approval_id"], "to": "user:ann@example.com", "instance": view["instance_id"],
        "workflow": "gate", "version": "1.0", "tenant": "default", "trace_id": view["trace_id"], "step": "pay", "path": "pay",
        "title": "Pay\r\nBcc: eve@example.com", "show": "Amount 1", "digest": approval["digest"],
        "asked_at": world.services.clock.now(), "expires_at": world.services.clock.now() + 60,
    }  # fmt: skip
    made = mail(world.services.links, body, "user:ann@example.com")
    assert "\n" not in made["subject"]
    assert made["link"] in made["text"]
    assert made["link"].startswith("http://agiwo.test/approve/")
    long = mail(world.services.links, body | {"show": "x" * 1_000_000}, "user:ann@example.com")
    assert made["link"] in long["text"]
    assert len(long["text"]) < 25_000
    page = await world.anonymous.get(made["link"].removeprefix("http://agiwo.test"))
    assert "user:ann@example.com" in page.text
    assert link_of(body, body["to"]).expires_at == body["expires_at"] + LINK_KEPT


BY_ROLE = """\
workflow:
  id: by_role
  version: "1.0"
  steps:
    - {id: pay, type: tool_call, tool: debug.echo, parameters: {value: 1}, approval: {approvers: ["role:finance"]}}
"""


async def test_every_member_of_a_role_gets_a_link_that_decides_in_that_persons_name(world: World) -> None:
    await world.publish(BY_ROLE)
    view, stranger = await opened(world, "by_role", principal="user:eve@example.com", input={})
    now = world.services.clock.now()
    body = {
        "about": "approval", "approval": view["waiting_for"][0]["approval_id"], "to": "role:finance", "instance": view["instance_id"],
        "workflow": "by_role", "version": "1.0", "tenant": "default", "path": "pay", "title": "Pay", "expires_at": now + 60,
    }  # fmt: skip
    sent: list[Mapping[str, Any]] = []

    class Sent:
        async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
            sent.append(body)

    members = {"role:finance": ["user:ann@example.com", "user:bob@example.com"]}
    await ApprovalNotices(world.services.links, Sent(), members.__getitem__).deliver("mail", body)
    assert [mail["to"] for mail in sent] == members["role:finance"]
    ann, bob = (mail["link"].removeprefix("http://agiwo.test") for mail in sent)
    form = hidden(await world.anonymous.get(bob)) | {"action": "approve"}
    assert (await world.anonymous.post(stranger, data=form)).status_code == 403
    assert (await world.anonymous.post(bob, data=form)).status_code == 303
    assert (await world.client.get(view["waiting_for"][0]["href"])).json()["decision"]["by"] == "user:bob@example.com"
    assert (await world.anonymous.post(ann, data=form)).status_code == 409


TABLED = """\
workflow:
  id: tabled
  version: "1.0"
  steps:
    - id: pay
      type: tool_call
      tool: debug.echo
      parameters: {value: 1}
      approval:
        show: |
          To: {{ input.to }}

          {{ input.rows | table }}

          A long sentence - with a dash -- or two.
"""


async def test_a_table_of_text_keeps_its_columns_and_prose_is_wrapped(world: World) -> None:
    await world.publish(TABLED)
    rows = [{"region": "<north>", "total": 12}, {"region": "south", "total": 7}]
    _, path = await opened(world, "tabled", input={"to": "ann", "rows": rows})
    page = (await world.anonymous.get(path)).text
    table = "region   total\n-------  -----\n&lt;north&gt;     12\nsouth        7"
    assert f'<div class="text">To: ann</div><pre class="table" tabindex="0">{table}</pre>' in page
    assert '<div class="text">A long sentence - with a dash -- or two.</div>' in page
    assert ".table { white-space: pre; overflow-x: auto;" in (await world.anonymous.get("/console/static/approval.css")).text


@pytest.mark.parametrize("text", ["", "a", "\n\na\n", "Title\n---\nprose", "--  --", "--  --\na", "a\n\n--  --\nb", "a\r\nb"])
def test_a_text_without_a_table_is_shown_as_it_is(text: str) -> None:
    assert pieces(text) == [("prose", text)]


def test_marks_of_direction_are_shown_and_turn_nothing() -> None:
    assert marked("\u202eabc\u202c 12") == r"\u202eabc\u202c 12"
    assert marked("שלום 华东") == "שלום 华东"
