# ruff: noqa: E501 - a document a line reads best
"""Reads of outputs: certain, guarded or open; and all other names that templates use."""

from __future__ import annotations

import pytest

from kit.definitions import checked, codes, only, steps

READ = "parameters: {value: '{{ %s }}'}"


def reading(text: str) -> str:
    return "type: tool_call, tool: debug.echo, " + READ % text.replace("'", "''")


CERTAIN = {
    "the step before in a row": ["id: a", f"id: r, {reading('steps.a.output')}"],
    "a step further up in a row": ["id: a", "id: b, when: input.x", f"id: r, {reading('steps.a.output')}"],
    "both of a group": [
        "id: a, run_parallel: true", "id: b, run_parallel: true", f"id: r, {reading('steps.a.output ~ steps.b.output')}",
    ],
    "by on_success": ["id: a, on_success: r", f"id: r, {reading('steps.a.output')}"],
    "both sides of a diamond": [
        "id: a, on_success: [b, c]", "id: b", "id: c", f"id: r, depends_on: [b, c], {reading('[steps.a.output, steps.b.output, steps.c.output]')}",
    ],
    "a longer side of a diamond": [
        "id: a, on_success: [b, c]", "id: b, on_success: d", "id: c", "id: d", f"id: r, depends_on: [d, c], {reading('[steps.b.output, steps.c.output]')}",
    ],
    "what all choices share": [
        "id: a, on_success: s", "id: s, route: {choose: input.x, targets: {u: b}, default: c}", "id: b", "id: c",
        f"id: r, depends_on: [b, c], {reading('steps.a.output')}",
    ],
    "all_success": ["id: a, when: input.x", "id: b, depends_on: []", f"id: r, depends_on: [a, b], join: all_success, {reading('steps.a.output')}"],
    "the only source of a join": ["id: a, when: input.x", f"id: r, depends_on: [a], {reading('steps.a.output')}"],
    "from before a loop": [
        "id: a, on_success: b", "id: b, on_success: c", "id: c, route: {cases: [{when: input.x, goto: b}], default: r}", f"id: r, {reading('steps.b.output')}",
    ],
    "what all_done rests on": [
        "id: a, on_success: [b, c]", "id: b", "id: c", f"id: r, depends_on: [b, c], join: all_done, {reading('steps.a.output')}",
    ],
    "in a handler, what succeeded before": ["id: z, on_success: a", "id: a, on_failure: r", f"id: r, {reading('steps.z.output')}"],
    "its own output afterwards": ["id: r, output: \"{{ steps.r.output }}\", writes: {k: '{{ steps.r.output }}'}"],
}  # fmt: skip

GUARDED = {
    "default": ["id: a, when: input.x", f"id: r, {reading('steps.a.output | default(1)')}"],
    "is defined": ["id: a, when: input.x", f"id: r, {reading('steps.a.output if steps.a.output is defined else 1')}"],
    "its status": ["id: a, when: input.x", "id: r, " + reading("steps.a.output if steps.a.status == 'SUCCESS' else 1")],
    "a when that asks for its status": [
        "id: a, when: input.x", f"id: r, when: \"steps.a.status == 'SUCCESS' and input.y\", {reading('steps.a.output')}",
    ],
    "the same when": ["id: a, when: input.x > 1", f"id: r, when: input.y and input.x > 1, {reading('steps.a.output')}"],
    "one of two choices": [
        "id: s, route: {choose: input.x, targets: {u: a}, default: b}", "id: a", "id: b",
        f"id: r, depends_on: [a, b], {reading('steps.a.output | default(steps.b.output)')}",
    ],
    "one of two choices by jumps": [
        "id: s, route: {choose: input.x, targets: {u: a}, default: b}", "id: a, on_success: r", "id: b, on_success: r",
        f"id: r, {reading('steps.a.output | default(steps.b.output)')}",
    ],
    "what runs when the other is skipped": [
        "id: a, when: input.x, on_success: r, on_skip: b", "id: b, on_success: r", f"id: r, {reading('steps.a.output | default(steps.b.output)')}",
    ],
    "an own earlier iteration": [f"id: r, on_failure: r, {reading('steps.r.output | default(0)')}"],
    "status and attempts of any step": ["id: a, when: input.x", f"id: r, {reading('steps.a.status ~ steps.a.attempts ~ steps.a.iteration')}"],
    "a comment of an earlier round": [
        "id: a, requires_approval: true, type: llm_task, on_reject: a, task_prompt: \"{{ steps.a.approval.comment | default('') }}\"",
    ],
}  # fmt: skip

OPEN = {
    "a step that may be skipped": (["id: a, when: input.x", f"id: r, {reading('steps.a.output')}"], ("a", "r")),
    "a step that comes later": ([f"id: r, {reading('steps.a.output')}", "id: a"], ("r",)),
    "its own output before the call": ([f"id: r, {reading('steps.r.output')}"], ("r",)),
    "the other choice": (
        ["id: s, route: {choose: input.x, targets: {u: a}, default: b}", "id: a", "id: b", f"id: r, depends_on: [a, b], {reading('steps.a.output')}"],
        ("s", "b", "r"),
    ),
    "a failure that continues": (["id: a, on_failure: continue", f"id: r, {reading('steps.a.output')}"], ("a", "r")),
    "the failed step, in its handler": (["id: a, on_failure: r", f"id: r, {reading('steps.a.output')}"], ("a", "r")),
    "any step, in the error handler": (["id: a", f"id: r, {reading('steps.a.output')}"], ("r",)),
    "a source of all_done": (["id: a", "id: b, depends_on: []", f"id: r, depends_on: [a, b], join: all_done, {reading('steps.a.output')}"], ("a", "r")),
    "a when that says less": (["id: a, when: input.x and input.y", f"id: r, when: input.x, {reading('steps.a.output')}"], ("a", "r")),
    "a default that may be absent as well": (
        ["id: a, when: input.x", "id: b, when: input.y", f"id: r, {reading('steps.a.output | default(steps.b.output)')}"], ("a", "b", "r"),
    ),
    "a side of a diamond with a handler": (
        ["id: a, on_success: [b, c]", "id: b, on_failure: h", "id: c", f"id: r, depends_on: [b, c], {reading('steps.b.output')}", "id: h"],
        None,
    ),
    "a step beside it": (["id: a, run_parallel: true", f"id: r, run_parallel: true, {reading('steps.a.output')}"], ("r",)),
    "in a when": (["id: a, when: input.x", "id: r, when: steps.a.output and input.x"], ("a", "r")),
}  # fmt: skip


@pytest.mark.parametrize("name", CERTAIN)
def test_a_read_is_certain(name: str) -> None:
    result = steps(*CERTAIN[name], head="context: {k: 0}")
    assert result.errors == (), [p.message for p in result.errors]


@pytest.mark.parametrize("name", GUARDED)
def test_a_read_is_guarded(name: str) -> None:
    result = steps(*GUARDED[name], head="context: {k: 0}")
    assert result.errors == (), [p.message for p in result.errors]


@pytest.mark.parametrize("name", OPEN)
def test_an_open_read_is_refused_and_shows_its_path(name: str) -> None:
    lines, path = OPEN[name]
    head = "error_handler: r" if name == "any step, in the error handler" else ""
    problem = only(steps(*lines, head=head), "open_read")
    if path is not None:
        assert problem.via == path, problem.message
    assert "default" in problem.message
    assert problem.line is not None
    assert problem.column is not None


def test_an_open_read_in_the_output_is_a_warning() -> None:
    result = steps("id: a, when: input.x", "id: b", head='output: {x: "{{ steps.a.output }}", y: "{{ steps.b.output }}"}')
    assert only(result, "open_read", "warning").pointer == "/output/x"
    assert result.errors == ()


def test_an_output_that_one_of_two_choices_gives_needs_no_warning() -> None:
    result = steps(
        "id: s, route: {choose: input.x, targets: {u: a}, default: b}", "id: a", "id: b",
        head='output: "{{ steps.a.output | default(steps.b.output) }}"',
    )  # fmt: skip
    assert result.problems == ()


@pytest.mark.parametrize(
    ("text", "code", "near"),
    [
        ("steps.aa.output", "unknown_step", "a"),
        ("steps.aa.output | default(1)", "unknown_step", "a"),
        ("steps.a.outptu", "unknown_member", "output"),
        ("state.totl", "unknown_state_key", "total"),
        ("context.recipent", "unknown_context_key", "recipient"),
        ("input.wek", "unknown_input", "week"),
        ("instance.trace", "unknown_member", "trace_id"),
        ("item.x", "not_there", None),
        ("result", "not_there", None),
        ("error.type", "not_there", None),
        ("steps.a.approval.comment", "not_there", None),
        ("nonsense", "template", None),
        ("input.week |", "template", None),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(text: str, code: str, near: str | None) -> None:
    head = """
context: {recipient: x}
state: {total: {reducer: add}}
input_schema: {type: object, additionalProperties: false, required: [week], properties: {week: {type: string}}}
"""
    problem = only(steps("id: a", f"id: r, {reading(text)}", head=head), code)
    assert problem.nearest == near
    assert problem.pointer == "/steps/1/parameters/value"


def test_an_undeclared_context_key_is_a_warning() -> None:
    assert only(steps(f"id: r, {reading('context.foo')}"), "undeclared_context_key", "warning").found == "foo"


def test_an_optional_input_is_a_warning_unless_guarded() -> None:
    head = "input_schema: {type: object, properties: {week: {type: string}}}"
    assert only(steps(f"id: r, {reading('input.week')}", head=head), "perhaps_absent", "warning").found == "input.week"
    assert steps(f"id: r, {reading('input.week | default(1)')}", head=head).problems == ()


def test_error_is_there_behind_failures_and_in_handlers() -> None:
    result = steps("id: a, on_failure: r", f"id: r, on_success: q, {reading('error.type')}", f"id: q, {reading('error.type')}")
    assert result.errors == ()
    assert steps("id: a", f"id: r, {reading('error.message')}", head="finally: [r]").errors == ()


def test_a_secret_is_refused_where_it_could_be_seen() -> None:
    assert steps(f"id: r, {reading('secrets.KEY')}").errors == ()
    assert codes(steps("id: r, when: secrets.KEY == 1")) == ["template"]
    assert codes(steps("id: r, output: '{{ secrets.KEY }}'")) == ["template"]


def test_the_context_is_made_from_the_input_alone() -> None:
    result = steps("id: a", head='context: {x: "{{ steps.a.output }}", y: "{{ input.y }}", z: "{{ instance.id }}"}')
    assert only(result, "not_there_yet").pointer == "/context/x"


def test_the_line_within_a_text_of_many_lines_is_named() -> None:
    result = checked("""
        steps:
          - id: a
            type: llm_task
            task_prompt: |
              One.
              {{ nonsense }}
    """)
    assert only(result, "template").line == 8
