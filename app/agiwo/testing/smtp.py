"""A real mail server on loopback: keeps what it accepts, says by HTTP which Message-IDs it has, and fails on demand.

For the demo and for tests: `LoopbackMail` inside a running loop, or `python -m agiwo.testing.smtp --folder … --port …` as a program of its
own. It must not deliver anything to anybody.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as mail_policy
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from aiosmtpd.smtp import SMTP, Envelope, Session

from agiwo.outbound.connections import ConnectionSpec

HOST = "127.0.0.1"
_SENDER = "Agiwo <agiwo@localhost>"
_ENVELOPE = "X-Loopback-Recipients"


@dataclass(frozen=True, slots=True)
class Received:
    """One accepted message, as it came."""

    recipients: tuple[str, ...]
    raw: bytes = field(repr=False)

    @property
    def message(self) -> EmailMessage:
        parsed = message_from_bytes(self.raw, policy=mail_policy)
        if not isinstance(parsed, EmailMessage):
            raise TypeError("the mail policy makes EmailMessage")
        return parsed

    @property
    def message_id(self) -> str:
        return str(self.message["Message-ID"] or "").strip()

    @property
    def subject(self) -> str:
        return str(self.message["Subject"] or "")

    @property
    def text(self) -> str:
        """The plain text of the mail, its line ends as Python writes them."""
        part = self.message.get_body(("plain",))
        return "" if part is None else str(part.get_content()).replace("\r\n", "\n")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one message: `at` the `recipient` or the `message` (after its data).

    `answer` is the refusal, such as `451 later`; None drops the connection instead of answering. `kept`: the message is accepted all the
    same, and only the answer is lost.
    """

    at: str
    answer: str | None = None
    kept: bool = False


class LoopbackMail:
    """The server; `async with LoopbackMail() as mail`. With a `folder` each accepted message is a file there before it is acknowledged.

    `faults` are used up from the left, one a message. `before_answer` is awaited after the data of a message and before it is kept.
    """

    def __init__(self, folder: Path | None = None, port: int = 0, probe_port: int = 0) -> None:
        self.messages: list[Received] = []
        self.faults: deque[Fault] = deque()
        self.before_answer: Callable[[], Awaitable[None]] | None = None
        self.opened = 0
        self._folder = folder
        self._ports = (port, probe_port)
        self._servers: list[asyncio.Server] = []
        self._transports: set[asyncio.BaseTransport] = set()
        self._unfinished: set[int] = set()
        self._arrived = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"smtp://{HOST}:{self._servers[0].sockets[0].getsockname()[1]}"

    @property
    def probe_url(self) -> str:
        return f"http://{HOST}:{self._servers[1].sockets[0].getsockname()[1]}/messages"

    def connection(self, name: str = "mail") -> ConnectionSpec:
        """This server as a connection for the mail tool, with its probe."""
        return ConnectionSpec(name, "smtp", self.url, {"sender": _SENDER, "reconcile_url": self.probe_url})

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.messages = [_from_file(path) for path in sorted(self._folder.glob("*.eml"))]
        self._servers = [
            await loop.create_server(lambda: _Protocol(self), HOST, self._ports[0]),
            await asyncio.start_server(self._answer_probe, HOST, self._ports[1]),
        ]

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for transport in list(self._transports):
            transport.close()
        for server in self._servers:
            await server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def arrived(self, count: int) -> list[Received]:
        """Waits until that many messages were accepted, and gives them."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.messages) >= count)
        return self.messages

    async def handle_MAIL(self, _: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        self._unfinished.add(id(session))
        return "250 OK"

    async def handle_RCPT(self, _: SMTP, __: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802
        if self.faults and self.faults[0].at == "recipient":
            return await self._fail(self.faults.popleft())
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.before_answer is not None:
            await self.before_answer()
        fault = self.faults.popleft() if self.faults and self.faults[0].at == "message" else None
        received = Received(tuple(envelope.rcpt_tos), envelope.original_content or b"")
        if fault is None or fault.kept:
            self._keep(received)
        self._unfinished.discard(id(session))
        async with self._arrived:
            self._arrived.notify_all()
        if fault is None:
            return "250 OK"
        if fault.answer is None and isinstance(server.transport, asyncio.Transport):
            server.transport.abort()
        return await self._fail(fault)

    async def _fail(self, fault: Fault) -> str:
        if fault.answer is not None:
            return fault.answer
        await asyncio.Event().wait()  # the connection is gone, and this conversation is cancelled with it
        return "421 gone"

    def _keep(self, received: Received) -> None:
        self.messages.append(received)
        if self._folder is not None:
            _to_file(self._folder / f"{len(self.messages):06d}.eml", received)

    def joined(self, transport: asyncio.BaseTransport) -> None:
        self.opened += 1
        self._transports.add(transport)

    def left(self, transport: asyncio.BaseTransport | None, session: Session | None) -> None:
        if transport is not None:
            self._transports.discard(transport)
        self._unfinished.discard(id(session))

    async def _answer_probe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One HTTP request, one answer: GET /messages, or /messages/ and a Message-ID."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ", 2)[1] if head.startswith("GET ") else ""
            status, body = self._probe(path)
            text = json.dumps(body, ensure_ascii=False).encode()
            writer.write(f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n".encode())
            writer.write(b"connection: close\r\n\r\n" + text)
            await writer.drain()
        writer.close()

    def _probe(self, path: str) -> tuple[str, Any]:
        if path == "/messages":
            return "200 OK", [_described(received) for received in self.messages]
        wanted = unquote(path.removeprefix("/messages/"))
        found = [received for received in self.messages if received.message_id == wanted]
        if found:
            return "200 OK", {"accepted": True, "times": len(found), **_described(found[0])}
        if self._unfinished:
            # A message that is still being handed over may be the one that is asked for.
            return "202 Accepted", {"accepted": False, "running": True}
        return "404 Not Found", {"accepted": False}


class _Protocol(SMTP):
    """One conversation; tells the server when it begins and when it is over."""

    def __init__(self, owner: LoopbackMail) -> None:
        super().__init__(owner, hostname="localhost", ident="loopback", loop=asyncio.get_running_loop())
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.joined(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.left(self.transport, self.session)
        super().connection_lost(error)


def _described(received: Received) -> dict[str, Any]:
    return {"message_id": received.message_id, "recipients": list(received.recipients), "subject": received.subject, "text": received.text}


def _to_file(path: Path, received: Received) -> None:
    """Written, synced and only then given its name, so that a file that can be seen is whole and stays."""
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        out.write(f"{_ENVELOPE}: {json.dumps(received.recipients)}\r\n".encode() + received.raw)
        out.flush()
        os.fsync(out.fileno())
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _from_file(path: Path) -> Received:
    first, _, raw = path.read_bytes().partition(b"\r\n")
    return Received(tuple(json.loads(first.partition(b": ")[2])), raw)


async def _serve(folder: Path | None, port: int, probe_port: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with LoopbackMail(folder, port, probe_port) as mail:
        sys.stdout.write(json.dumps({"url": mail.url, "reconcile_url": mail.probe_url}) + "\n")
        sys.stdout.flush()
        await ended.wait()


def main() -> None:
    """Serve until SIGINT or SIGTERM; the first line printed is JSON with `url` and `reconcile_url`."""
    options = argparse.ArgumentParser(prog="agiwo.testing.smtp", description=main.__doc__)
    options.add_argument("--folder", type=Path, help="keep each accepted message as a file here")
    options.add_argument("--port", type=int, default=0, help="SMTP port on loopback; any free one unless given")
    options.add_argument("--probe-port", type=int, default=0, help="HTTP port on loopback; any free one unless given")
    given = options.parse_args()
    try:
        asyncio.run(_serve(given.folder, given.port, given.probe_port))
    except OSError as exc:  # most often the port is taken
        raise SystemExit(f"{options.prog} cannot start: {exc.strerror or exc}") from None


if __name__ == "__main__":
    main()
