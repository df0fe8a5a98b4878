"""What only Ray's kinds do: they count the pods that KubeRay makes, with what it adds to them."""

import json
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import pytest

from turnstile.api.errors import PermanentError
from turnstile.api.patch import JsonPatch
from turnstile.api.pods import PodTemplate
from turnstile.api.workload import PodSet, Workload
from turnstile.jobs.integration import Change
from turnstile.jobs.kinds.ray.base import RayKind
from turnstile.jobs.kinds.ray.cluster import RayClusters
from turnstile.jobs.kinds.ray.job import RayJobs
from turnstile.jobs.kinds.ray.service import RayServices
from turnstile.jobs.podsets import equivalent

Json = dict[str, Any]
PLENTY = {"cpu": "1", "memory": "1Gi"}


def template(**requests: str) -> Json:
    """A pod template."""
    return {"spec": {"containers": [{"name": "ray", "image": "ray:1", "resources": {"requests": requests}}]}}


def cluster(*groups: Json, **spec: Any) -> Json:
    """The spec of a RayCluster."""
    return {"headGroupSpec": {"template": template(**PLENTY)}, "workerGroupSpecs": list(groups), **spec}


def group(name: str = "workers", **spec: Any) -> Json:
    """A worker group."""
    return {"groupName": name, "template": template(**PLENTY), **spec}


def decoded(kind: RayKind[Any], spec: Json, *, status: Json | None = None, **meta: Any) -> Any:
    """An object of a kind."""
    body = {"metadata": {"name": "ray", "namespace": "team", **meta}, "spec": spec, "status": status or {}}
    return kind.kind.decoder()(json.dumps(body).encode())


def counts(spec: Json) -> dict[str, int]:
    """The pods of a RayCluster, by pod set."""
    kind = RayClusters()
    return {each.name: each.count for each in kind.pod_sets(decoded(kind, spec))}


def containers(kind: RayKind[Any], spec: Json, **meta: Any) -> Json:
    """The requests of the containers of the head, by name."""
    head = kind.pod_sets(decoded(kind, spec, **meta))[0]
    found = json.loads(head.template)["spec"]["containers"]
    return {each["name"]: each.get("resources", {}).get("requests", {}) for each in found}


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"replicas": 3}, 3),
        ({"replicas": 3, "numOfHosts": 4}, 12),
        ({}, 1),
        ({"replicas": 1, "minReplicas": 5, "maxReplicas": 9}, 5),
        ({"replicas": 0, "minReplicas": 0, "maxReplicas": 2147483647}, 0),
    ],
)
def test_a_worker_group_is_charged_for_what_kuberay_makes_of_it(spec: Json, pods: int) -> None:
    """KubeRay raises the replicas to minReplicas; each replica has several hosts."""
    assert counts(cluster(group(**spec))) == {"head": 1, "workers": pods}


def test_a_cluster_that_scales_itself_is_charged_for_the_most() -> None:
    """The autoscaler may raise the replicas to maxReplicas at any time."""
    groups = group(replicas=1, maxReplicas=6, numOfHosts=2)
    assert counts(cluster(groups, enableInTreeAutoscaling=True)) == {"head": 1, "workers": 12}


def test_a_group_that_kuberay_suspended_stays_charged() -> None:
    """It may be resumed without a write to the object that is charged."""
    assert counts(cluster(group(replicas=3, suspend=True))) == {"head": 1, "workers": 3}


def test_the_head_is_charged_for_what_kuberay_adds_to_it() -> None:
    """The autoscaler, with resources of its own if the user gives some, and the submitter in SidecarMode."""
    assert containers(RayClusters(), cluster(enableInTreeAutoscaling=True))["autoscaler"]["cpu"] == "500m"
    options = {"resources": {"requests": {"cpu": "2"}}}
    scaling = cluster(enableInTreeAutoscaling=True, autoscalerOptions=options)
    assert containers(RayClusters(), scaling)["autoscaler"] == {"cpu": "2"}
    sidecar = {"rayClusterSpec": cluster(), "submissionMode": "SidecarMode"}
    assert containers(RayJobs(), sidecar)["ray-job-submitter"] == {"cpu": "500m", "memory": "200Mi"}


@pytest.mark.parametrize(
    ("requests", "charged"),
    [
        ({}, {"cpu": "200m", "memory": "256Mi"}),
        ({"cpu": "100m", "memory": "1Gi"}, {"cpu": "200m", "memory": "1Gi"}),
        (PLENTY, PLENTY),
    ],
)
def test_a_head_with_its_state_in_redis_is_charged_for_its_cleanup(requests: Json, charged: Json) -> None:
    """Whether the option or the annotation asks for it."""
    spec = cluster()
    spec["headGroupSpec"]["template"] = template(**requests)
    annotated = {"annotations": {"ray.io/ft-enabled": "True"}}
    assert containers(RayClusters(), spec, **annotated) == {"ray": charged}
    spec["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
    assert containers(RayClusters(), spec) == {"ray": charged}


def test_a_head_without_a_container_cannot_be_charged_for_its_cleanup() -> None:
    """The cleanup is made of the head's container: without it the cluster has no pod sets, as in Kueue."""
    spec = cluster()
    spec["headGroupSpec"]["template"] = {"spec": {"containers": []}}
    spec["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
    with pytest.raises(PermanentError, match="the head's template has no container"):
        RayClusters().pod_sets(decoded(RayClusters(), spec))


@pytest.mark.parametrize(
    ("requests", "overhead"),
    [
        (PLENTY, None),
        ({"cpu": "50m"}, {"cpu": "150m"}),
        ({"cpu": "50m", "memory": "128Mi"}, {"cpu": "150m", "memory": "128Mi"}),
        ({"nvidia.com/gpu": "1"}, None),
    ],
)
def test_a_small_worker_is_charged_for_its_init_container(requests: Json, overhead: Json | None) -> None:
    """By which it waits for its head, and which requests more than the worker does."""
    kind = RayClusters()
    spec = cluster(group() | {"template": template(**requests)})
    spec["headGroupSpec"]["template"] = template()
    assert overhead_of(kind, spec) == overhead


def overhead_of(kind: RayKind[Any], spec: Json) -> Json | None:
    """What the workers are charged for beyond their containers."""
    found: Json | None = json.loads(kind.pod_sets(decoded(kind, spec))[1].template)["spec"].get("overhead")
    return found


@pytest.mark.parametrize(
    ("beside", "overhead"),
    [
        ({"enableInTreeAutoscaling": True}, {"cpu": "150m", "memory": "256Mi"}),
        ({"headGroupSpec": {"template": template(memory="1Gi")}}, {"cpu": "150m", "memory": "256Mi"}),
        ({"headGroupSpec": {"template": template(cpu="1")}}, {"cpu": "150m"}),
    ],
)
def test_a_worker_is_charged_for_its_init_container_as_far_as_the_job_needs_quota(beside: Json, overhead: Json) -> None:
    """The ClusterQueue has quota of memory if any pod of the job requests memory, be it a container that KubeRay adds.
    The claim of a RayCluster on its owner's Workload, which may be older than that, is for what it names itself."""
    kind = RayClusters()
    spec = cluster(group() | {"template": template(cpu="50m")}) | {"headGroupSpec": {"template": template()}} | beside
    assert overhead_of(kind, spec) == overhead
    assert kind.claims(decoded(kind, spec))[1].spec.overhead == {"cpu": "150m"}


def test_a_workload_of_an_earlier_version_still_fits_its_cluster() -> None:
    """Which charged the workers for fewer resources: the job is not restarted for that."""
    kind = RayClusters()
    job = decoded(kind, cluster(group() | {"template": template(cpu="50m")}))
    before = Workload.decoder()(
        json.dumps(
            {
                "spec": {
                    "podSets": [
                        {"name": "head", "count": 1, "template": template(**PLENTY)},
                        {"name": "workers", "count": 1, "template": template(cpu="50m")},
                    ]
                }
            }
        ).encode()
    )
    before.spec.pod_sets[1].template.spec.overhead = {"cpu": "150m"}
    assert equivalent(kind.pod_sets(job), before, None)
    before.spec.pod_sets[1].template.spec.overhead = {"cpu": "100m"}
    assert not equivalent(kind.pod_sets(job), before, None)


class TestRayCluster:
    def test_it_is_active_until_kuberay_reports_that_its_pods_are_gone(self) -> None:
        """A state that is left of an earlier run does not count."""
        kind = RayClusters()
        suspended = cluster(suspend=True)
        condition = {"type": "RayClusterSuspended", "status": "False"}
        assert not kind.active(decoded(kind, suspended, generation=1))
        assert kind.active(decoded(kind, suspended, generation=2))
        assert kind.active(
            decoded(kind, suspended, generation=3, status={"state": "suspended", "conditions": [condition]})
        )
        gone = {"state": "suspended", "conditions": [condition | {"status": "True"}]}
        assert not kind.active(decoded(kind, suspended, generation=3, status=gone))

    def test_a_cluster_that_scales_itself_is_charged_for_what_it_has_if_gates_hold_the_rest(self) -> None:
        """Without the gates, for the most that it may have."""
        kind = RayClusters()
        elastic = {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
        body = cluster(group(replicas=2, maxReplicas=5), enableInTreeAutoscaling=True)
        job = decoded(kind, body, **elastic)
        assert [each.count for each in kind.pod_sets(job)] == [1, 5]
        for each in (body["headGroupSpec"], body["workerGroupSpecs"][0]):
            each["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/elastic-job"}]
        assert [each.count for each in kind.pod_sets(decoded(kind, body, **elastic))] == [1, 2]


class TestRayJob:
    def test_the_submitter_has_a_pod_set_in_k8sjobmode_only(self) -> None:
        """With the template of the user, or KubeRay's."""
        kind = RayJobs()
        for mode, names in (("K8sJobMode", ["head", "submitter"]), ("HTTPMode", ["head"]), ("SidecarMode", ["head"])):
            job = decoded(kind, {"rayClusterSpec": cluster(), "submissionMode": mode})
            assert [each.name for each in kind.pod_sets(job)] == names

    def test_one_for_an_existing_cluster_is_not_held_nor_queued(self) -> None:
        """KubeRay refuses to suspend it; one that has a cluster too is held, and refused."""
        kind = RayJobs()
        selecting = {"clusterSelector": {"ray.io/cluster": "there"}}
        assert kind.held(decoded(kind, selecting))
        assert kind.skip(decoded(kind, selecting))
        assert not kind.held(decoded(kind, {**selecting, "rayClusterSpec": cluster()}))

    @pytest.mark.parametrize("mode", ["HTTPMode", "K8sJobMode", ""])
    def test_one_for_an_existing_cluster_is_accepted_as_in_kueue(self, mode: str) -> None:
        """Whatever submits it: a Job that does is queued by itself."""
        kind = RayJobs()
        job = decoded(kind, {"clusterSelector": {"ray.io/cluster": "there"}, "submissionMode": mode})
        assert kind.create_errors(job) == []
        assert kind.lends_queue(job)
        assert not kind.lends_queue(decoded(kind, {"rayClusterSpec": cluster()}))


class TestRayService:
    @pytest.mark.parametrize(
        ("change", "outgrown"),
        [
            ({}, False),
            ({"suspend": True}, False),
            ({"rayVersion": "2.53.0"}, True),
            ({"workerGroupSpecs": [group(replicas=2)]}, True),
        ],
    )
    def test_any_change_of_its_cluster_makes_a_second_one(self, change: Json, outgrown: bool) -> None:
        """Also of a field that decides nothing about pods."""
        kind = RayServices()
        old, new = ({"rayClusterConfig": {**cluster(group()), **each}} for each in ({}, change))
        assert kind.outgrown(decoded(kind, old), decoded(kind, new)) is outgrown


def test_a_stop_restores_templates_by_name_where_a_group_was_added() -> None:
    """What the admission added to the others would contradict the next one."""
    kind = RayClusters()
    workload = [PodSet(name=name, template=PodTemplate()) for name in ("head", "workers")]
    spec = cluster(group("more"), group())
    for each in (spec["headGroupSpec"], spec["workerGroupSpecs"][1]):
        each["template"] = {**template(**PLENTY), "metadata": {"labels": {"kueue.x-k8s.io/podset": "p"}}}
        each["template"]["spec"] = {**each["template"]["spec"], "nodeSelector": {"pool": "ray"}}
    (step,) = kind.stop(decoded(kind, spec), workload, reason="", message="", now=datetime.now(UTC)).steps
    assert isinstance(step, Change)
    assert isinstance(step.body, JsonPatch)
    after = jsonpatch.apply_patch({"spec": spec, "metadata": {"resourceVersion": "1"}}, json.loads(step.body.encode()))
    restored = [after["spec"]["headGroupSpec"], *after["spec"]["workerGroupSpecs"]]
    assert [each["template"] for each in restored] == [template(**PLENTY)] * 3
    assert after["spec"]["suspend"] is True
