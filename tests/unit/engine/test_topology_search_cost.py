"""A search for victims of a Workload with a topology asks for places many times: it stops in between, and asks for no
more than it needs to know."""

from unittest.mock import patch

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import PREEMPTION, put, running, workload, world
from turnstile.engine import State
from turnstile.engine.cycle.cycle import cycle_steps
from turnstile.engine.flavors.places import Seeker
from turnstile.engine.topology import placement

END = object()


def interleaved(count: int) -> State:
    """Racks with two Workloads each: in Kueue's order one of each rack comes before the second of any."""
    state = world(
        b.queue("main", {"gpu": {"cpu": 10**6}}, preemption=PREEMPTION),
        racks={f"r{number}": [2] for number in range(count)},
    )
    for number in range(count):
        put(state, running(f"new-{number}", {f"r{number}-0": 1}, second=50))
        put(state, running(f"old-{number}", {f"r{number}-0": 1}))
    put(state, workload("head", 2, priority=5, second=60))
    return state


def test_a_search_stops_after_a_placement_of_many_domains() -> None:
    """However many candidates are tried."""
    state = interleaved(250)
    tried: list[int] = []
    fits = Seeker.fits

    def counted(self: Seeker) -> bool:
        tried[-1] += 1
        return fits(self)

    steps = cycle_steps(state, b.NOW)
    with patch.object(Seeker, "fits", counted):
        tried.append(0)
        while next(steps, END) is not END:
            tried.append(0)
    assert sum(tried) > 250
    assert max(tried) <= 5


def test_no_reason_is_worked_out_for_what_is_only_tried() -> None:
    """It takes a look at each node: the head gets a reason once, and each candidate none."""
    state = interleaved(20)
    with patch.object(placement, "too_few", wraps=placement.too_few) as explained:
        assert b.decide(state, "head").victims
    assert explained.call_count <= 2
