"""Whoever finds room, or an open door, after exactly one thing has changed is let in: nobody is left waiting because
nobody woke him. A test for each thing that gives room or opens a queue; who fits is worked out by arithmetic alone."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.engine import told
from tests.unit.engine.told import Told
from turnstile.api.core import LimitRange
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.options import FairSharing
from turnstile.engine.reasons import Mode

EXAMPLES = examples(10)
FULL = ("a", "b", "c")
Wish = tuple[str, int, int]
"""Queue, number of pods, priority."""


def gpus(amount: int, flavor: str = "x") -> list[told.Json]:
    """Quota of one flavor."""
    return b.quotas({flavor: {"gpu": amount}})


class World:
    """Queues a and b in cohort left, c in cohort outer above it; d and e stand alone, and e is where doors open."""

    def __init__(self, quotas: tuple[int, ...], strategy: str, options: Options) -> None:
        outer, *rest = quotas
        self.told = Told()
        self.strategy = strategy
        self.cohorts = {"left": "outer", "outer": "", "right": ""}
        for name, above in self.cohorts.items():
            quota = gpus({"left": 0, "outer": outer, "right": 5}[name])
            self.told.cohorts[name] = told.cohort(name, quota, parent=above, weight="1")
        for name, parent, own in zip((*FULL, "d", "e"), ("left", "left", "outer", "", ""), (*rest, 1, 9), strict=True):
            self.told.queues[name] = told.cluster_queue(name, gpus(own), parent, queueingStrategy=strategy)
            self.told.lines[name] = b.local(name, name)
        self.state = self.told.state(options)
        self.number = 0

    def queue(self, name: str, quota: int, parent: str, flavor: str = "x", **spec: Any) -> None:
        """A ClusterQueue is told anew."""
        made = told.cluster_queue(name, gpus(quota, flavor), parent, queueingStrategy=self.strategy, **spec)
        self.told.queues[name] = made
        self.state.put_cluster_queue(made, b.NOW)

    def cohort(self, name: str, quota: int, parent: str) -> None:
        """A Cohort is told anew."""
        self.told.cohorts[name] = told.cohort(name, gpus(quota), parent=parent, weight="1")
        self.state.put_cohort(self.told.cohorts[name])

    def line(self, name: str, queue: str, **spec: Any) -> None:
        """A LocalQueue is told anew."""
        self.told.lines[name] = b.local(name, queue, **spec)
        self.state.put_local_queue(self.told.lines[name], b.NOW)

    def put(self, item: Workload) -> Workload:
        """A Workload is told anew."""
        self.told.workloads[item.metadata.key] = item
        self.state.put_workload(item, b.NOW)
        return item

    def ask(self, wish: Wish) -> Workload:
        """A workload of pods with a gpu each is created."""
        self.number += 1
        line, count, priority = wish
        sets = [(1, 0, count, None)]
        made = told.workload(f"w{self.number:02}", line, pod_sets=sets, priority=priority, second=self.number)
        return self.put(made)

    def drop(self, item: Workload) -> None:
        """It is deleted."""
        del self.told.workloads[item.metadata.key]
        self.state.drop_workload(item.metadata.key)

    def run(self) -> None:
        """To the fixed point; all writes succeed."""
        b.settle(self.state)
        self.write()
        b.settle(self.state)
        assert not self.state.reservations.assumed

    def write(self) -> None:
        """The watch shows what was decided."""
        for key in sorted(self.state.reservations.assumed):
            self.put(b.reserved(self.told.workloads[key], self.state))

    def holders(self) -> list[Workload]:
        """Of the tree of cohorts."""
        found = (self.told.workloads[key] for key in sorted(b.admitted(self.state)))
        return [item for item in found if item.spec.queue_name in FULL]

    def waiting(self, queue: str) -> list[Workload]:
        """Who could be admitted to a queue, first to last."""
        lines = {name for name, line in self.told.lines.items() if line.spec.cluster_queue == queue}
        found = [
            item
            for item in self.told.workloads.values()
            if item.spec.queue_name in lines and item.spec.active and not (item.quota_reserved or item.finished)
        ]
        backing_off = ("Requeued", "False")
        found = [each for each in found if backing_off not in {(c.type, c.status) for c in each.status.conditions}]
        return sorted(found, key=lambda item: (-(item.spec.priority or 0), told.age(item)))

    def judge(self) -> None:
        """Nobody waits who fits, unless he stands behind the first of a strict line, or somebody whose own quota is in
        use elsewhere keeps room for himself."""
        world = self.told.plain(self.state)
        keys = [item.metadata.key for name in self.told.queues for item in self.waiting(name)]
        if Mode.PREEMPT in {
            self.state.queues.decisions[key].mode for key in keys if key in self.state.queues.decisions
        }:
            return
        for name in self.told.queues:
            waiting = self.waiting(name)
            for item in waiting[:1] if self.strategy == "StrictFIFO" else waiting:
                fits = item.spec.pod_sets[0].count <= max(world.room(name, (flavor, "gpu")) for flavor in "xy")
                assert not fits, f"left waiting: {item.metadata.key} in {name}"


def pick(world: World, data: st.DataObject) -> Workload | None:
    """Somebody who holds quota."""
    holders = world.holders()
    return data.draw(st.sampled_from(holders)) if holders else None


# What gives room in a tree that is full


def finishes(world: World, item: Workload) -> None:
    """A job ends."""
    world.put(b.with_conditions(item, Finished=("True", "Succeeded")))


def is_deleted(world: World, item: Workload) -> None:
    """A workload that holds quota is deleted."""
    world.drop(item)


def is_evicted(world: World, item: Workload) -> None:
    """An eviction ends, and its victim backs off."""
    world.put(b.with_conditions(b.released(item), Requeued=("False", "PodsReadyTimeout")))


def is_deactivated(world: World, item: Workload) -> None:
    """A workload is suspended for good."""
    world.put(b.released(told.changed(item, spec={"active": False})))


def pods_end(world: World, item: Workload) -> None:
    """Some pods need no quota any more."""
    world.put(told.changed(item, status={"reclaimablePods": [{"name": "set-0", "count": item.spec.pod_sets[0].count}]}))


def is_moved_by_its_admission(world: World, item: Workload) -> None:
    """Its admission is in another queue all of a sudden."""
    admission = {**msgspec.to_builtins(item.status.admission), "clusterQueue": "e"}
    world.put(told.changed(item, status={"admission": admission}))


@pytest.mark.parametrize(
    "change", [finishes, is_deleted, is_evicted, is_deactivated, pods_end, is_moved_by_its_admission]
)
def test_a_holder(change: Callable[[World, Workload], None]) -> None:
    """What a holder gives back goes to whoever waits in its tree."""

    def act(world: World, data: st.DataObject) -> None:
        holder = pick(world, data)
        if holder is not None:
            change(world, holder)

    full_house(act)


def write_fails(world: World, data: st.DataObject) -> None:
    """A workload is suspended while its admission is written, which then fails."""
    before = pick(world, data)
    if before is None:
        return
    world.drop(before)
    b.settle(world.state)
    for key in sorted(world.state.reservations.assumed):
        world.put(told.changed(world.told.workloads[key], spec={"active": False}))
        world.state.forget(key, b.NOW)
        break


def quota_of_a_queue(world: World, data: st.DataObject) -> None:
    """A queue gets more quota, in a cohort or alone."""
    name, parent = data.draw(st.sampled_from([("a", "left"), ("c", "outer"), ("d", "")]))
    world.queue(name, 7, parent)


def quota_of_a_cohort(world: World, data: st.DataObject) -> None:
    """A cohort gets more quota."""
    name = data.draw(st.sampled_from(["left", "outer"]))
    world.cohort(name, 6, world.cohorts[name])


def queue_joins(world: World, data: st.DataObject) -> None:
    """A queue joins a cohort that has room, or brings room along."""
    name, parent = data.draw(st.sampled_from([("a", "right"), ("e", "left"), ("d", "right")]))
    quota = int(world.told.queues[name].spec.resource_groups[0].flavors[0].resources[0].nominal_quota)
    world.queue(name, quota, parent)


def queue_leaves(world: World, data: st.DataObject) -> None:
    """A queue that borrows leaves, with all that it uses."""
    name = data.draw(st.sampled_from(FULL))
    quota = int(world.told.queues[name].spec.resource_groups[0].flavors[0].resources[0].nominal_quota)
    world.queue(name, quota, "")


def queue_goes(world: World, data: st.DataObject) -> None:
    """A queue is deleted while its workloads run."""
    name = data.draw(st.sampled_from(FULL))
    del world.told.queues[name]
    world.state.drop_cluster_queue(name)


def cohort_joins(world: World, _: st.DataObject) -> None:
    """A cohort gets a parent that has room."""
    world.cohort("left", 0, "right")


def cohort_is_joined(world: World, _: st.DataObject) -> None:
    """A cohort gets a child that has room."""
    world.cohort("right", 5, "outer")


def cohort_leaves(world: World, _: st.DataObject) -> None:
    """A cohort that borrows leaves the tree, with all that it uses."""
    world.cohort("left", 0, "")


def cohort_goes(world: World, _: st.DataObject) -> None:
    """The object of a cohort that borrows is deleted, and with it the link to its parent."""
    world.told.cohorts["left"] = told.cohort("left", [], parent="", weight="1")
    world.state.drop_cohort("left")


def line_moves(world: World, data: st.DataObject) -> None:
    """A LocalQueue points to a queue that has room."""
    world.line(data.draw(st.sampled_from(FULL)), "e")


def workload_moves(world: World, data: st.DataObject) -> None:
    """A workload that waits goes to a line that has room."""
    for item in [item for name in FULL for item in world.waiting(name)][:1]:
        world.put(told.changed(item, spec={"queueName": "e"}))


def the_first_gives_up(world: World, data: st.DataObject) -> None:
    """The first of a line is deleted, or asks for less: in a strict line the next one's turn has come."""
    name = data.draw(st.sampled_from(FULL))
    for item in world.waiting(name)[:1]:
        if data.draw(st.booleans()):
            world.drop(item)
        else:
            less = told.workload("other", name, pod_sets=[(1, 0, 1, None)])
            world.put(told.changed(item, spec={"podSets": msgspec.to_builtins(less.spec.pod_sets)}))


ACTS = [
    *(write_fails, quota_of_a_queue, quota_of_a_cohort, queue_joins, queue_leaves, queue_goes, cohort_joins),
    *(cohort_is_joined, cohort_leaves, cohort_goes, line_moves, workload_moves, the_first_gives_up),
]


@pytest.mark.parametrize("act", ACTS)
def test_the_tree(act: Callable[[World, st.DataObject], None]) -> None:
    """A tree that gets room lets in whoever fits; and so does a tree that somebody left."""
    full_house(act)


def full_house(act: Callable[[World, st.DataObject], None]) -> None:
    """The tree is filled, more come, one thing happens."""
    wish = st.tuples(st.sampled_from(FULL), st.integers(1, 2), st.integers(0, 1))

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        quotas=st.one_of(
            st.tuples(st.integers(2, 5), *[st.just(0)] * 3),
            st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(1, 3)),
        ),
        first=st.lists(wish, min_size=4, max_size=7),
        strategy=st.sampled_from(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
        fair=st.booleans(),
        data=st.data(),
    )
    def check(quotas: tuple[int, ...], first: list[Wish], strategy: str, fair: bool, data: st.DataObject) -> None:
        world = World(quotas, strategy, Options(fair_sharing=FairSharing() if fair else None))
        for each in first:
            world.ask(each)
            world.run()
        for each in (*((name, count, 0) for name in FULL for count in (1, 3)), ("d", 1, 0), ("d", 2, 0)):
            world.ask(each)
        world.run()
        world.judge()
        act(world, data)
        world.run()
        world.judge()

    check()


# What opens a queue whose line waits before it


def stopped(world: World) -> Callable[[], None]:
    """A stopped queue goes on."""
    world.queue("e", 9, "", stopPolicy="Hold")
    return lambda: world.queue("e", 9, "")


def line_stopped(world: World) -> Callable[[], None]:
    """A stopped LocalQueue goes on."""
    world.line("e", "e", stopPolicy="Hold")
    return lambda: world.line("e", "e")


def no_line(world: World) -> Callable[[], None]:
    """A LocalQueue is created after its workloads."""
    world.state.drop_local_queue("team/e")
    return lambda: world.line("e", "e")


def no_queue(world: World) -> Callable[[], None]:
    """A queue is created after its workloads."""
    world.state.drop_cluster_queue("e")
    return lambda: world.queue("e", 9, "")


def flavor_missing(world: World) -> Callable[[], None]:
    """A flavor is created after the queue that has quota of it."""
    world.state.drop_flavor("y")
    world.queue("e", 9, "", flavor="y")
    return lambda: world.state.put_flavor(b.flavor("y"))


def flavor_tainted(world: World) -> Callable[[], None]:
    """A flavor loses its taint."""
    world.state.put_flavor(b.flavor("y", nodeTaints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]))
    world.queue("e", 9, "", flavor="y")
    return lambda: world.state.put_flavor(b.flavor("y"))


def flavor_added(world: World) -> Callable[[], None]:
    """A queue gets another flavor."""
    world.queue("e", 0, "")
    return lambda: world.queue("e", 9, "", flavor="y")


def check_missing(world: World) -> Callable[[], None]:
    """An admission check is created after the queue that asks for it."""
    world.queue("e", 9, "", admissionChecksStrategy={"admissionChecks": [{"name": "late"}]})
    return lambda: world.state.put_admission_check("late", active=True)


def check_inactive(world: World) -> Callable[[], None]:
    """An admission check gets ready."""
    world.state.put_admission_check("late", active=False)
    return check_missing(world)


def full_and_check_inactive(world: World) -> Callable[[], None]:
    """A queue whose line was parked is closed and gets room, and only then its check gets ready."""
    world.queue("e", 0, "")
    world.ask(("e", 1, 0))
    world.run()
    world.state.put_admission_check("late", active=False)
    opens = check_missing(world)
    world.run()
    return opens


def namespace_not_selected(world: World) -> Callable[[], None]:
    """A namespace gets the label that a queue selects."""
    world.queue("e", 9, "", namespaceSelector={"matchLabels": {"who": "team"}})
    return lambda: world.state.put_namespace("team", {"who": "team"})


def selector_widens(world: World) -> Callable[[], None]:
    """A queue selects more namespaces."""
    world.queue("e", 9, "", namespaceSelector={"matchLabels": {"who": "team"}})
    return lambda: world.queue("e", 9, "")


def namespace_missing(world: World) -> Callable[[], None]:
    """A namespace is seen after its workloads."""
    world.state.drop_namespace("team")
    return lambda: world.state.put_namespace("team", {})


def limited(world: World) -> Callable[[], None]:
    """A LimitRange that forbids the requests is deleted."""
    body = {"metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": [{"type": "Pod", "max": {"gpu": "0"}}]}}
    world.state.put_limit_range(msgspec.convert(body, LimitRange), b.NOW)
    return lambda: world.state.drop_limit_range("team/l", b.NOW)


def suspended(world: World) -> Callable[[], None]:
    """Suspended workloads go on."""

    def set_active(*, active: bool) -> None:
        for item in list(world.told.workloads.values()):
            if item.spec.queue_name == "e":
                world.put(told.changed(item, spec={"active": active}))

    set_active(active=False)
    return lambda: set_active(active=True)


def back_off(world: World) -> Callable[[], None]:
    """The Requeued condition says that the back-off of who was out of line is over."""
    go_on = suspended(world)

    def say(status: str) -> None:
        for item in list(world.told.workloads.values()):
            if item.spec.queue_name == "e":
                world.put(b.with_conditions(item, Requeued=(status, "BackoffFinished")))

    say("False")
    go_on()
    return lambda: say("True")


DOORS = [
    *(stopped, line_stopped, no_line, no_queue, flavor_missing, flavor_tainted, flavor_added, check_missing),
    *(check_inactive, full_and_check_inactive, namespace_not_selected, selector_widens, namespace_missing, limited),
    *(suspended, back_off),
]


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("door", DOORS)
def test_a_door_opens(door: Callable[[World], Callable[[], None]], early: bool, strategy: str) -> None:
    """Who waits before a closed queue, come before it was closed or after, goes in as soon as it opens."""
    world = World((1, 1, 1, 1), strategy, Options())
    wishes: list[Wish] = [("e", 1, 0), ("e", 2, 1), ("e", 1, 0)]
    if early or door in (suspended, back_off):
        items = [world.ask(wish) for wish in wishes]
        opens = door(world)
    else:
        opens = door(world)
        items = [world.ask(wish) for wish in wishes]
    b.settle(world.state)
    assert not b.admitted(world.state), "the door was open"
    opens()
    b.settle(world.state)
    assert {item.metadata.key for item in items} <= b.admitted(world.state)
