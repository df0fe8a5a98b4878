"""Durations are read and written as Go does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.api.durations import parse, render


@pytest.mark.parametrize(
    ("text", "nanoseconds", "shown"),
    [
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("30m", 1800 * 10**9, "30m0s"),
        ("1h", 3600 * 10**9, "1h0m0s"),
        ("90s", 90 * 10**9, "1m30s"),
        ("1.5h", 5400 * 10**9, "1h30m0s"),
        ("250ms", 250 * 10**6, "250ms"),
        ("1500us", 1500 * 10**3, "1.5ms"),
        ("1500µs", 1500 * 10**3, "1.5ms"),
        ("7ns", 7, "7ns"),
        ("-1ns", -1, "-1ns"),
        ("+.5s", 5 * 10**8, "500ms"),
        ("1h1m1.000000001s", 3661 * 10**9 + 1, "1h1m1.000000001s"),
    ],
)
def test_texts(text: str, nanoseconds: int, shown: str) -> None:
    """Every unit, sign and fraction."""
    assert parse(text) == nanoseconds
    assert render(nanoseconds) == shown


@pytest.mark.parametrize("text", ["", "-", "5", "5 m", "m", "1d", "1m 5s", "1..5s", "9223372037s", "s5"])
def test_what_is_none(text: str) -> None:
    """Numbers without units, unknown units, blanks, and what no 64 bits hold."""
    with pytest.raises(ValueError, match="duration"):
        parse(text)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_written_durations_read_as_themselves(nanoseconds: int) -> None:
    """To the nanosecond, over all there are."""
    assert parse(render(nanoseconds)) == nanoseconds
