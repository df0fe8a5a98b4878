"""Numbers that others write as text are read by one parser, which never fails and never grows."""

import pytest

from tests.unit.engine import builders as b
from turnstile.api.gotext import parse_int
from turnstile.api.numbers import clamped, parse_int32
from turnstile.api.quantity import MAX_INT64, to_float
from turnstile.api.rollout import of_template
from turnstile.engine.quota.ordering import PRIORITY_BOOST, effective_priority

NONE = ["", " ", "-1", "+1", "1_0", "0x1", "1.0", "1e3", "\u0663", "\u00b2", "\uff11"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("0007", 7),
        ("9" * 18, 10**18 - 1),
        (str(MAX_INT64), MAX_INT64),
        (str(MAX_INT64 + 1), MAX_INT64),
        ("9" * 5000, MAX_INT64),
        ("0" * 5000, 0),
        ("0" * 5000 + "12", 12),
    ],
)
def test_a_number_is_clamped(text: str, value: int) -> None:
    """To the largest of 64 bits, however many digits it has."""
    assert clamped(text) == value


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number_is_none(text: str) -> None:
    """Digits of other scripts, which Python reads, are none."""
    assert clamped(text) is None


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 5000])
def test_a_number_out_of_range_is_said_to_be(text: str) -> None:
    """Where a number must be exact, one of 5,000 digits is refused as one of 20 is."""
    assert "value out of range" in str(parse_int(text))
    assert parse_int32(text) is None


@pytest.mark.parametrize(("weight", "value"), [("1e1000", 2.0**63), ("-1e1000", -(2.0**63)), ("1e-1000", 1e-9)])
def test_a_weight_is_finite(weight: str, value: float) -> None:
    """A quantity that is past all floats is one of the largest."""
    assert to_float(weight) == value


@pytest.mark.parametrize("boost", ["9" * 5000, "\u0663", "-" + "9" * 5000, "+"])
def test_a_boost_that_is_no_number_boosts_nothing(boost: str) -> None:
    """The queue goes on: a Workload with it has its own priority."""
    made = b.workload("w", priority=3)
    made.metadata.annotations = {PRIORITY_BOOST: boost}
    assert effective_priority(made, boost=True) == 3


@pytest.mark.parametrize("stamp", ["9" * 5000, "-5", "\u0663:replaces"])
def test_a_revision_that_is_no_number_is_the_first(stamp: str) -> None:
    """As of a template without the annotation."""
    assert of_template("owner", stamp).revision == 0
