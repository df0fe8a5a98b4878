"""Conditions are set as Kubernetes sets them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.api.conditions import LATEST, later, set_condition, timestamp, truncate_message, truncate_note
from turnstile.api.meta import Condition

THEN, NOW = "2026-01-02T03:04:05Z", datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)


def condition(kind: str, status: str = "True", message: str = "") -> Condition:
    """A condition of a while ago."""
    return Condition(type=kind, status=status, reason="Old", message=message, last_transition_time=THEN)  # type: ignore[arg-type]


class TestSet:
    """Setting a condition gives a new list."""

    def test_new(self) -> None:
        """A new type goes to the end."""
        old = [condition("A")]
        new = set_condition(old, type="B", status="True", reason="R", now=NOW)
        assert [entry.type for entry in new] == ["A", "B"]
        assert new[1].last_transition_time == "2026-02-03T04:05:06Z"
        assert [entry.type for entry in old] == ["A"]

    def test_same_status(self) -> None:
        """While the status stays, so does its time; reason, message and generation are new."""
        old = [condition("A"), condition("B")]
        first, second = set_condition(
            old, type="A", status="True", reason="R", message="m", now=NOW, observed_generation=3
        )
        assert (first.reason, first.message, first.observed_generation) == ("R", "m", 3)
        assert first.last_transition_time == THEN
        assert second is old[1]
        assert old[0].reason == "Old"

    def test_other_status(self) -> None:
        """Another status is a transition."""
        (entry,) = set_condition([condition("A")], type="A", status="False", reason="R", now=NOW)
        assert entry.last_transition_time == "2026-02-03T04:05:06Z"


class TestTime:
    """Times travel in UTC with whole seconds."""

    def test_other_zone(self) -> None:
        """A time in another zone is converted."""
        assert timestamp(NOW.astimezone(timezone(timedelta(hours=5)))) == "2026-02-03T04:05:06Z"

    def test_no_zone(self) -> None:
        """A time without a zone is refused."""
        with pytest.raises(ValueError, match="zone"):
            timestamp(NOW.replace(tzinfo=None))

    @given(st.integers(-(10**30), 10**30) | st.floats(allow_nan=False))
    def test_any_number_of_seconds(self, seconds: float) -> None:
        """A span of any length that somebody else states ends at some time, and a longer one not before it."""
        assert later(NOW, seconds) >= later(NOW, seconds - 1)
        assert (later(NOW, seconds) - NOW).total_seconds() >= min(seconds - 1, 3e9)

    @pytest.mark.parametrize("seconds", [2**63 // 10**9, 10**12, 10**15, 2**63 - 1])
    def test_no_end(self, seconds: int) -> None:
        """A span that Go's durations cannot hold has no end: the API server's own sums of it have wrapped."""
        assert later(NOW - timedelta(days=99999), seconds) == LATEST


class TestTruncation:
    """Texts are cut to what the API server takes."""

    def test_short(self) -> None:
        """A text that fits stays as it is."""
        assert truncate_note("a" * 1024) == "a" * 1024

    def test_long(self) -> None:
        """A text that does not fit ends in an ellipsis."""
        assert truncate_note("a" * 1025) == "a" * 1020 + " ..."
        assert len(truncate_message("a" * 99999)) == 32768

    @given(st.text(st.sampled_from("aä€😀"), min_size=200, max_size=600))
    def test_characters_stay_whole(self, text: str) -> None:
        """The limit counts bytes, and no character is cut in half."""
        cut = truncate_note(text)
        assert len(cut.encode()) <= 1024
        assert cut == text or text.startswith(cut.removesuffix(" ..."))
