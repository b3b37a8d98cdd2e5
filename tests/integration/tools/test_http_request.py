"""`http.request` over real sockets: what is sent, what comes of each answer, redirects, limits, and where no connection may be made."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agiwo.errors import StepError
from agiwo.executors.secrets import Lent
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.outbound.guard import Guard
from agiwo.toolkit import ToolContext
from agiwo.tools.builtin.http import request
from agiwo.tools.calling import call_tool
from kit.web import Asked, Web, answer

SECRETS = {"TOKEN": "t0ken-hush", "PASSWORD": "pässword-hush", "BROKEN": "a\r\nX: y"}


class Resolver:
    """Gives the addresses of `names` in turn, the last one for ever; keeps count."""

    def __init__(self, **names: list[str]) -> None:
        self.names = {name.replace("_", "."): answers for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.names.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [answers.pop(0) if len(answers) > 1 else answers[0]]


class Caller:
    """The tool with what an operator allows."""

    def __init__(self, *allow: str, specs: Sequence[ConnectionSpec] = (), resolver: Resolver | None = None) -> None:
        self.connections = Connections(specs, Guard(allow, resolve=resolver) if resolver else Guard(allow))

    async def get(self, url: str, *, within: float = 10, **more: Any) -> Any:
        clock = ToolContext().clock
        ctx = ToolContext(
            connections=self.connections,
            idempotency_key="key-1",
            trace_id="ab" * 16,
            deadline=clock.monotonic() + within,
            secrets=Lent(SECRETS),
        )
        return await call_tool(request, {"url": url, **more}, ctx)

    async def fails(self, url: str, **more: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            await self.get(url, **more)
        assert "hush" not in caught.value.message
        return caught.value


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web(says={"/": answer(200, '{"n": 1}')}) as server:
        yield server


@pytest.fixture
async def caller(web: Web) -> AsyncIterator[Caller]:
    made = Caller("127.0.0.0/8")
    yield made
    await made.connections.close()


def service(web: Web, **options: Any) -> ConnectionSpec:
    return ConnectionSpec("crm", "http", web.url("/api"), options)


# What is sent


async def test_call_carries_its_marks_its_query_and_its_body(web: Web, caller: Caller) -> None:
    web.says["/x"] = answer(201, '{"big": 123456789012345678901234567890, "f": 0.1}', X_Kind="k")
    got = await caller.get(
        web.url("/x?a=1"), method="POST", query={"b": [1, "ü&"], "c": True, "d": None}, headers={"X-Own": "yes"}, body={"k": [1.5, "ü"]}
    )
    (asked,) = web.asked
    assert (asked.method, asked.target) == ("POST", "/x?a=1&b=1&b=%C3%BC%26&c=true")
    assert json.loads(asked.body) == {"k": [1.5, "ü"]}
    assert asked.headers["content-type"] == "application/json" and asked.headers["x-own"] == "yes"
    assert asked.headers["idempotency-key"] == "key-1"
    assert asked.headers["traceparent"].startswith("00-" + "ab" * 16)
    assert got["status"] == 201 and got["headers"]["x-kind"] == "k"
    assert got["body"] == {"big": 123456789012345678901234567890, "f": 0.1}


async def test_text_goes_as_it_is_and_the_author_s_headers_win(web: Web, caller: Caller) -> None:
    await caller.get(web.url("/"), method="PUT", body="a=1", headers={"content-type": "text/csv", "idempotency-key": "mine"})
    (asked,) = web.asked
    assert asked.body == b"a=1" and asked.headers["content-type"] == "text/csv" and asked.headers["idempotency-key"] == "mine"


async def test_connection_gives_address_headers_and_secrets(web: Web) -> None:
    web.says["/api/users/1"] = answer(200, "{}")
    headers = {"X-Key": {"secret": "TOKEN"}, "Accept": "application/json"}
    caller = Caller(specs=[service(web, headers=headers, auth={"basic": {"user": "me", "password": "PASSWORD"}})])
    await caller.get("/users/1", connection="crm")
    (asked,) = web.asked
    assert asked.headers["x-key"] == "t0ken-hush" and asked.headers["accept"] == "application/json"
    assert asked.headers["authorization"] == "Basic bWU6cMOkc3N3b3JkLWh1c2g="
    await caller.connections.close()


async def test_path_may_hold_an_address_inside(web: Web) -> None:
    web.says["/api/save/http://other.example/"] = answer(200, "{}")
    caller = Caller(specs=[service(web)])
    assert (await caller.get("/save/http://other.example/", connection="crm"))["status"] == 200
    await caller.connections.close()


@pytest.mark.parametrize("path", ["http://127.0.0.1/", "//evil.example/", "/../admin", "/a/%2e%2e/b", "/a/..", "/./x", "\\..\\x"])
async def test_no_path_leads_out_of_a_connection(web: Web, path: str) -> None:
    error = await Caller(specs=[service(web)]).fails(path, connection="crm")
    assert error.type in ("ValidationError", "PermissionDenied") and error.not_done
    assert web.connections == 0


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Host": "x"}}, {"headers": {"a b": "x"}}, {"headers": {"X": "a\r\nb"}}, {"headers": {"X": {"env": "A"}}},
        {"headers": []},
        {"auth": {"bearer": 1}}, {"auth": {"digest": "A"}}, {"auth": {"basic": {"user": "u"}}}, {"ca_file": "/nowhere"}, {"verify": False},
        {"auth": {"bearer": "MISSING"}}, {"auth": {"bearer": "BROKEN"}}, {"headers": {"X": {"secret": "BROKEN"}}},
    ],
)  # fmt: skip
async def test_connection_that_cannot_be_meant_is_refused_by_name(web: Web, options: dict[str, Any]) -> None:
    error = await Caller(specs=[service(web, **options)]).fails("/", connection="crm")
    assert error.not_done and web.connections == 0


@pytest.mark.parametrize("headers", [{"Host": "x"}, {"Content-Length": "1"}, {"a b": "x"}, {"X": "a\nb"}, {"X": "ü"}, {"X": "1", "x": "2"}])
async def test_header_that_would_make_two_messages_of_one_is_refused(web: Web, caller: Caller, headers: dict[str, str]) -> None:
    error = await caller.fails(web.url(), headers=headers)
    assert error.type == "ValidationError" and web.connections == 0


# What comes of an answer


@pytest.mark.parametrize(
    ("status", "type", "not_done"),
    [
        (400, "ToolError", False), (401, "PermissionDenied", False), (403, "PermissionDenied", False), (404, "NotFound", False),
        (408, "Timeout", False), (409, "Conflict", False), (418, "ToolError", False), (429, "RateLimited", True),
        (500, "Unavailable", False), (503, "Unavailable", False),
    ],
)  # fmt: skip
async def test_status_from_400_on_is_an_error_with_what_was_said(web: Web, caller: Caller, status: int, type: str, not_done: bool) -> None:
    web.says["/"] = answer(status, '{"why": "so"}')
    error = await caller.fails(web.url())
    assert (error.type, error.status, error.not_done, error.data) == (type, status, not_done, {"body": {"why": "so"}})


async def test_expected_statuses_are_results_and_all_others_errors(web: Web, caller: Caller) -> None:
    web.says["/gone"] = answer(404, '{"why": "so"}')
    assert (await caller.get(web.url("/gone"), expect=["2xx", 404]))["body"] == {"why": "so"}
    assert (await caller.fails(web.url("/"), expect=[202])).status == 200


def in_an_hour() -> str:
    return "Tue, 01 Dec 2026 13:00:00 GMT"


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (in_an_hour(), 3600.0),
        ("soon", None),
        ("-5", None),
        ("9" * 400, None),
        ("86400", 86400.0),
        ("", None),
        ("NaN", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_wait_that_an_answer_asks_for(web: Web, caller: Caller, status: int, value: str, wait: float | None) -> None:
    web.says["/"] = answer(status, "{}", Retry_After=value, Date="Tue, 01 Dec 2026 12:00:00 GMT")
    assert (await caller.fails(web.url())).retry_after == wait


@pytest.mark.parametrize(
    ("type", "body", "value"),
    [
        ("application/problem+json; charset=utf-8", b'{"a": 1}', {"a": 1}),
        ("application/json", b"", None),
        ("text/plain", "grün".encode(), "grün"),
        ("text/plain; charset=iso-8859-1", b"gr\xfcn", "grün"),
        ("text/html", b"gr\xfcn", "Z3L8bg=="),
        ("text/plain; charset=nonsense", b"a", "YQ=="),
        ("text/plain; charset=unicode_escape", b"a", "YQ=="),
        ("text/plain; charset=idna", b"a", "YQ=="),
        ('text/plain; charset="UTF-8"', b"a", "a"),
        ("text/plain", b"a\x00b", "YQBi"),
        ("application/octet-stream", b"\x00\xff", "AP8="),
        (None, b"plain", "plain"),
    ],
)
async def test_body_is_read_as_what_it_calls_itself(web: Web, caller: Caller, type: str | None, body: bytes, value: Any) -> None:
    web.says["/"] = answer(200, body, type=type)
    assert (await caller.get(web.url()))["body"] == value


@pytest.mark.parametrize("body", [b"{", b"NaN", b'{"a": 1, "a": 2}', b"\xff", b"1" * 101])
async def test_json_that_is_none_is_an_error(web: Web, caller: Caller, body: bytes) -> None:
    web.says["/"] = answer(200, body)
    assert (await caller.fails(web.url())).type == "ValidationError"


async def test_answer_longer_than_allowed_is_an_error_packed_or_not(web: Web, caller: Caller) -> None:
    web.says["/long"] = answer(200, b"x" * 1001, type="text/plain")
    web.says["/packed"] = answer(200, gzip.compress(b"x" * 1_000_000), type="text/plain", Content_Encoding="gzip")
    for path in ("/long", "/packed"):
        assert (await caller.fails(web.url(path), max_bytes=1000)).type == "PayloadTooLarge"
    assert len((await caller.get(web.url("/long"), max_bytes=1001))["body"]) == 1001


async def test_cookie_of_one_call_is_not_sent_with_the_next(web: Web, caller: Caller) -> None:
    web.says["/"] = answer(200, "{}", Set_Cookie="session=hush; Path=/")
    await caller.get(web.url())
    await caller.get(web.url())
    assert all("cookie" not in asked.headers for asked in web.asked)


# The network


async def test_refused_connection_proves_that_nothing_was_done(caller: Caller) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = await caller.fails(f"http://127.0.0.1:{port}/", method="POST")
    assert (error.type, error.not_done) == ("NetworkError", True)


async def test_connection_that_breaks_after_the_request_proves_nothing(web: Web, caller: Caller) -> None:
    async def hang_up(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    web.says["/"] = hang_up
    error = await caller.fails(web.url(), method="POST")
    assert (error.type, error.not_done) == ("NetworkError", False)


async def drip(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
    while not writer.transport.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silence(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("says", [drip, silence], ids=["drip", "silence"])
async def test_one_clock_runs_over_the_whole_call(web: Web, caller: Caller, says: Any) -> None:
    web.says["/"] = says
    error = await caller.fails(web.url(), within=0.3)
    assert (error.type, error.not_done) == ("Timeout", False)
    if says is drip:
        await web.gone.wait()  # the connection is given up, not kept


async def test_one_clock_runs_over_a_resolver_that_hangs() -> None:
    class Hanging(Resolver):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            await asyncio.get_running_loop().create_future()
            return []

    assert (await Caller(resolver=Hanging()).fails("http://slow.example/", within=0.2)).type == "Timeout"


# Addresses


TRICKS = [
    "http://127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://2130706433:{port}/", "http://0x7f.1:{port}/",
    "http://0177.0.0.1:{port}/", "http://localhost:{port}/", "http://localhost.localdomain:{port}/", "http://localhost.:{port}/",
    "http://127.0.0.1.:{port}/", "http://0:{port}/", "http://0.0.0.0:{port}/", "http://[::]:{port}/", "http://user:pass@127.0.0.1:{port}/",
    "http://inside.example:{port}/", "http://public.example@127.0.0.1:{port}/", "http://127.0.0.1:{port}#@public.example/",
    "http://public.example\\@127.0.0.1:{port}/", "http://[::1%25lo]:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://１２７.0.0.1:{port}/",
    "http://127。0。0。1:{port}/", "file:///etc/passwd", "gopher://127.0.0.1:{port}/", "ftp://127.0.0.1:{port}/", "http://169.254.169.254/",
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
async def test_refused_address_is_never_connected_to(web: Web, monkeypatch: pytest.MonkeyPatch, trick: str) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, web.url())
    caller = Caller(resolver=Resolver(inside_example=["127.0.0.1"]))
    error = await caller.fails(trick.format(port=web.port))
    assert error.type in ("PermissionDenied", "ValidationError") and error.not_done
    assert web.connections == 0
    await caller.connections.close()


async def test_dns_that_changes_between_check_and_connect_cannot_matter(web: Web) -> None:
    resolver = Resolver(turn_example=["127.0.0.1", "10.0.0.1"])
    caller = Caller("127.0.0.1", resolver=resolver)
    assert (await caller.get(web.url(host="turn.example")))["status"] == 200
    assert resolver.asked == ["turn.example"]
    assert web.asked[0].headers["host"] == f"turn.example:{web.port}"
    await caller.connections.close()
    again = await caller.fails(web.url(host="turn.example"))
    assert again.type == "PermissionDenied" and web.connections == 1
    await caller.connections.close()


async def test_connection_of_a_name_is_not_used_for_another(web: Web) -> None:
    caller = Caller("a.example", "b.example", resolver=Resolver(a_example=["127.0.0.1"], b_example=["127.0.0.1"]))
    for host in ("a.example", "b.example", "a.example"):
        await caller.get(web.url(host=host))
    assert web.connections == 2
    await caller.connections.close()


async def test_next_address_of_a_name_is_tried_when_the_first_is_deaf(web: Web) -> None:
    class Two(Resolver):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            return ["127.0.0.2", "127.0.0.1"]

    caller = Caller("127.0.0.0/8", resolver=Two())
    assert (await caller.get(web.url(host="two.example")))["status"] == 200
    await caller.connections.close()


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, str]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    asked = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-days", "2", "-nodes"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", "req", "-x509", *asked, *made], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, str(cert)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_tls_is_with_the_name_though_the_connection_is_to_an_address(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "secure.example")
    seen: list[str | None] = []
    context.sni_callback = lambda _, name, __: seen.append(name)
    async with Web(tls=context, says={"/": answer(200, "{}")}) as web:
        specs = [
            ConnectionSpec("right", "http", web.url("", "secure.example"), {"ca_file": trusted}),
            ConnectionSpec("wrong", "http", web.url("", "other.example"), {"ca_file": trusted}),
            ConnectionSpec("unknown", "http", web.url("", "secure.example")),
        ]
        caller = Caller(specs=specs, resolver=Resolver(secure_example=["127.0.0.1"], other_example=["127.0.0.1"]))
        assert (await caller.get("/", connection="right"))["status"] == 200
        assert seen == ["secure.example"]
        for name in ("wrong", "unknown"):
            error = await caller.fails("/", connection=name)
            assert (error.type, error.not_done) == ("NetworkError", True)
        assert len(web.asked) == 1
        await caller.connections.close()


# Redirects


async def test_redirect_is_an_answer_like_any_other_unless_asked_to_follow(web: Web, caller: Caller) -> None:
    web.says["/a"] = answer(302, "", Location="/")
    assert (await caller.get(web.url("/a")))["status"] == 302
    assert (await caller.get(web.url("/a"), follow_redirects=True))["body"] == {"n": 1}


async def test_redirect_into_the_network_is_refused_with_no_connection_made() -> None:
    async with Web(host="127.0.0.2", says={"/": answer(200, "{}")}) as inside, Web(host="127.0.0.1") as outside:
        caller = Caller("127.0.0.1")
        for number, target in enumerate([inside.url(), "http://169.254.169.254/", "file:///etc/passwd", f"//127.0.0.2:{inside.port}/"]):
            outside.says[f"/{number}"] = answer(302, "", Location=target)
            error = await caller.fails(outside.url(f"/{number}"), method="POST", body={}, follow_redirects=True)
            assert (error.type, error.not_done) == ("PermissionDenied", False)
        assert inside.connections == 0
        await caller.connections.close()


async def test_five_redirects_are_followed_and_no_sixth(web: Web, caller: Caller) -> None:
    for n in range(6):
        web.says[f"/{n}"] = answer(307, "", Location=f"/{n + 1}" if n < 5 else "/")
    assert (await caller.get(web.url("/1"), follow_redirects=True))["status"] == 200
    error = await caller.fails(web.url("/0"), follow_redirects=True)
    assert error.type == "ToolError" and "6th time" in error.message


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
async def test_method_and_body_follow_the_status_within_an_origin(web: Web, caller: Caller, status: int, method: str) -> None:
    web.says["/a"] = answer(status, "", Location="/")
    await caller.get(web.url("/a"), method="POST", body={"k": 1}, headers={"X-Key": "own"}, follow_redirects=True)
    first, last = web.asked
    assert last.method == method and (last.body == first.body) == (method == "POST")
    assert ("content-type" in last.headers) == (method == "POST")
    assert last.headers["x-key"] == "own"


@pytest.mark.parametrize("status", [302, 307])
async def test_credentials_and_bodies_do_not_leave_their_origin(web: Web, status: int) -> None:
    async with Web(says={"/": answer(302, "", Location=web.url("/"))}) as other:
        web.says["/api/a"] = answer(status, "", Location=other.url("/"))
        spec = service(web, auth={"bearer": "TOKEN"}, headers={"X-Key": {"secret": "TOKEN"}})
        caller = Caller("127.0.0.1", specs=[spec])
        await caller.get("/a", connection="crm", method="POST", body={"k": 1}, headers={"Cookie": "c=1"}, follow_redirects=True)
        first, back = web.asked
        assert first.headers["authorization"] == "Bearer t0ken-hush"
        for asked in (other.asked[0], back):
            assert asked.body == b""
            assert not {"authorization", "x-key", "cookie", "idempotency-key", "content-type"} & set(asked.headers)
        await caller.connections.close()


async def test_connection_refused_behind_a_redirect_does_not_say_that_nothing_was_done(web: Web, caller: Caller) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    web.says["/a"] = answer(303, "", Location=f"http://127.0.0.1:{port}/")
    error = await caller.fails(web.url("/a"), method="POST", follow_redirects=True)
    assert (error.type, error.not_done) == ("NetworkError", False)
