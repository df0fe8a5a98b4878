"""The same world decides the same, however it was told."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine import Options, State
from app.engine.options import FairSharing
from tests.unit.engine import builders as b

QUEUES = ("a", "b", "c")
work = st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=12)


def decide(
    work: list[tuple[str, int, int]], order: list[int], queues: list[str], fair: bool
) -> tuple[set[str], list[tuple[str, str, str]]]:
    """Who is admitted and what each is told, when told in this order."""
    state = State(Options(fair_sharing=FairSharing() if fair else None))
    spec = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    for index in order:
        line, cpu, priority = work[index]
        state.put_workload(b.workload(f"w{index}", line, cpu=cpu, priority=priority, second=index), b.NOW)
    for name in queues:
        state.put_local_queue(b.local(name, name), b.NOW)
        state.put_cluster_queue(b.queue(name, {"default": {"cpu": 2}}, "x", preemption=spec), b.NOW)
    state.put_flavor(b.flavor())
    state.put_namespace("team", {})
    told = [(decision.key, decision.outcome, decision.message) for decision in b.settle(state)]
    return b.admitted(state), sorted(told)


@settings(max_examples=60, deadline=None)
@given(work=work, fair=st.booleans(), data=st.data())
def test_the_order_of_events_does_not_matter(work: list[tuple[str, int, int]], fair: bool, data: st.DataObject) -> None:
    """Workloads of different age and queues of different name come out the same in any order of insertion."""
    order = data.draw(st.permutations(range(len(work))))
    queues = data.draw(st.permutations(QUEUES))
    first = decide(work, list(range(len(work))), list(QUEUES), fair)
    assert decide(work, list(order), list(queues), fair) == first
