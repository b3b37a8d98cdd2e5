"""Hostile templates are refused or stop by counted work; nothing outside of JSON values is reachable."""

from __future__ import annotations

from typing import Any

import pytest

from agiwo.errors import TemplateError
from agiwo.template import FILTERS, FUNCTIONS, MAX_UNITS, TESTS, TemplateErrors, compile_expression, compile_value, weigh

BIG = [{"n": i, "t": "x" * 100} for i in range(5000)]
INPUT = {"s": "abc", "n": 3, "big": BIG, "long": "x" * 150_000, "numbers": list(range(30_000)), "huge": "x" * 2_000_000}
SCOPE: dict[str, Any] = {"input": INPUT}


@pytest.mark.parametrize(
    "source",
    [
        "{{ input.__class__.__mro__ }}",
        "{{ ''.__class__ }}",
        "{{ ().__class__.__bases__[0].__subclasses__ }}",
        "{{ input.s.format }}",
        "{{ input['__class__'] }}",
        "{{ input.s['upper'] }}",
        "{{ input | map(attribute='__class__') | list }}",
        "{{ [input.s] | map(attribute='__class__') | list }}",
        "{{ [input.s] | map(attribute='upper') | list }}",
        "{{ (1).real }}",
        "{{ [1].append }}",
        "{{ true.__doc__ }}",
        "{{ none.x }}",
        "{{ range(3).start }}",
    ],
)
def test_no_attribute_of_a_python_object_is_reachable(source: str) -> None:
    """REQ-27."""
    with pytest.raises(TemplateError, match="not there"):
        compile_value(source).render(SCOPE)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''|attr('format') }}",
        "{{ ''.format() }}",
        "{{ '{:>999999999}'.format('x') }}",
        "{{ '{}'.format_map(input) }}",
        "{{ input.items() }}",
        "{{ input.s.upper() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum(n=99) }}",
        "{{ joiner() }}",
        "{{ dict(a=1) }}",
        "{{ namespace(a=1) }}",
        "{{ self.x }}",
        "{{ input.s() }}",
        "{{ (input.s | upper)() }}",
        "{{ range() }}",
        "{{ range(*input.numbers) }}",
        "{{ input.s | upper(*input.numbers) }}",
        "{{ input.s | replace(**input) }}",
        "{{ 'x'|center(999999999) }}",
        "{{ input.numbers | map('attr') | list }}",
        "{{ input.numbers | map(input.s) | list }}",
        "{{ input.numbers | select('callable') | list }}",
        "{{ input.numbers | select('divisibleby') | list }}",
        "{{ input.s is callable }}",
        "{{ input.s | pprint }}",
        "{{ input | xmlattr }}",
        "{{ 'x' | safe }}",
        "{{ input.s is divisibleby }}",
        "{% include '/etc/passwd' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% block b %}{% endblock %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% call input.s() %}{% endcall %}",
        "{% filter upper %}x{% endfilter %}",
        "{% set x %}text{% endset %}",
        "{% set input.s = 1 %}",
        "{% with a = 1 %}{{ a }}{% endwith %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% do input.s %}",
        "{% for x in input.numbers recursive %}{{ loop(x) }}{% endfor %}",
        "{% for a in [1] %}" * 5 + "{% endfor %}" * 5,
        "{{ x",
        "{# x",
        "{% if %}{% endif %}",
        "{{ 1e999 }}",
        "{{ '\\x00' }}",
        "{{ '\\ud800' }}",
        "{{ " + "9" * 101 + " }}",
        "{{ " + "9" * 5000 + " }}",
        "{{ 0x" + "f" * 5000 + " }}",
        "{{ " + "(" * 5000 + " }}",
        "{{ " + "[" * 300 + "]" * 300 + " }}",
        "{{ " + "not " * 2000 + "1 }}",
        "{{ " + "-" * 2000 + "1 }}",
        "{{ input" + ".a" * 2000 + " }}",
        "{{ 1" + "+1" * 2000 + " }}",
        "{{ " + "1 if 1 else " * 900 + "1 }}",
        "{% if 1 %}" * 300 + "{% endif %}" * 300,
        "x" * 20_001 + "{{ 1 }}",
    ],
)
def test_what_is_not_in_the_language_is_refused_when_compiling(source: str) -> None:
    """REQ-27."""
    with pytest.raises(TemplateErrors) as caught:
        compile_value(source)
    assert "/work" not in caught.value.message
    assert "site-packages" not in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 'a' * 100000000 }}",
        "{{ 10**(10**8) }}",
        "{{ 2**400 }}",
        "{{ 1.5**(10**8) }}",
        "{{ [0] * 10**9 }}",
        "{{ 10**9 * [0] }}",
        "{{ '%0999999999d' % 1 }}",
        "{{ range(10**9) | list }}",
        "{{ range(0, 10**99) }}",
        "{{ range(10**99, 0, -1) }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{% for i in input.numbers %}{% for j in input.numbers %}{% endfor %}{% endfor %}",
        "{% for i in input.numbers %}" + "{{ i }}" * 300 + "{% endfor %}",
        "{% for i in range(1000) %}{{ input.long }}{% endfor %}",
        "{% for i in range(1000) %}{% if input.long == input.long ~ '' %}{% endif %}{% endfor %}",
        "{% for i in range(100) %}{{ input.big | tojson | length }}{% endfor %}",
        "{% for i in range(30) %}{{ i in input.numbers[5000:] }}{% endfor %}",
        "{{ input.numbers[1:] + input.numbers + input.numbers + input.numbers + input.numbers + input.numbers + input.numbers }}",
        "{{ input.big | sort(attribute='t') }}",
        "{{ input.big | tojson }}",
        "{{ input.big | string }}",
        "{{ input.big | unique }}",
        "{{ input.big ~ '' }}",
        "{{ [input.big] | join }}",
        "{{ input.big | map('tojson') | list }}",
        "{{ input.big | table }}",
        "{{ [{'a': input.long}, {'a': 1}, {'a': 2}] | table }}",
        "{{ input.long | replace('x', 'yyyyyyyyyy') }}",
        "{{ input.long | replace('', 'yyyyyyyyyy', 10**50) }}",
        "{{ input.long | upper | lower }}",
        "{{ input.long ~ input.long }}",
        "{{ input.long + input.long }}",
        "{{ input.long | list | list }}",
        "{{ input.long | split('') }}",
        "{{ input.long | reverse | reverse }}",
        "{{ input.long | batch(0) }}",
        "{{ input.huge | trim }}",
        "{{ 'x' in input.huge }}",
        "{{ input.huge }} ",
        "{{ input.long }}{{ input.huge }}",
        "{{ [" + "input.big," * 500 + "] }}",
        "{{ [" + "input.big," * 500 + "] }} ",
        "{{ {'a': [" + "input.huge," * 500 + "]} }}",
        "{% set x = [1] %}" + "{% set x = [x, x] %}" * 60 + "{{ x }}",
        "{% set x = [1] %}" + "{% set x = [x, x] %}" * 60 + "{{ x == x ~ '' or x | tojson }}",
        "{% set x = [1] %}{% set y = [1] %}" + "{% set x = [x, x] %}{% set y = [y, y] %}" * 60 + "{{ x == y }}",
        "{% set x = 'a' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
        "{% set x = [1] %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
        "{% set x = 9 %}" + "{% set x = x * x %}" * 60 + "{{ x }}",
        "{% set x = [1] %}" + "{% set x = [x] %}" * 1000 + "{{ x }}",
        "{% set x = [1] %}" + "{% set x = [x] %}" * 1000 + "{{ x | tojson }}",
        "{{ (10**99) * 10 }}",
        "{{ 10**99 + 9 * 10**99 }}",
        "{{ 1e300 | int }}",
        "{{ ('9' * 101) | int }}",
        "{{ ('[' * 5000) | fromjson }}",
        "{{ 1e308 | round(-308, 'ceil') }}",
        "{{ 1.7e308 | round(-308) }}",
    ],
)
def test_bombs_stop(source: str) -> None:
    template = compile_value(source)
    with pytest.raises(TemplateError):
        template.render(SCOPE)


@pytest.mark.parametrize(
    "source",
    ["{{ input.huge }}", "{{ input.big }}", "{{ input.huge | default('') }}", "{{ input.big if true else 1 }}", "{{ input.big[0] }}"],
)
def test_what_is_handed_on_whole_is_neither_walked_nor_counted(source: str) -> None:
    template = compile_value([source] * 300)
    assert len(template.render(SCOPE).value) == 300


def test_ordinary_work_fits() -> None:
    for source in (
        "{% for r in input.big %}{{ r.n }},{% endfor %}",
        "{{ input.big | map(attribute='n') | sum }}",
        "{{ input.big | sort(attribute='n', reverse=true) | length }}",
        "{{ input.numbers | length }}",
        "{% for i in range(90000) %}{{ i }} {% endfor %}",
        "{{ input.long | upper }}",
        "{{ input.big[:500] | table }}",
        "{{ input.long }}" * 6,
    ):
        compile_value(source).render(SCOPE)


def test_the_same_template_stops_at_the_same_place() -> None:
    fits = f"{{{{ range({MAX_UNITS - 1}) | length }}}}"
    over = f"{{{{ range({MAX_UNITS}) | length }}}}"
    assert compile_value(fits).render({}).value == MAX_UNITS - 1
    with pytest.raises(TemplateError, match="too much work"):
        compile_value(over).render({})


def test_the_work_of_a_whole_tree_is_one_account() -> None:
    part = "{{ range(150000) | length }}"
    assert compile_value([part]).render({}).value == [150_000]
    with pytest.raises(TemplateError, match="too much work"):
        compile_value([part, part]).render({})


def test_the_result_is_counted_in_bytes() -> None:
    scope = {"input": {"s": "ü" * 450_000}}
    compile_value("{{ input.s }}!").render(scope)
    with pytest.raises(TemplateError, match="larger than 1,000,000 bytes"):
        compile_value("{{ input.s }}{{ input.s }}").render(scope)


def test_weighing_stops_early_on_shared_parts() -> None:
    value: Any = ["x" * 10]
    for _ in range(100):
        value = [value, value]
    assert weigh(value, 1000) > 1000
    assert weigh({"a": [1, None, "bc"]}, 1000) < 40


def test_deep_data_is_an_error_not_a_crash() -> None:
    value: Any = 1
    other: Any = 1
    for _ in range(3000):
        value, other = [value], [other]
    for source in ("{{ input.a }}!", "{{ input.a == input.b }}", "{{ input.a | tojson }}"):
        with pytest.raises(TemplateError, match="nested too deep"):
            compile_value(source).render({"input": {"a": value, "b": other}})
    with pytest.raises(TemplateError, match="nested too deep"):
        compile_expression("input.a == input.b").evaluate({"input": {"a": value, "b": other}})


def test_every_callable_has_a_line_for_the_docs() -> None:
    for table in (FILTERS, TESTS, FUNCTIONS):
        for name, entry in table.items():
            assert name.isidentifier()
            assert entry.doc and "\n" not in entry.doc and not entry.doc.endswith(".")
