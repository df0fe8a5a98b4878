"""A running Ray job is suspended by the write that changes what it asks for: KubeRay would act on it at once."""

import json
from typing import Any

import pytest

from tests.unit.jobs.test_ray import cluster, group
from tests.unit.webhooks.reviews import Cluster, Json, job, mutated, owned_by, refusal, request
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.ray.base import RayKind
from turnstile.jobs.kinds.ray.cluster import RayClusters
from turnstile.jobs.kinds.ray.job import RayJob, RayJobs
from turnstile.jobs.kinds.ray.service import RayServices
from turnstile.webhooks.jobreview import mutating, validating

QUEUED = {"kueue.x-k8s.io/queue-name": "main"}


def ray(kind: RayKind[Any], *groups: Json, labels: Json | None = None, **spec: Any) -> Json:
    """An object of Ray's, running."""
    config = cluster(*groups, **spec)
    nested = {"RayCluster": config, "RayJob": {"rayClusterSpec": config}, "RayService": {"rayClusterConfig": config}}
    name = kind.kind.KIND
    meta = {"name": "ray", "namespace": "team-a", "uid": "uid-ray", "labels": QUEUED if labels is None else labels}
    return {"apiVersion": "ray.io/v1", "kind": name, "metadata": meta, "spec": nested[name]}


EVERY_KIND = pytest.mark.parametrize("kind", [RayClusters(), RayJobs(), RayServices()], ids=lambda kind: kind.kind.KIND)


def suspended(kind: RayKind[Any], body: Json) -> bool:
    """Whether it is suspended."""
    spec = body["spec"].get("rayClusterConfig", body["spec"])
    return bool(spec.get("suspend"))


@EVERY_KIND
def test_a_change_of_what_a_running_job_asks_for_suspends_it(kind: RayKind[Any]) -> None:
    """More workers, and another template."""
    handler = mutating(kind, Cluster())
    old = ray(kind, group(replicas=1))
    assert suspended(kind, mutated(handler, ray(kind, group(replicas=2)), old=old))
    assert suspended(kind, mutated(handler, ray(kind, group(replicas=1), group("more")), old=old))


@EVERY_KIND
def test_any_other_change_leaves_a_running_job_alone(kind: RayKind[Any]) -> None:
    """Its labels, and a job without a queue."""
    handler = mutating(kind, Cluster())
    old = ray(kind, group(replicas=1))
    assert (
        mutated(handler, old | {"metadata": {**old["metadata"], "labels": {**QUEUED, "a": "b"}}}, old=old)["spec"]
        == old["spec"]
    )
    free = ray(kind, group(replicas=1), labels={})
    assert not suspended(kind, mutated(handler, ray(kind, group(replicas=2), labels={}), old=free))


@EVERY_KIND
def test_a_start_and_a_stop_are_left_alone(kind: RayKind[Any]) -> None:
    """A suspended job may be changed in any way, also by the write that resumes it."""
    handler = mutating(kind, Cluster())
    held = mutated(handler, ray(kind, group(replicas=1)))
    assert suspended(kind, held)
    assert not suspended(kind, mutated(handler, ray(kind, group(replicas=2)), old=held))


def test_the_cluster_of_an_admitted_rayjob_cannot_be_changed() -> None:
    """Its RayJob is charged for it; the write that suspends it, or that follows its owner, passes."""
    kind = RayClusters()
    owner = RayJob.decoder()(
        b'{"metadata":{"name":"job","namespace":"team-a","uid":"u","labels":{"kueue.x-k8s.io/queue-name":"main"}}}'
    )
    seen = Cluster(jobs=(owner,))
    old = ray(kind, group(replicas=1))
    for each in (old["spec"]["headGroupSpec"], *old["spec"]["workerGroupSpecs"]):
        each["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/podset": "head"}}
    reference = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "u", "controller": True}
    old["metadata"] |= {"ownerReferences": [reference]}
    groups = [{**each, "replicas": 9} for each in old["spec"]["workerGroupSpecs"]]
    larger = {**old, "spec": {**old["spec"], "workerGroupSpecs": groups}}
    assert not suspended(kind, mutated(mutating(kind, seen), larger, old=old))
    assert "RayJob job is charged for its pods" in refusal(validating(kind, seen), larger, old=old)
    assert refusal(validating(kind, seen), {**larger, "spec": {**larger["spec"], "suspend": True}}, old=old) == ""


def test_the_cluster_of_an_admitted_rayjob_goes_after_its_pods() -> None:
    """Or KubeRay would retry the RayJob while they stop. One of a RayJob that was not admitted is left as it is."""
    kind = RayClusters()
    body = ray(kind, group(replicas=1), labels={})
    reference = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "u", "controller": True}
    body["metadata"] |= {"ownerReferences": [reference]}
    owner = RayJob.decoder()(b'{"metadata":{"name":"job","namespace":"team-a","uid":"u","labels":{}}}')
    handler = mutating(kind, Cluster(jobs=(owner,)))
    assert "finalizers" not in mutated(handler, body)["metadata"]
    body["spec"]["headGroupSpec"]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/podset": "head"}}
    assert mutated(handler, body)["metadata"]["finalizers"] == ["foregroundDeletion"]
    body["spec"]["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
    assert "finalizers" not in mutated(handler, body)["metadata"]


class TestTheSubmitterOfARayJobForAnExistingCluster:
    """KubeRay's Job, which names no queue."""

    BODY = job(owner=owned_by("RayJob", "ray", api_version="ray.io/v1", uid="uid-ray"))

    def owner(self, **labels: str) -> RayJob:
        """The RayJob."""
        meta = {"name": "ray", "namespace": "team-a", "uid": "uid-ray", "labels": labels}
        spec = {"submissionMode": "K8sJobMode", "clusterSelector": {"ray.io/cluster": "there"}}
        return RayJob.decoder()(json.dumps({"metadata": meta, "spec": spec}).encode())

    def test_is_held_in_the_queue_of_the_rayjob(self) -> None:
        """When it is created: its pod would run before the reconciler has seen it."""
        made = mutated(mutating(BatchJob(), Cluster(jobs=(self.owner(**QUEUED),))), self.BODY)
        assert made["spec"]["suspend"] is True
        assert made["metadata"]["labels"] == QUEUED

    def test_is_left_alone_if_the_rayjob_names_no_queue(self) -> None:
        """Nothing of it is queued then."""
        assert mutated(mutating(BatchJob(), Cluster(jobs=(self.owner(),))), self.BODY) == self.BODY

    def test_is_an_error_to_try_again_before_the_rayjob_is_seen(self) -> None:
        """KubeRay creates it once more."""
        answer = mutating(BatchJob(), Cluster())(request(self.BODY))
        assert "workload owner not found: RayJob team-a/ray" in answer.message
