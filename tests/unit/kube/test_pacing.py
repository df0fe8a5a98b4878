"""How long to wait, and when to leave the server alone."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.backoff import Backoff
from app.kube.load import Load


@dataclass
class Hand:
    """A clock moved by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class TestBackoff:
    """Exponential, bounded, jittered."""

    def test_it_doubles_up_to_the_limit(self) -> None:
        """With the greatest jitter."""
        backoff = Backoff(first=0.1, limit=1.0)
        assert [backoff.delay(n, lambda: 1.0) for n in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])

    @given(st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
    def test_it_is_never_zero_and_never_beyond_the_limit(self, attempt: int, draw: float) -> None:
        """However often it failed."""
        assert 0.05 <= Backoff(first=0.1, limit=5.0).delay(attempt, lambda: draw) <= 5.0


class TestPressure:
    """From 0 for an idle server to 1 for one that sheds load."""

    def test_it_is_nothing_before_anything_was_asked(self) -> None:
        """No news is no load."""
        assert Load(Hand()).pressure == 0.0

    def test_slow_answers_raise_it_and_time_lowers_it(self) -> None:
        """It forgets by half-lives."""
        clock = Hand()
        load = Load(clock, slow=0.5, half_life=2.0)
        for _ in range(100):
            load.answered(0.25)
            clock.now += 0.01
        assert load.pressure == pytest.approx(0.5, rel=0.05)
        clock.now += 2.0
        assert load.pressure == pytest.approx(0.25, rel=0.05)

    def test_one_slow_answer_among_many_is_no_load(self) -> None:
        """A single outlier moves it by a tenth."""
        clock = Hand()
        load = Load(clock)
        for _ in range(100):
            load.answered(0.005)
        load.answered(1.0)
        assert load.pressure < 0.25

    def test_a_refusal_holds_it_at_one_for_as_long_as_the_server_said(self) -> None:
        """And at least for a few seconds."""
        clock = Hand()
        load = Load(clock, hold=5.0)
        load.shed(None)
        clock.now += 4.9
        assert load.pressure == 1.0
        clock.now += 0.2
        assert load.pressure == 0.0
        load.shed(30.0)
        clock.now += 29.0
        assert load.pressure == 1.0
