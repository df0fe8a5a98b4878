"""A likely start is said by its time, and one that is at once without any."""

from datetime import UTC, datetime

from turnstile.wording.starts import likely

NOW = datetime(2026, 1, 1, 13, 50, tzinfo=UTC)
HOUR = 3600.0


def test_an_interval() -> None:
    """The middle first, then where it lies 8 of 10 times."""
    assert likely(2 * HOUR, 5 * HOUR, 11 * HOUR, NOW) == (
        "likely start Thu 18:50 (in 5.0 h); 8 of 10 times between Thu 15:50 and Fri 00:50"
    )


def test_both_ends_are_now() -> None:
    """No interval from now to now."""
    assert likely(0.0, 3.0, 20.0, NOW) == "starts in less than a minute"


def test_no_later_end() -> None:
    """What it waits for may run longer than anything that was seen."""
    assert likely(HOUR, None, None, NOW) == "not before Thu 14:50 (in 60 min), 9 of 10 times"
