"""The RayClusters that KubeRay makes for RayJobs and RayServices: who is charged for them, and when they stop."""

import copy
from typing import Any

from tests.unit.controllers.job_cluster import Cluster
from tests.unit.jobs.test_ray import cluster, group
from turnstile.api import names
from turnstile.api.core import Job
from turnstile.api.workload import Workload
from turnstile.controllers.view.ends import UNSEEN_SECONDS
from turnstile.jobs.kinds.ray.base import RayKind
from turnstile.jobs.kinds.ray.cluster import RayCluster
from turnstile.jobs.kinds.ray.job import RayJob, RayJobs
from turnstile.jobs.kinds.ray.service import RayService, RayServices

Body = dict[str, Any]
CLUSTER = "ray.io/raycluster:team/ray-abcde"


class Ray(Cluster):
    """A RayJob or RayService in a queue, with a head and two workers, and the RayClusters that KubeRay makes."""

    def __init__(self, kind: RayKind[Any]) -> None:
        super().__init__()
        self.flavor(nodeLabels={"pool": "ray"})
        self.kind: type[Any] = kind.kind
        self.key = f"{kind.framework}:team/ray"
        self.field = "rayClusterSpec" if self.kind is RayJob else "rayClusterConfig"
        config = cluster(group(replicas=2))
        config["suspend"] = True
        meta = {"name": "ray", "namespace": "team", "labels": {names.QUEUE_LABEL: "main"}}
        self.put(self.kind, {"metadata": meta, "spec": {"suspend": True, self.field: config}})
        self.settle(self.key)
        assert self.workloads, self.decide(self.key).why

    def admit(self, *, flavor: str = "default", count: int | None = None) -> None:
        """All pod sets are assigned."""
        super().admit(flavor=flavor)
        assigned = [
            {"name": each["name"], "flavors": {"cpu": flavor}, "count": each["count"]}
            for each in self.workload["spec"]["podSets"]
        ]
        status = {"admission": {"clusterQueue": "cq", "podSetAssignments": assigned}}
        self.patch(Workload, self.workload_key, {"status": status})

    @property
    def owner(self) -> Body:
        """The RayJob or RayService."""
        found = self.get(self.kind, "team/ray")
        assert found is not None
        return found

    def make(self, name: str = "ray-abcde", *, second: int = 1, **spec: Any) -> None:
        """KubeRay's write: a RayCluster with the labels of its owner and the spec in it."""
        owner = self.owner
        config = {**copy.deepcopy(owner["spec"][self.field]), **spec}
        if self.kind is RayJob:
            config.pop("suspend")
        reference = {
            "apiVersion": "ray.io/v1",
            "kind": self.kind.KIND,
            "name": "ray",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        meta = {
            "name": name,
            "namespace": "team",
            "labels": owner["metadata"]["labels"],
            "ownerReferences": [reference],
            "creationTimestamp": f"2026-01-02T03:04:0{second}Z",
        }
        self.put(RayCluster, {"metadata": meta, "spec": config})

    def clean_up(self) -> None:
        """KubeRay's write: the Job that cleans up Redis, of the head's template."""
        owner = self.get(RayCluster, "team/ray-abcde")
        assert owner is not None
        reference = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "name": "ray-abcde",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        meta = {
            "name": "clean",
            "namespace": "team",
            "ownerReferences": [reference],
            "creationTimestamp": "2026-01-02T03:04:00Z",
        }
        head = copy.deepcopy(owner["spec"]["headGroupSpec"]["template"])
        head["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "200m", "memory": "256Mi"}}
        self.put(Job, {"metadata": meta, "spec": {"suspend": False, "template": head}})
        self.settle("batch/job:team/clean")

    def says(self, *, suspended: bool, name: str = "ray-abcde") -> None:
        """KubeRay's report of a RayCluster."""
        conditions = [{"type": "RayClusterSuspended", "status": "True" if suspended else "False"}]
        self.patch(RayCluster, f"team/{name}", {"status": {"conditions": conditions}})

    def suspended(self, name: str = "ray-abcde") -> bool:
        """Whether a RayCluster is suspended."""
        found = self.get(RayCluster, f"team/{name}")
        assert found is not None
        return bool(found["spec"].get("suspend"))


def running(kind: RayKind[Any]) -> Ray:
    """Admitted, with a RayCluster that runs."""
    ray = Ray(kind)
    ray.admit()
    ray.settle(ray.key)
    ray.make()
    ray.says(suspended=False)
    ray.settle(CLUSTER)
    assert not ray.suspended()
    ray.writes.clear()
    return ray


def test_the_cluster_of_an_admitted_job_runs_without_a_workload_of_its_own() -> None:
    """Its templates name the pod sets of its owner, though it has the owner's queue label too."""
    for kind in (RayJobs(), RayServices()):
        ray = running(kind)
        assert len(ray.workloads) == 1
        assert ray.decide(CLUSTER).actions == []


def test_a_second_cluster_is_not_charged_with_the_first() -> None:
    """It waits, with a Workload of its own: the owner's Workload is charged for one."""
    ray = running(RayServices())
    ray.make("ray-fghij", second=2)
    ray.settle("ray.io/raycluster:team/ray-fghij")
    assert ray.suspended("ray-fghij")
    assert not ray.suspended()


def test_a_cluster_beyond_the_charge_is_stopped_when_its_sibling_is_looked_at() -> None:
    """By one write, though each of its pod sets is beyond."""
    ray = running(RayServices())
    ray.make("ray-fghij", second=2)
    ray.settle(CLUSTER)
    assert ray.suspended("ray-fghij")
    assert not ray.suspended()


def test_a_suspended_cluster_that_kuberay_has_replaced_is_not_counted() -> None:
    """KubeRay deletes it a minute later; until then it neither needs quota nor takes it from the new one."""
    ray = running(RayServices())
    ray.patch(RayCluster, "team/ray-abcde", {"spec": {"suspend": True}})
    ray.says(suspended=True)
    ray.make("ray-fghij", second=2)
    for key in ("ray.io/raycluster:team/ray-fghij", CLUSTER):
        ray.settle(key)
    assert not ray.suspended("ray-fghij")
    assert len(ray.workloads) == 1


def test_an_evicted_service_stops_its_clusters_and_waits_for_them() -> None:
    """KubeRay does not stop the active one while there is a pending one; quota is free when each has reported."""
    ray = running(RayServices())
    ray.evict()
    ray.settle(ray.key)
    assert ray.suspended()
    reserved = ray.condition("QuotaReserved")
    assert reserved is not None
    assert reserved[0] == "True"
    ray.says(suspended=True)
    ray.later(seconds=5)  # no pod of it was seen: KubeRay may have been about to make some
    ray.settle(ray.key)
    reserved = ray.condition("QuotaReserved")
    assert reserved is not None
    assert reserved[0] == "False"


def test_a_job_that_kuberay_refuses_to_run_is_on_hold() -> None:
    """It gives its quota back as soon as all pods that KubeRay may have made are known, and is not tried again."""
    ray = Ray(RayJobs())
    ray.admit()
    ray.settle(ray.key)
    ray.patch(RayJob, "team/ray", {"status": {"jobDeploymentStatus": "ValidationFailed"}})
    ray.settle(ray.key)
    ray.later(seconds=UNSEEN_SECONDS)
    ray.settle(ray.key)
    assert ray.condition("QuotaReserved") == ("False", "OnHold", "Job is on hold")
    assert ray.owner["spec"]["suspend"] is True


def test_a_deleted_cluster_keeps_its_quota_until_redis_is_cleaned_up() -> None:
    """KubeRay makes a Job for that when all other pods are gone, and takes its finalizer off when it has ended."""
    ray = Cluster()
    ray.flavor()
    finalizer = "ray.io/gcs-ft-redis-cleanup-finalizer"
    meta = {"name": "ray", "namespace": "team", "labels": {names.QUEUE_LABEL: "main"}, "finalizers": [finalizer]}
    ray.put(RayCluster, {"metadata": meta, "spec": cluster(suspend=True)})
    key = "ray.io/raycluster:team/ray"
    ray.settle(key)
    ray.admit()
    ray.settle(key)
    ray.delete(RayCluster, "team/ray")
    ray.later(seconds=60)
    ray.settle(key)
    assert ray.condition("Finished") is None
    ray.patch(RayCluster, "team/ray", {"metadata": {"finalizers": []}})
    ray.settle(key)
    assert ray.condition("Finished") is not None


def test_a_deleted_service_keeps_its_quota_until_its_cluster_has_cleaned_up() -> None:
    """Though the RayService itself is gone at once."""
    ray = running(RayServices())
    patch = {"metadata": {"finalizers": ["ray.io/gcs-ft-redis-cleanup-finalizer"]}}
    ray.patch(RayCluster, "team/ray-abcde", patch)
    ray.delete(RayService, "team/ray")
    ray.delete(RayCluster, "team/ray-abcde")
    ray.later(seconds=60)
    ray.settle(ray.key)
    assert ray.condition("Finished") is None
    ray.clean_up()
    assert ray.get(Job, "team/clean")["spec"]["suspend"] is False  # type: ignore[index]
    ray.patch(RayCluster, "team/ray-abcde", {"metadata": {"finalizers": []}})
    ray.settle(ray.key)
    assert ray.condition("Finished") is not None


def test_the_submitter_of_a_rayjob_for_an_existing_cluster_is_queued_by_itself() -> None:
    """The RayJob has no Workload that could charge for the submitter's pod: KubeRay's Job takes the queue that the
    RayJob names, and nothing of it runs before it is admitted there."""
    world = Cluster()
    world.flavor()
    meta: Body = {"name": "ray", "namespace": "team", "labels": {names.QUEUE_LABEL: "main"}}
    spec = {"submissionMode": "K8sJobMode", "clusterSelector": {"ray.io/cluster": "there"}}
    world.put(RayJob, {"metadata": meta, "spec": spec})
    world.settle("ray.io/rayjob:team/ray")
    assert world.workloads == []
    uid = (world.get(RayJob, "team/ray") or {})["metadata"]["uid"]
    world.job(labels={})
    reference = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": uid, "controller": True}
    world.patch(Job, "team/train", {"metadata": {"ownerReferences": [reference]}})
    world.settle()
    assert world.workload["spec"]["queueName"] == "main"
    assert world.workload["metadata"]["ownerReferences"][0]["name"] == "train"
    assert (world.get(Job, "team/train") or {})["spec"]["suspend"]
    world.admit()
    world.settle()
    assert not (world.get(Job, "team/train") or {})["spec"]["suspend"]
