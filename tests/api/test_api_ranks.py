"""Ranks order versions in the database exactly as the language compares them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agiwo.definition.versions import version_key
from agiwo.service.ranks import rank

VERSIONS = st.from_regex(r"\A[0-9]{1,3}(\.[0-9]{1,3}){0,3}(-[a-c0-2.]{1,5})?\Z")


@given(VERSIONS, VERSIONS)
def test_ranks_sort_as_versions_compare(one: str, other: str) -> None:
    first, second = version_key(one), version_key(other)
    assert (rank(one) < rank(other)) == (first < second)
    assert (rank(one) == rank(other)) == (first == second)


def test_ten_is_higher_than_nine_and_a_label_is_lower_than_none() -> None:
    assert rank("1.9") < rank("1.10-rc.2") < rank("1.10-rc.10") < rank("1.10") < rank("2")
    assert rank("1.0") == rank("1.00") == rank("1")
