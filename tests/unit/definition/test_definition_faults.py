# ruff: noqa: E501 - a document a line reads best
"""Every fault of form, names, tools and clocks: its code, its place, the nearest name; all of them in one answer."""

from __future__ import annotations

import pytest

from agiwo.definition import check, compile_workflow, load, load_mapping
from agiwo.errors import DefinitionRefused
from kit.definitions import CONTRACTS, HEAD, checked, codes, only, steps

TWELVE = """\
workflow:
  id: 9lives
  version: one
  descripton: Wrong from top to toe
  timeout: soon
  steps:
    - id: fetch
      type: tool_call
      tool: db.qurey
      on_success: transfrom
    - id: transform
      type: tool_call
      tool: debug.echo
      parameters: {valeu: 1}
      on_success: send
    - id: transform
      type: wait
      duration: 1
    - id: send
      type: tool_call
      tool: mail.send
      parameters: {to: x, subject: y, body: "{{ steps.fecth.output }}"}
      retry_policy: {max_attempts: 3}
    - id: think
      type: llm_tsk
      task_prompt: x
      depends_on: [think]
    - id: stray
      type: wait
      duration: 1
"""


def test_twelve_mistakes_get_twelve_errors_in_one_answer() -> None:
    result = check(load(TWELVE), CONTRACTS)
    found = {(p.code, p.line): p for p in result.errors}
    expected = [
        ("wrong_form", 2), ("wrong_form", 3), ("unknown_key", 4), ("wrong_duration", 5), ("unknown_tool", 9), ("unknown_step", 10),
        ("unknown_parameter", 14), ("duplicate_id", 16), ("unknown_step", 22), ("unsafe_retry", 23), ("unknown_type", 25),
        ("dependency_cycle", 27), ("nothing_leads", 28),
    ]  # fmt: skip
    assert set(expected) <= set(found)
    assert len(expected) > 12
    near = {found[key].nearest for key in found}
    assert {"description", "db.query", "transform", "value", "fetch", "llm_task"} <= near
    for problem in result.errors:
        assert problem.pointer.startswith("/workflow")
        assert problem.column is not None
    assert result.workflow is None
    assert [p.line for p in result.problems] == sorted(p.line or 0 for p in result.problems)


@pytest.mark.parametrize(
    ("line", "code", "near"),
    [
        ("id: a, onsuccess: b", "unknown_key", "on_success"),
        ("id: a-b", "wrong_form", None),
        ("id: 1a", "wrong_form", None),
        ("type: wait, duration: 1", "missing_key", None),
        ("id: a, task_prompt: x", "misplaced_key", None),
        ("id: a, type: approval, approval: {title: x}, timeout: 5", "misplaced_key", None),
        ("id: a, type: approval", "missing_key", None),
        ("id: a, type: wait, duration: 1, retry_policy: {max_attempts: 1}", "misplaced_key", None),
        ("id: a, type: end, on_success: a", "misplaced_key", None),
        ("id: a, type: branch, cases: [], default: end", "empty_list", None),
        ("id: a, type: branch, cases: [{when: input.x, goto: end}], on_success: a", "misplaced_key", None),
        ("id: a, on_success: []", "empty_list", None),
        ("id: a, on_success: {x: y}", "wrong_type", None),
        ("id: a, on_success: continue", "wrong_target", None),
        ("id: a, on_success: [a, next]", "wrong_target", None),
        ("id: a, on_failure: [a, a]", "never_taken", None),
        ("id: a, on_failure: [{errors: [], goto: end}]", "empty_list", None),
        ("id: a, on_failure: [{errors: [Transient], goto: end}, {errors: [NetworkError], goto: fail}]", "never_taken", None),
        ("id: a, on_failure: [{goto: end}, {errors: [Timeout], goto: fail}]", "never_taken", None),
        ("id: a, on_failure: [{errors: [NetworkEror], goto: end}]", "unknown_error", "NetworkError"),
        ("id: a, on_failure: [{errors: [Timeout], gotto: end}]", "unknown_key", "goto"),
        ("id: a, on_reject: end", "no_approval", None),
        ("id: a, requires_approval: true, on_reject: end, approval: {on_reject: fail}", "said_twice", None),
        ("id: a, requires_approval: input.x, approval: {if: input.y}", "said_twice", None),
        ("id: a, requires_approval: false, approval: {title: x}", "contradiction", None),
        ("id: a, approval: {approvers: [ops@example.com]}", "wrong_form", None),
        ("id: a, type: set, values: {k: 1}, approval: {at: after}", "wrong_value", None),
        ("id: a, approval: {fields: {type: objekt}}", "schema_invalid", None),
        ("id: a, output_schema: 7", "wrong_type", None),
        ("id: a, route: {choose: input.x}", "wrong_form", None),
        ("id: a, route: {targets: {x: end}}", "wrong_form", None),
        ("id: a, route: {cases: [{when: input.x, goto: end}, {when: input.x, goto: fail}]}", "never_taken", None),
        ("id: a, route: {choose: input.x, targets: {x: end}}, on_success: end", "said_twice", None),
        ("id: a, depends_on: [a, a]", "said_twice", None),
        ("id: a, join: al_success, depends_on: []", "wrong_value", "all_success"),
        ("id: a, max_iterations: 0", "out_of_range", None),
        ("id: a, max_iterations: 1.5", "wrong_type", None),
        ("id: a, retry_policy: {max_attempts: 0}", "out_of_range", None),
        ("id: a, retry_policy: {delay: -1}", "wrong_duration", None),
        ("id: a, timeout: 0", "out_of_range", None),
        ("id: a, timeout: 1.5h", "wrong_duration", None),
        ("id: a, timeout: true", "wrong_duration", None),
        ("id: a, when: 7", "wrong_type", None),
        ("id: a, when: 'x {{ input.x }}'", "template", None),
        ("id: a, type: wait", "wrong_form", None),
        ("id: a, type: wait, duration: 1, until: 2026-01-01T00:00:00Z", "wrong_form", None),
        ("id: a, type: wait, until: '9999-99-99'", "wrong_type", None),
        ("id: a, type: wait, until: '2026-01-01T00:00:00'", "wrong_type", None),
        ("id: a, type: wait, duration: long", "wrong_duration", None),
        ("id: a, type: wait, until: 7", "wrong_type", None),
        ("id: a, type: wait_for_signal", "wrong_form", None),
        ("id: a, type: wait_for_event, event: x, first_of: [{event: y}]", "wrong_form", None),
        ("id: a, type: wait_for_signal, event: ''", "wrong_form", None),
        ("id: a, type: wait_for_signal, event: 'x{{'", "template", None),
        ("id: a, type: wait_for_signal, event: x, match: payload.", "template", None),
        ("id: a, type: wait_for_signal, event: x, match: result.x", "not_there", None),
        ("id: a, type: wait_for_signal, event: x, when: payload.x", "not_there", None),
        ("id: a, type: wait_for_signal, event: x, keep: 0", "out_of_range", None),
        ("id: a, type: wait_for_signal, event: x, timeout: soon", "wrong_duration", None),
        ("id: a, type: wait_for_signal, event: x, on_timeout: end", "never_taken", None),
        ("id: a, type: wait_for_signal, event: x, retry_policy: {max_attempts: 2}", "misplaced_key", None),
        ("id: a, type: wait_for_signal, first_of: []", "empty_list", None),
        ("id: a, type: wait_for_signal, first_of: [{match: 'true'}]", "missing_key", None),
        ("id: a, type: wait_for_signal, first_of: [{event: x}], match: 'true'", "misplaced_key", None),
        ("id: a, type: wait_for_signal, first_of: [{event: x}, {event: x, match: payload.x}]", "never_taken", None),
        ("id: a, type: wait_for_signal, first_of: [{event: x, goto: b}]", "unknown_step", None),
        ("id: a, type: wait_for_signal, first_of: [{event: x, goto: end}], on_success: end", "never_taken", None),
        ("id: a, type: wait_for_signal, first_of: [{event: x, goto: end}], route: {cases: [{when: 'true', goto: end}]}", "said_twice", None),
        ("id: a, type: wait_for_signl", "unknown_type", "wait_for_signal"),
        ("id: a, parameters: {value: '{{ steps.a.signal }}'}", "not_there", None),
        ("id: a, cancel_rest: true", "no_effect", None),
        ("id: a, join: {at_least: 0}, depends_on: []", "out_of_range", None),
        ("id: a, join: {atleast: 1}, depends_on: []", "unknown_key", "at_least"),
        ("id: a, type: set, values: {}", "empty_list", None),
        ("id: a, type: set, values: {nope: 1}", "undeclared_key", None),
        ("id: a, writes: {kk: 1}", "undeclared_key", "k"),
        ("id: a, type: fail, error: {type: X}", "missing_key", None),
        ("id: a, type: end, status: DONE", "wrong_value", None),
        ("id: a, type: llm_task", "missing_key", None),
        ("id: a, type: llm_task, task_prompt: x, llm: {temprature: 1}", "unknown_key", "temperature"),
        ("id: a, type: tool_call", "missing_key", None),
        ("id: a, type: tool_call, tool: mail.send, parameters: {to: x, subject: y}", "missing_parameter", None),
        ("id: a, type: tool_call, tool: mail.send, parameters: {to: x, subject: y, body: z, copies: many}", "wrong_parameter", None),
        ("id: a, type: tool_call, tool: mail.send, parameters: {to: x, subject: y, body: z, copy: 1}", "unknown_parameter", "copies"),
        ("id: a, type: tool_call, tool: mail.sned", "unknown_tool", "mail.send"),
        ("id: a, type: tool_call, tool: debug.echo, parameters: [1]", "wrong_type", None),
        ("id: next", "reserved_name", None),
        ("id: input", "reserved_name", None),
        ("id: compensate", "reserved_name", None),
        ("id: a, type: 7", "unknown_type", None),
        ("id: a, type: [x]", "wrong_type", None),
    ],
)  # fmt: skip
def test_a_fault_of_a_step_is_named(line: str, code: str, near: str | None) -> None:
    result = steps(line, head="context: {k: 0}")
    found = [p for p in result.errors if p.code == code]
    assert found, [f"{p.code}: {p.message}" for p in result.problems]
    assert found[0].nearest == near
    assert found[0].line is not None


@pytest.mark.parametrize(
    "line",
    [
        "id: a, type: parallel, branches: {x: []}", "id: a, type: foreach", "id: a, type: loop", "id: a, type: block",
        "id: a, type: workflow", "id: a, type: dynamic", "id: a, type: code",
        "id: a, compensation: none", "id: a, concurrency: {lock: x}", "id: a, cache: 1h",
        "id: a, queue_timeout: 5", "id: a, store: {payloads: metadata}", "id: a, on_failure: compensate",
        "id: a, approval: {remind: [24h]}", "id: a, approval: {quorum: 2}", "id: a, approval: {actions: {x: y}}",
        "id: a, approval: {on_timeout: escalate}", "id: a, type: llm_task, task_prompt: x, tools: [y]",
        "id: a, type: llm_task, task_prompt: x, tools: [a]",
    ],
)  # fmt: skip
def test_what_is_not_carried_out_yet_is_refused_and_never_ignored(line: str) -> None:
    assert "not_supported" in codes(steps(line))


@pytest.mark.parametrize(
    "head", ["concurrency: {limit: 1}", "budget: {max_tokens: 1}", "triggers: []", "durability: async", "durability: memory",
             "store: {payloads: encrypted}", "store: {retention: 30d}", "on_cancel: compensate"],
)  # fmt: skip
def test_workflow_keys_that_are_not_carried_out_yet_are_refused(head: str) -> None:
    assert codes(steps("id: a", head=head)) == ["not_supported"]


@pytest.mark.parametrize("head", ["durability: sync", "store: {payloads: full}", "on_cancel: leave", "handler_timeout: 5m", "timeout: 5d"])
def test_the_defaults_may_be_written_out(head: str) -> None:
    assert steps("id: a", head=head).problems == ()


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("error_handler: b", "unknown_step"), ("finally: [a]", "handler_in_path"), ("error_handler: a", "handler_in_path"),
        ("finally: []", "empty_list"), ("state: {x: {reducer: sum}}", "wrong_value"), ("state: {x: {default: '{{ 1 }}'}}", "wrong_value"),
        ("state: {x: {schema: {type: integer}, default: y}}", "schema"), ("input_schema: {type: objct}", "schema_invalid"),
        ("context: 7", "wrong_type"), ("context: {x: '{{ y }}'}", "template"), ("defaults: {retry: 1}", "unknown_key"), ("output: '{{ x'", "template"),
    ],
)  # fmt: skip
def test_a_fault_of_the_workflow_is_named(head: str, code: str) -> None:
    assert code in codes(steps("id: a", head=head))


def test_a_handler_may_be_named_once() -> None:
    assert codes(steps("id: a", "id: h", head="error_handler: h\nfinally: [h]")) == ["said_twice"]


def test_missing_and_empty_steps_are_refused() -> None:
    assert codes(check(load(HEAD), CONTRACTS)) == ["missing_key"]
    assert codes(check(load(HEAD + "steps: []\n"), CONTRACTS)) == ["empty_list"]
    assert codes(check(load(HEAD + "steps: [7, null]\n"), CONTRACTS)) == ["wrong_type", "wrong_type"]


def test_too_many_steps_are_refused() -> None:
    many = {"id": "f", "version": "1", "steps": [{"id": f"s{n}", "type": "wait", "duration": 1} for n in range(2001)]}
    assert [p.code for p in load_mapping(many).problems] == ["too_many_steps"]


def test_a_failure_with_an_unknown_outcome_needs_a_route_of_its_own() -> None:
    assert steps("id: a, on_failure: [{goto: end}, {errors: [UnknownOutcome], goto: fail}]").errors == ()


def test_an_own_error_of_a_tool_gets_a_warning() -> None:
    assert only(steps("id: a, on_failure: [{errors: [QuotaUsedUp], goto: end}]"), "unknown_error", "warning").found == "QuotaUsedUp"


@pytest.mark.parametrize(
    ("line", "head", "code"),
    [
        ("id: a, type: tool_call, tool: legacy.call", "", "undeclared_effect"),
        ("id: a, when: true", "", "constant_condition"),
        ("id: a, guard: 1 > 0", "", "constant_condition"),
        ("id: a, run_parallel: true", "", "no_effect"),
        ("id: a, timeout: 2h", "timeout: 1h", "clock_too_long"),
        ("id: a, timeout: 2h, total_timeout: 1h", "", "clock_too_long"),
        ("id: a, requires_approval: true", "timeout: 1h", "clock_too_long"),
        ("id: a, type: approval, approval: {timeout: 2h}", "timeout: 1h", "clock_too_long"),
        ("id: a, type: wait, duration: 2h", "timeout: 1h", "clock_too_long"),
        ("id: a, approval: {notify: mail}", "", "nobody_told"),
    ],
)
def test_what_is_probably_not_meant_gets_a_warning(line: str, head: str, code: str) -> None:
    result = steps(line, head=head)
    assert only(result, code, "warning").severity == "warning"
    assert result.workflow is not None


def test_names_of_models_and_secrets_are_checked_where_they_are_known() -> None:
    text = "steps:\n  - {id: a, type: llm_task, task_prompt: '{{ secrets.KYE }}', llm: fats}\n"
    assert checked(text).errors == ()
    result = checked(text, models=["fast", "default"], secrets=["KEY"])
    assert {(p.code, p.nearest) for p in result.errors} == {("unknown_model", "fast"), ("unknown_secret", "KEY")}
    assert checked("steps:\n  - {id: a, type: llm_task, task_prompt: x}\n", models=["default"]).errors == ()


def test_a_templated_parameter_is_not_judged_before_it_is_known() -> None:
    result = steps(
        "id: a, type: tool_call, tool: mail.send, parameters: {to: '{{ input.to }}', subject: s, body: b, copies: '{{ input.n }}'}"
    )
    assert result.errors == ()
    assert steps("id: a, type: tool_call, tool: mail.send, parameters: '{{ input }}'").errors == ()


def test_a_constant_parameter_may_need_a_lossless_conversion() -> None:
    assert steps("id: a, type: tool_call, tool: mail.send, parameters: {to: x, subject: s, body: b, copies: '2'}").errors == ()


def test_compile_workflow_refuses_with_all_problems() -> None:
    document = load(TWELVE).document
    with pytest.raises(DefinitionRefused) as refused:
        compile_workflow(document, CONTRACTS)
    assert len(refused.value.problems) >= 12


def test_a_document_that_was_fine_compiles_again_to_the_same() -> None:
    result = steps("id: a, on_success: b", "id: b, requires_approval: true")
    again = compile_workflow(result.document, CONTRACTS)
    assert result.workflow is not None
    assert (again.content_hash, again.body.edges) == (result.workflow.content_hash, result.workflow.body.edges)


def test_guesses_have_an_end_and_errors_have_none() -> None:
    rows = [f"    - {{id: step_{n}, type: wait, duration: 1, on_success: stpe_{n}}}\n" for n in range(600)]
    wrong = [p for p in checked("steps:\n" + "".join(rows)).errors if p.code == "unknown_step"]
    assert len(wrong) == 600
    assert wrong[0].nearest == "step_0"
    assert wrong[-1].nearest is None


@pytest.mark.parametrize("much", [129, 200])
def test_of_a_name_longer_than_names_are_nothing_is_guessed(much: int) -> None:
    long = "".join(chr(0x4E00 + n % 5000) for n in range(much))
    found = checked(
        f"input_schema: {{properties: {{{long}x: {{}}}}}}\nsteps:\n  - {{id: a, type: wait, duration: 1, {long}: 1, on_success: {long}}}\n"
    )
    assert {(p.code, p.nearest) for p in found.errors} >= {("unknown_key", None), ("unknown_step", None)}
