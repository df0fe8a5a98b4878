"""Jobs of every kind deleted in every order: nothing with a finalizer of ours is left, no quota is freed before the
pods are gone, and nothing is stuck."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import pytest
import yaml

from testbed import ControlPlane
from testbed.client import condition, resource_path
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.every_kind import (
    ENDING,
    FRAMEWORKS,
    KINDS,
    WITHOUT_OPERATOR,
    Seen,
    Stage,
    Subject,
    define,
    is_running,
    undefine,
)
from tests.cluster.scenario import GROUP
from turnstile.api import names

pytestmark = pytest.mark.cluster

State = Literal["pending", "running", "evicted", "finished"]
Order = Literal["Background", "Foreground", "Orphan", "Workload"]
"""How the job is deleted; or its Workload is, and the job stays."""
GATES: Final = ("SparkApplicationIntegration",)
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
ALIKE: Final = ("tfjob", "xgboostjob", "paddlejob", "jaxjob")
STATES: Final[tuple[State, ...]] = ("pending", "running", "evicted", "finished")
ORDERS: Final[tuple[Order, ...]] = ("Background", "Foreground", "Orphan", "Workload")


@dataclass(frozen=True, slots=True)
class Case:
    """One job, the state in which it is deleted, and how."""

    subject: Subject
    state: State
    order: Order


def cases() -> list[Case]:
    """All states and orders of the kinds that have pods here; of the others one order for each state, so that each kind
    is deleted in each order, and each pair is that of several kinds."""
    found = []
    for number, kind in enumerate(KINDS):
        for turn, state in enumerate(STATES, number):
            orders = ORDERS if kind in WITHOUT_OPERATOR else (ORDERS[turn % len(ORDERS)],)
            found += [
                Case(Subject(kind, f"{kind}-{state}-{order.lower()}"), state, order)
                for order in orders
                if _applies(kind, state, order)
            ]
    return found


def _applies(kind: str, state: State, order: Order) -> bool:
    """Whether a kind can be in a state; and of a Deployment only pods are queued, which run again after an eviction
    and run on in its ReplicaSet when it is orphaned. The Pods of an evicted group are deleted already, so that their
    Workload is deleted."""
    if state == "finished" and kind not in ENDING:
        return False
    if kind == "deployment":
        return state != "evicted" and order != "Orphan"
    if kind == "pod" and state == "evicted":
        return False
    return kind != "pod-group" or state != "evicted" or order == "Workload"


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """Turnstile with all kinds enabled, in a control plane where all of them are defined."""
    integrations = {"frameworks": list(FRAMEWORKS)}
    file = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "integrations": integrations}
    with ControlPlane() as cp:
        installation = Installation(cp, gates=GATES)
        installation.install(f"config.integrations.frameworks={{{','.join(FRAMEWORKS)}}}")
        define(cp)
        cp.restart("kube-controller-manager")  # its garbage collector looks for new kinds only every 30 s
        cp.add_node("plain", cpu=640, memory="2560Gi")
        with configured(installation, tmp_path_factory.mktemp("file"), yaml.safe_dump(file)) as made:
            made.start()
            yield made


@pytest.fixture
def stage(every_kind: Configured) -> Iterator[Stage]:
    """An empty managed namespace with its queues."""
    with every_kind.team() as world:
        yield Stage(world)


def in_state(stage: Stage, wanted: list[Case]) -> None:
    """Create all jobs and bring each into its state."""
    by_state = {state: [each.subject for each in wanted if each.state == state] for state in STATES}
    begun = [each for state, found in by_state.items() if state != "pending" for each in found]
    stage.create(by_state["pending"], queue="full")
    stage.create(begun, queue="open")
    stage.wait_pending(by_state["pending"])
    stage.wait_running(begun)
    stage.evict(by_state["evicted"])
    stage.finish(by_state["finished"])


def test_deleted_in_any_order_a_job_leaves_nothing(stage: Stage) -> None:
    """A job of each kind that waits, runs, was evicted or has ended is deleted in the background, in the foreground or
    with orphan, or its Workload is: no finalizer of ours is left. Pods that go on running are charged until they
    end."""
    table = {each.subject: each for each in cases()}
    in_state(stage, list(table.values()))
    before = Seen(stage.scenario)
    workloads = {each: {found["metadata"]["uid"] for found in before.of(each)} for each in table}
    pods = {pod["metadata"]["uid"] for pod in before.pods if is_running(pod)}

    def delete(subject: Subject) -> None:
        order = table[subject].order
        for each in before.of(subject) if order == "Workload" else before.objects(subject):
            stage.api.delete(stage.path_of(subject, each), propagation="Background" if order == "Workload" else order)

    stage.each(delete, table)
    stage.report_idle([each for each, case in table.items() if (case.state, case.order) == ("running", "Workload")])

    def ended(subject: Subject, seen: Seen) -> bool:
        assert not (free := uncharged(seen, pods)), f"pods run without quota: {free}"
        left = [each for each in seen.workloads if each["metadata"]["uid"] in workloads[subject]]
        if table[subject].order == "Workload":
            return not left
        if seen.objects(subject):
            return False
        if any(pod["metadata"]["uid"] in pods and is_running(pod) for pod in seen.pods if subject.has_pod(pod)):
            return True  # they were orphaned
        if table[subject].order == "Orphan":
            return all("finalizers" not in each["metadata"] for each in left)
        return not left

    stage.wait("ended", ended, list(table))
    orphans = [pod for pod in Seen(stage.scenario).pods if pod["metadata"]["uid"] in pods and is_running(pod)]
    for pod in orphans:
        stage.api.delete(resource_path("v1", "pods", pod["metadata"]["name"], namespace=stage.scenario.namespace))
    stage.wait("ended", ended, list(table))


def uncharged(seen: Seen, uids: set[str]) -> list[str]:
    """The pods among these that run without the quota of a Workload."""
    holding = {
        each["metadata"]["name"]
        for each in seen.workloads
        if condition(each, "QuotaReserved").get("status") == "True" and not condition(each, "Finished")
    }
    return [
        pod["metadata"]["name"]
        for pod in seen.pods
        if pod["metadata"]["uid"] in uids
        and is_running(pod)
        and pod["metadata"]["annotations"][names.WORKLOAD] not in holding
    ]


def test_priorities_follow_the_class_and_the_label(stage: Stage) -> None:
    """A job of each kind that waits, and that runs: its Workloads have the value of its class when that is edited, and
    that of another class when the job names it."""
    low, high = (stage.scenario.priority_class(name, value) for name, value in (("low", 10), ("high", 100)))
    waiting, running = subjects("waits"), subjects("runs")
    everything = [*waiting, *running]
    stage.create(waiting, queue="full", priority=low)
    stage.create(running, queue="open", priority=low)
    stage.wait_pending(waiting)
    stage.wait_running(running)

    def has(name: str, value: int) -> Callable[[Subject, Seen], bool]:
        def holds(subject: Subject, seen: Seen) -> bool:
            specs = [each["spec"] for each in seen.of(subject)]
            found = [(spec["priorityClassRef"]["name"], spec["priority"]) for spec in specs]
            if subject in waiting and subject.kind == "deployment":
                return (name, value) in found  # its rollout waits for the first new pod
            return found == [(name, value)] * subject.row.workloads

        return holds

    stage.wait("of the first class", has(low, 10), everything)
    stage.api.patch(resource_path(GROUP, "workloadpriorityclasses", low), {"value": 20})
    stage.wait("of the value that was edited", has(low, 20), everything)
    seen = Seen(stage.scenario)

    def rename(subject: Subject) -> None:
        for each in seen.objects(subject):
            stage.api.patch(stage.path_of(subject, each), {"metadata": {"labels": {PRIORITY: high}}})

    stage.each(rename, everything)
    stage.wait("of the other class", has(high, 100), everything)


def subjects(suffix: str) -> list[Subject]:
    """A job of each kind but for those of the training operator that differ from a PyTorchJob in their names only."""
    return [Subject(kind, f"{kind}-{suffix}") for kind in KINDS if kind not in ALIKE]


def has_ended(subject: Subject, seen: Seen) -> bool:
    """Whether nothing of a job is left but a Workload that the garbage collector has orphaned."""
    return not seen.objects(subject) and all("finalizers" not in each["metadata"] for each in seen.of(subject))


def test_what_is_deleted_while_turnstile_is_down_or_its_kind_is_switched_off(
    every_kind: Configured, stage: Stage
) -> None:
    """Jobs of each kind are deleted while no process of Turnstile runs, and so is a namespace of such jobs; the next
    process has all kinds but Jobs switched off. Then jobs that ran all the while are deleted. No finalizer of ours is
    left, and no quota is held."""
    whole = every_kind.file.read_text()
    down, later, waiting, moved = subjects("down"), subjects("later"), subjects("waits"), subjects("away")
    with every_kind.team() as world:
        away = Stage(world)
        stage.create([*down, *later], queue="open")
        stage.create(waiting, queue="full")
        away.create(moved, queue="open")
        stage.wait_running([*down, *later])
        away.wait_running(moved)
        every_kind.started[-1].terminate()
        seen = Seen(stage.scenario)

        def delete(subject: Subject) -> None:
            for each in seen.objects(subject):
                stage.api.delete(stage.path_of(subject, each))

        stage.each(delete, [*down, *waiting])
        namespace = resource_path("v1", "namespaces", away.scenario.namespace)
        stage.api.delete(namespace)
        every_kind.file.write_text(
            yaml.safe_dump({**yaml.safe_load(whole), "integrations": {"frameworks": ["batch/job"]}})
        )
        try:
            every_kind.start()
            stage.wait("ended", has_ended, [*down, *waiting])
            stage.each(delete, later)
            stage.wait("ended", has_ended, later)
            stage.wait_nothing_reserved()
            stage.api.wait_gone(namespace, timeout=60)
            away.wait_nothing_reserved()
        finally:
            every_kind.started[-1].terminate()
            every_kind.file.write_text(whole)
            every_kind.start()


def test_jobs_whose_definition_is_deleted_free_their_quota(every_kind: Configured, stage: Stage) -> None:
    """While jobs of all kinds are admitted the definitions of all kinds go."""
    running = [each for each in subjects("runs") if each.row.operators]
    stage.create(running, queue="open")
    stage.wait_running(running)
    undefine(every_kind.cp)
    stage.wait(
        "ended",
        lambda each, seen: all("finalizers" not in found["metadata"] for found in seen.of(each)),
        running,
        timeout=60,
    )
    stage.wait_nothing_reserved()
