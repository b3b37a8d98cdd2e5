"""REQ-47, one table: every trick by which a call could be led where it must not go, through every way by which a workflow makes calls.

Each is refused with a clear reason, and the server on loopback that each of them is aimed at sees no connection.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agiwo.errors import StepError
from agiwo.outbound.connections import Connections
from agiwo.outbound.guard import Guard
from agiwo.tools.builtin.http import request
from agiwo.tools.calling import call_tool
from agiwo.tools.context import ToolContext
from agiwo.tools.declared import declared_tools
from kit.web import Asked, Web, answer

PUBLIC = "93.184.216.34"
#: What the resolver says, the last answer for ever.
NAMES: dict[str, list[list[str]]] = {
    "inside.example": [["127.0.0.1"]],
    "half.example": [[PUBLIC, "127.0.0.1"]],
    "half6.example": [["2606:2800:220:1:248:1893:25c8:1946", "::1"]],
    "mapped.example": [["::ffff:127.0.0.1"]],
    "linked.example": [["fe80::1%lo"]],
    "turning.example": [["127.0.0.1"]],
    "metadata.google.internal": [["169.254.169.254"]],
}
TRICKS = [
    # the address itself, and its other spellings
    "http://127.0.0.1:{port}/", "http://127.1:{port}/", "http://2130706433:{port}/", "http://0x7f.1:{port}/", "http://0x7f000001:{port}/",
    "http://0177.0.0.1:{port}/", "http://017700000001:{port}/", "http://0:{port}/", "http://0.0.0.0:{port}/", "http://127.0.0.1.:{port}/",
    "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://224.0.0.1/",
    # IPv6, and IPv4 wrapped in it
    "http://[::1]:{port}/", "http://[::]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/", "http://[2002:7f00:1::]:{port}/", "http://[2002:7f00:0001::1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/", "http://[64:ff9b:1::7f00:1]:{port}/", "http://[fe80::1]:{port}/", "http://[fe80::1%25lo]:{port}/",
    "http://[fe80::1%lo]:{port}/", "http://[::1%25lo]:{port}/", "http://[fc00::1]:{port}/", "http://[fd00:ec2::254]/", "http://[ff02::1]/",
    "http://[2001:0:7f00:1::]/",
    # names for it
    "http://localhost:{port}/", "http://LOCALHOST:{port}/", "http://localhost.:{port}/", "http://localhost.localdomain:{port}/",
    "http://a.localhost:{port}/", "http://inside.example:{port}/", "http://INSIDE.example.:{port}/", "http://half.example:{port}/",
    "http://half6.example:{port}/", "http://mapped.example:{port}/", "http://linked.example:{port}/", "http://metadata.google.internal/",
    # dots and digits that look like others
    "http://127\u30020\u30020\u30021:{port}/", "http://127\uff0e0\uff0e0\uff0e1:{port}/", "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://\u2460\u2461\u2466.0.0.1:{port}/", "http://127\u00ad.0.0.1:{port}/", "http://loc\u00adalhost:{port}/", "http://\u24db\u24de\u24d2alhost:{port}/",
    "http://127%2e0%2e0%2e1:{port}/", "http://%6c%6f%63alhost:{port}/",
    # two readings of one URL
    "http://public.example@127.0.0.1:{port}/", "http://user:pass@127.0.0.1:{port}/", "http://user:pass@public.example/",
    "http://127.0.0.1:{port}\\@public.example/", "http://public.example\\@127.0.0.1:{port}/", "http://127.0.0.1:{port}#@public.example/",
    "http://127.0.0.1:{port}?@public.example/", "http:/\\127.0.0.1:{port}/", "http://public.example:80@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\t/", "http://\n127.0.0.1:{port}/", "http:///127.0.0.1:{port}/", "http://[127.0.0.1]:{port}/",
    # other ways than HTTP
    "file:///etc/passwd", "FILE:///etc/passwd", "gopher://127.0.0.1:{port}/_x", "ftp://127.0.0.1:{port}/", "dict://127.0.0.1:{port}/",
    "ldap://127.0.0.1:{port}/", "data:text/plain,x", "unix:///run/docker.sock", "http+unix://%2frun%2fdocker.sock/", "jar:http://127.0.0.1!/",
    "//127.0.0.1:{port}/",
]  # fmt: skip


class Resolver:
    """The names of NAMES and of the test; keeps count."""

    def __init__(self, **more: list[list[str]]) -> None:
        self.names = {**NAMES, **{name.replace("_", "."): list(answers) for name, answers in more.items()}}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.names.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def context(connections: Connections, within: float = 20) -> ToolContext:
    return ToolContext(connections=connections, idempotency_key="k", deadline=ToolContext().clock.monotonic() + within)


async def refused(call: Awaitable[Any]) -> StepError:
    with pytest.raises(StepError) as caught:
        await call
    assert "pass" not in caught.value.message
    return caught.value


Get = Callable[[str, Connections], Awaitable[Any]]


async def by_request(url: str, connections: Connections) -> Any:
    return await call_tool(request, {"url": url, "follow_redirects": True}, context(connections))


@pytest.mark.parametrize("trick", TRICKS)
async def test_req_47_no_trick_reaches_an_address_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch, trick: str) -> None:
    async with Web() as web:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, web.url())
        connections = Connections(guard=Guard(resolve=Resolver()))
        error = await refused(by_request(trick.format(port=web.port), connections))
        assert error.type in ("PermissionDenied", "ValidationError") and error.not_done, error.message
        assert error.message and web.connections == 0
        await connections.close()


@pytest.mark.parametrize("trick", TRICKS)
async def test_req_47_no_trick_behind_a_redirect_does_either(trick: str) -> None:
    async with Web() as web, Web() as target:
        location = trick.format(port=target.port).encode("ascii", "ignore").decode()
        if any(ord(one) < 32 for one in location):
            location = location.encode("unicode_escape").decode()
        web.says["/"] = answer(302, Location=location)
        guard = Guard([f"public.example:{web.port}"], resolve=Resolver(public_example=[["127.0.0.1"]]))
        connections = Connections(guard=guard)
        error = await refused(by_request(web.url(host="public.example"), connections))
        assert error.type in ("PermissionDenied", "ValidationError", "NotFound", "NetworkError", "ToolError"), error.message
        assert not error.not_done  # the first of the two calls was made
        assert target.connections == 0
        await connections.close()


@pytest.mark.parametrize("trick", [trick for trick in TRICKS if '"' not in trick])
def test_req_47_no_trick_can_be_declared_as_the_origin_of_a_tool_and_be_reached(tmp_path: Path, trick: str) -> None:
    spec = {"name": "a.b", "description": "x", "http": {"url": trick.format(port=1)}}
    (tmp_path / "t.json").write_text(json.dumps(spec))
    found = declared_tools(tmp_path)
    if found.broken:
        return
    ((_, tool),) = found.tools
    error = asyncio.run(refused(call_tool(tool, {}, context(Connections(guard=Guard(resolve=Resolver()))))))
    assert error.type in ("PermissionDenied", "ValidationError") and error.not_done


async def test_req_47_the_address_that_was_checked_is_the_one_connected_to() -> None:
    """The name turns to another address between two looks: there is only one look, and each new connection has its own."""
    async with Web(says={"/": answer(200, "{}")}) as web:
        resolver = Resolver(turning_example=[["127.0.0.1"], ["10.0.0.1"]])
        connections = Connections(guard=Guard(["127.0.0.1"], resolve=resolver))
        await by_request(web.url(host="turning.example"), connections)
        assert resolver.asked == ["turning.example"] and web.connections == 1
        await connections.close()
        assert (await refused(by_request(web.url(host="turning.example"), connections))).type == "PermissionDenied"
        assert web.connections == 1
        await connections.close()


async def test_req_47_the_services_own_database_is_refused_in_an_allowed_network() -> None:
    async with Web(says={"/": answer(200, "{}")}) as web, Web(says={"/": answer(200, "{}")}) as other:
        for own in ("127.0.0.1", "db.example", "::ffff:127.0.0.1"):
            resolver = Resolver(db_example=[["127.0.0.1"]], alias_example=[["127.0.0.1"]])
            guard = Guard(["127.0.0.0/8", "alias.example"], never=[(own, web.port)], resolve=resolver)
            for connections in (Connections(guard=guard), Connections(guard=guard.allowing(web.url()))):
                for host in ("127.0.0.1", "alias.example", "[::ffff:127.0.0.1]"):
                    error = await refused(by_request(web.url(host=host), connections))
                    assert error.type == "PermissionDenied" and "part of this service itself" in error.message
                assert await by_request(other.url(), connections)
                await connections.close()
        assert web.connections == 0


async def test_req_47_redirects_are_followed_five_times_and_drop_what_was_entrusted_to_another_origin() -> None:
    async with Web() as web, Web(says={"/end": answer(200, "{}")}) as other:
        connections = Connections(guard=Guard([f"127.0.0.1:{web.port}", f"127.0.0.1:{other.port}"]))
        for hop in range(7):
            web.says[f"/{hop}"] = answer(302, Location=f"/{hop + 1}")
        assert "for the 6th time" in (await refused(by_request(web.url("/0"), connections))).message
        assert len(web.asked) == 6
        web.says["/away"] = answer(307, Location=other.url("/end"))
        given = {"url": web.url("/away"), "method": "POST", "follow_redirects": True, "body": {"secret": 1}}
        headers = {"Authorization": "Bearer x", "Cookie": "c=1", "X-Api-Key": "k", "Accept-Language": "en"}
        await call_tool(request, {**given, "headers": headers}, context(connections))
        (asked,) = other.asked
        assert asked.body == b"" and asked.headers["accept-language"] == "en"
        assert not {"authorization", "cookie", "x-api-key", "idempotency-key", "traceparent", "content-type"} & set(asked.headers)
        await connections.close()


def packed(kind: str) -> tuple[bytes, str]:
    once = gzip.compress(b"0" * 20_000_000)
    return {
        "gzip": (once, "gzip"),
        "x-gzip": (once, "x-gzip"),
        "twice": (gzip.compress(once), "gzip, gzip"),
        "deflate": (zlib.compress(b"0" * 20_000_000), "deflate"),
        "br": (b"\x00" * 100, "br"),
        "zstd": (b"\x00" * 100, "zstd"),
        "broken": (once[:1000], "gzip"),
        "none": (b"this is not packed", "gzip"),
        "two parts": (gzip.compress(b"1") + gzip.compress(b"2"), "gzip"),
    }[kind]


@pytest.mark.parametrize("kind", ["gzip", "x-gzip", "twice", "deflate", "br", "zstd", "broken", "none", "two parts"])
async def test_req_47_answer_that_unpacks_to_more_than_allowed_is_never_held(kind: str) -> None:
    body, coding = packed(kind)
    async with Web(says={"/": answer(200, body, type="text/plain", Content_Encoding=coding)}) as web:
        connections = Connections(guard=Guard(["127.0.0.0/8"]))
        error = await refused(call_tool(request, {"url": web.url(), "max_bytes": 10_000}, context(connections)))
        assert error.type == ("PayloadTooLarge" if "gzip" in kind else "ValidationError" if kind != "broken" else "PayloadTooLarge")
        assert web.asked[0].headers["accept-encoding"] == "gzip"
        await connections.close()


@pytest.mark.parametrize("drip", ["a byte now and then", "headers without end", "silence", "redirects without end"])
async def test_req_13_one_clock_runs_over_the_whole_call(drip: str) -> None:
    """However the other side keeps the connection alive; and the connection is closed when the time is over."""
    async with Web() as web:

        async def say(asked: Asked, writer: asyncio.StreamWriter) -> None:
            ticks = asyncio.get_running_loop()
            if drip == "redirects without end":
                writer.write(answer(302, Location="/"))
                return
            if drip == "a byte now and then":
                writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
            elif drip == "headers without end":
                writer.write(b"HTTP/1.1 200 X\r\n")
            while True:
                writer.write({"a byte now and then": b"x", "headers without end": b"X: y\r\n"}.get(drip, b""))
                await writer.drain()
                turn: asyncio.Future[None] = ticks.create_future()
                ticks.call_later(0.01, turn.set_result, None)
                await turn

        web.says["/"] = say
        connections = Connections(guard=Guard(["127.0.0.0/8"]))
        more = {"follow_redirects": True} if "redirects" in drip else {}
        with pytest.raises(StepError) as caught:
            await call_tool(request, {"url": web.url(), **more}, context(connections, within=0.3))
        assert caught.value.type == ("Timeout" if not more else "ToolError")
        if not more and drip != "silence":  # a server that says nothing does not notice
            await web.gone.wait()
        await connections.close()


@pytest.mark.parametrize("location", ["data:text/plain,x", "http://[::1", "http://h:99999/", "jar:http://127.0.0.1!/", "\x7f"])
async def test_answer_with_a_location_that_nobody_can_read_is_an_answer_and_no_call_that_was_not_made(location: str) -> None:
    async with Web(says={"/": answer(302, Location=location)}) as web:
        connections = Connections(guard=Guard(["127.0.0.0/8"]))
        found = await call_tool(request, {"url": web.url(), "method": "POST"}, context(connections))
        assert found["status"] == 302 and found["headers"]["location"] == location
        await connections.close()
