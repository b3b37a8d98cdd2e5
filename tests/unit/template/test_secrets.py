"""A secret is a mark beside the value until the executor fills it in, and comes back as `***`."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest

from agiwo.errors import TemplateError
from agiwo.template import HIDDEN, Rendered, SecretName, SecretSlot, TemplateErrors, compile_expression, compile_value, fill_secrets, mask

KEEP = {"K": "s3cr3t-9f", "L": 'quo"te/\n<&'}
SCOPE = {"input": {"s": "a<b", "t": True, "l": [1, 2]}}


def rendered(source: Any, uses: dict[str, str] | None = None) -> Rendered:
    return compile_value(source, allow_secrets=True, uses=uses).render(SCOPE)


def filled(source: Any, uses: dict[str, str] | None = None) -> Any:
    out = rendered(source, uses)
    stored = json.loads(json.dumps([slot.to_json() for slot in out.secrets]))
    return fill_secrets(out.value, [SecretSlot.from_json(slot) for slot in stored], KEEP.__getitem__)[0]


@pytest.mark.parametrize(
    ("source", "seen", "sent"),
    [
        ("{{ secrets.K }}", "***", "s3cr3t-9f"),
        ("{{ secrets['K'] }}", "***", "s3cr3t-9f"),
        ("Bearer {{ secrets.K }}!", "Bearer ***!", "Bearer s3cr3t-9f!"),
        ("{{ 'Bearer ' ~ secrets.K ~ input.t }}", "Bearer ***true", "Bearer s3cr3t-9ftrue"),
        ("{{ secrets.K }}:{{ secrets.L }}:{{ input.s }}", "***:***:a<b", 's3cr3t-9f:quo"te/\n<&:a<b'),
        ("{{ secrets.K if input.t else secrets.L }}", "***", "s3cr3t-9f"),
        ("{% for x in input.l %}{{ x }}{{ secrets.K }}{% endfor %}", "1***2***", "1s3cr3t-9f2s3cr3t-9f"),
        ("{% if input.t %}{{ secrets.K }}{% endif %}", "***", "s3cr3t-9f"),
        ("{{ '***' ~ secrets.K }}", "******", "***s3cr3t-9f"),
    ],
)
def test_a_secret_stands_alone_or_is_joined_to_text(source: str, seen: str, sent: str) -> None:
    assert rendered({"a": [source]}).value == {"a": [seen]}
    assert rendered({"a": [source]}).secrets[0].pointer == "/a/0"
    assert filled({"a": [source]}) == {"a": [sent]}
    assert filled(source) == sent


@pytest.mark.parametrize(
    "source",
    [
        "{{ secrets.K | upper }}",
        "{{ secrets.K | default('x') }}",
        "{{ input.x | default(secrets.K) }}",
        "{{ secrets.K is defined }}",
        "{{ secrets.K == 'a' }}",
        "{{ 'a' in secrets.K }}",
        "{{ secrets.K[0] }}",
        "{{ secrets.K.x }}",
        "{{ secrets }}",
        "{{ secrets[input.s] }}",
        "{% for c in secrets.K %}{% endfor %}",
        "{% set x = secrets.K %}",
        "{% if secrets.K %}{% endif %}",
        "{{ [secrets.K] }}",
        "{{ {'a': secrets.K} }}",
        "{{ secrets.K + 'a' }}",
        "{{ 1 if secrets.K else 2 }}",
        "{{ (secrets.K ~ 'a') | length }}",
        "{{ not secrets.K }}",
        "{{ secrets.K or 'a' }}",
        "{{ input[secrets.K] }}",
        "{{ secrets | items }}",
        "{{ secrets.K | table }}",
        "{{ default(secrets.K, 1) }}",
        "{{ range(secrets.K) }}",
        "{{ secrets.K() }}",
        "{{ secrets.K[1:] }}",
    ],
)
def test_anything_else_with_a_secret_is_refused_when_compiling(source: str) -> None:
    with pytest.raises(TemplateErrors, match="secret"):
        compile_value(source, allow_secrets=True)


def test_a_secret_cannot_come_in_by_the_scope() -> None:
    """A mark is made only where the author wrote it, so a value that looks like one is refused wherever it is used."""
    mark = compile_value("{{ secrets.K }}", allow_secrets=True).texts[0]
    assert mark.secrets == {"K"}
    with pytest.raises(TemplateError):
        compile_value("{{ input.x | upper }}").render({"input": {"x": SecretName("K")}})


def test_a_secret_outside_its_places_is_refused() -> None:
    with pytest.raises(TemplateErrors, match="only in parameters"):
        compile_value({"a": "x {{ secrets.K }}"})
    with pytest.raises(TemplateErrors, match="only in parameters"):
        compile_expression("secrets.K")


def test_a_secret_is_written_in_the_form_of_its_place() -> None:
    uses = {"h": "html", "u": "url", "q": "sql", "c": "command"}
    source = {
        "h": "<p>{{ secrets.L }}</p>",
        "u": "https://x/?k={{ secrets.L }}",
        "q": "select {{ secrets.L }}",
        "c": ["curl", "{{ secrets.L }}", "-H {{ secrets.K }}"],
    }
    assert rendered(source, uses).value == {
        "h": "<p>***</p>",
        "u": "https://x/?k=***",
        "q": {"statement": "select :p1", "values": {"p1": "***"}},
        "c": ["curl", "***", "-H ***"],
    }
    assert filled(source, uses) == {
        "h": "<p>quo&quot;te/\n&lt;&amp;</p>",
        "u": "https://x/?k=quo%22te%2F%0A%3C%26",
        "q": {"statement": "select :p1", "values": {"p1": 'quo"te/\n<&'}},
        "c": ["curl", 'quo"te/\n<&', "-H s3cr3t-9f"],
    }


def test_filling_gives_the_secrets_and_leaves_the_recorded_value_alone() -> None:
    out = rendered({"a": {"k~/": "{{ secrets.K }}"}, "b": [1, {"c": "{{ secrets.K }}{{ secrets.L }}"}], "d": {"keep": 1}})
    before = json.dumps(out.value)
    value, used = fill_secrets(out.value, out.secrets, KEEP.__getitem__)
    assert value["a"]["k~/"] == KEEP["K"]
    assert used == (KEEP["K"], KEEP["L"])
    assert json.dumps(out.value) == before
    assert value["d"] is out.value["d"]
    assert "s3cr3t" not in json.dumps([out.value, [s.to_json() for s in out.secrets]])


def test_a_place_that_changed_since_is_not_filled() -> None:
    slot = SecretSlot("/a/0", ("x", SecretName("K")))
    for value in ({"a": ["x"]}, {"a": []}, {"b": 1}, {"a": {"0": "x***"}, "b": 1}, {"a": "x***"}):
        if value == {"a": {"0": "x***"}, "b": 1}:
            assert fill_secrets(value, [slot], KEEP.__getitem__)[0] == {"a": {"0": "xs3cr3t-9f"}, "b": 1}
        else:
            with pytest.raises(TemplateError, match="place"):
                fill_secrets(value, [slot], KEEP.__getitem__)


def test_a_missing_secret_is_the_lookups_error() -> None:
    with pytest.raises(KeyError):
        fill_secrets("***", [SecretSlot("", (SecretName("NOPE"),))], KEEP.__getitem__)


def test_what_comes_back_is_masked() -> None:
    value = {
        "echo": "Bearer s3cr3t-9f",
        "s3cr3t-9f": [1, "xs3cr3t-9fy", None, True],
        "json": json.dumps({"k": KEEP["L"]}),
        "n": 123456,
        "f": 1.5,
        "deep": {"x": 1},
    }
    out = mask(value, [KEEP["K"], KEEP["L"], "123456", ""])
    assert out == {"echo": "Bearer ***", "***": [1, "x***y", None, True], "json": '{"k": "***"}', "n": HIDDEN, "f": 1.5, "deep": {"x": 1}}
    assert out["deep"] is value["deep"]
    assert mask(value, []) is value
    assert mask("a=quo%22te%2F%0A%3C%26&b", [KEEP["L"]]) == "a=***&b"
    assert mask("quo&quot;te/\n&lt;&amp;", [KEEP["L"]]) == "***"
    assert mask("abcd", ["abc", "abcd"]) == "***"
    assert mask(("x", "abc"), ["abc"]) == ["x", "***"]


def test_what_comes_back_within_base64_or_cut_off_is_masked() -> None:
    """REQ-28."""
    secret = "pass word-hush/2?"
    for before in ("", "a", "ab", "me:"):
        for behind in ("", ":", "and more"):
            for encoded in (b64encode, urlsafe_b64encode):
                told = encoded(f"{before}{secret}{behind}".encode()).decode()
                assert HIDDEN in mask(f"Basic {told}", [secret])
    assert mask(json.dumps(json.dumps({"k": 'a"b\\c'})), ['a"b\\c']) == json.dumps(json.dumps({"k": HIDDEN}))
    assert mask("t=pass+word-hush%2F2%3F", [secret]) == "t=***"
    assert mask('"x is pass word…, expected a number', [secret]) == '"x is ***…, expected a number'
    assert mask("it says pas… and pass… and so on…", [secret]) == "it says pas… and ***… and so on…"


def test_a_short_secret_hides_no_text_by_chance() -> None:
    text = b64encode(bytes(range(256)) * 20).decode()
    assert mask(text, ["abc"]).count(HIDDEN) == text.count("abc")
