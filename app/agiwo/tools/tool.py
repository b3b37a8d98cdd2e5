"""A tool: a function with its contract, and the decorator that makes one.

It must not call anything; `calling` does, and the registry says which tools there are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agiwo.definition.contract import Breaker, Effect, ToolContract
from agiwo.errors import Problem
from agiwo.schema import Schema
from agiwo.tools.context import ToolContext
from agiwo.tools.signature import parameters_schema, read

USES = ("sql", "html", "command", "url")
#: Seconds that a circuit stays open at most.
MAX_OPEN = 86_400.0
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")
Reconcile = Callable[[str, Mapping[str, Any], ToolContext], Awaitable["Probe"]]


@dataclass(frozen=True, slots=True)
class Probe:
    """What became of an earlier call: `done` (with the result that it gave), `not_done`, `running`, or `unavailable` (nobody can say)."""

    answer: str
    result: Any = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered thing that a step can call.

    `function` takes the parameters by name. `sync`: it runs in a thread, or `isolated`, each call in a process of its own. `context` is the
    parameter that gets the ToolContext. `reconcile(idempotency_key, arguments, context)` says whether an earlier call was done. `keeps_off`
    says that the function changes nothing that it is given, so that it needs no copy of its arguments.
    """

    contract: ToolContract
    function: Callable[..., Any] = field(repr=False)
    parameters: Schema = field(repr=False)
    result: Schema | None = field(default=None, repr=False)
    sync: bool = False
    context: str | None = None
    reconcile: Reconcile | None = field(default=None, repr=False)
    keeps_off: bool = False
    isolated: bool = False

    @property
    def name(self) -> str:
        return self.contract.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function, for code and tests that use it as such."""
        return self.function(*args, **kwargs)

    def warnings(self) -> list[Problem]:
        """What its author should see once, when it is registered."""
        out: list[Problem] = []
        if not self.contract.effect_declared:
            message = f"the tool {self.name} declares no effect and is taken for a write: it is not retried"
            out.append(Problem("effect_undeclared", message, expected=", ".join(Effect), severity="warning"))
        if self.sync:
            message = f"the tool {self.name} is a sync function and runs in a thread, which nothing can stop: prefer async def"
            out.append(Problem("sync_tool", message, severity="warning"))
        return out


def tool(
    *,
    name: str,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    result: Mapping[str, Any] | None = None,
    effect: Effect | str | None = None,
    timeout: float | None = None,
    uses: Mapping[str, str] | None = None,
    reconcile: Reconcile | None = None,
    keeps_off: bool = False,
    isolation: str | None = None,
    effect_of: Callable[[Mapping[str, Any]], Effect] | None = None,
    breaker: Mapping[str, Any] | bool | None = None,
    connections: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function.

    `parameters` is a JSON Schema of an object, or short: a map from parameter to its schema; without it the type hints say it. `timeout` is
    the default of one attempt in seconds. `uses` says of a text parameter that it is `sql`, `html`, `command` or `url`. `effect` left out
    means `write`; `effect_of` is pure and says for parameters as written in a definition what such a call does. `breaker` has any of
    `failures` (in a row, 5), `open_for` (seconds, 30), `key` (parameters, of which the first that a call has tells its circuits apart) and
    `counts` (failures that count beside the transient ones); False for none, which is also what a pure tool has. `connections` are
    parameters that name a connection. Raises TypeError or ValueError if these disagree with the function, InvalidInput if a schema is
    none.
    """
    declared = None if effect is None else Effect(effect)
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no tool name: expected words joined by dots, such as mail.send")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"the timeout of {name} is {timeout!r}: expected seconds above 0")

    if isolation not in (None, "process"):
        raise ValueError(f"the isolation of {name} is {isolation!r}: expected process")

    def make(function: Callable[..., Any]) -> Tool:
        if isolation is not None and inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} is async: only a plain function can run in a process of its own")
        signature = read(function)
        schema = parameters_schema(function, parameters)
        for parameter, use in (uses or {}).items():
            if use not in USES or parameter not in schema.get("properties", {}):
                raise ValueError(f"{name}: uses[{parameter!r}] = {use!r}; expected a parameter, and one of {', '.join(USES)}")
        circuit = breaker_of(name, breaker if breaker is not None else declared is not Effect.PURE)
        _known(name, schema, "the breaker's key", circuit.key if circuit is not None else ())
        _known(name, schema, "the name of a connection", connections)
        contract = ToolContract(
            name=name,
            description=description if description is not None else inspect.getdoc(function) or "",
            parameters=schema,
            result=result,
            effect=declared or Effect.WRITE,
            effect_declared=declared is not None,
            timeout=timeout,
            uses=dict(uses or {}),
            reconcile=reconcile is not None,
            sync=not inspect.iscoroutinefunction(function),
            effect_of=effect_of,
            breaker=circuit,
            connections=tuple(connections),
        )
        return Tool(
            contract=contract,
            function=function,
            parameters=Schema.compile(schema),
            result=None if result is None else Schema.compile(result),
            sync=not inspect.iscoroutinefunction(function),
            context=signature.context,
            reconcile=reconcile,
            keeps_off=keeps_off,
            isolated=isolation == "process",
        )

    return make


def _known(name: str, schema: Mapping[str, Any], what: str, parameters: Sequence[str]) -> None:
    for parameter in parameters:
        if parameter not in schema.get("properties", {}):
            raise ValueError(f"{name}: {what} {parameter!r} is no parameter")


def breaker_of(name: str, given: Mapping[str, Any] | bool) -> Breaker | None:
    """The breaker that an author wrote for the tool `name`. Raises ValueError for one that cannot be."""
    if isinstance(given, bool):
        return Breaker() if given else None
    if unknown := sorted(given.keys() - {"failures", "open_for", "key", "counts"}):
        raise ValueError(f"{name}: a breaker has no {unknown[0]!r}; expected failures, open_for, key, counts")
    key, counts = ((part,) if isinstance(part, str) else tuple(part) for part in (given.get("key", ()), given.get("counts", ())))
    made = Breaker(given.get("failures", 5), float(given.get("open_for", 30.0)), key, counts)
    if type(made.failures) is not int or made.failures < 1 or not 0 < made.open_for <= MAX_OPEN:
        raise ValueError(f"{name}: expected a breaker with failures from 1, and open_for above 0 and up to {MAX_OPEN:g} seconds")
    return made
