"""Whatever the data: types are kept, longer texts are text, data is never evaluated, secrets never show, and work always stops."""

from __future__ import annotations

import copy
import json
from html import unescape
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agiwo.errors import TemplateError
from agiwo.template import (
    FILTERS,
    MAX_RESULT,
    TESTS,
    Absent,
    TemplateErrors,
    compile_expression,
    compile_value,
    fill_secrets,
    is_template,
    mask,
    split_statement,
    weigh,
)
from agiwo.values import canonical, encode

PIECES = [
    "{{ input.s }}",
    "{%",
    "%}",
    "{{",
    "}}",
    "{#",
    "#}",
    "'",
    '"',
    "$",
    "<",
    "&",
    "\\",
    "\r",
    "\n",
    ":p1",
    "--",
    "s",
    "7",
    "ü",
    "\U0001f600",
]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    st.lists(st.sampled_from(PIECES)).map("".join),
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-(10**99), 10**99), st.floats(allow_nan=False, allow_infinity=False), TEXT)
JSON = st.recursive(SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)), max_leaves=12)


def same(left: Any, right: Any) -> bool:
    return canonical(left) == canonical(right)


@given(JSON)
def test_a_single_expression_gives_the_very_value(value: Any) -> None:
    scope = {"input": {"v": value}}
    assert compile_value("{{ input.v }}").render(scope).value is value
    assert compile_expression("input.v").evaluate(scope) is value
    assert same(compile_value("{{ [input.v, {'a': input.v}] }}").render(scope).value, [value, {"a": value}])


@given(JSON)
def test_a_longer_text_is_text_and_holds_the_value_as_it_is(value: Any) -> None:
    out = compile_value("<{{ input.v }}>{{ input.v }}").render({"input": {"v": value}}).value
    written = value if isinstance(value, str) else "" if value is None else encode(value)
    assert out == f"<{written}>{written}"
    assert compile_value("{{ input.v ~ '' }}").render({"input": {"v": value}}).value == written
    assert compile_value("{{ input.v | string }}").render({"input": {"v": value}}).value == written


@given(JSON)
def test_json_text_comes_back_equal(value: Any) -> None:
    assert same(compile_expression("input.v | tojson | fromjson").evaluate({"input": {"v": value}}), value)
    assert compile_expression("input.v == input.w").evaluate({"input": {"v": value, "w": copy.deepcopy(value)}}) is True


@given(TEXT)
def test_the_authors_text_without_templates_stays(text: str) -> None:
    if not is_template(text):
        assert compile_value([text]).render({}).value == [text]
    if "{% endraw" not in text and "{%- endraw" not in text and "{%" not in text:
        assert compile_value("x{% raw %}" + text + "{% endraw %}{{ 1 }}").render({}).value == f"x{text}1"


@given(JSON)
def test_html_shows_the_data_and_adds_no_markup(value: Any) -> None:
    out = compile_value({"h": "{{ input.v }}"}, uses={"h": "html"}).render({"input": {"v": value}}).value["h"]
    assert not set(out) & set("<>\"'")
    written = value if isinstance(value, str) else "" if value is None else encode(value)
    assert unescape(out.replace("\r", "")) == unescape(out).replace("\r", "")
    assert out.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&#x27;", "'").replace("&amp;", "&") == written


@given(st.lists(st.dictionaries(TEXT, SCALAR, max_size=4), max_size=5))
def test_a_table_has_a_cell_for_every_value_and_only_its_own_tags(rows: list[dict[str, Any]]) -> None:
    out = compile_value({"h": "{{ input.rows | table }}"}, uses={"h": "html"}).render({"input": {"rows": rows}}).value["h"]
    columns = len({key for row in rows for key in row})
    assert out.count("<") == 2 * (4 + columns + len(rows) * (1 + columns))
    assert out.count("<td>") == columns * len(rows)
    compile_value("{{ input.rows | table }}").render({"input": {"rows": rows}})


@given(st.lists(JSON, max_size=4), TEXT.filter(lambda t: not is_template(t) and "{" not in t))
def test_sql_text_is_the_authors_alone(values: list[Any], label: str) -> None:
    quoted = "'" + label.replace("'", "''") + "'"
    source = f"select {quoted}" + "".join(f", {{{{ input.v[{i}] }}}}" for i in range(len(values)))
    out = compile_value({"q": source}, uses={"q": "sql"}).render({"input": {"v": values}}).value["q"]
    texts, names = split_statement(out["statement"], out["values"])
    assert "".join(texts) == f"select {quoted}" + ", " * len(values)
    assert len(names) == len(values) == len(set(names))
    assert all(out["values"][name] is value for name, value in zip(names, values, strict=True))


@given(JSON, TEXT, TEXT)
def test_a_secret_is_sent_and_never_shown(value: Any, before: str, behind: str) -> None:
    secret = "s3cr3t-" + "9f"
    source = {"a": "{{ input.x ~ secrets.K ~ input.y }}", "b": "{{ input.v }}", "c": "{{ secrets.K }}"}
    out = compile_value(source, allow_secrets=True).render({"input": {"v": value, "x": before, "y": behind}})
    filled, used = fill_secrets(out.value, out.secrets, {"K": secret}.__getitem__)
    assert (filled["a"], filled["c"], used) == (before + secret + behind, secret, (secret,))
    assert secret not in json.dumps(out.value)
    masked = mask(filled, used)
    assert secret not in json.dumps(masked, ensure_ascii=False)
    assert masked["b"] == value


@given(JSON, TEXT.filter(bool))
def test_masking_leaves_no_secret_and_changes_nothing_else(value: Any, secret: str) -> None:
    before = copy.deepcopy(value)
    masked = mask({"v": value, "t": "x" + secret}, [secret])
    assert value == before
    if "*" not in secret:
        for text in _texts(masked):
            assert secret not in text
    if not any(secret in text for text in _texts(value)) and encode(secret)[1:-1] == secret and secret.isalpha():
        assert masked["v"] is value


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


WORDS = list(".|()[]x=1,~-*") + ["input", "s", "upper", "if", "for", "in", "set", "end", "raw", "secrets.K", "is", "steps"]


@given(st.lists(st.sampled_from([*PIECES, *WORDS, " "]), max_size=30).map("".join))
def test_any_text_compiles_or_is_refused_with_a_place(text: str) -> None:
    for compile_ in (compile_value, compile_expression):
        try:
            compiled = compile_(text, place="here")
        except TemplateErrors as exc:
            assert exc.errors
            for error in exc.errors:
                assert 0 <= error.data["offset"] <= len(text)
                assert error.message.startswith("here: ")
            continue
        try:
            if compile_ is compile_value:
                compiled.render({"input": {"s": "{{ 7 * 7 }}"}})
            else:
                compiled.evaluate({"input": {"s": "{{ 7 * 7 }}"}})
        except TemplateError as exc:
            assert exc.message.startswith("here: ")


LEAF = st.sampled_from(
    [
        "'upper'",
        "'eq'",
        "'replace'",
        "'%Y'",
        "input.f",
        "true",
        "input.t",
        "input.l",
        "input.n",
        "input.o",
        "7",
        "'ab'",
        "[1, 2]",
        "range(input.n)",
        "input.none",
    ]
)
FILTER = st.sampled_from(sorted(name for name in FILTERS if FILTERS[name].accepts(0, ()) is None))
CALLED = st.sampled_from([*(f"| {name}" for name in sorted(FILTERS)), *(f"is {name}" for name in sorted(TESTS))])
EXPRESSION = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.tuples(inner, FILTER).map(lambda p: f"({p[0]}) | {p[1]}"),
        st.tuples(inner, FILTER).map(lambda p: f"({p[0]}) | map('{p[1]}')"),
        st.tuples(inner, CALLED, st.lists(inner, max_size=2)).map(lambda p: f"({p[0]}) {p[1]}({', '.join(p[2])})"),
        st.tuples(inner, st.sampled_from(["map('map', ", "map('select', ", "map(attribute=", "sort(attribute=", "sum(start="]), inner).map(
            lambda p: f"({p[0]}) | {p[1]}{p[2]})"
        ),
        st.tuples(inner, st.sampled_from(["+", "*", "~", "**", "//", "==", "<", "in", "and", "or"]), inner).map(
            lambda p: f"({p[0]}) {p[1]} ({p[2]})"
        ),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) | replace(({p[1]}) | string, input.t)"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) | join({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"[{p[0]}, {p[1]}]"),
    ),
    max_leaves=12,
)


@given(EXPRESSION, st.integers(0, 4))
def test_work_always_stops_and_the_result_is_bounded(expression: str, loops: int) -> None:
    scope = {"input": {"t": "xyz" * 5000, "l": list(range(5000)), "n": 3000, "f": -1.5, "o": {str(i): i for i in range(2000)}}}
    try:
        compile_expression(expression)
    except TemplateErrors:
        return
    source = "{% for i in input.l %}" * loops + "{{ " + expression + " }}!" + "{% endfor %}" * loops
    try:
        out = compile_value(source).render(scope).value
        assert len(out.encode()) <= MAX_RESULT
    except TemplateError as exc:
        assert exc.type == "TemplateError"
    try:
        value = compile_expression(expression).evaluate(scope)
        assert isinstance(value, Absent) or weigh(value, 2 * MAX_RESULT) <= MAX_RESULT
    except TemplateError as exc:
        assert exc.type == "TemplateError"
