"""How fast the engine decides, beside a bare loop over the same workloads measured in the same run.

`python -m tests.bench.engine` prints a table. CPU time of this process; the API server has no part in it.
"""

import gc
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import msgspec

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle, cycle_steps
from turnstile.engine.options import FairSharing
from turnstile.kube.slices import SLICE_SECONDS
from turnstile.process.memory import NEVER, OLDER, YOUNG, resident

NOW = 1_767_323_045.0
STAMP = "2026-01-02T03:04:05Z"


class Row(NamedTuple):
    """One figure: what it is, its unit, ours and the floor of the same run (0 where there is none)."""

    name: str
    unit: str
    value: float
    floor: float


def _queue(name: str, cpu: int, cohort: str | None = None, **spec: Any) -> ClusterQueue:
    borrowing = spec.pop("borrowing", None)
    quota: dict[str, Any] = {"name": "cpu", "nominalQuota": str(cpu)}
    if borrowing is not None:
        quota["borrowingLimit"] = str(borrowing)
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    body: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    if cohort:
        body["cohortName"] = cohort
    return msgspec.convert({"metadata": {"name": name}, "spec": body}, ClusterQueue)


def _workload(
    name: str, line: str, cpu: int, *, priority: int = 0, held_by: str = "", pause_until: str = ""
) -> Workload:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": STAMP},
        "spec": {
            "queueName": line,
            "priority": priority,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}},
                }
            ],
        },
    }
    if held_by:
        body["status"] = {
            "admission": {
                "clusterQueue": held_by,
                "podSetAssignments": [
                    {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": str(cpu)}, "count": 1}
                ],
            },
            "conditions": [
                {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "lastTransitionTime": STAMP}
            ],
        }
    if pause_until:
        body["status"] = {"requeueState": {"count": 1, "requeueAt": pause_until}}
    return msgspec.convert(body, Workload)


def _state(queues: list[ClusterQueue], options: Options | None = None) -> State:
    state = State(options)
    state.put_namespace("ns", {})
    state.put_flavor(msgspec.convert({"metadata": {"name": "default"}}, ResourceFlavor))
    for queue in queues:
        name = queue.metadata.name
        state.put_cluster_queue(queue, NOW)
        state.put_local_queue(
            msgspec.convert(
                {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": name}}, LocalQueue
            ),
            NOW,
        )
    return state


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def _floor(workloads: list[Workload]) -> float:
    """A bare loop: look at each workload, add its request up, keep it in a dict."""

    def loop() -> int:
        used, held = 0, {}
        for workload in workloads:
            for pod_set in workload.spec.pod_sets:
                for container in pod_set.template.spec.containers:
                    if container.resources is not None:
                        used += pod_set.count * int(container.resources.requests["cpu"])
            held[workload.metadata.key] = used
        return len(held)

    return _timed(loop)[0]


def one_deep_queue(count: int = 5000) -> Iterator[Row]:
    """Workloads in one queue with room for all."""
    workloads = [_workload(f"w{index}", "q", 1) for index in range(count)]
    state = _state([_queue("q", count)])
    put, _ = _timed(lambda: [state.put_workload(workload, NOW) for workload in workloads])

    def drain() -> int:
        admitted = 0
        while state.has_work:
            admitted += sum(decision.outcome == "admit" for decision in cycle(state, NOW))
        return admitted

    spent, admitted = _timed(drain)
    assert admitted == count
    floor = _floor(workloads)
    yield Row(f"{count:,} workloads in one queue: decided", "s CPU", spent, floor)
    yield Row("decisions a second", "1/s", count / spent, count / floor)
    yield Row(f"{count:,} workloads taken in", "s CPU", put, floor)


def baseline(classes: tuple[tuple[int, int, int], ...] = ((350, 1, 50), (100, 5, 100), (50, 20, 200))) -> Iterator[Row]:
    """Kueue's baseline: 5 cohorts of 6 queues, quota 20, borrowing limit 100, preemption on; all admitted are finished
    after each cycle, until all 15,000 are through."""
    spec = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    names = [(f"cohort-{cohort}", f"q-{cohort}-{queue}") for cohort in range(5) for queue in range(6)]
    state = _state([_queue(name, 20, cohort, borrowing=100, preemption=spec) for cohort, name in names])
    workloads = [
        _workload(f"{name}-{size}-{index}", name, size, priority=priority)
        for _, name in names
        for count, size, priority in classes
        for index in range(count)
    ]
    for workload in workloads:
        state.put_workload(workload, NOW)

    def drain() -> int:
        done = cycles = 0
        victims: dict[str, None] = {}
        while done < len(workloads):
            cycles += 1
            decisions = cycle(state, NOW)
            for decision in decisions:
                victims.update((victim.key, None) for victim in decision.victims if victim.new)
            finished = [decision.key for decision in decisions if decision.outcome == "admit"]
            done += len(finished)
            for key in finished:
                state.drop_workload(key)
            assert decisions.decisions, "stuck"
        return cycles

    spent, cycles = _timed(drain)
    yield Row(
        f"baseline, {len(workloads):,} workloads in 30 queues, {cycles} cycles", "s CPU", spent, _floor(workloads)
    )


def _thousand_queues(queues: int, each: int) -> State:
    """Queues in twenty cohorts, with workloads of which no two fit at once."""
    state = _state([_queue(f"q{index}", each * 2, f"cohort-{index % 20}") for index in range(queues)])
    for index in range(queues):
        for number in range(each):
            state.put_workload(_workload(f"w{index}-{number}", f"q{index}", 1), NOW)
    return state


def many_queues(queues: int = 1000, each: int = 50, cycles: int = 30, rounds: int = 5) -> Iterator[Row]:
    """A head of every queue a cycle; nothing fits twice, all heads change. Several rounds, so that one in a hundred
    cycles is more than one cycle."""
    spent: list[float] = []
    for _ in range(rounds):
        state = _thousand_queues(queues, each)
        with _quiet_collector():
            spent.extend(_timed(partial(cycle, state, NOW))[0] for _ in range(cycles))
    spent.sort()
    floor = _floor([_workload(f"w{index}", f"q{index}", 1) for index in range(queues)]) * 1e3
    what = f"cycle of {queues:,} heads, {queues * each:,} pending"
    yield Row(f"{what}, median", "ms CPU", spent[len(spent) // 2] * 1e3, floor)
    yield Row(f"{what}, p99", "ms CPU", spent[int(len(spent) * 0.99)] * 1e3, floor)


def _three_levels(candidates: int, options: Options | None = None) -> tuple[State, list[Workload]]:
    """Seven of eight queues hold all quota, in three levels of cohorts; one workload waits that may take an eighth."""
    spec = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    names = [f"q{index}" for index in range(8)]
    state = _state(
        [_queue(name, candidates // 8, f"leaf-{index // 2}", preemption=spec) for index, name in enumerate(names)],
        options,
    )
    parents = [(f"leaf-{index}", f"mid-{index // 2}") for index in range(4)]
    for name, parent in [*parents, ("mid-0", "root"), ("mid-1", "root")]:
        state.put_cohort(msgspec.convert({"metadata": {"name": name}, "spec": {"parentName": parent}}, Cohort))
    workloads = [
        _workload(f"w{index}", names[1 + index % 7], 1, held_by=names[1 + index % 7]) for index in range(candidates)
    ]
    for workload in workloads:
        state.put_workload(workload, NOW)
    state.put_workload(_workload("big", "q0", candidates // 8, priority=10), NOW)
    return state, workloads


def _many_flavors(flavors: int, resources: int) -> State:
    """One Workload holds all of each flavor, and a head of higher priority asks for every resource: no flavor is good
    enough to stop at."""
    names = [f"example.com/{index}" for index in range(resources)]
    listed = [f"flavor-{index}" for index in range(flavors)]
    quotas = [{"name": name, "nominalQuota": "1"} for name in names]
    group = {"coveredResources": names, "flavors": [{"name": flavor, "resources": quotas} for flavor in listed]}
    preempts = {"withinClusterQueue": "LowerPriority"}
    state = _state(
        [
            _queue(
                "q",
                0,
                resourceGroups=[group],
                preemption=preempts,
                flavorFungibility={"whenCanPreempt": "TryNextFlavor"},
            )
        ]
    )
    for flavor in listed:
        state.put_flavor(msgspec.convert({"metadata": {"name": flavor}}, ResourceFlavor))
    asked = dict.fromkeys(names, "1")
    containers = [{"name": "c", "resources": {"requests": asked}}]
    for index, flavor in enumerate(["", *listed]):
        body = msgspec.to_builtins(_workload(f"w{index}", "q", 0, priority=0 if flavor else 1, held_by=flavor and "q"))
        body["spec"]["podSets"][0]["template"]["spec"]["containers"] = containers
        if flavor:
            given = {"name": "main", "flavors": dict.fromkeys(names, flavor), "resourceUsage": asked, "count": 1}
            body["status"]["admission"]["podSetAssignments"] = [given]
        state.put_workload(msgspec.convert(body, Workload), NOW)
    return state


def many_flavors(flavors: int = 64, resources: int = 16, rounds: int = 5) -> Iterator[Row]:
    """One head that must be judged in every flavor of the largest resource group, in slices and at one stretch; the
    best of some rounds."""
    whole = sliced = longest = float("inf")
    for _ in range(rounds):
        state = _many_flavors(flavors, resources)
        with _quiet_collector():
            whole = min(whole, _timed(partial(cycle, state, NOW))[0])
        steps = cycle_steps(_many_flavors(flavors, resources), NOW)
        with _quiet_collector():
            found = list(_steps(steps))
        sliced, longest = min(sliced, sum(found)), min(longest, max(found))
    what = f"a head in {flavors} flavors of {resources} resources"
    yield Row(f"{what}, in slices (floor: at one stretch)", "ms CPU", sliced * 1e3, whole * 1e3)
    yield Row(f"{what}: longest step", "ms CPU", longest * 1e3, 0)


FAIR = Options(fair_sharing=FairSharing())


def big_preemption(candidates: int = 10_000, rounds: int = 5) -> Iterator[Row]:
    """One head that must search candidates in three levels of cohorts; the best of some rounds."""
    for name, options in (("preemption", None), ("fair sharing preemption", FAIR)):
        best = float("inf")
        for _ in range(rounds):
            state, workloads = _three_levels(candidates, options)
            with _quiet_collector():
                spent, result = _timed(partial(cycle, state, NOW))
            victims = sum(len(decision.victims) for decision in result)
            assert victims
            best = min(best, spent)
        what = f"{name} among {candidates:,} candidates in 3 levels, {victims} victims"
        yield Row(what, "ms CPU", best * 1e3, _floor(workloads) * 1e3)


# Slices


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Garbage is collected as in the controller once it has seen all objects."""
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG, OLDER, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _slices(work: Generator[None, None, Any]) -> Iterator[float]:
    """Do sliced work as the scheduler does: CPU seconds of each slice, which ends at the first stop after its time."""
    began = time.thread_time()
    while True:
        try:
            next(work)
        except StopIteration as end:
            yield time.thread_time() - began
            del end  # the scheduler frees what was decided in slices of its own
            return
        if (now := time.thread_time()) - began > SLICE_SECONDS:
            yield now - began
            began = time.thread_time()


def _steps(work: Generator[None, None, Any]) -> Iterator[float]:
    """CPU seconds from each stop to the next."""
    ended = False
    while not ended:
        began = time.thread_time()
        ended = next(work, _END) is _END
        yield time.thread_time() - began


_END = object()


def _bare(steps: int) -> Generator[None, None, int]:
    """The floor of a slice: a loop that stops at every step."""
    total = 0
    for step in range(steps):
        total += step
        yield
    return total


def longest_slices(rounds: int = 5) -> Iterator[Row]:
    """How long the event loop is held; of some rounds the best, for what others do on the machine counts too."""

    def deep() -> Iterator[State]:
        state = _state([_queue("q", 5000)])
        for index in range(5000):
            state.put_workload(_workload(f"w{index}", "q", 1), NOW)
        with _quiet_collector():
            while state.has_work:
                yield state

    def wide() -> Iterator[State]:
        state = _thousand_queues(1000, 50)
        with _quiet_collector():
            for _ in range(10):
                yield state

    def search(options: Options | None = None) -> Iterator[State]:
        state, _ = _three_levels(10_000, options)
        with _quiet_collector():
            yield state

    def parked() -> Iterator[State]:
        names = [f"q{index}" for index in range(10)]
        state = _state([_queue(name, 0) for name in names])
        for index in range(100_000):
            state.put_workload(_workload(f"w{index}", names[index % 10], 1, pause_until=STAMP), NOW - 1)
        for name in names:
            state.retries.mark(name)
        with _quiet_collector():
            yield state

    cases: dict[str, Callable[[], Iterator[State]]] = {
        "5,000 workloads in one queue": deep,
        "cycles of 1,000 heads": wide,
        "preemption among 10,000 candidates": search,
        "fair sharing preemption among 10,000 candidates": lambda: search(FAIR),
        "100,000 parked one by one are woken": parked,
    }
    bare = sorted(_slices(_bare(1_000_000)))
    for name, states in cases.items():
        p99 = longest = float("inf")
        for _ in range(rounds):
            found: list[float] = []
            for state in states():
                found += _slices(cycle_steps(state, NOW))
            found.sort()
            p99, longest = min(p99, found[int(len(found) * 0.99)]), min(longest, found[-1])
        yield Row(f"slice, {name}: p99", "ms CPU", p99 * 1e3, bare[int(len(bare) * 0.99)] * 1e3)
        yield Row(f"slice, {name}: longest", "ms CPU", longest * 1e3, bare[-1] * 1e3)


def _grown(count: int) -> tuple[int, int]:
    """Bytes by which this process grew for so many workloads, and for the objects alone."""
    state = _state([_queue(f"q{index}", 10) for index in range(10)])
    before = resident()
    workloads = [_workload(f"w{index}", f"q{index % 10}", 1) for index in range(count)]
    objects = resident()
    for workload in workloads:
        state.put_workload(workload, NOW)
    return resident() - before, objects - before


def pending_memory(count: int = 100_000) -> Iterator[Row]:
    """What it takes to hold pending workloads, beside their objects alone. In a process of its own, as memory that was
    used before and given back would be used again and not be seen."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        held, objects = processes.submit(_grown, count).result()
    yield Row(f"{count:,} pending held, with their objects", "MiB", held / 2**20, objects / 2**20)


def main() -> list[Row]:
    """All figures."""
    return [
        *one_deep_queue(),
        *baseline(),
        *many_queues(),
        *big_preemption(),
        *many_flavors(),
        *pending_memory(),
        *longest_slices(),
    ]


if __name__ == "__main__":
    for row in main():
        print(f"{row.name:75} {row.value:12.3f} {row.unit:8} floor {row.floor:10.3f}")
