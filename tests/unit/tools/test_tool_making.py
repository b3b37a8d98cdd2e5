"""Tools from functions, the registry, and what a call makes of arguments, results and exceptions."""

from __future__ import annotations

import asyncio
import threading
from datetime import date
from typing import Annotated, Any, Literal, TypedDict

import httpx
import pytest

from agiwo.errors import Conflict, InvalidInput, NotFound, StepError, ValidationError
from agiwo.toolkit import Effect, Probe, ToolContext, ToolExecutionError, ToolRegistry, tool
from agiwo.tools.calling import ask_tool, call_tool
from agiwo.tools.threads import ToolThreads


@tool(name="get_weather", description="获取指定城市的当前天气", parameters={"city": {"type": "string", "description": "城市名称"}})
async def get_weather(city: str) -> dict[str, Any]:
    if city == "Atlantis":
        raise ToolExecutionError("天气API请求失败", error_code="NETWORK_ERROR")
    return {"city": city, "sky": "clear"}


async def test_the_article_s_tool_registers_and_runs() -> None:
    registry = ToolRegistry([get_weather])
    assert await call_tool(registry.get("get_weather"), {"city": "北京"}, ToolContext()) == {"city": "北京", "sky": "clear"}
    contract = registry.contracts()["get_weather"]
    assert contract.parameters["required"] == ["city"]
    assert contract.parameters["additionalProperties"] is False


async def test_the_article_s_error_code_maps_onto_the_tree() -> None:
    with pytest.raises(StepError) as caught:
        await call_tool(get_weather, {"city": "Atlantis"}, ToolContext())
    assert (caught.value.type, caught.value.message) == ("NetworkError", "天气API请求失败")


def test_an_undeclared_effect_is_a_write_with_a_warning() -> None:
    assert get_weather.contract.effect is Effect.WRITE
    assert [w.code for w in ToolRegistry().register(get_weather)] == ["effect_undeclared"]


class Place(TypedDict):
    lat: float
    lon: float


def test_the_schema_comes_from_the_type_hints() -> None:
    @tool(name="t", effect="read")
    async def t(
        ctx: ToolContext,
        name: Annotated[str, "Who it is."],
        count: int = 3,
        ratio: float | None = None,
        kind: Literal["a", "b"] = "a",
        tags: list[str] | None = None,
        places: dict[str, Place] | None = None,
        anything: Any = None,
    ) -> None:
        """Does something."""

    schema = t.contract.parameters
    assert t.context == "ctx"
    assert t.contract.description == "Does something."
    assert schema["required"] == ["name"]
    assert schema["properties"]["name"] == {"type": "string", "description": "Who it is."}
    assert schema["properties"]["count"] == {"type": "integer", "default": 3}
    assert schema["properties"]["ratio"] == {"type": ["number", "null"]}
    assert schema["properties"]["kind"] == {"enum": ["a", "b"], "default": "a"}
    assert schema["properties"]["places"]["anyOf"][0]["additionalProperties"]["required"] == ["lat", "lon"]
    assert set(schema["properties"]) == {"name", "count", "ratio", "kind", "tags", "places", "anything"}


def test_a_type_without_json_form_is_refused_when_registered() -> None:
    with pytest.raises(TypeError, match="'day'"):

        @tool(name="t")
        async def t(day: date) -> None: ...


def test_schema_and_function_have_to_agree() -> None:
    with pytest.raises(TypeError, match="has no parameter 'town'"):
        tool(name="t", parameters={"type": "object", "properties": {"town": {}}})(_takes_city)
    with pytest.raises(TypeError, match="needs 'city'"):
        tool(name="t", parameters={"type": "object"})(_takes_city)
    with pytest.raises(TypeError, match="does not require"):
        tool(name="t", parameters={"type": "object", "properties": {"city": {}}})(_takes_city)


async def _takes_city(city: str) -> str:
    return city


def test_a_broken_schema_is_refused_when_registered() -> None:
    with pytest.raises(InvalidInput) as caught:
        tool(name="t", parameters={"city": {"type": "strin"}})(_takes_city)
    assert caught.value.problems[0].pointer == "/properties/city/type"


def test_a_parameter_may_be_called_type() -> None:
    @tool(name="t", parameters={"type": {"type": "string"}})
    async def t(type: str) -> str:  # noqa: A002
        return type

    assert t.contract.parameters["properties"] == {"type": {"type": "string"}}


@pytest.mark.parametrize("name", ["", "1a", "a..b", "a b", "a.", "ä"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no tool name"):
        tool(name=name)


def test_a_use_must_name_a_parameter() -> None:
    with pytest.raises(ValueError, match="uses"):
        tool(name="t", uses={"town": "sql"})(_takes_city)


def test_a_name_is_taken_once_and_an_unknown_one_gets_the_nearest() -> None:
    registry = ToolRegistry([get_weather])
    registry.register(get_weather)
    with pytest.raises(Conflict):
        registry.register(tool(name="get_weather")(_takes_city))
    with pytest.raises(NotFound, match="did you mean 'get_weather'"):
        registry.get("get_wether")
    with pytest.raises(TypeError, match="decorate"):
        registry.register(_takes_city)  # type: ignore[arg-type]


async def test_a_misfit_fails_before_the_tool_is_entered() -> None:
    calls: list[int] = []

    @tool(name="t", effect="read")
    async def t(count: int) -> int:
        calls.append(count)
        return count

    with pytest.raises(ValidationError) as caught:
        await call_tool(t, {"count": "007"}, ToolContext())
    assert calls == []
    assert caught.value.data["problems"][0]["pointer"] == "/count"
    assert await call_tool(t, {"count": "7"}, ToolContext()) == 7


async def test_the_tool_cannot_change_what_the_engine_holds() -> None:
    held: dict[str, Any] = {}

    @tool(name="t", effect="pure")
    async def t(rows: list[Any]) -> dict[str, Any]:
        rows.append("more")
        held["rows"] = rows
        return held

    arguments = {"rows": [1]}
    result = await call_tool(t, arguments, ToolContext())
    held["rows"].append("later")
    assert arguments == {"rows": [1]}
    assert result == {"rows": [1, "more"]}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": ["x\x00y"]}, "/a/0"),
        ({"a": {"b\x00": 1}}, "/a"),
        ({"a": float("nan")}, "/a"),
        (10**100, "the top"),
        ({"day": date(2026, 1, 1)}, "/day"),
        ("\ud800", "the top"),
    ],
)
async def test_a_result_that_cannot_be_kept_fails_and_names_the_place(value: Any, place: str) -> None:
    @tool(name="t", effect="pure")
    async def t() -> Any:
        return value

    with pytest.raises(ValidationError, match="not storable") as caught:
        await call_tool(t, {}, ToolContext())
    assert place in caught.value.message


async def test_a_result_is_checked_and_never_converted() -> None:
    @tool(name="t", effect="pure", result={"type": "integer"})
    async def t() -> Any:
        return "7"

    with pytest.raises(ValidationError, match="result"):
        await call_tool(t, {}, ToolContext())


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "type_", "not_done"),
    [
        (TimeoutError(), "Timeout", False),
        (ConnectionRefusedError(111, "refused"), "NetworkError", True),
        (ConnectionResetError(104, "reset"), "NetworkError", False),
        (OSError(113, "no route"), "NetworkError", True),
        (PermissionError(13, "no"), "PermissionDenied", False),
        (FileNotFoundError(2, "no"), "NotFound", False),
        (OSError(28, "disk full"), "ToolError", False),
        (ValueError("bad"), "ValidationError", False),
        (KeyError("k"), "ToolError", False),
        (ZeroDivisionError("division by zero"), "ToolError", False),
        (SystemExit(3), "ToolError", False),
        (KeyboardInterrupt(), "ToolError", False),
        (Mute(), "ToolError", False),
        (ToolExecutionError(Mute()), "ToolError", False),  # type: ignore[arg-type]
        (ExceptionGroup("g", [PermissionError(13, "no")]), "PermissionDenied", False),
        (httpx.ConnectError("x"), "NetworkError", True),
        (httpx.ReadTimeout("x"), "Timeout", False),
        (httpx.RemoteProtocolError("x"), "NetworkError", False),
        (ToolExecutionError("x", error_code="PERMISSION_DENIED"), "PermissionDenied", False),
        (StepError("x", type="CardDeclined", not_done=True), "CardDeclined", True),
    ],
)
async def test_whatever_a_tool_raises_becomes_an_error_of_the_tree(raised: BaseException, type_: str, not_done: bool) -> None:
    @tool(name="t", effect="read")
    async def t() -> None:
        raise raised

    with pytest.raises(StepError) as caught:
        await call_tool(t, {}, ToolContext())
    assert (caught.value.type, caught.value.not_done) == (type_, not_done)
    assert "Traceback" not in caught.value.message


async def test_an_error_s_words_and_details_can_always_be_stored() -> None:
    @tool(name="t", effect="read")
    async def t() -> None:
        raise StepError("a\x00b\ud800" + "x" * 5000, details={"when": date(2026, 1, 1)}, retry_after=float("inf"))

    with pytest.raises(StepError) as caught:
        await call_tool(t, {}, ToolContext())
    assert "\x00" not in caught.value.message
    assert len(caught.value.message) == 2000
    assert "not storable" in caught.value.data["left_out"]
    assert caught.value.retry_after is None


async def test_a_cancellation_passes_through_and_a_tool_that_cancels_itself_fails() -> None:
    entered = asyncio.Event()

    @tool(name="t", effect="read")
    async def t(by_itself: bool) -> None:
        entered.set()
        if by_itself:
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    with pytest.raises(StepError, match="cancelled itself"):
        await call_tool(t, {"by_itself": True}, ToolContext())
    entered.clear()
    call = asyncio.ensure_future(call_tool(t, {"by_itself": False}, ToolContext()))
    await entered.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_sync_tool_runs_in_a_thread_while_the_loop_goes_on() -> None:
    release, entered = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool(name="t", effect="read")
    def t() -> str:
        loop.call_soon_threadsafe(entered.set)
        release.wait()
        return threading.current_thread().name

    assert [w.code for w in t.warnings()] == ["sync_tool"]
    call = asyncio.ensure_future(call_tool(t, {}, ToolContext()))
    await entered.wait()
    release.set()
    assert await call == "agiwo-tool"


async def test_an_abandoned_thread_keeps_its_place_until_it_returns() -> None:
    threads = ToolThreads(1)
    release, entered, order = threading.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def slow() -> None:
        loop.call_soon_threadsafe(entered.set)
        release.wait()
        order.append("slow")

    first = asyncio.ensure_future(threads.run(slow))
    await entered.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(threads.run(lambda: order.append("second")))
    release.set()
    await second
    assert order == ["slow", "second"]


async def test_a_probe_that_fails_says_unavailable() -> None:
    async def ask(key: str, arguments: Any, ctx: ToolContext) -> Probe:
        if key == "k":
            return Probe("done", {"id": 1})
        raise ConnectionRefusedError(111, "no")

    with_probe = tool(name="t", reconcile=ask)(_takes_city)
    assert with_probe.contract.reconcile
    assert await ask_tool(with_probe, "k", {}, ToolContext()) == Probe("done", {"id": 1})
    assert await ask_tool(with_probe, "other", {}, ToolContext()) == Probe("unavailable")
    assert await ask_tool(get_weather, "k", {}, ToolContext()) == Probe("unavailable")


class SetClock:
    def now(self) -> float:
        return 1000.0

    def monotonic(self) -> float:
        return 50.0


def test_the_context_tells_what_is_left_and_which_trace_it_is_of() -> None:
    ctx = ToolContext(instance_id="i", step="s", trace_id="a" * 32, deadline=57.5, clock=SetClock())
    assert ctx.remaining() == 7.5
    assert ctx.remaining(3) == 3
    assert ToolContext(deadline=40.0, clock=SetClock()).remaining() == 0
    assert ToolContext().remaining() is None
    version, trace, span, flags = ctx.traceparent().split("-")
    assert (version, trace, len(span), flags) == ("00", "a" * 32, 16, "01")
    assert "s3cr3t" not in repr(ToolContext(secrets={"K": "s3cr3t"}))
