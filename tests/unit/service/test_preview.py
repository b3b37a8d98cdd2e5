"""The dry run: what is shown along the path, what is made up and marked, where it stops and what to give for it."""

from __future__ import annotations

from typing import Any

from agiwo.definition import check, load
from agiwo.definition.contract import Effect, ToolContract
from agiwo.service.preview import MAX_RUNS, PreviewCall, preview

ROWS = {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "items": {"type": "object"}}}}
TOOLS = {
    "t.get": ToolContract("t.get", parameters={"type": "object"}, result=ROWS, effect=Effect.READ),
    "t.send": ToolContract("t.send", parameters={"type": "object"}, effect=Effect.WRITE),
    "t.pure": ToolContract("t.pure", parameters={"type": "object"}, effect=Effect.PURE),
}


def run(steps: str, head: str = "", **call: Any) -> dict[str, Any]:
    lines = "\n".join(f"  - {{{line.strip()}}}" for line in steps.strip().splitlines())
    checked = check(load(f'id: w\nversion: "1"\n{head}\nsteps:\n{lines}\n'), TOOLS)
    assert checked.workflow is not None, [problem.message for problem in checked.errors]
    return preview(checked.workflow, PreviewCall(**call), 1_000_000.0, "default")


def by_path(shown: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["path"]: step for step in shown["steps"]}


def test_prompts_parameters_and_made_up_outputs_are_shown_in_order() -> None:
    shown = run(
        """
        id: fetch, type: tool_call, tool: t.get, parameters: {week: "{{ input.week }}"}
        id: write, type: llm_task, task_prompt: "About {{ steps.fetch.output.rows | length }} rows of {{ input.week }}"
        id: send, type: tool_call, tool: t.send, parameters: {text: "{{ steps.write.output }}"}
        """,
        head='output: "{{ steps.send.output }}"',
        input={"week": "48"},
        results={"fetch": {"rows": [{}, {}]}},
    )
    assert [step["path"] for step in shown["steps"]] == ["fetch", "write", "send"]
    fetch, write, send = shown["steps"]
    assert (fetch["input"], fetch["output_from"]) == ({"week": "48"}, "given")
    assert write["input"]["task_prompt"] == "About 2 rows of 48"
    assert (write["output_from"], write["output"]) == ("placeholder", "<the answer of `write`>")
    assert (send["input"], send["rests_on"]) == ({"text": "<the answer of `write`>"}, ["steps.write"])
    assert (shown["status"], shown["output"], shown["stopped"]) == ("SUCCESS", "<the result of `send`>", None)


def test_secrets_stay_marks() -> None:
    shown = run('id: a, type: tool_call, tool: t.send, parameters: {key: "Bearer {{ secrets.token }}"}')
    assert shown["steps"][0]["input"] == {"key": "Bearer ***"}


def test_conditions_are_shown_with_their_values_and_what_was_skipped_says_why() -> None:
    shown = run(
        """
        id: a, type: tool_call, tool: t.pure, when: "{{ input.n > 1 }}"
        id: b, type: tool_call, tool: t.pure, when: "{{ input.n > 5 }}"
        """,
        input={"n": 3},
    )
    a, b = shown["steps"]
    assert a["when"] == {"expression": "{{ input.n > 1 }}", "values": {"input.n": 3}, "holds": True}
    assert (b["status"], b["reason"], b["evidence"]["values"]) == ("SKIPPED", "when", {"input.n": 3})


def test_a_route_says_what_it_chose_and_whether_that_rests_on_something_made_up() -> None:
    steps = """
        id: ask, type: llm_task, task_prompt: x, output_schema: {enum: [yes, no]}, route: {choose: result, targets: {yes: y, no: n}}
        id: y, type: tool_call, tool: t.pure
        id: n, type: tool_call, tool: t.pure
    """
    made_up = run(steps)
    assert by_path(made_up)["ask"]["route"]["value"] == "yes"
    assert made_up["not_run"] == {"n": "not_chosen"}
    given = run(steps, results={"ask": "no"})
    assert [step["path"] for step in given["steps"]] == ["ask", "n"]


def test_waits_pass_at_once_and_approvals_are_shown_as_they_would_be_asked() -> None:
    shown = run(
        """
        id: w, type: wait, duration: 30d
        id: pay, type: tool_call, tool: t.send, parameters: {n: 1}, approval: {title: "Pay {{ input.to }}?", approvers: ["user:a@b.c"]}
        """,
        input={"to": "Ann"},
    )
    pay = by_path(shown)["pay"]
    assert by_path(shown)["w"]["status"] == "SUCCESS"
    assert (pay["approval"]["title"], pay["approval"]["approvers"]) == ("Pay Ann?", ["user:a@b.c"])
    assert (pay["approval"]["decided"], pay["approval"]["assumed"]) == ("approve", True)


def test_a_rejection_is_followed() -> None:
    shown = run(
        """
        id: pay, type: tool_call, tool: t.send, requires_approval: true, on_reject: told
        id: told, type: tool_call, tool: t.pure, parameters: {why: "{{ steps.pay.approval.comment | default('') }}"}
        """,
        decisions={"pay": {"action": "reject", "comment": "too dear"}},
    )
    assert by_path(shown)["told"]["input"] == {"why": "too dear"}
    assert by_path(shown)["pay"]["approval"]["assumed"] is False


def test_a_form_is_filled_in_and_one_that_does_not_fit_stops_the_run() -> None:
    step = """
        id: pay, type: approval, approval: {fields: {type: object, required: [n], properties: {n: {type: integer, minimum: 3}}}}
    """
    assert by_path(run(step))["pay"]["output"] == {"n": 3}
    bad = run(step, decisions={"pay": {"action": "approve", "values": {"n": 1}}})
    assert bad["stopped"]["at"] == "pay"
    assert bad["stopped"]["give"] == ["decisions.pay"]


def test_where_something_made_up_is_not_enough_the_run_stops_and_says_what_to_give() -> None:
    steps = """
        id: a, type: tool_call, tool: t.pure
        id: b, type: tool_call, tool: t.pure, parameters: {n: "{{ steps.a.output.deep.n }}"}
        id: c, type: tool_call, tool: t.pure
    """
    shown = run(steps)
    assert (shown["stopped"]["at"], shown["stopped"]["give"]) == ("b", ["steps.a"])
    assert run(steps, results={"a": {"deep": {"n": 1}}})["stopped"] is None


def test_a_mistake_that_rests_on_nothing_made_up_is_shown_as_it_would_happen() -> None:
    shown = run(
        """
        id: a, type: tool_call, tool: t.pure, parameters: {n: "{{ input.nosuch.n }}"}, on_failure: b
        id: b, type: tool_call, tool: t.pure
        """
    )
    assert (by_path(shown)["a"]["error"]["type"], by_path(shown)["b"]["status"], shown["stopped"]) == ("TemplateError", "SUCCESS", None)


def test_a_loop_ends() -> None:
    steps = """
        id: a, type: tool_call, tool: t.pure, on_success: b, max_iterations: 100000
        id: b, type: tool_call, tool: t.pure, on_success: a, max_iterations: 100000
    """
    shown = run(steps)
    assert len(shown["steps"]) in (MAX_RUNS, MAX_RUNS + 1)
    assert "follows no further" in shown["stopped"]["why"]


def test_large_prompts_end_a_run_too() -> None:
    shown = run(
        """
        id: a, type: llm_task, task_prompt: "{{ input.text }}", on_success: b, max_iterations: 100000
        id: b, type: set, values: {n: 1}, on_success: a, max_iterations: 100000
        """,
        head="context: {n: 0}",
        input={"text": "x" * 150_000},
    )
    assert "bytes" in shown["stopped"]["why"]


def test_a_callback_and_a_signal_are_answered_by_what_is_given() -> None:
    shown = run(
        """
        id: job, type: tool_call, tool: t.send, completion: callback
        id: paid, type: wait_for_signal, event: paid, timeout: 1h
        id: last, type: tool_call, tool: t.pure, parameters: {a: "{{ steps.job.output.pages }}"}
        """,
        results={"job": {"pages": 3}, "paid": {"amount": 7}},
    )
    assert by_path(shown)["last"]["input"] == {"a": 3}
    assert by_path(shown)["paid"]["signal"] == {"event": "paid", "payload": {"amount": 7}}
    assert shown["stopped"] is None


def test_the_same_call_gives_the_same_answer() -> None:
    steps = """
        id: a, type: tool_call, tool: t.get, run_parallel: true
        id: b, type: tool_call, tool: t.send, run_parallel: true
        id: c, type: tool_call, tool: t.pure
    """
    assert run(steps) == run(steps)


def test_what_begins_at_once_is_bounded_too() -> None:
    text = 'type: tool_call, tool: t.pure, depends_on: [], parameters: {n: "{{ input.text }}"}'
    steps = "\n".join(f"id: s{n}, {text}" for n in range(400))
    shown = run(steps, input={"text": "x" * 100_000})
    assert len(shown["steps"]) <= 45
    assert shown["stopped"] is not None


def test_a_large_result_that_is_given_is_not_shown_again_and_again() -> None:
    steps = """
        id: a, type: tool_call, tool: t.pure, on_success: b, max_iterations: 100000
        id: b, type: tool_call, tool: t.pure, on_success: a, max_iterations: 100000
    """
    shown = run(steps, results={"a": "x" * 1_500_000})
    assert len(shown["steps"]) < 10
