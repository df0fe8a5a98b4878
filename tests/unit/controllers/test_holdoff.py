"""How long preemptors hold off is what the API server makes of three writes."""

from turnstile.controllers.scheduling.holdoff import LONGEST, seconds
from turnstile.kube.window import Window


def window(latency: float) -> Window:
    """A window over a server that takes so long for each write."""
    made = Window(lambda: 1000.0)
    for _ in range(100):
        made.answered("patch workloads", latency, in_flight=1)
    return made


def test_there_is_none_on_a_server_at_ease() -> None:
    """Not a millisecond, nor before the first write."""
    assert seconds(Window(lambda: 1000.0)) == 0.0
    assert seconds(window(0.2)) == 0.0


def test_it_is_what_three_writes_take() -> None:
    """In steps of a quarter of a second."""
    assert seconds(window(0.5)) == 1.5


def test_it_is_bounded() -> None:
    """However slow the server is."""
    assert seconds(window(20.0)) == LONGEST


def test_a_refusal_because_of_load_counts() -> None:
    """Even if answers are quick."""
    made = window(0.05)
    made.refused()
    assert seconds(made) == 0.25
