"""An elastic RayJob or RayService whose RayCluster scales itself: its Workload follows, and the RayCluster runs on."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.sliced import ELASTIC, GATE, Body, Sliced
from tests.unit.jobs.test_ray import cluster, group
from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.workloads import heldpods
from turnstile.jobs.kinds.ray.base import RayKind
from turnstile.jobs.kinds.ray.cluster import RayCluster
from turnstile.jobs.kinds.ray.job import RayJob, RayJobs
from turnstile.jobs.kinds.ray.service import RayServices

CHILD = "ray.io/raycluster:team/ray-abcde"


def gated_config(replicas: int) -> Body:
    """A cluster that scales itself, with the gates that the webhook adds."""
    found = cluster(group(replicas=replicas, maxReplicas=9), enableInTreeAutoscaling=True, suspend=True)
    for each in (found["headGroupSpec"], *found["workerGroupSpecs"]):
        each["template"]["spec"]["schedulingGates"] = [GATE]
    return found


class Ray(Sliced):
    """A RayJob or RayService that was admitted with two workers, and its RayCluster."""

    def __init__(self, kind: RayKind[Any]) -> None:
        super().__init__()
        self.kind: type[Any] = kind.kind
        self.key = f"{kind.framework}:team/ray"
        field = "rayClusterSpec" if self.kind is RayJob else "rayClusterConfig"
        meta = {"name": "ray", "namespace": "team", "labels": {names.QUEUE_LABEL: "main"}, "annotations": ELASTIC}
        self.put(self.kind, {"metadata": meta, "spec": {"suspend": True, field: gated_config(2)}})
        self.settle(self.key)
        self.let_in(self.workload["metadata"]["name"])
        self.settle(self.key)
        owner = self.get(self.kind, "team/ray")
        assert owner is not None
        reference = {
            "apiVersion": "ray.io/v1",
            "kind": self.kind.KIND,
            "name": "ray",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        made = {"name": "ray-abcde", "namespace": "team", "annotations": ELASTIC, "ownerReferences": [reference]}
        self.put(RayCluster, {"metadata": made, "spec": {**owner["spec"][field], "suspend": False}})
        service = {"activeServiceStatus": {"rayClusterName": "ray-abcde"}}
        status = {"rayClusterName": "ray-abcde", "jobDeploymentStatus": "Running"} if self.kind is RayJob else service
        self.patch(self.kind, "team/ray", {"status": status})
        self.settle(self.key)

    def scale(self, replicas: int) -> None:
        """The autoscaler's write to the RayCluster; both are reconciled."""
        found = self.get(RayCluster, "team/ray-abcde")
        assert found is not None
        found["spec"]["workerGroupSpecs"][0]["replicas"] = replicas
        self.put(RayCluster, found)
        self.settle(CHILD)
        self.settle(self.key)

    @property
    def runs(self) -> bool:
        """Whether neither the job nor its RayCluster is suspended."""
        owner, made = self.get(self.kind, "team/ray"), self.get(RayCluster, "team/ray-abcde")
        assert owner is not None
        assert made is not None
        config = owner["spec"] if self.kind is RayJob else owner["spec"]["rayClusterConfig"]
        return not config.get("suspend") and not made["spec"].get("suspend")


@pytest.fixture(params=[RayJobs(), RayServices()], ids=["rayjob", "rayservice"])
def ray(request: pytest.FixtureRequest) -> Ray:
    """One that runs with two workers."""
    found = Ray(request.param)
    assert list(found.slices().values()) == [2]
    assert found.runs
    return found


def test_growth_of_the_raycluster_is_a_second_slice(ray: Ray) -> None:
    """The first is kept, and nothing is suspended."""
    (first,) = ray.slices()
    ray.scale(4)
    assert sorted(ray.slices().values()) == [2, 4]
    (second,) = set(ray.slices()) - {first}
    found = ray.get(Workload, f"team/{second}")
    assert found is not None
    assert found["metadata"]["annotations"][names.SLICE_REPLACEMENT_FOR] == f"team/{first}"
    assert ray.runs


def test_the_slice_that_is_admitted_takes_the_place_of_the_first(ray: Ray) -> None:
    """As for a Job."""
    (first,) = ray.slices()
    ray.scale(4)
    (second,) = set(ray.slices()) - {first}
    ray.let_in(second)
    ray.settle(ray.key)
    assert ray.slices() == {second: 4}


def test_another_size_has_another_name(ray: Ray) -> None:
    """Though the job itself has not changed: the generation of the RayCluster is part of the name, as in Kueue."""
    (first,) = ray.slices()
    for replicas in (3, 5):
        ray.scale(replicas)
        (more,) = set(ray.slices()) - {first}
        ray.let_in(more)
        ray.settle(ray.key)
        assert list(ray.slices().values()) == [replicas]
        (first,) = ray.slices()
    assert len({each["metadata"]["name"] for each in ray.workloads}) == 3


def test_a_raycluster_that_shrinks_gives_quota_back(ray: Ray) -> None:
    """No pod is there any more."""
    (first,) = ray.slices()
    ray.scale(1)
    assert ray.slices() == {first: 1}


def test_a_raycluster_that_no_gate_holds_may_not_grow(ray: Ray) -> None:
    """It was made without them, or they were taken out of its templates: it is suspended."""
    found = ray.get(RayCluster, "team/ray-abcde")
    assert found is not None
    for each in (found["spec"]["headGroupSpec"], *found["spec"]["workerGroupSpecs"]):
        del each["template"]["spec"]["schedulingGates"]
    ray.put(RayCluster, found)
    ray.scale(4)
    assert not ray.runs


def test_a_job_that_is_evicted_starts_again_with_its_own_numbers(ray: Ray) -> None:
    """Its RayCluster is made anew, or set back."""
    ray.scale(1)
    ray.set_condition("Evicted", reason="Preempted")
    ray.settle(ray.key)
    assert not ray.runs
    ended = [{"type": "RayClusterSuspended", "status": "True"}]
    ray.patch(RayCluster, "team/ray-abcde", {"spec": {"suspend": True}, "status": {"conditions": ended}})
    ray.patch(ray.kind, "team/ray", {"status": {"jobDeploymentStatus": "Suspended"}})
    ray.now += timedelta(minutes=2)
    ray.settle(ray.key)
    assert list(ray.slices().values()) == [2]


def test_gates_of_pods_are_lifted_though_a_container_of_kuberay_asks_for_what_no_quota_counts(ray: Ray) -> None:
    """The RayCluster made the pod, and the job made the RayCluster."""
    (first,) = ray.slices()
    made = ray.get(RayCluster, "team/ray-abcde")
    assert made is not None
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray-abcde", "uid": uid, "controller": True}
    template = made["spec"]["workerGroupSpecs"][0]["template"]
    init = {"name": "wait-gcs-ready", "image": "ray", "resources": {"requests": {"memory": "256Mi"}}}
    marks = {names.WORKLOAD: first, names.SLICE_NAME: first}
    labels = {names.PODSET_LABEL: "workers"}
    meta = {"name": "w", "namespace": "team", "labels": labels, "annotations": marks, "ownerReferences": [owner]}
    ray.put(Pod, {"metadata": meta, "spec": {**template["spec"], "initContainers": [init]}, "status": {}})
    workload = ray.world.workloads.get(f"team/{first}")
    assert workload is not None
    decision = heldpods.lift(workload, ray.world)
    assert decision is not None
    assert len(decision.actions) == 1
