"""What pydantic finds wrong is told in our words, with what was expected and never with the value."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agiwo.complaints import complaint


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["postgres", "smtp"] = "smtp"
    number: int = Field(1, ge=1, le=9)
    share: float = 0.5
    on: bool = True
    words: list[str] = []
    names: dict[str, str] = {}

    @model_validator(mode="after")
    def _whole(self) -> Part:
        if self.number == 7:
            raise ValueError("not seven")
        return self


class Whole(BaseModel):
    part: Part


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "smpt"}, "expected 'postgres' or 'smtp'; did you mean 'smtp'?"),
        ({"kind": 3}, "expected 'postgres' or 'smtp'"),
        ({"number": "hush"}, "expected a whole number"),
        ({"number": 1.5}, "expected a whole number"),
        ({"number": 0}, "expected at least 1"),
        ({"number": 10}, "expected at most 9"),
        ({"number": 7}, "not seven"),
        ({"share": "hush"}, "expected a number"),
        ({"on": "hush"}, "expected true or false"),
        ({"words": "hush"}, "expected a list"),
        ({"words": [3]}, "expected text"),
        ({"names": ["hush"]}, "expected a mapping"),
        ({"nubmer": 3}, "there is no `nubmer` here; did you mean `number`?"),
        ({"hush": 3}, "there is no `hush` here"),
        (["hush"], "expected a mapping"),
    ],
)
def test_an_error_says_what_was_expected(given: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole(part=given)
    (error,) = caught.value.errors()
    assert complaint(error, Part.model_fields) == said


def test_what_is_not_there_is_said_to_be_needed() -> None:
    with pytest.raises(ValidationError) as caught:
        Whole()  # type: ignore[call-arg]
    assert complaint(caught.value.errors()[0]) == "is required and not there"
