"""A name that is not there is an error that says which, where and why; it may go to `default` and `is defined` only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from agiwo.errors import TemplateError
from agiwo.template import Absent, TemplateErrors, compile_expression, compile_value


@dataclass
class Names:
    """A namespace that notes what was asked of it."""

    values: dict[str, Any]
    asked: list[str] = field(default_factory=list)

    def member(self, name: str) -> object:
        self.asked.append(name)
        return self.values.get(name) or Absent(f"steps.{name}", "", self.members())

    def members(self) -> tuple[str, ...]:
        return tuple(self.values)


def steps() -> Names:
    skipped = Names({"status": "SKIPPED", "output": Absent("steps.fetch.output", "the step was skipped (when)")})
    return Names({"fetch": skipped, "load": Names({"status": "SUCCESS", "output": {"rows": [1]}})})


SCOPE = {
    "input": {"customer": {"name": "A", "id": 7}, "none": None, "rows": [1, 2], "n": 5, "s": "text"},
    "context": {},
    "steps": steps(),
    "error": {"deep": object()},
    "payload": {f"k{i}": i for i in range(30)},
}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("input.customer.nme", ["`input.customer.nme` is not there", "`input.customer` has: name, id", "did you mean `name`"]),
        ("input.customer.nme.first", ["`input.customer.nme`"]),
        ("input.none.x", ["`input.none.x`", "`input.none` is null"]),
        ("input.rows[5]", ["`input.rows[5]`", "has 2 elements"]),
        ("input.rows.first", ["`input.rows` is an array"]),
        ("input.n.x", ["`input.n` is an integer"]),
        ("input.s.upper", ["`input.s` is a string"]),
        ("context.x", ["`context` is an empty object"]),
        ("item.x", ["`item`", "not given here"]),
        ("error.deep.x", ["`error.deep` cannot be entered"]),
        ("payload.x", ["k0, k1", "k19, …"]),
        ("(input.x if false else item).y", ["`item`"]),
        ("((1, 2) | first).y", ["`(…)` is an integer"]),
        ("steps.fetch.output.rows", ["`steps.fetch.output` is not there", "the step was skipped (when)"]),
        ("steps.fetsh.output", ["`steps.fetsh`", "fetch, load", "did you mean `fetch`"]),
        ("input['a-b']", ["input['a-b']"]),
        ("input[0]", ["input[0]"]),
        ("input.rows | map(attribute='x')", ["element 0.x"]),
        ("[] | first", ["first element", "empty"]),
        ("[] | max", ["the max", "empty"]),
    ],
)
def test_a_missing_name_says_what_and_where_and_why(source: str, words: list[str]) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_value({"a": ["x", "{{ " + source + " }}"]}, place="fetch.parameters").render(SCOPE)
    for word in words:
        assert word in caught.value.message
    assert caught.value.message.startswith("fetch.parameters/a/1: ")
    assert caught.value.failure().details == {"template": "{{ " + source + " }}", "pointer": "/a/1", "place": "fetch.parameters"}


@pytest.mark.parametrize(
    "source",
    [
        "input.x + 1",
        "input.x ~ 'a'",
        "input.x == 1",
        "1 in input.x",
        "[input.x]",
        "{'a': input.x}",
        "input.x | length",
        "input.x is none",
        "input.x and 1",
        "not input.x",
        "1 if input.x else 2",
        "input.rows[input.x]",
        "input.rows[input.x:]",
        "-input.x",
        "input.rows | join(input.x)",
        "range(input.x)",
        "input.n | default(1, input.x)",
        "input.x or 'a'",
        "input.x is string",
    ],
)
def test_any_use_of_an_absent_name_is_an_error(source: str) -> None:
    expression = compile_expression(source)
    with pytest.raises(TemplateError, match=r"`input\.x` is not there") as caught:
        print(expression.evaluate(SCOPE), expression.evaluate({"input": {"n": 0, "rows": [1]}}))
    assert caught.value.type == "TemplateError"


def test_setting_a_name_to_an_absent_one_is_an_error() -> None:
    with pytest.raises(TemplateError, match="not there"):
        compile_value("{% set a = input.x %}").render(SCOPE)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.x | default('d')", "d"),
        ("input.x.y.z | default('d')", "d"),
        ("input.none.y | default('d')", "d"),
        ("input.none | default('d')", None),
        ("input.none | default('d', true)", "d"),
        ("input.none | default('d', boolean=true)", "d"),
        ("input.x | default(boolean=true)", ""),
        ("input.x | default(default_value=3)", 3),
        ("input.x | d", ""),
        ("input.x | default(input.y | default('e'))", "e"),
        ("input.x | default(input.y) | default('e')", "e"),
        ("default(input.x, input.n)", 5),
        ("default(input.x, default(input.y, 'e'))", "e"),
        ("default(input.n, input.nope + 1)", 5),
        ("input.x is defined", False),
        ("input.none is defined", True),
        ("input.x is undefined", True),
        ("input.x is not defined", True),
        ("input.x.y is defined and input.x.y > 3", False),
        ("input.x is defined or input.n", 5),
        ("(input.rows | first) is defined", True),
        ("([] | first) | default(0)", 0),
        ("[] | min | default(0)", 0),
        ("steps.fetch.output | default([])", []),
        ("steps.load.output.rows | default([])", [1]),
        ("steps.fetch is defined", True),
        ("input.rows | map(attribute='x', default=0)", [0, 0]),
        ("(input.x if true else 1) | default(2)", 2),
        ("item | default('none')", "none"),
    ],
)
def test_absent_goes_to_default_and_is_defined(source: str, expected: Any) -> None:
    assert compile_expression(source).evaluate(SCOPE) == expected


def test_an_expression_may_be_absent_as_a_whole() -> None:
    found = compile_expression("steps.fetch.output.rows").evaluate(SCOPE)
    assert isinstance(found, Absent)
    assert found.why == "the step was skipped (when)"


def test_an_open_read_of_the_output_gives_null() -> None:
    template = compile_value({"a": "{{ steps.fetch.output }}", "b": "<{{ steps.fetch.output }}>", "c": "{{ 'x' ~ steps.fetch.output }}"})
    assert template.render(SCOPE, open_as_null=True).value == {"a": None, "b": "<>", "c": "x"}
    with pytest.raises(TemplateError):
        template.render(SCOPE)


def test_a_namespace_is_asked_only_for_what_is_read() -> None:
    scope = {"steps": steps()}
    assert compile_value("{{ steps.load.output.rows }}").render(scope).value == [1]
    assert scope["steps"].asked == ["load"]


def test_a_group_of_names_is_no_value() -> None:
    with pytest.raises(TemplateErrors, match=r"write `steps\.load\.output`"):
        compile_value("{{ steps.load }}")
    with pytest.raises(TemplateErrors, match=r"write `steps\.NAME\.output`"):
        compile_value("{{ steps }}")
    with pytest.raises(TemplateError, match="name one of: fetch, load"):
        compile_value("{{ event.all }}").render({"event": {"all": steps()}})
    with pytest.raises(TemplateError, match="group of names"):
        compile_value("{{ event.all | tojson }}").render({"event": {"all": steps()}})


def test_the_index_of_steps_must_be_written_out() -> None:
    for source in ("steps[input.s].output", "steps[input.s]['output'] | default(1)", "steps[input.s] is defined"):
        with pytest.raises(TemplateErrors, match="which step"):
            compile_expression(source)
    assert compile_expression("steps['load'].output").reads[0].path == ("load", "output")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ inptu.x }}", "did you mean `input`"),
        ("{{ zzz }}", "known here: "),
        ("{{ steps.a-b.output }}", "a step's id has no hyphen"),
        ("{{ input.a-bc }}", r"write input\['a-bc'\]"),
        ("{{ loop.index }}", "no `loop`"),
        ("{{ x }}{% set x = 1 %}", "no `x`"),
        ("{% for a in [1] %}{% endfor %}{{ a }}", "no `a`"),
        ("{% set input = 1 %}", "is the name of something given"),
        ("{% for steps in [1] %}{% endfor %}", "cannot be the name"),
        ("{{ self }}", "no `self`"),
    ],
)
def test_unknown_names_are_found_when_compiling(source: str, words: str) -> None:
    with pytest.raises(TemplateErrors, match=words):
        compile_value(source)


def test_further_root_names_can_be_given() -> None:
    assert compile_value("{{ order.id }}", names=["order"]).render({"order": {"id": 1}}).value == 1
    assert compile_expression("order.id", names=["order"]).evaluate({"order": {"id": 1}}) == 1


def test_all_errors_of_a_tree_come_at_once_with_their_places() -> None:
    source = {"a": "ok {{ inpt.x }}\n{{ nope }}", "b": [{"c": "{{ 1 +"}], "d~/": "{{ x | uper }}", "fine": "{{ input.x }}"}
    with pytest.raises(TemplateErrors) as caught:
        compile_value(source, place="steps/3/parameters")
    found = [(e.data["pointer"], e.data["offset"], e.data["line"]) for e in caught.value.errors]
    assert found == [("/a", 3, 1), ("/a", 16, 2), ("/b/0/c", 0, 1), ("/d~0~1", 0, 1), ("/d~0~1", 0, 1)]
    assert all(e.message.startswith("steps/3/parameters" + e.data["pointer"]) for e in caught.value.errors)
    assert "did you mean `upper`" in caught.value.message


def test_a_key_is_no_template() -> None:
    with pytest.raises(TemplateErrors, match="a key is no template"):
        compile_value({"{{ input.x }}": 1})


def test_an_absent_name_in_a_longer_text_is_an_error() -> None:
    for source in ("Hi {{ input.x }}", "{% if true %}{{ input.x }}{% endif %}", "{{ input.n }}{{ input.none.y }}"):
        with pytest.raises(TemplateError, match="is not there"):
            compile_value(source).render(SCOPE)
    assert compile_value("<{{ input.none }}>").render(SCOPE).value == "<>"


def test_the_same_mistake_in_one_template_is_said_once() -> None:
    with pytest.raises(TemplateErrors) as caught:
        compile_value("{{ nope }} {{ nope }}")
    assert len(caught.value.errors) == 1


def test_a_template_with_text_that_cannot_be_kept_is_refused() -> None:
    for source in ("{{ 1 }}\x00", "{{ 1 }}\ud800"):
        with pytest.raises(TemplateErrors, match="a text holds"):
            compile_value(source)
