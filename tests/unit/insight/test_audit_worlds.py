"""Random worlds: an audit finds nothing where the engine admitted and pods run as admitted, and whatever is tampered
with is found by its name."""

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.insight.audited import QUEUE, WORKLOAD, World, job, pod, workload
from turnstile.api.core import Pod
from turnstile.insight.audit import Problem

limits = st.none() | st.integers(0, 4)
quotas = st.tuples(st.integers(0, 5), limits, limits)
COHORTS: tuple[str | None, ...] = (None, "outer", "left", "right")
NAMES = ("a", "b", "c", "d")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Four queues in a tree of cohorts, some open to several namespaces, with Jobs that run as the engine decided."""

    def quota(cohort: str | None) -> dict[str, Any]:
        found = {flavor: draw(quotas) for flavor in ("x", "y")}
        return {flavor: {"cpu": each if cohort else each[0]} for flavor, each in found.items()}

    cohorts = [b.cohort("outer", quota("any"))]
    cohorts += [b.cohort(name, quota("outer"), parent=draw(st.sampled_from([None, "outer"]))) for name in COHORTS[2:]]  # type: ignore[arg-type]
    queues = []
    for name in NAMES:
        cohort = draw(st.sampled_from(COHORTS))
        queues.append(b.queue(name, quota(cohort), cohort=cohort))
    lines = [
        b.local(f"to-{queue}", queue, namespace)
        for namespace in ("n0", "n1", "n2")
        for queue in draw(st.sets(st.sampled_from(NAMES), min_size=1))
    ]
    world = World(queues, cohorts=cohorts, local_queues=lines)
    asked = []
    for number in range(draw(st.integers(1, 12))):
        line = draw(st.sampled_from(lines)).metadata
        cpu, count = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        asked.append(workload(f"w{number}", namespace=line.namespace, line=line.name, cpu=cpu, count=count))
    world.admit(asked)
    return world


def copy(original: Pod, **changes: Any) -> Pod:
    """A pod like another one."""
    made = msgspec.json.decode(msgspec.json.encode(original), type=Pod)
    for key, value in changes.items():
        setattr(made.metadata, key, value)
    return made


@settings(max_examples=examples(15))
@given(worlds(), st.data())
def test_a_consistent_world_has_no_finding(world: World, data: st.DataObject) -> None:
    """Also when some pods have ended, or have not started, or lost their owner or their annotation."""
    for index, each in enumerate(list(world.pods)):
        match data.draw(st.sampled_from(["runs", "runs", "ended", "none", "orphan", "unnamed"])):
            case "ended":
                world.pods[index] = copy(each)
                world.pods[index].status.phase = "Failed"
            case "none":
                world.pods[index] = pod(f"unbound-{index}", node=None)
            case "orphan":
                world.pods[index] = copy(each, owner_references=[])
            case "unnamed":
                world.pods[index] = copy(each, annotations={})
    assert world.findings() == []


@settings(max_examples=examples(15))
@given(worlds(), st.data())
def test_a_pod_behind_the_back_is_named(world: World, data: st.DataObject) -> None:
    """It names a queue of its namespace, and no Workload."""
    line = data.draw(st.sampled_from(world.local_queues)).metadata
    selector = data.draw(st.sampled_from([{}, {"pool": "x"}, {"pool": "y"}]))
    world.pods.append(pod("behind", namespace=line.namespace, labels={QUEUE: line.name}, selector=selector))
    found = world.found()
    assert ("NotAdmitted", f"{line.namespace}/behind") in found
    assert {problem for problem, _ in found} <= {"NotAdmitted", "OverQuota"}


@settings(max_examples=examples(15))
@given(worlds(), st.data())
def test_a_pod_that_rides_on_a_workload_is_found(world: World, data: st.DataObject) -> None:
    """It requests more than all quotas together, and names an admitted Workload, or its Job as owner."""
    if not world.pods:
        return
    host = data.draw(st.sampled_from(world.pods))
    huge = [{"name": "c", "resources": {"requests": {"cpu": "1000"}}}]
    body = msgspec.json.decode(bytes(host.spec))
    rider = copy(host, name="rider", uid="uid-rider")
    rider.spec = msgspec.Raw(msgspec.json.encode({**body, "containers": huge}))
    if data.draw(st.booleans()):
        rider.metadata.owner_references = []
    else:
        rider.metadata.annotations = {}
    world.pods.append(rider)
    named = f"{host.metadata.namespace}/{host.metadata.annotations[WORKLOAD]}"
    assert ("MoreThanAdmitted", named) in world.found()
    over = [each for each in world.findings() if each.problem is Problem.OVER_QUOTA]
    assert len(over) == 1
    assert "/rider" in over[0].message or "more" in over[0].message


@settings(max_examples=examples(15))
@given(worlds(), st.data())
def test_a_workload_that_is_gone_leaves_its_pods_named(world: World, data: st.DataObject) -> None:
    """All of its pods, and nothing else."""
    running = [each for each in world.workloads if each.admitted]
    if not running:
        return
    gone = data.draw(st.sampled_from(running)).metadata
    world.workloads = [each for each in world.workloads if each.metadata.key != gone.key]
    left = {each.metadata.key for each in world.pods if each.metadata.annotations[WORKLOAD] == gone.name}
    assert world.found() == {("NotAdmitted", key) for key in left}


@settings(max_examples=examples(15))
@given(worlds(), st.data())
def test_quota_without_use_is_named(world: World, data: st.DataObject) -> None:
    """The pods are gone, and the Job with them or suspended."""
    running = [each for each in world.workloads if each.admitted]
    if not running:
        return
    idle = data.draw(st.sampled_from(running)).metadata
    pods = [each for each in world.pods if each.metadata.annotations[WORKLOAD] != idle.name]
    jobs = [each for each in world.jobs if each.metadata.name != idle.name]
    if data.draw(st.booleans()):
        jobs.append(job(idle.name, namespace=idle.namespace, uid=f"uid-{idle.name}", suspend=True))
    assert replace(world, pods=pods, jobs=jobs).found() == {("HeldUnused", idle.key)}


@settings(max_examples=examples(15))
@given(worlds())
def test_quota_that_is_lowered_is_not_the_fault_of_pods(world: World) -> None:
    """All quotas become 0."""
    none = {"x": {"cpu": 0}, "y": {"cpu": 0}}
    world.queues = [b.queue(each.metadata.name, none, cohort=each.spec.cohort_name) for each in world.queues]
    world.cohorts = [b.cohort(each.metadata.name, none, parent=each.spec.parent_name) for each in world.cohorts]
    problems = {each.problem for each in world.findings()}
    assert problems == ({Problem.OVER_RESERVED} if world.pods else set())


@settings(max_examples=examples(15))
@given(worlds())
def test_findings_do_not_depend_on_the_order_of_objects(world: World) -> None:
    """With some pods too many."""
    world.pods += [copy(each, name=f"twin-of-{each.metadata.name}", uid=f"twin-{number}")
                   for number, each in enumerate(world.pods)]  # fmt: skip
    backwards = replace(
        world,
        **{
            name: list(reversed(getattr(world, name)))
            for name in ("pods", "workloads", "queues", "cohorts", "local_queues", "jobs", "flavors")
        },
    )
    assert [(each, each.message) for each in world.findings()] == [
        (each, each.message) for each in backwards.findings()
    ]
