"""How far apart the scheduler's cycles begin."""

from app.controllers.scheduler import LONGEST_APART, seconds_apart


class TestPaceOfCycles:
    """A busy API server spreads long cycles; nothing else delays one."""

    def test_quick_server(self) -> None:
        """Cycles follow each other at once while the server answers at once."""
        assert seconds_apart(writes=0.004, cycle=0.05) <= 0.002

    def test_before_the_first_write(self) -> None:
        """Nothing is known of the server before its first answer, and no cycle waits for that."""
        assert seconds_apart(writes=0.0, cycle=0.05) == 0.0

    def test_short_cycles_on_a_busy_server(self) -> None:
        """A thousand short cycles over one ClusterQueue end within seconds, however slow the server is."""
        assert 1000 * seconds_apart(writes=5.0, cycle=0.0003) < 3.0

    def test_long_cycles_on_a_busy_server(self) -> None:
        """A long cycle takes a small part of the event loop's time."""
        assert seconds_apart(writes=2.0, cycle=0.03) >= 5 * 0.03

    def test_never_far_apart(self) -> None:
        """The next cycle comes soon, however slow the server and however long the last cycle."""
        assert seconds_apart(writes=60.0, cycle=30.0) == LONGEST_APART
