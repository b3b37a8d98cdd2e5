"""What a template may read is known without running it, with what guards each read."""

from __future__ import annotations

import pytest

from agiwo.template import Read, compile_expression, compile_value

A = ("a", "output")
GUARDED, OPEN = True, False


def reads(source: str) -> set[tuple[str, bool]]:
    return {(".".join(map(str, (r.root, *r.path))), r.guarded) for r in compile_expression(source).reads}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("steps.a.output", {("steps.a.output", OPEN)}),
        ("steps.a.output.rows[0].id", {("steps.a.output.rows.0.id", OPEN)}),
        ("steps['a']['output'][-1]", {("steps.a.output.-1", OPEN)}),
        ("steps.a.output | default(1)", {("steps.a.output", GUARDED)}),
        ("steps.a.output.x | default(1)", {("steps.a.output.x", GUARDED)}),
        ("(steps.a.output ~ 'x') | default(1)", {("steps.a.output", OPEN)}),
        ("steps.a.output | length | default(1)", {("steps.a.output", OPEN)}),
        ("steps.a.output is defined", {("steps.a.output", GUARDED)}),
        ("steps.a.output is defined and steps.a.output.x > 1", {("steps.a.output", GUARDED), ("steps.a.output.x", GUARDED)}),
        ("steps.a.output.x > 1 and steps.a.output is defined", {("steps.a.output", GUARDED), ("steps.a.output.x", OPEN)}),
        ("steps.a.output is undefined or steps.a.output.x", {("steps.a.output", GUARDED), ("steps.a.output.x", GUARDED)}),
        ("steps.a.output is not defined or steps.a.output.x", {("steps.a.output", GUARDED), ("steps.a.output.x", GUARDED)}),
        ("steps.a.status == 'SUCCESS' and steps.a.output", {("steps.a.status", OPEN), ("steps.a.output", GUARDED)}),
        ("'SUCCESS' == steps.a.status and steps.a.output", {("steps.a.status", OPEN), ("steps.a.output", GUARDED)}),
        ("steps.a.status == 'FAILED' and steps.a.output", {("steps.a.status", OPEN), ("steps.a.output", OPEN)}),
        ("steps.a.status != 'SUCCESS' or steps.a.output", {("steps.a.status", OPEN), ("steps.a.output", GUARDED)}),
        ("steps.b.status == 'SUCCESS' and steps.a.output", {("steps.b.status", OPEN), ("steps.a.output", OPEN)}),
        ("steps.a.output if steps.a.status == 'SUCCESS' else 0", {("steps.a.status", OPEN), ("steps.a.output", GUARDED)}),
        ("0 if steps.a.status == 'SUCCESS' else steps.a.output", {("steps.a.status", OPEN), ("steps.a.output", OPEN)}),
        (
            "input.x and steps.a.output is defined and steps.a.output.y",
            {("input.x", OPEN), ("steps.a.output", GUARDED), ("steps.a.output.y", GUARDED)},
        ),
        (
            "(steps.a.output is defined or input.x) and steps.a.output.y",
            {("steps.a.output", GUARDED), ("input.x", OPEN), ("steps.a.output.y", OPEN)},
        ),
        ("(steps.a.output | default(false)) and steps.a.output.y", {("steps.a.output", GUARDED), ("steps.a.output.y", GUARDED)}),
        ("input.rows[input.i].name", {("input.rows", OPEN), ("input.i", OPEN)}),
        ("input.rows[input.i] | default(0)", {("input.rows", GUARDED), ("input.i", OPEN)}),
        ("context", {("context", OPEN)}),
        ("input.rows | map(attribute='steps.a')", {("input.rows", OPEN)}),
        ("range(input.n)", {("input.n", OPEN)}),
        ("default(steps.a.output, steps.b.output)", {("steps.a.output", GUARDED), ("steps.b.output", OPEN)}),
        ("steps.a is defined and steps.a.output", {("steps.a", GUARDED), ("steps.a.output", OPEN)}),
        ("input.rows[1:input.n]", {("input.rows", OPEN), ("input.n", OPEN)}),
        ("input.d is defined and input.d.e", {("input.d", GUARDED), ("input.d.e", GUARDED)}),
    ],
)
def test_reads_of_an_expression(source: str, expected: set[tuple[str, bool]]) -> None:
    assert reads(source) == expected


def test_the_second_choice_says_what_must_be_absent_first() -> None:
    found = compile_expression("steps.a.output | default(steps.b.output | default(steps.c.output))").reads
    a, b = ("steps", *A), ("steps", "b", "output")
    assert found == (
        Read("steps", A, True),
        Read("steps", ("b", "output"), True, (a,)),
        Read("steps", ("c", "output"), False, (a, b)),
    )
    chained = compile_expression("steps.a.output | default(steps.b.output) | default(steps.c.output)").reads
    assert Read("steps", ("c", "output"), False, (a, b)) in chained
    other = compile_expression("steps.a.output if steps.a.output is defined else steps.b.output").reads
    assert Read("steps", ("b", "output"), False, (a,)) in other


def test_reads_of_statements() -> None:
    source = (
        "{% if steps.a.output is defined %}{{ steps.a.output.x }}"
        "{% elif input.q %}{{ steps.b.output }}{% else %}{{ steps.a.output.y }}{% endif %}"
        "{% for item in context.rows if item.ok %}{{ item.z }}{{ loop.index }}{% else %}{{ item.none }}{% endfor %}"
        "{% set t = state.total %}{{ t.q }}"
    )
    found = {(".".join(map(str, (r.root, *r.path))), r.guarded) for r in compile_value(source).reads}
    assert found == {
        ("steps.a.output", True),
        ("steps.a.output.x", True),
        ("input.q", False),
        ("steps.b.output", False),
        ("steps.a.output.y", False),
        ("context.rows", False),
        ("item.none", False),
        ("state.total", False),
    }


def test_a_tree_collects_reads_secrets_and_texts() -> None:
    template = compile_value({"a": "{{ input.x }}", "b": ["{{ input.x }} {{ secrets.K }}", 1], "c": "const"}, allow_secrets=True)
    assert template.reads == (Read("input", ("x",), False),)
    assert template.secrets == {"K"}
    assert [(text.at, text.path) for text in template.texts] == [("/a", ("input", "x")), ("/b/0", None)]


def test_conjuncts_can_be_compared() -> None:
    small, large = compile_expression("input.n>3"), compile_expression("{{ steps.a.status == 'SUCCESS' and input.n  > 3 and true }}")
    assert set(small.conjuncts) < set(large.conjuncts)
    assert len(large.conjuncts) == 3
    assert compile_expression("input.a").path == ("input", "a")
    assert compile_expression("not input.a").path is None
