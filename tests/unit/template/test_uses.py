"""Data is never pasted into code: SQL binds it, HTML escapes it, a URL encodes it, a command takes it as one argument."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.errors import TemplateError
from agiwo.template import TemplateErrors, compile_value, split_statement

SCOPE: dict[str, Any] = {
    "input": {"s": "x'; drop table t; --", "n": 7, "l": [1, "2"], "z": None, "o": {"a": 1}, "t": True, "h": "<b>\"'&", "e": []},
}


def sql(text: str) -> dict[str, Any]:
    return compile_value({"q": text}, uses={"q": "sql"}).render(SCOPE).value["q"]


@pytest.mark.parametrize(
    ("text", "statement", "values"),
    [
        ("select 1", "select 1", {}),
        ("where a = {{ input.s }}", "where a = :p1", {"p1": SCOPE["input"]["s"]}),
        (
            "where a = {{ input.n }} and b={{input.l}} or c = {{ input.z }}",
            "where a = :p1 and b=:p2 or c = :p3",
            {"p1": 7, "p2": [1, "2"], "p3": None},
        ),
        ("{{ input.n }}::int", ":p1::int", {"p1": 7}),
        ("f({{ input.o }}, {{- input.t -}} )", "f(:p1,:p2)", {"p1": {"a": 1}, "p2": True}),
        ("select 'it''s :x', \"a:b\", now()::date, {{ input.n }}", "select 'it''s :x', \"a:b\", now()::date, :p1", {"p1": 7}),
        ("select ':p1', {{ input.n }}, a::p2, {{ input.t }}", "select ':p1', :p3, a::p2, :p4", {"p3": 7, "p4": True}),
        ("a in ({% for x in input.l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %})", "a in (:p1, :p2)", {"p1": 1, "p2": "2"}),
        (
            "where true{% if input.n %} and n = {{ input.n }}{% endif %} order by {% if input.t %}a{% else %}b{% endif %}",
            "where true and n = :p1 order by a",
            {"p1": 7},
        ),
        (
            "-- it's\nselect {{ input.n }} /* ' /* nested */ */ , {{ input.n }}",
            "-- it's\nselect :p1 /* ' /* nested */ */ , :p2",
            {"p1": 7, "p2": 7},
        ),
        ("select $$ ' $$, $a$ $$ ' $a$, {{ input.n }}", "select $$ ' $$, $a$ $$ ' $a$, :p1", {"p1": 7}),
        (r"select E'\'', e'a\\', {{ input.n }}", r"select E'\'', e'a\\', :p1", {"p1": 7}),
        ("a is distinct from {{ input.n }}", "a is distinct from :p1", {"p1": 7}),
        (
            "extract(year from {{ input.s }}), x->{{ input.n }}, a||{{ input.s }}||b",
            "extract(year from :p1), x->:p2, a||:p3||b",
            {"p1": SCOPE["input"]["s"], "p2": 7, "p3": SCOPE["input"]["s"]},
        ),
        ("limit {{ input.n }};", "limit :p1;", {"p1": 7}),
        ("{{ input.n * 2 }} = {{ input.l | length }}", ":p1 = :p2", {"p1": 14, "p2": 2}),
    ],
)
def test_sql_values_are_bound(text: str, statement: str, values: dict[str, Any]) -> None:
    found = sql(text)
    assert found == {"statement": statement, "values": values}
    texts, names = split_statement(found["statement"], found["values"])
    assert list(names) == list(values)
    assert "".join(a + b for a, b in zip(texts, [f":{n}" for n in names] + [""], strict=True)) == statement


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("where a = '{{ input.s }}'", "write `where a = {{ input.s }}`"),
        (
            "x\na like '%{{ input.s }}%' and b = '{{ input.n | d('q') }}'\ny",
            "write `a like '%' || {{ input.s }} || '%' and b = {{ input.n | d('q') }}`",
        ),
        (r"select E'\'{{ input.s }}'", "bound as a parameter"),
        ('select "{{ input.s }}"', "quoted name"),
        ("select `{{ input.s }}`", "quoted name"),
        ("select $$ {{ input.s }} $$", "dollar-quoted"),
        ("select $f$ {{ input.s }} $f$", "dollar-quoted"),
        ("-- {{ input.s }}", "comment"),
        ("/* /* */ {{ input.s }} */", "comment"),
        ("select t.{{ input.s }}", "part of a name"),
        ("select t{{ input.s }}", "part of a name"),
        ("select {{ input.s }}x", "part of a name"),
        ("select {{ input.s }}.x", "part of a name"),
        ("select {{ input.s }}(1)", "part of a name"),
        ("select a::{{ input.s }}", "colon"),
        ("select a[1:{{ input.n }}]", "colon"),
        ("select {{ input.s }}{{ input.n }}", "side by side"),
        ("select * from {{ input.s }}", "behind FROM stands a name"),
        ("select * from a join {{ input.s }} on true", "behind JOIN"),
        ("insert into {{ input.s }} values (1)", "behind INTO"),
        ("update {{ input.s }} set a = 1", "behind UPDATE"),
        ("select 1 order by {{ input.s }}", "behind BY"),
        ("cast(a as {{ input.s }})", "behind AS"),
        ("{{ input.s }}", "whole statement"),
        ("{{- input.s -}}", "whole statement"),
        ("select '{% if input.t %}a{% endif %}'", "must not be open"),
        ("select {% if input.t %}'{% endif %} {{ input.s }} '", "must not be open"),
        ("select {% for x in input.l %}'{% endfor %} {{ input.s }}", "must not be open"),
        ("select {% if input.t %}t.{% endif %}{{ input.s }}", "part of a name"),
        ("select {% if input.t %}{{ input.n }}{% endif %}0", "part of a name"),
    ],
)
def test_sql_where_no_parameter_can_stand_is_refused(text: str, words: str) -> None:
    with pytest.raises(TemplateErrors) as caught:
        sql(text)
    assert words in caught.value.message
    assert caught.value.errors[0].data["pointer"] == "/q"


def test_sql_must_be_a_text_in_a_mapping() -> None:
    for value in ({"a": 1}, ["x"], 1, None):
        with pytest.raises(TemplateErrors, match="SQL is a text"):
            compile_value({"q": value}, uses={"q": "sql"})
    with pytest.raises(TemplateErrors, match="as a mapping"):
        compile_value("{{ input.o }}", uses={"q": "sql"})
    assert compile_value({"q": "select 1"}, uses={"q": "sql"}).constant


def test_every_rendering_has_a_statement_of_its_own() -> None:
    template = compile_value({"q": "select 1"}, uses={"q": "sql"})
    assert template.render({}).value["q"] is not template.render({}).value["q"]


def html(text: str) -> Any:
    return compile_value({"h": text}, uses={"h": "html"}).render(SCOPE).value["h"]


def test_html_escapes_values_and_keeps_the_authors_text() -> None:
    escaped = "&lt;b&gt;&quot;&#x27;&amp;"
    assert html("<p title='{{ input.h }}'>{{ input.h }}</p>&") == f"<p title='{escaped}'>{escaped}</p>&"
    assert html("{{ input.h }}") == escaped
    assert html("{{ input.l }}{{ input.z }}{{ input.t }}") == "[1,&quot;2&quot;]true"
    assert html("{{ '<i>' }}") == "&lt;i&gt;"
    assert html("{{ input.z }}") == ""
    assert html("<b>") == "<b>"


def test_a_table_is_html_in_html_and_text_elsewhere() -> None:
    rows = [{"name": "<A>", "total": 7}, {"name": None, "total": 1.5, "note": {"x": "'"}}, {"name": "007\nb", "total": 10}]
    template = compile_value(
        {
            "html": "<h1>Hi</h1>{{ input.rows | table }}",
            "text": "{{ input.rows | table }}",
            "some": "{{ input.rows | table(columns=['total']) }}",
        },
        uses={"html": "html"},
    )
    out = template.render({"input": {"rows": rows}}).value
    assert out["html"] == (
        "<h1>Hi</h1><table><thead><tr><th>name</th><th>total</th><th>note</th></tr></thead><tbody>"
        "<tr><td>&lt;A&gt;</td><td>7</td><td></td></tr>"
        "<tr><td></td><td>1.5</td><td>{&quot;x&quot;:&quot;&#x27;&quot;}</td></tr>"
        "<tr><td>007\nb</td><td>10</td><td></td></tr></tbody></table>"
    )
    assert out["text"].splitlines() == [
        "name   total  note",
        "-----  -----  ---------",
        "<A>        7",
        '         1.5  {"x":"\'"}',
        "007 b     10",
    ]
    assert out["some"] == "total\n-----\n    7\n  1.5\n   10"
    assert template.render({"input": {"rows": []}}).value["html"] == "<h1>Hi</h1><table><thead><tr></tr></thead><tbody></tbody></table>"
    assert template.render({"input": {"rows": []}}).value["text"] == ""


@pytest.mark.parametrize(
    "source", ["{{ input.l | table }}", "{{ input.o | table }}", "{{ [{}] | table(columns='a') }}", "{{ [{}] | table(columns=[1]) }}"]
)
def test_a_table_needs_rows_of_objects(source: str) -> None:
    with pytest.raises(TemplateError, match="`table`"):
        html(source)


@pytest.mark.parametrize(
    "source", ["{{ (input.e | table) ~ 'x' }}", "{{ input.e | table | upper }}", "{% set t = input.e | table %}{{ t }}"]
)
def test_the_markup_of_a_table_can_only_be_written_out(source: str) -> None:
    with pytest.raises(TemplateError, match="only be written out"):
        html(source)


def test_a_command_takes_each_element_as_one_argument() -> None:
    template = compile_value(
        {"c": ["ls", "-l", "{{ input.s }}", "n={{ input.n }}", "{{ input.n }}", "{{ input.t }}", 3]}, uses={"c": "command"}
    )
    assert template.render(SCOPE).value["c"] == ["ls", "-l", SCOPE["input"]["s"], "n=7", "7", "true", 3]
    for source in ("{{ input.l }}", "{{ input.z }}", "{{ input.o }}"):
        with pytest.raises(TemplateError, match="one text or number"):
            compile_value({"c": ["ls", source]}, uses={"c": "command"}).render(SCOPE)
    for whole in ("ls {{ input.s }}", "{{ input.l }}", "ls -l", {"a": 1}, None):
        with pytest.raises(TemplateErrors, match="a command is a list"):
            compile_value({"c": whole}, uses={"c": "command"})
    for inner in (["a"], {"a": 1}, None):
        with pytest.raises(TemplateErrors, match="one text or number"):
            compile_value({"c": ["ls", inner]}, uses={"c": "command"})


def test_a_url_encodes_what_is_inserted_behind_its_beginning() -> None:
    scope = {"input": {"base": "https://a.b/c?d=1", "id": "x/y ?&ü", "n": 3}}
    template = compile_value(
        {"u": "{{ input.base }}/{{ input.id }}?n={{ input.n }}", "w": "{{ input.base }}", "v": "https://a/{{ input.id }}"},
        uses={"u": "url", "w": "url", "v": "url"},
    )
    assert template.render(scope).value == {
        "u": "https://a.b/c?d=1/x%2Fy%20%3F%26%C3%BC?n=3",
        "w": "https://a.b/c?d=1",
        "v": "https://a/x%2Fy%20%3F%26%C3%BC",
    }


def test_a_use_holds_below_its_key_and_nowhere_else() -> None:
    template = compile_value({"h": {"a": ["<{{ input.h }}>"]}, "p": "<{{ input.h }}>"}, uses={"h": "html", "other": "sql", "p": "unknown"})
    assert template.render(SCOPE).value == {"h": {"a": ["<&lt;b&gt;&quot;&#x27;&amp;>"]}, "p": "<<b>\"'&>"}
