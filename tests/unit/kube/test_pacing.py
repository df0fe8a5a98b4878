"""How long to wait before another attempt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.kube.backoff import Backoff


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
