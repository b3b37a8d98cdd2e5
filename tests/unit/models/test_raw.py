"""What is kept of what came over the wire: storable, masked before it is cut, bounded."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agiwo.models.raw import MAX_KEPT, kept
from agiwo.values import check, encode


def masked(text: str) -> str:
    return text.replace("s3cr3t", "***")


def test_a_short_value_is_kept_as_it_is() -> None:
    assert kept({"a": [1, 2.5, None, True, "x"]}, masked) == {"a": [1, 2.5, None, True, "x"]}


def test_secrets_go_in_values_and_keys() -> None:
    assert kept({"s3cr3t": ["a s3cr3t b"]}, masked) == {"***": ["a *** b"]}


def test_what_no_store_holds_is_replaced() -> None:
    assert kept(["a\x00b", "\ud800", float("inf"), 10**200], masked) == [
        "a\N{REPLACEMENT CHARACTER}b",
        "\N{REPLACEMENT CHARACTER}",
        "inf",
        "an integer of more than 100 digits",
    ]


def test_a_long_value_is_cut_and_says_so() -> None:
    value = kept("é" * MAX_KEPT, masked)
    assert value["bytes"] == 2 * MAX_KEPT
    assert len(value["cut"].encode()) <= MAX_KEPT


def test_a_secret_at_the_cut_leaves_no_half_behind() -> None:
    value = kept("x" * (MAX_KEPT - 3) + "s3cr3t" + "y" * 100, masked)
    assert "s3c" not in value["cut"]


def test_a_deep_value_is_flattened() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    check(kept(deep, masked))


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_LIKE)
def test_what_is_kept_can_always_be_stored(value: Any) -> None:
    result = kept(value, masked)
    check(result)
    encode(result)
