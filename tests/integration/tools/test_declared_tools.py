"""Declared tools over real sockets and real processes: what is sent, what comes of each answer, and what is left of a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agiwo.errors import StepError
from agiwo.executors.secrets import Lent
from agiwo.outbound.connections import Connections, ConnectionSpec
from agiwo.outbound.guard import Guard
from agiwo.tools.calling import ask_tool, call_tool
from agiwo.tools.context import ToolContext
from agiwo.tools.declared import declared_tools
from agiwo.tools.tool import Tool
from kit.web import Asked, Web, answer

SECRETS = {"TOKEN": "t0ken-hush", "PASSWORD": "pass-hush"}


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web() as web:
        yield web


class Desk:
    """Declared tools with what they may reach."""

    def __init__(self, folder: Path, web: Web | None = None) -> None:
        self.folder = folder
        specs = [] if web is None else [ConnectionSpec("crm", "http", web.url("/api"), {"auth": {"bearer": "TOKEN"}})]
        allow = [] if web is None else [f"127.0.0.1:{web.port}"]
        self.connections = Connections(specs, Guard(allow))
        self.lent = Lent(SECRETS)

    def tool(self, text: str) -> Tool:
        (self.folder / "tools.yaml").write_text(text)
        found = declared_tools(self.folder, None)
        assert not found.broken, found.problems
        return found.tools[0][1]

    def context(self, within: float = 10) -> ToolContext:
        deadline = ToolContext().clock.monotonic() + within
        return ToolContext(
            connections=self.connections, idempotency_key="key-1", tenant="acme", trace_id="ab" * 16, deadline=deadline, secrets=self.lent
        )

    async def call(self, text: str, **given: Any) -> Any:
        return await call_tool(self.tool(text), given, self.context())


@pytest.fixture
async def desk(tmp_path: Path, web: Web) -> AsyncIterator[Desk]:
    made = Desk(tmp_path, web)
    yield made
    await made.connections.close()


def declared(web: Web, *lines: str, url: str = "/items/{{ parameters.id }}", head: str = "") -> str:
    parameters = "{type: object, properties: {id: {}, note: {}, tags: {}}, additionalProperties: false}"
    start = f"name: a.tool\ndescription: A tool.\nparameters: {parameters}\n{head}http:\n"
    return start + f"  url: '{web.url('')}{url}'\n" + "".join(f"  {line}\n" for line in lines)


# What is sent


async def test_request_is_made_of_the_declaration_and_the_arguments(web: Web, desk: Desk) -> None:
    web.says["/items/a%2Fb%3F%C3%BC"] = answer(200, '{"ok": [1]}')
    text = declared(
        web,
        "method: POST",
        "query: {note: '{{ parameters.note }}', tag: '{{ parameters.tags }}', fixed: 1}",
        "headers: {X-Tenant: '{{ call.tenant }}', X-Key: 'k {{ secrets.TOKEN }}', X-Note: '{{ parameters.note }}'}",
        "body: {note: '{{ parameters.note }}', id: '{{ parameters.id }}', list: ['{{ parameters.note }}', x]}",
        "auth: {basic: {user: me, password: PASSWORD}}",
    )
    assert await desk.call(text, id="a/b?ü", tags=["x", "y"]) == {"ok": [1]}
    (asked,) = web.asked
    assert asked.method == "POST" and asked.target == "/items/a%2Fb%3F%C3%BC?tag=x&tag=y&fixed=1"
    assert json.loads(asked.body) == {"id": "a/b?ü", "list": ["x"]}
    assert asked.headers["x-tenant"] == "acme" and asked.headers["x-key"] == "k t0ken-hush" and "x-note" not in asked.headers
    assert asked.headers["idempotency-key"] == "key-1" and asked.headers["traceparent"].startswith("00-abab")
    assert asked.headers["authorization"].startswith("Basic ")
    assert set(desk.lent.used) == {"t0ken-hush", "pass-hush"}


async def test_connection_gives_address_and_credentials(web: Web, desk: Desk) -> None:
    web.says["/api/items/7"] = answer(200, '{"n": 7}')
    text = declared(web, "auth: {connection: crm}").replace(web.url(""), "")
    assert await desk.call(text, id=7) == {"n": 7}
    assert web.asked[0].headers["authorization"] == "Bearer t0ken-hush"


@pytest.mark.parametrize("data", ["Hi {{ secrets.TOKEN }} {% raw %} {# x #} ${7*7}", "{{ 7*7 }}"])
async def test_data_is_no_template_in_url_header_and_body_req_25(web: Web, desk: Desk, data: str) -> None:
    seen: list[Asked] = []

    async def say(asked: Asked, writer: asyncio.StreamWriter) -> None:
        seen.append(asked)
        writer.write(answer(200, json.dumps({"said": "{{ secrets.TOKEN }}"})))

    text = declared(web, "method: POST", "body: '{{ parameters.note }}'", "headers: {X-N: '{{ parameters.note }}'}", url="/x")
    web.says["/x"] = say
    assert await desk.call(text, note=data) == {"said": "{{ secrets.TOKEN }}"}
    assert seen[0].body.decode() == data and seen[0].headers["x-n"] == data and "hush" not in str(seen)


@pytest.mark.parametrize("id", ["..", ".", "%2e%2e"])
async def test_argument_does_not_lead_out_of_its_path(web: Web, desk: Desk, id: str) -> None:
    web.says["/items/%252e%252e"] = answer(200, "{}")
    if id == "%2e%2e":
        assert await desk.call(declared(web), id=id) == {}  # percent-encoded once more, it is a name like any other
        return
    with pytest.raises(StepError) as caught:
        await desk.call(declared(web), id=id)
    assert caught.value.type == "PermissionDenied" and caught.value.not_done and not web.asked


async def test_header_cannot_be_broken_by_an_argument(web: Web, desk: Desk) -> None:
    with pytest.raises(StepError) as caught:
        await desk.call(declared(web, "headers: {X-N: '{{ parameters.note }}'}", url="/x"), note="a\r\nX-Admin: 1")
    assert caught.value.type == "ValidationError" and not web.asked


async def test_missing_parameter_of_the_url_and_missing_secret_are_told_before_anything_is_sent(web: Web, desk: Desk) -> None:
    for text, type in ((declared(web), "ValidationError"), (declared(web, "auth: {bearer: NONE}", url="/x"), "PermissionDenied")):
        with pytest.raises(StepError) as caught:
            await desk.call(text)
        assert caught.value.type == type and caught.value.not_done and not web.asked


async def test_address_guard_stands_before_declared_tools_too_req_47(web: Web, tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        await Desk(tmp_path).call(declared(web, url="/x"))
    assert caught.value.type == "PermissionDenied" and caught.value.not_done and web.connections == 0


# What comes of an answer


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ("body.data", [1, 2]),
        ('\'{{ {"n": body.data | length, "s": status, "p": parameters.id} }}\'', {"n": 2, "s": 200, "p": 5}),
        ("/body/data/1", 2),
        ("/status", 200),
        ("headers['x-more']", "yes"),
    ],
)
async def test_result_is_an_expression_or_a_pointer_over_the_answer(web: Web, desk: Desk, result: str, value: Any) -> None:
    web.says["/items/5"] = answer(200, '{"data": [1, 2]}', X_More="yes")
    assert await desk.call(declared(web, f"result: {result}"), id=5) == value


@pytest.mark.parametrize("result", ["body.nothing", "/body/data/7", "/body/x"])
async def test_answer_that_lacks_the_result_is_an_invalid_output(web: Web, desk: Desk, result: str) -> None:
    web.says["/items/5"] = answer(200, '{"data": [1, 2]}')
    with pytest.raises(StepError) as caught:
        await desk.call(declared(web, f"result: {result}"), id=5)
    assert caught.value.type == "OutputInvalid"


@pytest.mark.parametrize(
    ("status", "type", "not_done", "wait"),
    [
        (404, "CustomerGone", True, None),
        (409, "Conflict", False, None),
        (422, "ValidationError", False, None),
        (418, "ToolError", False, None),
        (503, "Unavailable", True, 7.0),
        (502, "Unavailable", False, None),
        (401, "PermissionDenied", False, None),
        (206, "NotFound", False, None),
    ],
)
async def test_statuses_are_errors_as_declared_the_narrowest_range_first(
    web: Web, desk: Desk, status: int, type: str, not_done: bool, wait: float | None
) -> None:
    web.says["/items/5"] = answer(status, '{"why": "so"}', **({"Retry_After": "7"} if status == 503 else {}))
    errors = (
        "errors: {404: {type: CustomerGone, message: gone, not_done: true}, 410-422: {type: ValidationError}, 418: {retry: false}, "
        "5xx: {retry: true}, 503: {retry: true, not_done: true}, 206: {type: NotFound}}"
    )
    with pytest.raises(StepError) as caught:
        await desk.call(declared(web, errors), id=5)
    error = caught.value
    assert (error.type, error.status, error.not_done, error.retry_after) == (type, status, not_done, wait)
    assert error.message == ("gone" if status == 404 else f"the other side answered {status}")
    assert error.data == {"body": {"why": "so"}}


async def test_secret_that_the_other_side_sends_back_can_be_taken_out_req_28(web: Web, desk: Desk) -> None:
    async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(500, json.dumps({"you sent": asked.headers["authorization"]})))

    web.says["/x"] = echo
    with pytest.raises(StepError) as caught:
        await desk.call(declared(web, "auth: {bearer: TOKEN}", url="/x"))
    assert "hush" not in json.dumps(desk.lent.hidden(caught.value.failure()).to_json())


async def test_probe_asks_with_the_same_key(web: Web, desk: Desk) -> None:
    probe = f"reconcile:\n  url: '{web.url('')}/calls/{{{{ call.idempotency_key }}}}'\n  result: body.made\n"
    tool = desk.tool(declared(web, "method: POST", "auth: {bearer: TOKEN}", url="/x", head=probe))
    assert tool.contract.reconcile
    for status, body, said in ((200, '{"made": 3}', "done"), (202, "{}", "running"), (404, "{}", "not_done"), (500, "{}", "unavailable")):
        web.says["/calls/key-1"] = answer(status, body)
        found = await ask_tool(tool, "key-1", {}, desk.context())
        assert found.answer == said and found.result == (3 if said == "done" else None)
    assert {asked.method for asked in web.asked} == {"GET"} and web.asked[0].headers["authorization"] == "Bearer t0ken-hush"


# Commands


def command(
    *lines: str, code: str = "", parameters: str = "{type: object, properties: {a: {}, b: {}}, additionalProperties: false}"
) -> str:
    more = "".join(f"  {line}\n" for line in lines)
    start = f"name: a.command\ndescription: A command.\neffect: read\nparameters: {parameters}\ncommand:\n"
    return (
        start + f"  arguments: [{sys.executable}, -S, -c, {json.dumps(code)}, '{{{{ parameters.a }}}}', '{{{{ parameters.b }}}}']\n" + more
    )


@pytest.fixture
def shell(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


ECHO = (
    "import json, os, sys; print(json.dumps({'args': sys.argv[1:], 'env': dict(os.environ), 'cwd': os.getcwd(), 'in': sys.stdin.read()}))"
)


async def test_arguments_are_one_each_and_the_environment_is_what_was_named(shell: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGIWO_SECRET_KEY", "k" * 40)
    text = command(
        "output: json",
        "folder: /",
        "environment: {LC_ALL: C.UTF-8, TOKEN: {secret: TOKEN}, NOTE: 'n {{ parameters.a }}'}",
        "stdin: '{{ parameters.a }}'",
        code=ECHO,
    )
    found = await shell.call(text, a="x; rm -rf / $(id) `id` 'q' \"p\" {{ 1 }}", b=7)
    out = found["output"]
    assert found["code"] == 0 and out["args"] == ["x; rm -rf / $(id) `id` 'q' \"p\" {{ 1 }}", "7"]
    assert out["cwd"] == "/" and out["in"] == out["args"][0]
    assert {name for name in out["env"] if not name.startswith(("__", "LC_CTYPE"))} == {"LC_ALL", "TOKEN", "NOTE"}
    assert out["env"]["TOKEN"] == "t0ken-hush" and "t0ken-hush" in shell.lent.used


async def test_argument_that_was_not_given_is_left_out(shell: Desk) -> None:
    assert (await shell.call(command("output: json", code=ECHO), b="only"))["output"]["args"] == ["only"]


@pytest.mark.parametrize("value", ["--exec=/bin/sh", "-x", ["a", "b"], {"a": 1}, None, True, "a\x00b"])
async def test_argument_that_would_be_an_option_or_no_text_is_refused(shell: Desk, value: Any) -> None:
    with pytest.raises(StepError) as caught:
        await shell.call(command(code=ECHO), a=value)
    assert caught.value.type in ("PermissionDenied", "ValidationError") and caught.value.not_done


async def test_after_a_double_dash_or_a_dash_of_the_operators_data_may_begin_with_one(shell: Desk) -> None:
    text = command("output: json", code=ECHO).replace(
        "'{{ parameters.a }}', '{{ parameters.b }}'", "'--n={{ parameters.b }}', --, '{{ parameters.a }}'"
    )
    assert (await shell.call(text, a="-x", b="-y"))["output"]["args"] == ["--n=-y", "--", "-x"]


@pytest.mark.parametrize(
    ("code", "type", "status", "said"),
    [
        ("import sys; sys.stderr.write('nobody'); sys.exit(3)", "NotFound", 3, "no such thing"),
        ("import sys; sys.exit(4)", "ToolError", 4, "the program ended with exit code 4"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ToolError", None, "was ended by signal 15"),
        ("print('{')", "OutputInvalid", None, "the output is not what it is declared to be"),
        ("import os; os.write(1, b'\\xff')", "OutputInvalid", None, "UTF-8"),
        ("print('[' + '1,' * 100000 + '1]')", "PayloadTooLarge", None, "more than 1000 bytes"),
    ],
)
async def test_exit_codes_and_output_become_errors_as_declared(shell: Desk, code: str, type: str, status: int | None, said: str) -> None:
    text = command("output: json", "max_bytes: 1000", "exit_codes: {3: {type: NotFound, message: no such thing}}", code=code)
    with pytest.raises(StepError) as caught:
        await shell.call(text)
    assert (caught.value.type, caught.value.status) == (type, status) and said in caught.value.message
    if status == 3:
        assert caught.value.data == {"stderr": "nobody"}


async def test_program_that_cannot_be_started_proves_that_nothing_was_done(shell: Desk) -> None:
    with pytest.raises(StepError) as caught:
        await shell.call("name: a.b\ndescription: x\ncommand: [/nowhere/at/all]\n")
    assert caught.value.type == "NotFound" and caught.value.not_done


#: Its child keeps the pipe that it is given open for as long as it lives, and says in it that it is there.
PARENT = """
import os, sys, time
there, here = os.pipe()
if os.fork() == 0:
    pipe = os.open(sys.argv[1], os.O_WRONLY); os.write(pipe, b'!'); os.write(here, b'!')
    time.sleep(600)
os.read(there, 1)
{then}
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


async def test_cancelled_call_leaves_no_process_of_the_group(shell: Desk, pipe: Path) -> None:
    tool = shell.tool(command(code=PARENT.format(then="time.sleep(600)")))
    task = asyncio.create_task(call_tool(tool, {"a": str(pipe)}, shell.context()))
    with await asyncio.to_thread(pipe.open, "rb", buffering=0) as end:
        assert await asyncio.to_thread(end.read, 1) == b"!"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(end.read, 1) == b""  # nobody holds the other end any more


async def test_descendant_that_holds_the_output_does_not_keep_the_call(shell: Desk, pipe: Path) -> None:
    """Its program ended well: what it left behind is ended too, and nobody waits 600 s for the output."""
    task = asyncio.create_task(shell.call(command(code=PARENT.format(then="print('done')")), a=str(pipe)))
    with await asyncio.to_thread(pipe.open, "rb", buffering=0) as end:
        assert await asyncio.to_thread(end.read, 2) == b"!"
        assert await task == {"code": 0, "output": "done\n"}
        assert await asyncio.to_thread(end.read, 1) == b""


async def test_endless_output_is_ended_and_no_descriptor_is_left(shell: Desk) -> None:
    endless = command("max_bytes: 100000", code="while True: print('x' * 1000)")
    left = []
    for _ in range(3):
        with pytest.raises(StepError) as caught:
            await shell.call(endless)
        assert caught.value.type == "PayloadTooLarge"
        left.append(len(os.listdir("/proc/self/fd")))
    assert left[0] == left[-1]


# Operations of an OpenAPI document


async def test_operation_is_called_as_its_document_says_with_the_operators_credentials(web: Web, desk: Desk) -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    parameters = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
        {"name": "X-Many", "in": "header", "schema": {"type": "array", "items": {"type": "integer"}}},
    ]
    operation = {
        "operationId": "change",
        "parameters": parameters,
        "requestBody": {"content": {"application/json": {"schema": {}}}},
        "responses": {"200": {"content": {"application/json": {"schema": item}}}},
    }
    document = {"openapi": "3.1.0", "paths": {"/a{{ secrets.TOKEN }}/{id}": {"put": operation}}}
    spec = {"document": document, "prefix": "things", "auth": {"connection": "crm"}, "errors": {"404": {"type": "Gone"}}}
    (desk.folder / "tools.yaml").write_text(json.dumps({"openapi": spec}))
    ((_, problem),) = declared_tools(desk.folder).problems
    assert "its path has" in problem.message
    document["paths"] = {"/a/{id}": {"put": operation}}
    text = json.dumps({"openapi": spec})
    web.says["/api/a/x%2Fy"] = answer(200, '{"name": "n"}')
    assert await desk.call(text, id="x/y", tag=["1", "2"], **{"X-Many": [1, 2]}, body="{{ 7*7 }}") == {"name": "n"}
    (asked,) = web.asked
    assert (asked.method, asked.target, asked.body) == ("PUT", "/api/a/x%2Fy?tag=1&tag=2", b'"{{ 7*7 }}"')
    assert asked.headers["x-many"] == "1,2" and asked.headers["content-type"] == "application/json"
    assert asked.headers["authorization"] == "Bearer t0ken-hush" and asked.headers["idempotency-key"] == "key-1"
    web.says["/api/a/x%2Fy"] = answer(200, '{"nom": "n"}')
    for id, type in (("x/y", "ValidationError"), ("z", "Gone"), ("..", "PermissionDenied"), ("", "PermissionDenied")):
        with pytest.raises(StepError) as caught:
            await desk.call(text, id=id)
        assert caught.value.type == type
