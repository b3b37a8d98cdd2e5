"""A real local HTTP server with answers that a test writes byte for byte, and a record of what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

Answering = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came over the wire; header names in small letters."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def answer(status: int = 200, body: bytes | str = b"", *, type: str | None = "application/json", **headers: str) -> bytes:
    """A whole answer as bytes; `_` in a header's name stands for `-`."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
    if type is not None:
        lines.append(f"Content-Type: {type}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + data


@dataclass
class Web:
    """The server: `says` has for a path the bytes of its answer, or a function that writes it; anything else is 404."""

    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    says: dict[str, bytes | Answering] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _server: Any = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Web:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._serving.add(asyncio.ensure_future(self._serve(reader, writer)))

        self._server = await asyncio.start_server(accept, self.host, 0, ssl=self.tls)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"{'https' if self.tls else 'http'}://{host or self.host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (line := await reader.readline()).strip():
                method, target, _ = line.decode().split(" ", 2)
                headers = {}
                while (row := (await reader.readline()).decode("latin-1").strip()) != "":
                    name, _, value = row.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                asked = Asked(method, target, headers, body)
                self.asked.append(asked)
                says = self.says.get(target.partition("?")[0], answer(404, "{}"))
                if isinstance(says, bytes):
                    writer.write(says)
                else:
                    await says(asked, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.gone.set()
            writer.close()
