"""A single expression keeps its value and type; a longer text is always text; nothing is guessed or stripped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agiwo.errors import TemplateError
from agiwo.template import Absent, compile_expression, compile_value
from agiwo.values import encode


def render(source: Any, **scope: Any) -> Any:
    return compile_value(source).render(scope).value


TEXTS = ["2", "1,2", "1_000", "1e5", "None", "True", "[1]", "'x'", "0x10", "0123", " 7 ", "", "007", "{{ input.s }}", "{% if %}", "\n"]
OTHERS: list[Any] = [{"a": 1}, {}, [], [1, "2"], None, 3.10, True, False, 0, 10**99, 0.1 + 0.2]


@pytest.mark.parametrize("value", [*TEXTS, *OTHERS])
def test_a_single_expression_hands_on_the_value_itself(value: Any) -> None:
    """REQ-23."""
    for source in ("{{ input.s }}", "{{input.s}}", "{{- input.s -}}", "  {{- input.s -}}  \n", "{{ input['s'] }}"):
        assert render({"v": source}, input={"s": value})["v"] is value


@pytest.mark.parametrize("value", TEXTS)
def test_a_longer_text_is_text(value: str) -> None:
    """REQ-23."""
    out = render({"m": "id-{{ input.s }}", "n": "{{ input.s }}{{ input.s }}"}, input={"s": value})
    assert out == {"m": "id-" + value, "n": value + value}


@pytest.mark.parametrize("value", OTHERS)
def test_other_values_stand_in_a_longer_text_as_json_writes_them(value: Any) -> None:
    expected = "" if value is None else json.dumps(value, separators=(",", ":"))
    assert render("<{{ input.s }}>", input={"s": value}) == f"<{expected}>"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ input.t ~ input.z ~ input.o ~ input.f }}", 'true{"a":[1,null]}3.1'),
        ("{{ [input.t, input.z, input.o] | join('-') }}", 'true--{"a":[1,null]}'),
        ("{{ input.o | string }}", '{"a":[1,null]}'),
        ("{{ 1e16 }}!", encode(1e16) + "!"),
        ("{{ input.z | string }}", ""),
    ],
)
def test_joining_writes_as_a_longer_text_does(source: str, expected: str) -> None:
    assert render(source, input={"t": True, "z": None, "o": {"a": [1, None]}, "f": 3.10}) == expected


def test_line_ends_stay_as_they_are() -> None:
    assert render("{{ input.s }}\n", input={"s": 1}) == "1\n"
    assert render("a\r\nb\rc\n{{ input.s }}\r\n\r\n", input={"s": "x\r\n"}) == "a\r\nb\rc\nx\r\n\r\n\r\n"
    assert render("{{ 'a\r\nb' ~\r\n '' }}") == "a\r\nb"


def test_a_key_wins_over_a_method() -> None:
    data = {"items": [1], "keys": 2, "values": 3, "get": 4, "__class__": 5, "upper": 6}
    for key, value in data.items():
        assert render("{{ input." + key + " }}", input=data) == value


def test_lazy_results_are_lists() -> None:
    rows = [{"n": 1, "k": "a"}, {"n": 2, "k": "b"}, {"n": 3, "k": "a"}]
    for source in (
        "{{ input | map(attribute='n') }}",
        "{{ input | selectattr('k', 'equalto', 'a') }}",
        "{{ range(3) }}",
        "{{ input | reverse }}",
        "{{ (1, 2) }}",
        "{{ input | groupby('k') }}",
        "{{ input[1:] }}",
        "{{ input[0] | items }}",
    ):
        assert type(render(source, input=rows)) is list
    assert render("{{ input | map(attribute='n') }}", input=rows) == [1, 2, 3]
    assert render("{{ input | groupby('k') }}", input=rows) == [["a", [rows[0], rows[2]]], ["b", [rows[1]]]]


def test_what_data_contains_is_never_rendered() -> None:
    hostile = "Hi {{ name }} {% raw %} {# x #} ${7*7} {{ secrets.KEY }} {{ 7*7 }}"
    scope = {"input": {"text": hostile, "rows": [hostile], hostile: hostile}}
    assert compile_value("{{ input.text }}").render(scope).value == hostile
    rows = json.dumps([hostile], separators=(",", ":"))
    assert compile_value("<{{ input.text }}>{{ input.rows }}").render(scope).value == f"<{hostile}>{rows}"
    once = compile_value("{{ input.text ~ '' }}").render(scope).value
    assert compile_value({"a": ["{{ input.text }}"]}).render({"input": {"text": once}}).value == {"a": [hostile]}


def test_raw_writes_braces() -> None:
    assert render("{% raw %}{{ x }} {% if %}{% endraw %} {{ input.a }}", input={"a": 1}) == "{{ x }} {% if %} 1"


def test_a_rendering_shares_data_and_changes_nothing() -> None:
    rows = [{"n": 2}, {"n": 1}]
    scope = {"input": {"rows": rows}}
    source = {"fixed": {"a": [1, {"b": 2}]}, "rows": "{{ input.rows }}", "sorted": "{{ input.rows | sort(attribute='n') }}"}
    before = json.dumps([scope, source])
    out = compile_value(source).render(scope).value
    assert out["rows"] is rows
    assert out["fixed"] is source["fixed"]
    assert out["sorted"][0] is rows[1]
    assert json.dumps([scope, source]) == before


def test_a_constant_tree_is_handed_on() -> None:
    source = {"a": [1, "text", {"b": None}]}
    template = compile_value(source)
    assert template.constant
    assert template.reads == ()
    assert template.render({}).value is source
    assert not compile_value("{{ 1 }}").constant


@pytest.mark.parametrize("source", ["input.n > 3", "{{ input.n > 3 }}", "  {{- input.n > 3 -}}\n", " input.n>3 "])
def test_an_expression_stands_bare_or_in_braces(source: str) -> None:
    assert compile_expression(source).evaluate({"input": {"n": 4}}) is True


@pytest.mark.parametrize(
    "source",
    [
        "x {{ input.n }}",
        "{{ input.n }}{{ input.n }}",
        "{{ input.n }} y",
        "input.n }} x {{ 1",
        "{% if true %}1{% endif %}",
        "{# c #}",
        "input.n }}",
    ],
)
def test_anything_around_the_braces_of_an_expression_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match="exactly one"):
        compile_expression(source)


@pytest.mark.parametrize("source", ["", "  ", "input.", "input.n input.n", "1 +", "(", "{{ }}", "'abc"])
def test_a_broken_expression_is_refused(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_expression(source, place="steps/0/when")
    assert "steps/0/when" in caught.value.message


def test_objects_may_be_written_in_an_expression() -> None:
    assert compile_expression("{'a': input.n, 'b': [1, 2.5]}").evaluate({"input": {"n": 1}}) == {"a": 1, "b": [1, 2.5]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("true == 1", False),
        ("1 == 1.0", True),
        ("{'a': 1} == {'b': 1}", False),
        ("{'a': 1} == {'a': 1, 'b': 2}", False),
        ("{'a': 1} == {'a': 2}", False),
        ("'ab' == 'abc'", False),
        ("'a' < 'b'", True),
        ("'b' >= 'a' and 'b' > 'a' and 'a' <= 'a'", True),
        ("'1' == 1", False),
        ("false == 0", False),
        ("[1, true] == [1, 1]", False),
        ("{'a': [1]} == {'a': [1.0]}", True),
        ("none == false", False),
        ("true in [1, 2]", False),
        ("2 in [1, 2]", True),
        ("'b' in 'abc'", True),
        ("'k' in {'k': 1}", True),
        ("3 not in [1]", True),
        ("1 < 2 <= 2 < 3", True),
        ("1 < 2 > 5", False),
        ("not 0", True),
        ("'' or 'x'", "x"),
        ("1 and []", []),
        ("7 // 2", 3),
        ("7 % 4", 3),
        ("7 / 2", 3.5),
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("-2 + 5", 3),
        ("+3", 3),
        ("'ab' * 3", "ababab"),
        ("3 * [1]", [1, 1, 1]),
        ("'' * (10 ** 99)", ""),
        ("'a' + 'b'", "ab"),
        ("[1] + [2]", [1, 2]),
        ("'abc'[1]", "b"),
        ("'abc'[-1]", "c"),
        ("'abcdef'[1:4]", "bcd"),
        ("[1, 2, 3][::-1]", [3, 2, 1]),
        ("9007199254740993 + 0", 9007199254740993),
        ("99999999999999999999 * 10", 999999999999999999990),
        ("'y' if 1 < 2 else 'n'", "y"),
    ],
)
def test_operators(source: str, expected: Any) -> None:
    value = compile_expression(source).evaluate({})
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("'1' + 1", "`~` joins text"),
        ("true + 1", "two numbers"),
        ("'%s' % 1", "two numbers"),
        ("1 < 'a'", "two numbers or two texts"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("0 ** -1", "negative power"),
        ("(0 - 8) ** 0.5", "no number"),
        ("1e308 * 10", "no number"),
        ("1e308 ** 2", "no number"),
        ("-'a'", "needs a number"),
        ("[1][true]", "an index must be"),
        ("[1][1.0]", "an index must be"),
        ("5[1:2]", "list or a text"),
        ("[1, 2][::0]", "step of a cut"),
        ("{1: 2}", "must be text"),
        ("1 in 2", "looks into"),
        ("1 in 'abc'", "must be text"),
        ("[] < []", "two numbers or two texts"),
    ],
)
def test_wrong_types_are_errors(source: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        compile_expression(source).evaluate({})


def test_an_if_without_else_gives_nothing() -> None:
    assert isinstance(compile_expression("1 if false").evaluate({}), Absent)


def test_statements() -> None:
    scope = {"input": {"rows": [{"n": 1}, {"n": 2}, {"n": 3}], "empty": [], "o": {"a": 1, "b": 2}}}
    for source, expected in [
        ("{% for r in input.rows if r.n != 2 %}{{ loop.index }}/{{ loop.length }}:{{ r.n }} {% endfor %}", "1/2:1 2/2:3 "),
        ("{% for r in input.empty %}x{% else %}none{% endfor %}", "none"),
        ("{% for k, v in input.o | items %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"),
        ("{% for k in input.o %}{{ k }}{% endfor %}", "ab"),
        ("{% set x = 1 %}{% for r in input.rows %}{% set x = r.n %}{{ x }}{% endfor %}{{ x }}", "1231"),
        ("{% if input.empty %}a{% elif input.o %}b{% else %}c{% endif %}", "b"),
        ("{% set a, b = [1, 2] %}{{ b }}{{ a }}", "21"),
        ("{% for item in input.rows %}{{ item.n }}{% endfor %}", "123"),
        (
            "{% for r in input.rows %}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.index0 }} {% endfor %}",
            "truefalse30 falsefalse21 falsetrue12 ",
        ),
        ("{% if false %}{% set y = 1 %}{% endif %}{{ y | default('unset') }}", "unset"),
    ]:
        assert compile_value(source).render(scope).value == expected, source


def test_a_loop_needs_a_list_and_names_that_fit() -> None:
    with pytest.raises(TemplateError, match="`for` needs a list"):
        render("{% for x in input.n %}{% endfor %}", input={"n": 1})
    with pytest.raises(TemplateError, match="2 names are set"):
        render("{% for a, b in input.n %}{% endfor %}", input={"n": [[1]]})
