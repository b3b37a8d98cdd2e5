"""Mail over a real SMTP server: what arrives, what is certain when it fails, and what the probe answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agiwo.clock import SystemClock
from agiwo.errors import StepError, ValidationError
from agiwo.notify.mail import MailNotifier
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.testing import smtp
from agiwo.testing.smtp import Fault, LoopbackMail
from agiwo.toolkit import Probe, ToolContext
from agiwo.tools.builtin.mail import send
from agiwo.tools.calling import ask_tool, call_tool

KEY = "k" * 40
MAIL: dict[str, Any] = {"to": "ops@example.com", "subject": "Weekly", "body": "Hello\n"}


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[LoopbackMail]:
    async with LoopbackMail(tmp_path / "mails") as server:
        yield server


@pytest.fixture
async def connections(mail: LoopbackMail) -> AsyncIterator[Connections]:
    opened = Connections([mail.connection()])
    yield opened
    await opened.close()


def context(connections: Connections, key: str = KEY) -> ToolContext:
    return ToolContext(connections=connections, idempotency_key=key)


async def failing(connections: Connections, **changes: Any) -> StepError:
    with pytest.raises(StepError) as caught:
        await call_tool(send, {**MAIL, **changes}, context(connections))
    return caught.value


async def test_a_mail_arrives_whole_and_its_id_comes_from_the_key(mail: LoopbackMail, connections: Connections) -> None:
    body = "Grüße 周报 — “quotes” & <b>\n.dot\n" + "long " * 400 + "\nend without line end"
    result = await call_tool(
        send,
        {
            "to": ["Zoë <zoe@example.com>", "ops@example.com"],
            "cc": "boss@example.com",
            "reply_to": "desk@example.com",
            "subject": "销售周报 - 2026-W48 “north” " + "x" * 200,
            "body": body,
            "html": "<p>Grüße</p>",
        },
        context(connections),
    )
    assert result == {"message_id": f"<{KEY}@localhost>", "accepted": ["zoe@example.com", "ops@example.com", "boss@example.com"]}
    (got,) = mail.messages
    assert got.message_id == result["message_id"]
    assert got.subject == "销售周报 - 2026-W48 “north” " + "x" * 200
    assert got.text.rstrip("\n") == body
    html = got.message.get_body(("html",))
    assert html is not None
    assert html.get_content().strip() == "<p>Grüße</p>"
    assert got.message["Reply-To"] == "desk@example.com"
    assert got.message["Agiwo-Trace-Id"] == context(connections).trace_id
    assert "Zoë" in str(got.message["To"])
    assert got.recipients == ("zoe@example.com", "ops@example.com", "boss@example.com")
    assert got.raw.isascii()


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "a\r\nBcc: evil@example.com"},
        {"subject": "a\nb"},
        {"to": "a@example.com\r\nBcc: evil@example.com"},
        {"to": "a@example.com\nevil@example.com"},
        {"to": ["ok@example.com", "not an address"]},
        {"to": "a@example.com, b@example.com"},
        {"to": "@example.com"},
        {"to": "someone"},
        {"to": []},
        {"cc": "a@"},
        {"reply_to": "x\u2028@example.com"},
        {"body": None},
        {"bcc": "a@example.com"},
    ],
)
async def test_what_could_forge_a_header_or_is_no_address_is_refused_before_any_connection(
    mail: LoopbackMail, connections: Connections, changes: dict[str, Any]
) -> None:
    error = await failing(connections, **changes)
    assert error.type == "ValidationError"
    assert mail.opened == 0


async def test_a_mail_over_the_limit_is_refused(mail: LoopbackMail) -> None:
    spec = ConnectionSpec("mail", "smtp", mail.url, {"max_bytes": 2000})
    error = await failing(Connections([spec]), body="x" * 3000)
    assert (error.type, error.not_done) == ("PayloadTooLarge", True)


@pytest.mark.parametrize(
    ("fault", "type_", "status", "not_done", "kept"),
    [
        (Fault("recipient", "451 later"), "Unavailable", 451, True, 0),
        (Fault("recipient", "550 no such user"), "ToolError", 550, True, 0),
        (Fault("message", "452 full"), "Unavailable", 452, True, 0),
        (Fault("message", "554 spam"), "ToolError", 554, True, 0),
        (Fault("message", None), "NetworkError", None, False, 0),
        (Fault("message", None, kept=True), "NetworkError", None, False, 1),
    ],
)
async def test_an_error_says_what_is_certain(
    mail: LoopbackMail, connections: Connections, fault: Fault, type_: str, status: int | None, not_done: bool, kept: int
) -> None:
    mail.faults.append(fault)
    error = await failing(connections)
    assert (error.type, error.status, error.not_done) == (type_, status, not_done)
    assert len(mail.messages) == kept
    answer = "done" if kept else "not_done"
    assert (await ask_tool(send, KEY, MAIL, context(connections))).answer == answer


async def test_one_refused_recipient_keeps_the_mail_from_all(mail: LoopbackMail, connections: Connections) -> None:
    mail.faults.append(Fault("recipient", "550 no such user"))
    await failing(connections, to=["a@example.com", "b@example.com"])
    assert mail.messages == []


async def test_no_server_means_that_nothing_was_done() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = await failing(Connections([ConnectionSpec("mail", "smtp", f"smtp://user:s3cr3t@127.0.0.1:{port}")]))
    assert (error.type, error.not_done) == ("NetworkError", True)
    assert "s3cr3t" not in error.message


async def test_a_server_that_says_nothing_is_a_network_error_with_nothing_done() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    error = await failing(Connections([ConnectionSpec("mail", "smtp", f"smtp://127.0.0.1:{port}", {"timeout": 0.05})]))
    server.close()
    assert (error.type, error.not_done) == ("NetworkError", True)


async def test_a_server_that_keeps_its_last_answer_is_a_timeout_that_proves_nothing(mail: LoopbackMail) -> None:
    never = asyncio.Event()

    async def wait() -> None:
        await never.wait()

    mail.before_answer = wait
    error = await failing(Connections([ConnectionSpec("mail", "smtp", mail.url, {"timeout": 0.05})]))
    assert (error.type, error.not_done) == ("Timeout", False)


async def test_a_cancelled_call_closes_its_connection_and_the_probe_knows_it_was_not_done(
    mail: LoopbackMail, connections: Connections
) -> None:
    entered, never = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        entered.set()
        await never.wait()

    mail.before_answer = wait
    call = asyncio.ensure_future(call_tool(send, MAIL, context(connections)))
    await entered.wait()
    assert (await ask_tool(send, KEY, MAIL, context(connections))).answer == "running"
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while (answer := await ask_tool(send, KEY, MAIL, context(connections))).answer == "running":
        pass
    assert answer == Probe("not_done")
    assert mail.messages == []


async def test_the_probe_gives_the_result_that_the_call_gave(mail: LoopbackMail, connections: Connections) -> None:
    result = await call_tool(send, MAIL, context(connections))
    assert await ask_tool(send, KEY, MAIL, context(connections)) == Probe("done", result)
    assert (await ask_tool(send, "other", MAIL, context(connections))).answer == "not_done"


async def test_without_a_probe_or_an_answer_nobody_can_say(mail: LoopbackMail) -> None:
    without = Connections([ConnectionSpec("mail", "smtp", mail.url)])
    assert (await ask_tool(send, KEY, MAIL, context(without))).answer == "unavailable"
    dead = Connections([ConnectionSpec("mail", "smtp", mail.url, {"reconcile_url": mail.url.replace("smtp", "http") + "/x"})])
    assert (await ask_tool(send, KEY, MAIL, context(dead))).answer == "unavailable"
    assert (await ask_tool(send, KEY, MAIL, context(Connections()))).answer == "unavailable"
    await dead.close()


async def test_an_unknown_connection_names_the_nearest(connections: Connections) -> None:
    error = await failing(connections, connection="mial")
    assert error.type == "NotFound"
    assert "did you mean 'mail'" in error.message


async def test_a_notice_goes_the_same_way(mail: LoopbackMail, connections: Connections) -> None:
    notifier = MailNotifier(connections, SystemClock())
    asked = {"subject": "Please decide:\nsend_email", "text": "Open http://localhost/approve/x\n", "key": "n1"}
    await notifier.deliver("ann@example.com", asked)
    await notifier.deliver("bob@example.com", {"subject": "s", "text": "t", "key": "n2", "trace_id": "ab" * 16})
    assert mail.messages[-1].message["Agiwo-Trace-Id"] == "ab" * 16
    first, second = mail.messages
    assert (first.subject, first.message_id, first.recipients) == ("Please decide: send_email", "<n1@localhost>", ("ann@example.com",))
    assert "http://localhost/approve/x" in first.text
    assert second.message_id == "<n2@localhost>"
    with pytest.raises(ValidationError, match="lacks text, key"):
        await notifier.deliver("bob@example.com", {"subject": "s"})


async def test_accepted_mails_are_there_after_a_restart_of_the_server(tmp_path: Path) -> None:
    async with LoopbackMail(tmp_path) as first:
        opened = Connections([first.connection()])
        await call_tool(send, {**MAIL, "body": "Grüße"}, context(opened))
    async with LoopbackMail(tmp_path) as second:
        assert [m.message_id for m in second.messages] == [f"<{KEY}@localhost>"]
        assert second.messages[0].text == "Grüße\n"
        opened = Connections([second.connection()])
        assert (await ask_tool(send, KEY, MAIL, context(opened))).answer == "done"
        await call_tool(send, MAIL, context(opened))
        assert len(second.messages) == 2
        await opened.close()


async def test_as_a_program_it_says_where_it_listens_and_ends_when_asked(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agiwo.testing.smtp", "--folder", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(smtp.__file__).parents[2])},
    )
    assert program.stdout is not None
    where = json.loads(await program.stdout.readline())
    opened = Connections([ConnectionSpec("mail", "smtp", where["url"], {"reconcile_url": where["reconcile_url"]})])
    await call_tool(send, MAIL, context(opened))
    assert (await ask_tool(send, KEY, MAIL, context(opened))).answer == "done"
    await opened.close()
    program.send_signal(signal.SIGTERM)
    assert await program.wait() == 0
    assert os.listdir(tmp_path) == ["000001.eml"]
