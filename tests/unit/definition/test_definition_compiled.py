# ruff: noqa: E501 - a document a line reads best
"""What a sound document compiles to: clocks, retries, gates, routes, and the graph as it is shown."""

from __future__ import annotations

import pytest

from agiwo.definition import Checked, Effect, content_hash, graph_json, graph_mermaid, load, seconds, version_key
from agiwo.definition.compiled import Gate, Retry, Step, Target, Word
from agiwo.definition.durations import worded
from agiwo.definition.graph import ARROWS
from agiwo.definition.versions import labelled
from kit.definitions import checked, steps


def step(result: Checked, id: str = "a") -> Step:
    assert result.workflow is not None, [p.message for p in result.errors]
    return result.workflow.body[id]


def gate(line: str) -> Gate:
    found = step(steps(line, "id: b")).gate
    assert found is not None
    return found


def test_without_a_policy_what_is_safe_is_tried_three_times_with_jitter() -> None:
    for line in ("id: a", "id: a, type: llm_task, task_prompt: x"):
        assert step(steps(line)).retry == Retry(3, 1.0, backoff=2.0, max_delay=60.0, jitter=1.0, by_author=False)
    mail = "id: a, type: tool_call, tool: mail.send, parameters: {to: x, subject: y, body: z}"
    assert step(steps(mail)).retry == Retry(1, 1.0, backoff=2.0, max_delay=60.0, jitter=1.0, by_author=False)
    assert step(steps("id: a, type: wait, duration: 1")).retry == Retry(1, 0.0)


def test_a_short_policy_means_what_it_says_and_no_more() -> None:
    assert step(steps("id: a, retry_policy: {max_attempts: 3, delay: 2}")).retry == Retry(3, 2.0)


def test_a_full_policy_is_kept() -> None:
    policy = "{max_attempts: 5, delay: 1s, backoff: 1.5, max_delay: 1m, jitter: 0.5, retry_on: Timeout, give_up_on: [NotFound], when: error.status == 1}"
    retry = step(steps(f"id: a, retry_policy: {policy}")).retry
    assert (retry.max_attempts, retry.delay, retry.backoff, retry.max_delay, retry.jitter) == (5, 1.0, 1.5, 60.0, 0.5)
    assert (retry.retry_on, retry.give_up_on, retry.by_author) == (("Timeout",), ("NotFound",), True)
    assert retry.when is not None


def test_defaults_apply_only_to_what_is_safe_to_repeat() -> None:
    head = "defaults: {timeout: 7s, total_timeout: 1m, retry_policy: {max_attempts: 4}}"
    mail = "id: b, type: tool_call, tool: mail.send, parameters: {to: x, subject: y, body: z}"
    result = steps("id: a", mail, "id: c, timeout: 9, retry_policy: {max_attempts: 2}", head=head)
    assert result.errors == ()
    a, b, c = (step(result, id) for id in "abc")
    assert (a.retry.max_attempts, a.timeout, a.total_timeout) == (4, 7.0, 60.0)
    assert (b.retry.max_attempts, b.timeout) == (1, 7.0)
    assert (c.retry.max_attempts, c.timeout) == (2, 9.0)


def test_timeouts_come_from_the_step_then_the_tool_then_the_kind() -> None:
    assert step(steps("id: a")).timeout == 30.0
    assert step(steps("id: a, type: tool_call, tool: db.query")).timeout == 5.0
    assert step(steps("id: a, type: llm_task, task_prompt: x")).timeout == 120.0
    assert step(steps("id: a, timeout: 1h30m")).timeout == 5400.0


def test_effects_come_from_the_tool_and_a_model_only_reads() -> None:
    assert step(steps("id: a")).effect is Effect.PURE
    assert step(steps("id: a, type: llm_task, task_prompt: x")).effect is Effect.READ
    assert step(steps("id: a, type: wait, duration: 1")).effect is Effect.PURE


def test_a_model_step_has_its_prompts_as_arguments_and_its_profile() -> None:
    made = step(steps("id: a, type: llm_task, task_prompt: x, system_prompt: y, llm: {max_tokens: 5}, repair: {max_attempts: 2}"))
    assert made.arguments is not None
    assert made.arguments.source == {"system_prompt": "y", "task_prompt": "x"}
    assert (dict(made.llm), made.repair_attempts) == ({"profile": "default", "max_tokens": 5}, 2)
    plain = step(steps("id: a, type: llm_task, task_prompt: x, llm: cheap"))
    assert plain.arguments is not None
    assert plain.arguments.source == {"task_prompt": "x"}
    assert (dict(plain.llm), plain.repair_attempts) == ({"profile": "cheap"}, 2)


def test_a_gate_stands_after_a_model_and_before_all_else() -> None:
    assert gate("id: a, requires_approval: true").at == "before"
    assert gate("id: a, type: llm_task, task_prompt: x, requires_approval: true").at == "after"
    assert gate("id: a, type: approval, approval: {title: x}").at == "before"
    assert gate("id: a, approval: {at: after}").at == "after"
    assert step(steps("id: a, requires_approval: false")).gate is None


def test_a_gate_has_defaults_and_keeps_what_is_said() -> None:
    plain = gate("id: a, requires_approval: true")
    assert (plain.timeout, plain.on_timeout, plain.on_reject, plain.condition) == (72 * 3600.0, "reject", None, None)
    full = gate(
        "id: a, type: tool_call, tool: debug.echo, approval: {if: input.x, title: t, show: {a: 1}, fields: {type: object}, approvers: ['user:a@b.c', 'role:ops'], notify: mail, "
        "timeout: 1h, on_timeout: b, on_reject: b}"
    )
    assert full.condition is not None
    assert full.title is not None
    assert full.show is not None
    assert full.fields is not None
    assert (full.approvers, full.notify, full.timeout) == (("user:a@b.c", "role:ops"), ("mail",), 3600.0)
    assert (full.on_timeout, full.on_reject) == (Target((1,)), Target((1,)))


def test_on_reject_and_on_timeout_may_stand_on_the_step() -> None:
    made = step(steps("id: a, requires_approval: input.x, on_reject: b, on_timeout: fail", "id: b"))
    assert made.gate is not None
    assert (made.gate.on_reject, made.gate.on_timeout) == (Target((1,)), "fail")
    assert (made.on_reject, made.on_timeout) == (Target((1,)), Target(word=Word.FAIL))
    inside = step(steps("id: a, approval: {on_reject: b, on_timeout: reject}", "id: b"))
    assert inside.gate is not None
    assert (inside.on_reject, inside.on_timeout, inside.gate.on_timeout) == (None, None, "reject")


def test_failure_routes_keep_their_order_and_words() -> None:
    made = step(steps("id: a, on_failure: [{errors: NetworkError, goto: b}, {errors: [Timeout], goto: continue}, {goto: end}]", "id: b"))
    assert [(r.errors, r.target) for r in made.on_failure] == [
        (("NetworkError",), Target((1,))), (("Timeout",), Target(word=Word.CONTINUE)), ((), Target(word=Word.END)),
    ]  # fmt: skip


def test_routes_are_compiled_with_targets_cases_and_default() -> None:
    result = steps(
        "id: a, route: {choose: result.kind, targets: {x: b, y: [c, d], z: end}, default: next}", "id: b", "id: c", "id: d",
        "id: e, depends_on: [b], route: {cases: [{when: result == 1, goto: end}]}",
        "id: f, type: branch, depends_on: [c], cases: [{when: input.x, goto: end}], default: fail",
    )  # fmt: skip
    choose = step(result).route
    assert choose is not None
    assert choose.choose is not None
    assert choose.targets == {"x": Target((1,)), "y": Target((2, 3)), "z": Target(word=Word.END)}
    assert choose.default == Target((1,))
    for id, default in (("e", None), ("f", Target(word=Word.FAIL))):
        route = step(result, id).route
        assert route is not None
        assert [case.target for case in route.cases] == [Target(word=Word.END)]
        assert route.default == default


def test_ends_waits_and_writes_are_compiled() -> None:
    result = steps(
        "id: a, type: set, values: {k: 1}, writes: {j: 2}", "id: b, type: wait, until: '{{ input.at }}'", "id: c, type: wait, duration: 2s",
        "id: d, type: end, status: FAILED, output: x", head="context: {k: 0, j: 0}",
    )  # fmt: skip
    assert [key for key, _ in step(result).writes] == ["k", "j"]
    until, duration = step(result, "b").until, step(result, "c").duration
    assert until is not None
    assert duration is not None
    assert (until.constant, duration.source) == (False, "2s")
    assert (step(result, "d").end_status, step(result, "d").output is None) == ("FAILED", False)


def test_the_definition_of_a_step_is_kept_as_it_was_written() -> None:
    result = steps("id: a, timeout: 1m, when: input.x")
    assert step(result).definition == result.document["steps"][0]
    assert step(result).definition["timeout"] == "1m"


def test_the_hash_follows_the_content_and_not_the_form() -> None:
    one = load("version: '1'\nid: a\nsteps:\n- type: wait\n  id: a\n  duration: 1\n")
    two = load("id: a\nversion: '1'\nsteps: [{id: a, type: wait, duration: 1}]  # the same\n")
    other = load("id: a\nversion: '1'\nsteps: [{id: a, type: wait, duration: 2}]\n")
    assert content_hash(one.document) == content_hash(two.document) != content_hash(other.document)


GRAPH = """
    error_handler: n
    finally: [f]
    steps:
      - {id: a, name: 'Say "hi" <b>', type: tool_call, tool: db.query, when: input.x, on_success: [b, c], on_skip: c, on_timeout: h,
         on_failure: [{errors: [NetworkError], goto: h}, {goto: end}]}
      - {id: b, type: llm_task, task_prompt: x, requires_approval: true, on_reject: h, route: {choose: result, targets: {yes: d}, default: end}}
      - {id: c, type: wait, duration: 1}
      - {id: d, type: end}
      - {id: e, type: end, depends_on: [c]}
      - {id: h, type: fail, error: {message: no}, activation: each}
      - {id: n, type: wait, duration: 1}
      - {id: f, type: wait, duration: 1}
"""


def test_the_graph_is_shown_with_every_kind_of_edge() -> None:
    result = checked(GRAPH)
    row = steps("id: a", "id: b")
    assert result.workflow is not None
    assert row.workflow is not None
    shown = graph_json(result.workflow)
    kinds = {edge["kind"] for edge in shown["edges"]} | {edge["kind"] for edge in graph_json(row.workflow)["edges"]}
    assert kinds == set(ARROWS)
    assert {"source": "b", "target": "d", "kind": "route", "label": "yes"} in shown["edges"]
    assert (shown["start"], shown["error_handler"], shown["finally"]) == (["a"], "n", ["f"])
    assert [node["set_aside"] for node in shown["nodes"]] == [False] * 5 + [True] * 3


def test_the_chart_has_a_line_for_every_step_and_edge_and_no_markup_from_names() -> None:
    result = checked(GRAPH)
    assert result.workflow is not None
    chart = graph_mermaid(result.workflow)
    lines = [line.strip() for line in chart.splitlines()]
    assert lines[0] == "flowchart TD"
    assert 's_a["Say #34;hi#34; #60;b#62;<br/>tool_call"]' in lines
    assert 's_a -.->|"failure NetworkError"| s_h' in lines
    assert 's_b -->|"yes"| s_d' in lines
    assert 's_c ==>|"depends"| s_e' in lines
    assert sum("s_" in line and ("--" in line or "==" in line or "-." in line) for line in lines) == len(result.workflow.body.edges) + 3


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (0, 0.0),
        (0.5, 0.5),
        (90, 90.0),
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("250ms", 0.25),
        ("1m500ms", 60.5),
        ("0s", 0.0),
    ],
)
def test_durations_are_seconds_or_digits_with_units(written: object, value: float) -> None:
    assert seconds(written) == value


@pytest.mark.parametrize(
    "written", ["", "5", "1.5h", "-1s", "m", "1s1m", "1h 30m", "1H", -1, True, None, [1], "99999d", 1e300, float("nan"), "١s"]
)
def test_other_durations_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"duration|expected"):
        seconds(written)


@pytest.mark.parametrize(("value", "text"), [(0, "0s"), (5400, "1h30m"), (0.25, "250ms"), (172_800.5, "2d500ms")])
def test_durations_are_shown_as_authors_write_them(value: float, text: str) -> None:
    assert worded(value) == text
    assert seconds(text) == value


def test_versions_compare_part_by_part_as_numbers() -> None:
    ordered = ["0.9", "1.0-alpha", "1.0-alpha.1", "1.0-alpha.2", "1.0-alpha.10", "1.0-rc", "1.0", "1.0.1", "1.9", "1.10", "2", "10"]
    assert sorted(reversed(ordered), key=version_key) == ordered
    assert version_key("1") == version_key("1.0") == version_key("1.00") == version_key("01.0")
    assert version_key("1.0-a") != version_key("1.0")
    assert labelled("1.0-a")
    assert not labelled("1.0")


@pytest.mark.parametrize("text", ["", "v1", "1.", ".1", "1..2", "1-", "1-A", "1 ", "1" * 65, "1\n", "١"])
def test_other_texts_are_no_versions(text: str) -> None:
    with pytest.raises(ValueError, match="no version"):
        version_key(text)
