"""What an audit of the pods that run reports, and what it does not."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.unit.engine import builders as b
from tests.unit.insight.audited import (
    QUEUE,
    WORKLOAD,
    World,
    job,
    pod,
    small,
    with_admission,
    without_pods,
    workload,
)
from turnstile.api.meta import OwnerReference
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.options import DeviceMapping
from turnstile.insight.audit import Problem
from turnstile.jobs.registry import Registry

MINE = {QUEUE: "main"}


def test_pods_that_run_as_admitted_are_right() -> None:
    """No finding."""
    world = small()
    assert len(world.pods) == 2
    assert world.findings() == []


@pytest.mark.parametrize(
    "labelled",
    [
        {"labels": MINE},
        {"labels": {"kueue.x-k8s.io/managed": "true"}},
        {"labels": {"kueue.x-k8s.io/podset": "main"}},
        {"finalizers": ["kueue.x-k8s.io/managed"]},
        {"annotations": {WORKLOAD: "gone"}},
        {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "nothing"}},
    ],
)
def test_a_pod_that_must_be_queued_needs_an_admitted_workload(labelled: dict[str, Any]) -> None:
    """Whatever mark it carries."""
    world = small()
    world.pods.append(pod("behind", **labelled))
    (finding,) = world.findings()
    assert (finding.problem, finding.about, finding.cluster_queues) == (
        Problem.NOT_ADMITTED,
        ("Pod", "n0/behind"),
        ("q",),
    )
    assert finding.message == "Pod n0/behind runs on node node-1, but no admitted Workload is charged for it"


def test_a_pod_whose_job_names_a_queue_must_be_queued() -> None:
    """Also without any mark of its own, and through several owners."""
    world = small()
    parent = {"kind": "Job", "apiVersion": "batch/v1", "name": "parent", "uid": "uid-parent", "controller": True}
    world.jobs += [job("parent"), job("child", queue="", ownerReferences=[parent])]
    world.pods.append(pod("bare", owner={"kind": "Job", "apiVersion": "batch/v1", "name": "child", "uid": "uid-child"}))
    assert world.found() == {("NotAdmitted", "n0/bare")}


@pytest.mark.parametrize(
    "harmless",
    [
        pod("plain"),
        pod("ended", labels=MINE, phase="Succeeded"),
        pod("waiting", labels=MINE, node=None),
        pod("elsewhere", labels=MINE, namespace="other"),
        pod("daemon", owner={"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "uid": "d"}),
    ],
    ids=lambda each: each.metadata.name,
)
def test_other_pods_are_not_subject_to_quota(harmless: Any) -> None:
    """Pods that name no queue, do not run, or are in namespaces that are not managed."""
    world = small()
    world.pods.append(harmless)
    assert world.findings() == []


def test_every_pod_is_queued_where_jobs_without_queue_name_are() -> None:
    """A pod without any mark."""
    world = replace(small(), without_queue_name=True)
    world.pods.append(pod("plain"))
    assert world.found() == {("NotAdmitted", "n0/plain")}


@pytest.mark.parametrize("enabled", [["batch/job"], ["batch/job", "deployment"]])
def test_pods_that_are_not_queued_need_no_workload(enabled: list[str]) -> None:
    """The framework `pod` is not enabled: that a pod names a queue means nothing, but marks of Turnstile do."""
    world = replace(small(), registry=Registry(enabled), without_queue_name=True)
    world.pods += [pod("plain", labels=MINE), pod("marked", labels={"kueue.x-k8s.io/managed": "true"})]
    assert world.found() == {("NotAdmitted", "n0/marked")}


def test_a_pod_that_is_being_deleted_still_counts() -> None:
    """Its containers run until it is gone."""
    world = small()
    world.pods.append(pod("leaving", labels=MINE, deletionTimestamp="2026-01-02T03:30:00Z"))
    assert world.found() == {("NotAdmitted", "n0/leaving")}


def test_a_workload_with_a_reservation_only_admits_nothing() -> None:
    """Its admission checks are not ready."""
    world = small()
    (train,) = world.workloads
    world.workloads = [_with_condition(train, Admitted="False")]
    assert world.found() == {("NotAdmitted", "n0/train-0"), ("NotAdmitted", "n0/train-1")}


def test_pods_beyond_the_quota_are_found_whatever_they_say() -> None:
    """Each names the admitted Workload, and has its Job as controller."""
    world = small()
    copies = [msgspec.json.decode(msgspec.json.encode(world.pods[0]), type=type(world.pods[0])) for _ in range(3)]
    for number, copy in enumerate(copies):
        copy.metadata.name, copy.metadata.uid = f"copy-{number}", f"uid-copy-{number}"
    world.pods += copies
    assert world.found() == {("OverQuota", "q"), ("MoreThanAdmitted", "n0/train")}
    over = next(each for each in world.findings() if each.problem is Problem.OVER_QUOTA)
    assert over.message == (
        "running pods request 5 CPUs on x nodes of ClusterQueue q, where quotas and borrowing limits allow 4: "
        "n0/copy-0, n0/copy-1, n0/copy-2, n0/train-0, n0/train-1"
    )


def test_a_small_workload_does_not_cover_a_large_pod() -> None:
    """The pod names the admitted Workload."""
    world = small()
    world.pods.append(pod("big", requests={"cpu": "1500m"}, selector={"pool": "x"}, annotations={WORKLOAD: "train"}))
    (finding,) = world.findings()
    assert (finding.problem, finding.about, finding.resource) == (
        Problem.MORE_THAN_ADMITTED,
        ("Workload", "n0/train"),
        "cpu",
    )
    assert "request 3.5 CPUs, but its admission holds 2: n0/big, n0/train-0, n0/train-1" in finding.message


def test_a_resource_that_the_admission_does_not_hold_counts() -> None:
    """The ClusterQueue covers it, the Workload did not ask for it."""
    world = World([b.queue("q", {"x": {"cpu": 4, "gpu": 4}})], local_queues=[b.local("main", "q", "n0")])
    world.admit([workload("train", cpu=1)])
    world.pods[0] = pod(
        "train-0", requests={"cpu": "1", "gpu": "1"}, selector={"pool": "x"}, annotations={WORKLOAD: "train"}
    )
    assert world.found() == {("MoreThanAdmitted", "n0/train")}


@pytest.mark.parametrize(
    ("kind", "memory", "found"),
    [
        ("RayCluster", "256Mi", set()),
        ("RayCluster", "257Mi", {("MoreThanAdmitted", "n0/train")}),
        ("Gadget", "256Mi", {("MoreThanAdmitted", "n0/train")}),
    ],
)
def test_requests_that_an_operator_is_known_to_add_do_not_count(kind: str, memory: str, found: set[Any]) -> None:
    """Of a resource that no pod of the job requests: KubeRay adds an init container with memory to each worker."""
    world = World([b.queue("q", {"x": {"cpu": 4, "memory": "8Gi"}})], local_queues=[b.local("main", "q", "n0")])
    world.admit([workload("train", cpu=1)])
    world.pods[0] = pod(
        "train-0",
        requests={"cpu": "1"},
        selector={"pool": "x"},
        labels={"kueue.x-k8s.io/podset": world.workloads[0].spec.pod_sets[0].name},
        annotations={WORKLOAD: "train"},
        owner={"kind": kind, "apiVersion": "ray.io/v1", "name": "train", "uid": "uid-train"},
        spec={"initContainers": [{"name": "wait-gcs-ready", "resources": {"requests": {"memory": memory}}}]},
    )
    assert world.found() == found


def test_resources_without_quota_do_not_count() -> None:
    """The ClusterQueue does not cover memory."""
    world = small()
    world.pods[0] = pod(
        "train-0", requests={"cpu": "1", "memory": "1Ti"}, selector={"pool": "x"}, annotations={WORKLOAD: "train"}
    )
    assert world.findings() == []


def test_reclaimed_pods_hold_nothing() -> None:
    """One of two pods is done, and a pod that requests as much as both runs."""
    world = small()
    (train,) = world.workloads
    body = msgspec.to_builtins(train)
    body["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    world.workloads = [msgspec.convert(body, Workload)]
    assert world.found() == {("MoreThanAdmitted", "n0/train")}


def test_the_flavor_is_that_of_the_node_selector() -> None:
    """Flavor y has room, and the pods run in flavor x."""
    world = World([b.queue("q", {"x": {"cpu": 1}, "y": {"cpu": 5}})], local_queues=[b.local("main", "q", "n0")])
    for number, selector in enumerate([{"pool": "x"}, {"pool": "x"}, {}, {}]):
        world.pods.append(pod(f"p{number}", labels=MINE, selector=selector))
    (over,) = (each for each in world.findings() if each.problem is Problem.OVER_QUOTA)
    assert over.message.startswith("running pods request 2 CPUs on x nodes of ClusterQueue q")
    assert over.message.endswith("allow 1: n0/p0, n0/p1")
    assert over.note.endswith("allow 1; the log of Turnstile names them")  # the event is in the namespace `default`


def test_a_flavor_without_labels_in_common_is_not_that_of_the_pod() -> None:
    """A pod with the label of flavor x in its node selector was not started in flavor z, whose label it lacks."""
    flavors = [b.flavor("x", nodeLabels={"pool": "x"}), b.flavor("z", nodeLabels={"zone": "z"})]
    world = World([b.queue("q", {"x": {"cpu": 1}, "z": {"cpu": 5}})], local_queues=[b.local("main", "q", "n0")])
    world.flavors = flavors
    world.pods += [pod(f"p{number}", labels=MINE, selector={"pool": "x"}) for number in range(2)]
    assert ("OverQuota", "q") in world.found()


def test_pods_of_a_namespace_with_two_queues_may_be_charged_to_either() -> None:
    """Five pods fit queues of 2 and 3 CPUs, six do not."""
    queues = [b.queue("a", {"x": {"cpu": 2}}), b.queue("b", {"x": {"cpu": 3}})]
    world = World(queues, local_queues=[b.local("main", "a", "n0"), b.local("other", "b", "n0")])
    world.pods += [pod(f"p{number}", labels=MINE) for number in range(5)]
    assert {each.problem for each in world.findings()} == {Problem.NOT_ADMITTED}
    world.pods.append(pod("p5", labels=MINE))
    (over,) = (each for each in world.findings() if each.problem is Problem.OVER_QUOTA)
    assert over.cluster_queues == ("a", "b")


def test_what_is_borrowed_counts_in_the_cohort() -> None:
    """Queue a may borrow 1 CPU of the 2 that b lends; b uses all of its own."""
    queues = [
        b.queue("a", {"x": {"cpu": (2, 1, None)}}, cohort="c"),
        b.queue("b", {"x": {"cpu": (3, None, 2)}}, cohort="c"),
    ]
    world = World(queues, local_queues=[b.local("main", "a", "n0"), b.local("main", "b", "n1")])
    world.pods += [pod(f"a{number}", labels=MINE) for number in range(3)]
    world.pods += [pod(f"b{number}", labels=MINE, namespace="n1") for number in range(2)]
    assert {each.problem for each in world.findings()} == {Problem.NOT_ADMITTED}
    for further in (pod("a3", labels=MINE), pod("b2", labels=MINE, namespace="n1")):
        tampered = replace(world, pods=[*world.pods, further])
        assert [each.problem for each in tampered.findings() if each.problem is Problem.OVER_QUOTA] == [
            Problem.OVER_QUOTA
        ]


def test_the_borrowing_limit_is_on_top_of_the_quota() -> None:
    """Queue a lends 1 of its 4 CPUs and may borrow 1: pods of 5 CPUs fit, of 6 do not."""
    queues = [b.queue("a", {"x": {"cpu": (4, 1, 1)}}, cohort="c"), b.queue("b", {"x": {"cpu": 5}}, cohort="c")]
    world = World(queues, local_queues=[b.local("main", "a", "n0")])
    world.pods += [pod(f"p{number}", labels=MINE) for number in range(5)]
    assert {each.problem for each in world.findings()} == {Problem.NOT_ADMITTED}
    world.pods.append(pod("p5", labels=MINE))
    assert ("OverQuota", "a") in world.found()


def test_a_lowered_quota_is_not_the_fault_of_pods() -> None:
    """What Workloads hold explains what pods request; one more pod is not explained."""
    world = small()
    world.queues = [b.queue("q", {"x": {"cpu": 1}})]
    (finding,) = world.findings()
    assert (finding.problem, finding.cluster_queues) == (Problem.OVER_RESERVED, ("q",))
    assert finding.message == (
        "Workloads hold 2 CPUs on x nodes of ClusterQueue q, where quotas and borrowing limits allow 1: n0/train"
    )
    world.pods.append(pod("behind", labels=MINE, selector={"pool": "x"}))
    assert world.found() == {("OverReserved", "q"), ("OverQuota", "q"), ("NotAdmitted", "n0/behind")}


def test_a_parent_and_its_variant_hold_quota_once() -> None:
    """Both have the admission in their statuses, and the queue is full."""
    world = small()
    world.queues = [b.queue("q", {"x": {"cpu": 2}})]
    (parent,) = world.workloads
    meta = structs.replace(parent.metadata, labels={"kueue.x-k8s.io/concurrent-admission-parent": "true"})
    owner = OwnerReference(api_version="v", kind="Workload", name=meta.name, uid=meta.uid, controller=True)
    variant = structs.replace(meta, name="variant", uid="v", labels={}, owner_references=[owner])
    world.workloads = [structs.replace(parent, metadata=meta), structs.replace(parent, metadata=variant)]
    assert world.findings() == []


def test_workloads_that_name_a_claim_hold_its_devices_once() -> None:
    """Each has them in its status; Workloads that name another claim hold others."""
    world = small()
    world.options = Options(device_mappings=(DeviceMapping(resource="gpus", classes=("gpu.example.com",)),))
    world.queues = [b.queue("q", {"x": {"cpu": 9, "gpus": 2}})]

    def named(name: str, claim: str) -> Workload:
        spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
        base = b.held(name, "q", {"cpu": "1", "gpus": "2"}, flavor="x")
        body = msgspec.to_builtins(base)
        body["spec"]["podSets"][0]["template"]["spec"] |= spec
        return msgspec.convert(body, Workload)

    world.workloads += [named("one", "mine"), named("two", "mine")]
    assert not [each for each in world.findings() if each.problem is Problem.OVER_RESERVED]
    world.workloads.append(named("three", "other"))
    (finding,) = (each for each in world.findings() if each.problem is Problem.OVER_RESERVED)
    assert finding.message.startswith("Workloads hold 4 gpus on x nodes of ClusterQueue q, where quotas")


def test_quota_that_nobody_can_use_is_found() -> None:
    """The Job is gone, or suspended, and has no pods."""
    world = without_pods(small(), "train")
    assert world.findings() == []  # the Job may create pods
    for jobs in ([], [job("train", suspend=True)], [job("train", uid="another")]):
        (finding,) = replace(world, jobs=jobs).findings()
        assert (finding.problem, finding.about, finding.cluster_queues) == (
            Problem.HELD_UNUSED,
            ("Workload", "n0/train"),
            ("q",),
        )
        assert finding.message == (
            "Workload n0/train holds 2 CPUs in ClusterQueue q, but there is no pod or job that could use it"
        )


def test_quota_is_used_while_a_pod_may_run() -> None:
    """The Job is gone, and a pod that is not bound yet remains."""
    world = replace(without_pods(small(), "train"), jobs=[])
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "train", "uid": "uid-train"}
    gate = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    assert replace(world, pods=[pod("orphan", owner=owner, node=None)]).findings() == []
    assert replace(world, pods=[pod("gated", owner=owner, node=None, spec=gate)]).found() == {
        ("HeldUnused", "n0/train")
    }


def test_quota_may_be_unused_for_a_while() -> None:
    """The Workload was evicted a moment ago, and its pods are gone."""
    world = replace(without_pods(small(), "train"), jobs=[])
    (train,) = world.workloads
    evicted = _with_condition(train, since="2026-01-02T03:59:30Z", Evicted="True")
    assert replace(world, workloads=[evicted]).findings() == []


def test_requests_are_what_the_scheduler_counts() -> None:
    """Sidecars, init containers and overhead."""
    world = World([b.queue("q", {"x": {"cpu": 4}})], local_queues=[b.local("main", "q", "n0")])
    spec = {
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
            {"name": "init", "resources": {"requests": {"cpu": "1"}}},
        ],
        "overhead": {"cpu": "1500m"},
    }
    world.pods.append(pod("p", labels=MINE, spec=spec))
    (over,) = (each for each in world.findings() if each.problem is Problem.OVER_QUOTA)
    assert "request 4.5 CPUs" in over.message


def test_resources_count_as_configured() -> None:
    """With `IgnoreUndeclared` a resource is free in a queue that does not cover it that may be charged."""
    queues = [b.queue("a", {"x": {"cpu": 1}}), b.queue("b", {"x": {"memory": 1}})]
    world = World(queues, local_queues=[b.local("main", "a", "n0"), b.local("other", "b", "n0")])
    world.pods += [pod(f"p{number}", labels=MINE) for number in range(2)]
    assert ("OverQuota", "a") in world.found()
    assert ("OverQuota", "a") not in replace(world, options=Options(quota_check_strategy="IgnoreUndeclared")).found()


def test_a_cohort_cycle_breaks_nothing() -> None:
    """Nothing is known of quotas in a cycle."""
    world = World(
        [b.queue("q", {"x": {"cpu": 1}}, cohort="c")],
        cohorts=[b.cohort("c", parent="d"), b.cohort("d", parent="c")],
        local_queues=[b.local("main", "q", "n0")],
    )
    world.pods += [pod(f"p{number}", labels=MINE) for number in range(2)]
    assert {each.problem for each in world.findings()} == {Problem.NOT_ADMITTED}


def test_a_pod_that_cannot_be_read_hides_nothing() -> None:
    """Its spec has a field of another type."""
    world = small()
    world.pods += [pod("odd", labels=MINE, spec={"containers": 5}), pod("behind", labels=MINE)]
    assert world.found() == {("NotAdmitted", "n0/behind")}


def _with_condition(base: Workload, *, since: str = b.STAMP, **conditions: str) -> Workload:
    changed = with_admission(base, msgspec.to_builtins(base.status.admission), **conditions)
    for condition in changed.status.conditions:
        if condition.type in conditions:
            condition.last_transition_time = since
    return changed


@pytest.mark.parametrize("gated", [False, True], ids=["running", "gated"])
def test_a_pod_that_requests_more_than_is_charged_for_a_pod(*, gated: bool) -> None:
    """Any pod that requests more than its Workload is charged for one pod is found, whatever the others leave."""
    world = small()
    first, *_ = world.pods
    gates = [{"name": "kueue.x-k8s.io/admission"}] if gated else []
    larger = pod(
        first.metadata.name,
        requests={"cpu": "2"},
        selector={"pool": "x"},
        owner={"kind": "Job", "apiVersion": "batch/v1", "name": "train", "uid": "uid-train"},
        annotations={WORKLOAD: "train"},
        node=None if gated else "node-1",
        spec={"schedulingGates": gates},
    )
    world.pods = [larger]
    (finding,) = world.findings()
    assert (finding.problem, finding.about, finding.resource) == (
        Problem.MORE_THAN_CHARGED,
        ("Workload", "n0/train"),
        "cpu",
    )
    assert finding.message == (
        "a pod of Workload n0/train requests more CPUs than its admission holds for one pod: n0/train-0"
    )
