"""Model profiles: what configuration may say, and what a step may ask of them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agiwo.errors import InvalidInput
from agiwo.models.price import Price
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import Usage

GOOD = {"base_url": "http://127.0.0.1:9/v1/", "model": "m", "models": ["m2"], "max_tokens": 500, "price": {"in": 2.5, "out": 10}}


def profile(**changes: object) -> ModelProfile:
    return ModelProfile.from_mapping("default", {**GOOD, **changes})


def refused(**changes: object) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        profile(**changes)
    return {problem.pointer: problem.message for problem in caught.value.problems}


def test_a_profile_takes_what_configuration_says() -> None:
    made = profile(timeout={"connect": 1, "total": 9.5}, kind="openai")
    assert made.base_url == "http://127.0.0.1:9/v1"
    assert (made.timeout.connect, made.timeout.read, made.timeout.total) == (1, 120.0, 9.5)
    assert made.price == Price(Decimal("2.5"), Decimal(10))


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        ModelProfile.from_mapping(
            "p",
            {
                "basurl": "x",
                "model": 7,
                "kind": "opnai",
                "timeout": {"raed": 1, "total": 0},
                "price": {"in": -1},
                "structured": ["xml"],
                "models": "m",
            },
        )
    places = {problem.pointer for problem in caught.value.problems}
    assert places == {
        "/basurl", "/base_url", "/model", "/kind", "/timeout/raed", "/timeout/total", "/price/in", "/price/out", "/structured", "/models",
    }  # fmt: skip
    assert {p.nearest for p in caught.value.problems} >= {"base_url", "openai", "read"}


@pytest.mark.parametrize("address", ["ftp://x/", "127.0.0.1:80", "http://", "http://[::1", "https://user:pw@host/v1"])
def test_an_address_that_is_no_http_address_is_refused(address: str) -> None:
    assert "/base_url" in refused(base_url=address)


@pytest.mark.parametrize("value", [True, "5", float("nan"), float("inf"), -1])
def test_a_number_that_is_none_is_refused(value: object) -> None:
    assert "/timeout/read" in refused(timeout={"read": value})


def test_a_section_that_is_no_mapping_is_refused() -> None:
    assert "/timeout" in refused(timeout=[1, 2])


def test_a_key_is_looked_up_and_never_shown() -> None:
    made = ModelProfile.from_mapping("p", {**GOOD, "api_key": "env:KEY"}, {"KEY": "s3cr3t-9f"})
    assert made.api_key == "s3cr3t-9f"
    assert "s3cr3t-9f" not in repr(made)


def test_a_key_whose_variable_is_not_set_is_refused() -> None:
    assert refused(api_key="env:NO_SUCH_KEY") == {"/api_key": "the environment variable NO_SUCH_KEY is not set"}


def test_a_wrongly_typed_key_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidInput) as caught:
        profile(api_key=990099)
    assert "990099" not in str(caught.value) + str([p.to_json() for p in caught.value.problems])


def test_a_step_may_lower_what_the_profile_allows() -> None:
    options = profile(temperature=0.5).options({"profile": "default", "model": "m2", "max_tokens": 100, "temperature": 0, "seed": 7})
    assert (options.model, options.max_tokens, options.temperature, options.seed) == ("m2", 100, 0, 7)


def test_a_step_that_says_nothing_gets_the_profile() -> None:
    options = profile(temperature=0.5).options({})
    assert (options.model, options.max_tokens, options.temperature, options.seed) == ("m", 500, 0.5, None)


@pytest.mark.parametrize(
    ("llm", "place"),
    [
        ({"max_tokens": 501}, "/max_tokens"),
        ({"max_tokens": 0}, "/max_tokens"),
        ({"max_tokens": True}, "/max_tokens"),
        ({"model": "dearer"}, "/model"),
        ({"temprature": 1}, "/temprature"),
        ({"structured": "xml"}, "/structured"),
        ({"on_truncated": "retry"}, "/on_truncated"),
        ({"temperature": -0.1}, "/temperature"),
    ],
)
def test_a_step_may_not_raise_it_nor_invent_keys(llm: dict[str, object], place: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        profile().options(llm)
    assert [problem.pointer for problem in caught.value.problems] == [place]


def test_cost_is_exact_and_cached_input_has_its_own_price() -> None:
    price = Price(Decimal("2.5"), Decimal(10), Decimal("1.25"))
    assert price.micro_usd(Usage(1000, 100)) == 2500 + 1000
    assert price.micro_usd(Usage(1000, 100, cache_read_tokens=400)) == 1500 + 500 + 1000
    # No more can be cached than was sent; half a millionth goes to the even side.
    assert price.micro_usd(Usage(10, 0, cache_read_tokens=99)) == 12
    assert Price(Decimal("0.1"), Decimal("0.2"), cache_write=Decimal("0.3")).micro_usd(Usage(10**11, 1, 1, 7)) == 10_000_000_002


def test_what_a_profile_falls_back_with_fits_it() -> None:
    options = profile(kind="anthropic", sampling=False).fallback_options({"model": "x", "max_tokens": 900, "temperature": 1, "seed": 3})
    assert (options.model, options.max_tokens, options.temperature, options.seed) == ("m", 500, None, None)


@pytest.mark.parametrize("llm", [{"temperature": 0}, {"seed": 1}])
def test_a_step_may_not_ask_for_what_the_profile_does_not_send(llm: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        profile(sampling=False).options(llm)


@pytest.mark.parametrize("key", ["line\nbreak", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        profile(api_key=key)
    assert key not in str(caught.value) + str([p.to_json() for p in caught.value.problems])


def test_the_message_names_the_mistakes_with_the_nearest_key_and_no_more_than_five() -> None:
    with pytest.raises(InvalidInput) as caught:
        ModelProfile.from_mapping("p", {"base_url": "http://x/v1", "modle": "m"})
    assert 'there is no key "modle" here (did you mean `model`?) at /modle; `model` is missing at /model' in caught.value.message
    with pytest.raises(InvalidInput) as caught:
        ModelProfile.from_mapping("p", {"base_url": "http://x/v1", "model": "m"} | {f"x{n}": n for n in range(8)})
    assert caught.value.message.endswith("(and 3 more)")
