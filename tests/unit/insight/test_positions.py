"""The visibility API lists pending Workloads in the order in which the engine's queues pop them."""

from collections import defaultdict

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.options import AdmissionFairSharing
from turnstile.engine.queue.nomination import Nomination
from turnstile.insight.positions import Place, Places, Positions, Queueing, grouped, published_usage

SHARING = AdmissionFairSharing(usage_half_life=600.0)
LOCAL_QUEUES = ("first", "second", "third")

changes = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(LOCAL_QUEUES),
        st.integers(-1, 1),
        st.integers(0, 2),
        st.sampled_from(["pending"] * 6 + ["inactive", "reserved", "gone"]),
    ),
    min_size=6,
    max_size=20,
)
"""Name, LocalQueue, priority, second of creation and fate of Workloads; a later change replaces an earlier one."""


def local_queue(name: str, consumed: int) -> LocalQueue:
    """A LocalQueue that consumed so many CPUs by its status."""
    sharing = {"consumedResources": {"cpu": str(consumed)}, "lastUpdate": b.STAMP}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": sharing}}
    plain = {"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": "a"}, "status": status}
    return msgspec.convert(plain, LocalQueue)


def changed(name: int, local: str, priority: int, second: int, fate: str) -> Workload:
    """A Workload after a change."""
    status = {}
    if fate == "reserved":
        condition = {
            "type": "QuotaReserved", "status": "True", "reason": "x", "message": "", "lastTransitionTime": b.STAMP
        }  # fmt: skip
        admission = {"clusterQueue": "a", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "default"}}]}
        status = {"conditions": [condition], "admission": admission}
    made = b.workload(f"w{name}", local, priority=priority, second=second, status=status)
    made.spec.active = fate != "inactive"
    return made


def listed(places: Places) -> list[Place]:
    """The items of a page."""
    return [place for place in places if place is not None]


def popped(state: b.State) -> list[str]:
    """Keys in the order in which the ClusterQueue pops them."""
    pending = state.cluster_queues["a"].pending
    found = []
    while (head := pending.pop()) is not None:
        found.append(head.key)
        pending.put_down(head.key)
    return found


@given(
    history=changes,
    consumed=st.tuples(*(st.integers(0, 1) for _ in LOCAL_QUEUES)),
    by_usage=st.booleans(),
    first=st.integers(0, 7),
    seen_at=st.sets(st.integers(0, 19)),
    page=st.tuples(st.integers(0, 2), st.integers(0, 9)),
)
@example(
    history=[(number, LOCAL_QUEUES[number % 2], 0, number, "pending") for number in range(6)],
    consumed=(1, 0, 0),
    by_usage=True,
    first=4,
    seen_at={3},
    page=(0, 9),
)
@example(
    history=[(number, LOCAL_QUEUES[number % 2], number % 3, number, "pending") for number in range(8)],
    consumed=(0, 0, 0),
    by_usage=False,
    first=3,
    seen_at={5},
    page=(0, 9),
)
def test_pages_are_in_the_order_of_the_engine(
    history: list[tuple[int, str, int, int, str]],
    consumed: tuple[int, ...],
    by_usage: bool,
    first: int,
    seen_at: set[int],
    page: tuple[int, int],
) -> None:
    """Whatever the history, with and without usage, also when pages were read before; both positions are right."""
    options = Options(admission_fair_sharing=SHARING)
    scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if by_usage else {}
    state = b.State(options)
    state.put_namespace("team", {})
    state.put_flavor(b.flavor())
    state.put_cluster_queue(b.queue("a", {"default": {"cpu": 10}}, **scope), b.NOW)
    locals_ = {f"team/{name}": local_queue(name, cpu) for name, cpu in zip(LOCAL_QUEUES, consumed, strict=True)}
    for local in locals_.values():
        state.put_local_queue(local, b.NOW)
    usage = (lambda key: published_usage(locals_[key], SHARING)) if by_usage else None
    queueing = Queueing(grouped(locals_, usage), f"team/w{first}")

    positions = Positions(options)
    for step, change in enumerate(history):
        workload = changed(*change)
        key = workload.metadata.key
        if change[-1] == "gone":
            positions.put(key, None)
            state.drop_workload(key)
        else:
            positions.put(key, workload)
            state.put_workload(workload, b.NOW)
        if step in seen_at:
            listed(positions.of_cluster_queue(queueing, offset=0, limit=100))

    pending = state.cluster_queues["a"].pending
    pending.nomination = Nomination(f"team/w{first}", sticky=True)
    waits = {key: info.local_queue for key, info in state.queues.waiting.items()}
    order = popped(state)
    before: dict[str, int] = defaultdict(int)
    expected = []
    for position, key in enumerate(order):
        expected.append(Place(key, position, before[waits[key]]))
        before[waits[key]] += 1

    offset, limit = page
    found = listed(positions.of_cluster_queue(queueing, offset=offset, limit=limit))
    assert found == expected[offset : offset + limit]
    for key in locals_:
        own = [place for place in expected if waits[place.workload] == key]
        found = listed(positions.of_local_queue(key, queueing, offset=offset, limit=limit))
        assert found == own[offset : offset + limit]
    assert len(positions) == len(order)


def test_a_local_queue_that_is_not_among_those_of_the_queue_lists_nothing() -> None:
    """A LocalQueue that is stopped keeps its Workloads, but none of them is tried."""
    positions = Positions(Options())
    positions.put("team/w", b.workload("w", "stopped"))
    queueing = Queueing(grouped(["team/open"], None))
    assert listed(positions.of_local_queue("team/stopped", queueing, offset=0, limit=10)) == []
    assert listed(positions.of_cluster_queue(queueing, offset=0, limit=10)) == []


def test_a_local_queue_may_come_to_a_queue_and_leave_it() -> None:
    """The Workloads of all LocalQueues of today are merged, those of yesterday are not."""
    positions = Positions(Options())
    for number, name in enumerate(("a", "b", "c")):
        positions.put(f"team/{name}", b.workload(name, name, second=number))

    def names(*local_queues: str) -> list[str]:
        queueing = Queueing(grouped(local_queues, None))
        found = listed(positions.of_cluster_queue(queueing, offset=0, limit=10))
        return [place.workload for place in found]

    assert names("team/a", "team/b") == ["team/a", "team/b"]
    assert names("team/a", "team/b", "team/c") == ["team/a", "team/b", "team/c"]
    positions.put("team/d", b.workload("d", "c", second=9))
    assert names("team/b", "team/c") == ["team/b", "team/c", "team/d"]
    positions.put("team/c", None)
    assert names("team/a", "team/b", "team/c") == ["team/a", "team/b", "team/d"]
