"""The benches run: small numbers, each figure there and finite. How fast anything is belongs into `make bench`."""

import math

import pytest
import uvloop

from testbed import ControlPlane
from tests.bench import burst, latency
from tests.bench.bed import Bed
from tests.bench.bed import Turnstile as OnTheBed
from tests.bench.figures import Figure, percentile
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


@pytest.fixture
def bed(control_plane: ControlPlane, turnstile: Turnstile, nodes: dict[str, str]) -> Bed:
    """The session's control plane and Turnstile as benches see them."""
    made = Bed(control_plane, OnTheBed(turnstile.installation))
    made.process = turnstile.process
    return made


def test_a_percentile_is_one_of_the_values() -> None:
    """Of a hundred values the 99th, of one the only one."""
    assert percentile(range(1, 101), 99) == 99
    assert percentile([7.0], 50) == 7.0


def test_a_missed_target_shows() -> None:
    """Less is better unless said otherwise."""
    assert "MISSED" in str(Figure(name="wait", value=31, unit="ms", target=30))
    assert "ok" in str(Figure(name="rate", value=31, unit="/s", target=30, more_is_better=True))


def test_jobs_through_an_idle_cluster_are_timed(bed: Bed) -> None:
    """Each Job is let in and its wait is known."""
    figures = uvloop.run(latency.idle(bed, jobs=4))
    assert all(math.isfinite(figure.value) and figure.value > 0 for figure in figures)


def test_a_burst_of_jobs_is_timed_to_its_end(bed: Bed) -> None:
    """All start, complete, and leave no finalizer behind; CPU and memory are read."""
    figures = uvloop.run(burst.burst(bed, jobs=10))
    assert all(math.isfinite(figure.value) and figure.value >= 0 for figure in figures)
