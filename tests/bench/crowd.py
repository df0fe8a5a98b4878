"""What a crowd in one tree of cohorts costs, and an event that concerns a few: `python -m tests.bench.crowd`.

CPU time of the thread that decides. A step is what a cycle does between two of its stops: the scheduler may let others
run at each. Of some rounds the best counts, for what others do on the machine counts too.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from tests.bench.engine import NOW, STAMP, _queue, _quiet_collector, _state, _workload
from tests.bench.figures import HEADER, Figure
from turnstile.advice.offer import Offer
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle_steps
from turnstile.engine.intake import FEEDING
from turnstile.engine.options import FairSharing

PREEMPTORS = 2000
SHARERS = 5000
COHORTS = 2000
RECLAIMERS = 1000
WAITING = 20_000
QUEUES, FLAVORS = 5000, 64
TARGET_WAITING_MS, TARGET_FAIR_MS, TARGET_STEP_MS, TARGET_EVENT_MS = 150.0, 500.0, 1.0, 1.0
EVICTED = {"type": "Evicted", "status": "True", "reason": "Preempted", "lastTransitionTime": STAMP}


def _steps_of(state: State) -> tuple[float, float, int]:
    """Run a cycle: milliseconds of CPU of all, of its longest step, and how many victims it names."""
    longest, victims = 0.0, 0
    steps = cycle_steps(state, NOW)
    began = before = time.thread_time()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            now = time.thread_time()
            longest = max(longest, now - before)
            victims = sum(len(decision.victims) for decision in end.value)
            return (now - began) * 1e3, longest * 1e3, victims
        now = time.thread_time()
        longest = max(longest, now - before)
        before = now


def _evicted(workload: Workload) -> Workload:
    body = msgspec.to_builtins(workload)
    body["status"]["conditions"].append(EVICTED)
    return msgspec.convert(body, Workload)


# Preemptors that wait in one cohort


def _preemptors(count: int) -> tuple[State, list[Workload]]:
    """Each ClusterQueue has a Workload that holds its quota, and one of higher priority that is to have it."""
    policy = {"withinClusterQueue": "LowerPriority"}
    names = [f"q{index}" for index in range(count)]
    state = _state([_queue(name, 4, "all", preemption=policy) for name in names])
    held = [_workload(f"held-{name}", name, 4, held_by=name) for name in names]
    for workload in held:
        state.put_workload(workload, NOW)
    for name in names:
        state.put_workload(_workload(f"waits-{name}", name, 4, priority=5), NOW)
    return state, held


def waiting_preemptors(count: int = PREEMPTORS, rounds: int = 3) -> Iterator[Figure]:
    """The cycles in which all preemptors wait for their victims, before and after the first of them has left."""
    found: dict[str, list[tuple[float, float, int]]] = {}
    for _ in range(rounds):
        state, held = _preemptors(count)
        with _quiet_collector():
            found.setdefault("choose their victims", []).append(_steps_of(state))
            for workload in held:
                state.put_workload(_evicted(workload), NOW)
            found.setdefault("wait", []).append(_steps_of(state))
            state.drop_workload(held[0].metadata.key)
            found.setdefault("wait, one victim left", []).append(_steps_of(state))
    for what, taken in found.items():
        assert all(victims for _, _, victims in taken)
        yield Figure(
            name=f"cycle of {count:,} preemptors in one cohort that {what}",
            value=min(each[0] for each in taken),
            unit="ms CPU",
            target=TARGET_WAITING_MS if what != "choose their victims" else None,
        )
        yield Figure(
            name="its longest step", value=min(each[1] for each in taken), unit="ms CPU", target=TARGET_STEP_MS
        )


# Fair sharing in one cohort


def _sharers(count: int) -> State:
    """ClusterQueues that each borrow one of what the preemptor's ClusterQueue lends."""
    policy = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    state = _state(
        [
            _queue("own", count, "all", preemption=policy, fairSharing={"weight": str(count)}),
            *(_queue(f"q{index}", 1, "all", preemption=policy) for index in range(count)),
        ],
        Options(fair_sharing=FairSharing()),
    )
    for index in range(count):
        for part in ("kept", "lent"):
            state.put_workload(_workload(f"{part}-{index}", f"q{index}", 1, held_by=f"q{index}"), NOW)
    state.put_workload(_workload("big", "own", count, priority=5), NOW)
    return state


def fair_sharing(count: int = SHARERS, rounds: int = 3) -> Iterator[Figure]:
    """One preemptor that has a victim in each of many ClusterQueues of its cohort."""
    taken = []
    for _ in range(rounds):
        state = _sharers(count)
        with _quiet_collector():
            taken.append(_steps_of(state))
    victims = taken[0][2]
    assert victims
    yield Figure(
        name=f"fair sharing, {count:,} queues, {victims:,} victims: it takes its own quota back",
        value=min(each[0] for each in taken),
        unit="ms CPU",
        target=TARGET_FAIR_MS,
    )
    yield Figure(name="its longest step", value=min(each[1] for each in taken), unit="ms CPU", target=TARGET_STEP_MS)


def child_cohorts(count: int = COHORTS, rounds: int = 3) -> Iterator[Figure]:
    """Fair sharing among Cohorts of one ClusterQueue each: the next entry is found again after each."""
    taken = []
    for _ in range(rounds):
        queues = [_queue(f"q{index}", 1, f"c{index}") for index in range(count)]
        state = _state(queues, Options(fair_sharing=FairSharing()))
        for index in range(count):
            body = {"metadata": {"name": f"c{index}"}, "spec": {"parentName": "root"}}
            state.put_cohort(msgspec.convert(body, Cohort))
            state.put_workload(_workload(f"w{index}", f"q{index}", 2), NOW)
        with _quiet_collector():
            taken.append(_steps_of(state))
    yield Figure(
        name=f"fair sharing, {count:,} heads in as many child Cohorts",
        value=min(each[0] for each in taken),
        unit="ms CPU",
    )
    yield Figure(name="its longest step", value=min(each[1] for each in taken), unit="ms CPU", target=TARGET_STEP_MS)


# Heads that ask who borrows


def reclaimers(count: int = RECLAIMERS, rounds: int = 3) -> Iterator[Figure]:
    """Each head may reclaim its quota in the cohort, where nobody borrows."""
    policy = {"reclaimWithinCohort": "Any"}
    taken = []
    for _ in range(rounds):
        names = [f"q{index}" for index in range(count)]
        state = _state([_queue(name, 4, "all", preemption=policy) for name in names])
        for name in names:
            state.put_workload(_workload(f"held-{name}", name, 4, held_by=name), NOW)
            state.put_workload(_workload(f"waits-{name}", name, 4, priority=5), NOW)
        with _quiet_collector():
            taken.append(_steps_of(state))
    yield Figure(
        name=f"{count:,} heads of one cohort with reclaimWithinCohort, and no borrower",
        value=min(each[0] for each in taken),
        unit="ms CPU",
    )
    yield Figure(name="its longest step", value=min(each[1] for each in taken), unit="ms CPU", target=TARGET_STEP_MS)


# Events


def _timed_event(event: Callable[[], object]) -> float:
    began = time.thread_time()
    event()
    return (time.thread_time() - began) * 1e3


def _limits(name: str, cpu: str) -> LimitRange:
    spec = {"limits": [{"type": "Container", "max": {"cpu": cpu}}]}
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, LimitRange)


def _wide_queue(name: str, check: str) -> ClusterQueue:
    flavors = [{"name": f"f{index}", "resources": [{"name": "cpu", "nominalQuota": "4"}]} for index in range(FLAVORS)]
    body: dict[str, Any] = {
        "namespaceSelector": {},
        "cohortName": "all",
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": check}]},
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": body}, ClusterQueue)


def _flavor(name: str, *, version: int = 0, labels: dict[str, str] | None = None) -> ResourceFlavor:
    meta = {"name": name, "resourceVersion": str(version)}
    return msgspec.convert({"metadata": meta, "spec": {"nodeLabels": labels or {}}}, ResourceFlavor)


def _check(*, version: int = 0, active: bool = True) -> AdmissionCheck:
    condition = {"type": "Active", "status": "True" if active else "False", "reason": "Any", "message": str(version)}
    body = {
        "metadata": {"name": "check"},
        "spec": {"controllerName": "example.com/any"},
        "status": {"conditions": [condition]},
    }
    return msgspec.convert(body, AdmissionCheck)


def limit_range(count: int = WAITING, rounds: int = 3) -> Iterator[Figure]:
    """A LimitRange of a namespace in which many Workloads wait."""
    taken, cycles = [], []
    for round_ in range(rounds):
        state = _state([_queue("q", 0)])
        for index in range(count):
            state.put_workload(_workload(f"w{index}", "q", 1), NOW)
        _steps_of(state)
        with _quiet_collector():
            taken.append(_timed_event(lambda: state.put_limit_range(_limits("limits", str(round_ + 2)), NOW)))  # noqa: B023
            cycles.append(_steps_of(state))
    yield Figure(
        name=f"a LimitRange appears, {count:,} wait: the event",
        value=min(taken),
        unit="ms CPU",
        target=TARGET_EVENT_MS,
    )
    yield Figure(name="the cycle after it", value=min(each[0] for each in cycles), unit="ms CPU")
    yield Figure(name="its longest step", value=min(each[1] for each in cycles), unit="ms CPU", target=TARGET_STEP_MS)


def objects_of_queues(count: int = QUEUES, rounds: int = 3) -> Iterator[Figure]:
    """A ResourceFlavor and an AdmissionCheck that all of many ClusterQueues name."""
    state = _state([])
    offer = Offer(Options())

    def put(given: Kind) -> None:
        FEEDING[type(given)].put(state, given, NOW)

    queues = [_wide_queue(f"q{index}", "check") for index in range(count)]
    flavors = [_flavor(f"f{index}") for index in range(FLAVORS)]
    for given in (*queues, *flavors, _check()):
        put(given)
        if not isinstance(given, AdmissionCheck):
            offer.put(given)
    _steps_of(state)
    events: dict[str, Callable[[int], object]] = {
        "a ResourceFlavor is written, its spec unchanged": lambda turn: put(_flavor("f7", version=turn)),
        "a ResourceFlavor has another label": lambda turn: put(_flavor("f7", labels={"a": str(turn)})),
        "a ResourceFlavor is deleted": lambda _: state.drop_flavor("f7"),
        "it is created again": lambda _: put(_flavor("f7")),
        "an AdmissionCheck is written, as active as before": lambda turn: put(_check(version=turn)),
        "an AdmissionCheck is not active any more": lambda _: put(_check(active=False)),
        "it is active again": lambda _: put(_check()),
    }
    taken: dict[str, list[float]] = {}
    after: list[tuple[float, float, int]] = []
    with _quiet_collector():
        for turn in range(rounds):
            for name, event in events.items():
                taken.setdefault(name, []).append(_timed_event(partial(event, turn + 1)))
                after.append(_steps_of(state))
            for name, given in {
                "the webhook's data: a ResourceFlavor is written": _flavor("f7", version=turn + 1),
                "the webhook's data: it has another label": _flavor("f7", labels={"a": str(turn)}),
            }.items():
                taken.setdefault(name, []).append(_timed_event(partial(offer.put, given)))
            name = "the webhook's data: it is deleted"
            taken.setdefault(name, []).append(_timed_event(lambda: offer.drop(ResourceFlavor, "f7")))
    for name, found in taken.items():
        yield Figure(name=name, value=min(found), unit="ms CPU", target=TARGET_EVENT_MS)
    yield Figure(name="longest cycle after one of them", value=max(each[0] for each in after), unit="ms CPU")
    yield Figure(name="its longest step", value=max(each[1] for each in after), unit="ms CPU", target=TARGET_STEP_MS)


def main() -> None:
    """All figures."""
    print(HEADER)
    for figures in (
        waiting_preemptors(),
        reclaimers(),
        fair_sharing(),
        child_cohorts(),
        limit_range(),
        objects_of_queues(),
    ):
        for figure in figures:
            print(figure, flush=True)


if __name__ == "__main__":
    main()
