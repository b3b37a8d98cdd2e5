"""The form of a definition as data: every key, where it may stand and what it takes.

What the parts mean together is not known here; see `reading`, `compile` and `proof`.
"""

from __future__ import annotations

from agiwo.definition.compiled import Kind
from agiwo.definition.report import Path, Report
from agiwo.definition.shape import (
    BAD,
    ByKind,
    Check,
    Duration,
    Many,
    Named,
    Number,
    Only,
    Record,
    Text,
    Words,
    anything,
    expression,
    flag,
    not_supported,
    schema,
)
from agiwo.definition.versions import MAX_LENGTH, VERSION
from agiwo.values import JSON

MAX_STEPS = 2000
STEP_ID = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
WORKFLOW_ID = r"[A-Za-z][A-Za-z0-9_.-]{0,127}"
PRINCIPAL = r"(user|role|key):\S{1,200}"
LATER_TYPES = ("parallel", "foreach", "loop", "block", "workflow", "dynamic", "code")
#: Other names of step types.
ALIASES = {"wait_for_event": Kind.WAIT_FOR_SIGNAL}
REDUCERS = ("replace", "append", "extend", "add", "merge", "union", "min", "max", "first")

line = Text(longest=500)
step_id = Text(STEP_ID, "a step id: letters, digits and _, not beginning with a digit")
name = Text(longest=200)
target: Check = ByKind("the id of a step, a list of ids, or a reserved word", {
    "string": name, "number": name, "boolean": name, "array": Many(name, 1, "a list of step ids"),
})  # fmt: skip
error_names = Many(name, 1, "a list of error types", single=True)


narrowed_route = Record("an error route", {"errors": error_names, "goto": target}, ("goto",))


def error_route(report: Report, value: JSON, at: Path) -> object:
    """One entry of `on_failure`: a target, or a target for some types of errors."""
    if isinstance(value, dict):
        return narrowed_route(report, value, at)
    return target(report, value, at)


case = Record("a case", {"when": expression, "goto": target}, ("when", "goto"))
cases = Many(case, 1, "a list of cases")
route = Record("a route", {"choose": expression, "targets": Named(target, least=1), "cases": cases, "default": target})
retry_policy = Record("a retry policy", {
    "max_attempts": Number(1, 1000),
    "delay": Duration(zero=True),
    "backoff": Number(1, 100, whole=False),
    "max_delay": Duration(),
    "jitter": Number(0, 10, whole=False),
    "retry_on": error_names,
    "give_up_on": error_names,
    "when": expression,
})  # fmt: skip
parameters: Check = ByKind("an object, or one template", {"object": anything, "string": anything})
requires_approval: Check = ByKind("true, false or an expression", {"boolean": flag, "string": expression})
approval = Record(
    "an approval",
    {
        "at": Words(("before", "after")),
        "if": expression,
        "title": Text(longest=20_000),
        "show": anything,
        "fields": schema,
        "approvers": Many(Text(PRINCIPAL, "a principal: user:MAIL, role:NAME or key:NAME"), 1, "a list of principals", single=True),
        "notify": Many(line, 1, "a list of channels", single=True),
        "timeout": Duration(),
        "on_timeout": target,
        "on_reject": target,
        "quorum": Only(1),
        "four_eyes": Only(False),
    },
    later=("actions", "remind", "escalate_to"),
)
fallback = Record("a fallback", {
    "value": anything,
    "tool": name,
    "parameters": parameters,
    "timeout": Duration(),
    "last_good": Duration(),
})  # fmt: skip
store = Record("store", {"payloads": Words(("full",), ("metadata", "encrypted"))}, later=("retention",))
llm: Check = ByKind("the name of a model profile, or an object", {
    "string": name,
    "object": Record(
        "llm",
        {
            "profile": name,
            "model": name,
            "temperature": Number(0, 2, whole=False),
            "max_tokens": Number(1, 10_000_000),
            "seed": Number(0, 2**63 - 1),
            "structured": Words(("json_schema", "tool", "json_object", "prompt")),
            "on_truncated": Words(("fail", "raise_limit")),
            "fallback": Many(name, 1, "a list of model profiles", single=True),
        },
    ),
})  # fmt: skip

completion: Check = ByKind("`callback`, or an object with `mode: callback` and a `timeout`", {
    "string": Words(("callback",)),
    "object": Record("completion", {"mode": Words(("callback",)), "timeout": Duration()}, ("mode",)),
})  # fmt: skip
join: Check = ByKind("none_failed, all_success, all_done, any, or an object with at_least", {
    "string": Words(("none_failed", "all_success", "all_done", "any")),
    "object": Record("a join", {"at_least": Number(1, MAX_STEPS)}, ("at_least",)),
})  # fmt: skip
event = Text(r"(?s).+", "the name of an event", 200)
awaited = Record("an awaited event", {"event": event, "match": expression, "goto": target}, ("event",))

#: What a model is shown besides its prompt, by name.
include = Record("include", {
    "context": Many(name, 1, "a list of keys", single=True),
    "state": Many(name, 1, "a list of keys", single=True),
    "steps": Many(name, 1, "a list of step ids", single=True),
})  # fmt: skip

COMMON: dict[str, Check] = {
    "id": step_id,
    "name": line,
    "description": Text(longest=20_000),
    "type": name,
    "when": expression,
    "guard": expression,
    "depends_on": Many(name, 0, "a list of step ids", single=True),
    "join": join,
    "cancel_rest": flag,
    "on_skip": target,
    "run_parallel": flag,
    "activation": Words(("each",)),
    "max_iterations": Number(1, 1_000_000),
    "store": store,
}
LEADS_ON: dict[str, Check] = {
    "on_success": target,
    "route": route,
    "on_failure": ByKind("the id of a step, a reserved word, or a list of error routes", {
        "string": target, "array": Many(error_route, 1, "a list of error routes"),
    }),
    "on_timeout": target,
    "on_reject": target,
    "requires_approval": requires_approval,
    "approval": approval,
    "output": anything,
    "writes": Named(anything),
    "output_schema": schema,
}  # fmt: skip
CALLS: dict[str, Check] = {"timeout": Duration(), "total_timeout": Duration(), "retry_policy": retry_policy, "fallback": fallback}
FAILS = {key: LEADS_ON[key] for key in ("on_failure", "on_timeout", "on_reject", "requires_approval", "approval", "writes")}
LATER_KEYS = (
    "compensation", "compensate_on", "concurrency", "cache", "queue_timeout",
)  # fmt: skip

OWN: dict[Kind, dict[str, Check]] = {
    Kind.TOOL_CALL: {
        "tool": name,
        "parameters": parameters,
        "completion": completion,
        "heartbeat": Duration(),
        "isolation": Words(("process",)),
    },
    Kind.LLM_TASK: {
        "task_prompt": Text(longest=200_000),
        "system_prompt": Text(longest=200_000),
        "llm": llm,
        "include": include,
        "repair": Record("repair", {"max_attempts": Number(0, 10)}),
    },
    Kind.WAIT: {"duration": anything, "until": anything},
    Kind.WAIT_FOR_SIGNAL: {
        "event": event,
        "match": expression,
        "first_of": Many(awaited, 1, "a list of events"),
        "keep": ByKind("a duration, or false", {"boolean": flag, "string": Duration(), "number": Duration()}),
        "timeout": Duration(),
    },
    Kind.APPROVAL: {},
    Kind.SET: {"values": Named(anything, least=1)},
    Kind.BRANCH: {"cases": cases, "default": target},
    Kind.END: {"status": Words(("SUCCESS", "FAILED", "CANCELLED")), "output": anything},
    Kind.FAIL: {"error": ByKind("an object with type and message", {"object": Record(
        "an error", {"type": name, "message": anything, "details": anything, "status": anything}, ("message",),
    )})},
}  # fmt: skip
LATER_OWN: dict[Kind, tuple[str, ...]] = {
    Kind.LLM_TASK: ("tools", "stop", "budget"),
}
REQUIRED: dict[Kind, tuple[str, ...]] = {
    Kind.TOOL_CALL: ("tool",),
    Kind.LLM_TASK: ("task_prompt",),
    Kind.APPROVAL: ("approval",),
    Kind.SET: ("values",),
    Kind.BRANCH: ("cases",),
    Kind.FAIL: ("error",),
}
OWNER = {key: kind.value for kind, keys in OWN.items() for key in keys if key not in ("output", "timeout")}


def _keys(kind: Kind) -> dict[str, Check]:
    keys = {**COMMON, **OWN[kind]}
    if kind is Kind.BRANCH:
        return {**keys, **FAILS}
    if kind in (Kind.END, Kind.FAIL):
        return keys
    keys |= LEADS_ON
    return {**keys, **CALLS} if kind in (Kind.TOOL_CALL, Kind.LLM_TASK) else keys


def _elsewhere(kind: Kind, keys: dict[str, Check]) -> dict[str, str]:
    """For each key of the language that this type does not take, where it belongs."""
    out = {key: f"it is a key of {owner}" for key, owner in OWNER.items()}
    out |= {key: "such a step calls nothing that could take long or be tried again" for key in CALLS}
    out |= {key: "nothing follows such a step, and nothing takes its failure but what encloses it" for key in LEADS_ON}
    for key in ("title", "show", "fields", "approvers", "notify", "timeout"):
        if kind is Kind.APPROVAL:
            out[key] = "write it under `approval`"
    if kind is Kind.BRANCH:
        out |= {key: "a branch leads on by its cases" for key in ("on_success", "route")}
        out |= {key: "a branch has no output" for key in ("output", "output_schema")}
    return {key: why for key, why in out.items() if key not in keys}


STEP: dict[Kind, Record] = {
    kind: Record(
        kind.value,
        keys := _keys(kind),
        ("id", "type", *REQUIRED.get(kind, ())),
        (*LATER_KEYS, *LATER_OWN.get(kind, ())),
        _elsewhere(kind, keys),
    )
    for kind in Kind
}  # fmt: skip
_ALL_KEYS: dict[str, Check] = {key: check for kind in Kind for key, check in STEP[kind].keys.items()}
_ANY_STEP = Record("a step", _ALL_KEYS, ("id", "type"), LATER_KEYS)
_LATER_STEP = Record("a step", COMMON | LEADS_ON | CALLS, ("id", "type"))


def step(report: Report, value: JSON, at: Path) -> object:
    """A step of any type; one whose type is unknown is checked as far as steps have keys in common."""
    if not isinstance(value, dict):
        report.wrong(at, value, "a step (an object with id and type)")
        return BAD
    kind = value.get("type")
    kind = kind if isinstance(kind, str) else report.written((*at, "type")) or kind
    if isinstance(kind, str) and (kind in ALIASES or kind in Kind._value2member_map_):
        meant = ALIASES.get(kind) or Kind(kind)
        return {**STEP[meant](report, value, at), "type": meant.value}
    if isinstance(kind, str) and kind in LATER_TYPES:
        not_supported(report, (*at, "type"), f"steps of type `{kind}`")
        shared = {key: part for key, part in value.items() if key in _LATER_STEP.keys}
        return {**_LATER_STEP(report, shared, at), "type": None}
    if isinstance(kind, str):
        known = [k.value for k in Kind]
        report.error(
            "unknown_type", f"there is no step type `{kind[:80]}`", (*at, "type"), found=kind[:80], expected="one of " + ", ".join(known),
            nearest=report.nearest(kind, [*known, *ALIASES, *LATER_TYPES]),
        )  # fmt: skip
    return {**_ANY_STEP(report, value, at), "type": None}


state_key = Record("a state key", {"schema": schema, "reducer": Words(REDUCERS), "default": anything})
WORKFLOW = Record(
    "a workflow",
    {
        "id": Text(WORKFLOW_ID, "a workflow id: letters, digits, _ . and -, beginning with a letter, at most 128"),
        "version": Text(VERSION.pattern, "a version: digits with dots, and a label of small letters after a hyphen if wanted", MAX_LENGTH),
        "description": Text(longest=20_000),
        "input_schema": schema,
        "context": Named(anything),
        "state": Named(state_key),
        "output": anything,
        "timeout": Duration(),
        "defaults": Record("defaults", {"timeout": Duration(), "total_timeout": Duration(), "retry_policy": retry_policy}),
        "error_handler": name,
        "finally": Many(name, 1, "a list of step ids", single=True),
        "handler_timeout": Duration(),
        "store": store,
        "durability": Words(("sync",), ("async", "memory")),
        "on_cancel": Words(("leave",), ("compensate",)),
        "steps": Many(step, 1, "a list of steps"),
    },
    ("id", "version", "steps"),
    ("concurrency", "budget", "triggers"),
)
