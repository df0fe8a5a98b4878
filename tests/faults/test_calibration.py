"""The 80% intervals of forecasts hold in 75 to 85 of 100 cases, over many made-up traces."""

import pytest

from tests.bench.backtest import Backtest, Outcome, cluster
from tests.bench.traces import DAY, Shape, made_up

TRACES = 20


def outcomes(seed: int, queues: tuple[str, ...]) -> list[Outcome]:
    """Forecasts on one trace of six days, of which they learn from more than half first."""
    shape = Shape(days=6, capacity=16, load=0.75, queues=queues)
    test = Backtest(
        jobs=made_up(shape, seed),
        world=cluster(queues, 16),
        every=4 * 3600,
        warm_up=shape.days * DAY * 0.6,
        courses=30,
        seed=seed,
    )
    return list(test.outcomes())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("queues", [("main",), ("a", "b", "c")], ids=["one-queue", "three-queues"])
def test_the_intervals_hold_as_often_as_they_say(queues: tuple[str, ...]) -> None:
    """In a queue of its own, and in queues that borrow from each other. Nearly every Workload gets a forecast."""
    found = [each for seed in range(TRACES) for each in outcomes(seed, queues)]
    told = [each for each in found if each.covered is not None]
    assert len(told) > 0.9 * len(found)
    coverage = sum(bool(each.covered) for each in told) / len(told)
    assert 0.75 <= coverage <= 0.85, f"{coverage:.3f} of {len(told)}"
