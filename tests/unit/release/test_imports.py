"""What `turnstile import` plans for jobs that run without a queue, and why it leaves some as they are."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Job, Namespace, Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, find_condition
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.selectors import LabelSelector
from turnstile.api.workload import Workload
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.kinds.ray.cluster import RayCluster
from turnstile.jobs.kinds.ray.job import RayJob
from turnstile.jobs.kinds.ray.service import RayService
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import answers
from turnstile.release.importplan import Importer
from turnstile.release.imports import GATE, Check, Planned, Running
from turnstile.release.queuemapping import QueueMapping
from turnstile.release.scope import Scope

KINDS = ("jobs.batch", "jobsets.jobset.x-k8s.io", "rayclusters.ray.io", "rayjobs.ray.io", "rayservices.ray.io")
MANAGED = LabelSelector(match_labels={"managed": "true"})
NODES = {"p1": {"pool": "plain"}, "s1": {"pool": "spot"}}
CONTAINERS = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]


def decode(kind: type[Kind], body: dict[str, Any], name: str = "x") -> Any:
    """An object of namespace `team`, with a uid of its name."""
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", **body.pop("metadata", {})}
    return answers.decoder(kind, whole=True)(orjson.dumps({"metadata": meta, **body}))


def pod(name: str = "p", *, node: str = "p1", owner: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    """A Pod of a cpu that runs on a node."""
    owners = [{"apiVersion": "batch/v1", "controller": True, **owner}] if owner else []
    body = {
        "metadata": {"ownerReferences": owners, **metadata},
        "spec": {"containers": CONTAINERS, **({"nodeName": node} if node else {})},
        "status": {"phase": "Running"},
    }
    found: Pod = decode(Pod, body, name)
    return found


def job(name: str = "train", *, suspend: bool = False, **metadata: Any) -> Job:
    """A Job of two pods of a cpu."""
    spec = {"parallelism": 2, "suspend": suspend, "template": {"spec": {"containers": CONTAINERS}}}
    found: Job = decode(Job, {"metadata": metadata, "spec": spec, "status": {"active": 2}}, name)
    return found


def ray(*, selector: dict[str, str] | None = None, **spec: Any) -> RayCluster:
    """A RayCluster with a head and two workers of a cpu."""
    template = {"spec": {"containers": CONTAINERS, "nodeSelector": selector or {}}}
    group = {"groupName": "w", "replicas": 2, "template": template}
    body = {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group], **spec}
    found: RayCluster = decode(RayCluster, {"spec": body, "status": {"state": "ready"}}, "ray")
    return found


def of_job(name: str, node: str = "p1") -> Pod:
    """A pod of the Job `train`."""
    return pod(name, node=node, owner={"kind": "Job", "name": "train", "uid": "uid-train"})


def queue(*flavors: str, cpu: int = 4, **spec: Any) -> ClusterQueue:
    """ClusterQueue `cq` with so many cpus of each flavor."""
    each = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]} for name in flavors]
    groups = [{"coveredResources": ["cpu"], "flavors": each}]
    body = {"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec}}
    return answers.decoder(ClusterQueue)(orjson.dumps(body))


def flavor(name: str, **spec: Any) -> ResourceFlavor:
    """A ResourceFlavor."""
    return answers.decoder(ResourceFlavor)(orjson.dumps({"metadata": {"name": name}, "spec": spec}))


PLAIN = flavor("plain", nodeLabels={"pool": "plain"})
SPOT = flavor("spot", nodeLabels={"pool": "spot"})


def importer(
    *running: Kind, objects: tuple[Kind, ...] = (), mapping: str = "", labels: dict[str, str] | None = None
) -> Importer:
    """Of a namespace with LocalQueue `main`, in which these jobs and pods run."""
    given = {"metadata": {"name": "team", "labels": {"managed": "true"} if labels is None else labels}}
    snapshot = Snapshot()
    snapshot.put(answers.decoder(Namespace)(orjson.dumps(given)))
    snapshot.put(decode(LocalQueue, {"spec": {"clusterQueue": "cq"}}, "main"))
    for each in objects or (PLAIN, SPOT, queue("spot", "plain")):
        snapshot.put(each)
    registry = Registry()
    return Importer(
        snapshot=snapshot,
        scope=Scope(dict.fromkeys((*KINDS, "pods"), MANAGED)),
        registry=registry,
        options=JobOptions(),
        mapping=QueueMapping.parse(mapping, "f") if mapping else QueueMapping.to("main"),
        running=Running(
            [(registry.of(each), each) for each in running], [each for each in running if isinstance(each, Pod)], NODES
        ),
        now=b.NOW,
    )


def refused(found: Importer) -> tuple[Check, str]:
    """Why the only job of a cluster is not imported."""
    assert found.plan() == []
    (finding,) = found.findings
    assert finding.cure
    assert isinstance(finding.check, Check)
    return finding.check, finding.says


def charged(planned: Planned) -> list[tuple[str, str, str]]:
    """The charge as it is told."""
    return [(each.flavor, each.resource, each.amount) for each in planned.entry.charges]


def test_the_flavor_is_that_of_the_nodes() -> None:
    """Not the first of the queue; the pods of a Job are not imported beside it."""
    found = importer(job(), of_job("a"), of_job("b"), pod("single", node="s1"))
    first, second = found.plan()
    assert [first.entry.kind, second.entry.kind] == ["Job", "Pod"]
    assert [charged(first), charged(second)] == [[("plain", "cpu", "2")], [("spot", "cpu", "1")]]
    assert found.findings == []


def test_pods_on_nodes_of_several_flavors_have_none() -> None:
    """A pod set has one flavor."""
    check, says = refused(importer(job(), of_job("a"), of_job("b", "s1")))
    assert check is Check.FLAVOR
    assert "flavor spot is for nodes with pool=spot, and a pod runs on p1" in says


def test_of_several_flavors_that_suit_the_first_with_room_is_taken() -> None:
    """And without room the first: what runs is charged all the same, and the excess is told."""
    objects = (flavor("one"), flavor("two"), queue("one", "two", cpu=1))
    found = importer(*(pod(name) for name in ("a", "b", "c")), objects=objects)
    assert [charged(each)[0][0] for each in found.plan()] == ["one", "two", "one"]
    (finding,) = found.findings
    assert finding.check is Check.QUOTA
    assert "then uses 2 cpu of flavor one, 1 more than it may have" in finding.says


def test_a_topology_gives_no_places_to_what_runs() -> None:
    """Its flavor is left out."""
    check, says = refused(importer(pod(), objects=(flavor("racks", topologyName="t"), queue("racks"))))
    assert (check, "has a Topology" in says) == (Check.FLAVOR, True)


@pytest.mark.parametrize(
    ("running", "objects", "check"),
    [
        (pod(), (PLAIN, queue("plain", stopPolicy="HoldAndDrain")), Check.QUEUE),
        (pod(), (PLAIN, queue("plain", admissionChecksStrategy={"admissionChecks": [{"name": "n"}]})), Check.QUEUE),
        (pod(), (PLAIN, queue("plain", namespaceSelector={"matchLabels": {"a": "b"}})), Check.QUEUE),
        (pod(), (PLAIN,), Check.QUEUE),
        (pod(labels={"kueue.x-k8s.io/queue-name": "other"}), (), Check.MAPPING),
        (pod(labels={"kueue.x-k8s.io/pod-group-name": "ring"}), (), Check.JOB),
        (job(annotations={"kueue.x-k8s.io/elastic-job": "true"}), (), Check.JOB),
        (decode(RayService, {"spec": {"rayClusterConfig": {}}}), (), Check.KIND),
        (ray(upgradeStrategy={"type": "Recreate"}), (), Check.JOB),
    ],
)
def test_each_obstacle_is_named(running: Kind, objects: tuple[Kind, ...], check: Check) -> None:
    """With a cure."""
    assert refused(importer(running, objects=objects))[0] is check


def test_a_ray_cluster_is_charged_for_its_pods() -> None:
    """Its head and its workers; one that scales itself for as many as it may have."""
    (planned,) = importer(ray()).plan()
    assert planned.entry.pods == 3
    group = {"groupName": "w", "replicas": 1, "maxReplicas": 4, "template": {"spec": {"containers": CONTAINERS}}}
    quotas = {"name": "plain", "resources": [{"name": name, "nominalQuota": "64Gi"} for name in ("cpu", "memory")]}
    roomy = queue(resourceGroups=[{"coveredResources": ["cpu", "memory"], "flavors": [quotas]}])
    scaling = ray(enableInTreeAutoscaling=True, workerGroupSpecs=[group])
    (planned,) = importer(scaling, objects=(PLAIN, roomy)).plan()
    assert planned.entry.pods == 5


def jobset(**spec: Any) -> JobSet:
    """A JobSet of a driver and two workers of a cpu each."""
    template = {"spec": {"template": {"spec": {"containers": CONTAINERS}}}}
    replicated = [{"name": "Driver", "template": template}, {"name": "worker", "replicas": 2, "template": template}]
    found: JobSet = decode(JobSet, {"spec": {"replicatedJobs": replicated, **spec}}, "set")
    return found


def child(name: str, replicated: str, *, cpu: str = "1", parallelism: int = 1) -> Job:
    """A Job that the JobSet controller has made."""
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "uid-set"}
    meta = {
        "labels": {"jobset.sigs.k8s.io/replicatedjob-name": replicated},
        "ownerReferences": [{**owner, "controller": True}],
    }
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"parallelism": parallelism, "template": {"spec": {"containers": containers}}}
    found: Job = decode(Job, {"metadata": meta, "spec": spec, "status": {"active": parallelism}}, name)
    return found


def of_child(name: str, node: str) -> Pod:
    """A pod of a Job of the JobSet."""
    return pod(f"{name}-0", node=node, owner={"kind": "Job", "name": name, "uid": f"uid-{name}"})


def test_a_jobset_is_charged_for_the_pods_of_its_jobs() -> None:
    """Each pod set in the flavor of the nodes of its own pods; the Jobs and their pods are not imported beside it."""
    jobs = (child("driver", "Driver"), child("worker-0", "worker"), child("worker-1", "worker"))
    found = importer(jobset(), *jobs, of_child("driver", "s1"), of_child("worker-0", "p1"), of_child("worker-1", "p1"))
    (planned,) = found.plan()
    assert found.findings == []
    assert (planned.entry.kind, planned.entry.pods) == ("JobSet", 3)
    assert charged(planned) == [("spot", "cpu", "1"), ("plain", "cpu", "2")]


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ((child("other", "gone"),), "Job other of it has pods that are of none of its pod sets"),
        ((child("worker-0", "worker", cpu="2"),), "Job worker-0 of it requests more cpu than its pod set worker"),
        (
            (child("worker-0", "worker", parallelism=3),),
            "Job worker-0 of it has more pods than its pod set worker is to have",
        ),
    ],
)
def test_a_jobset_is_not_imported_if_a_job_of_it_would_be_suspended(jobs: tuple[Job, ...], says: str) -> None:
    """Because the Workload would not charge for the Job."""
    check, said = refused(importer(jobset(), *jobs))
    assert (check, says in said) == (Check.JOB, True), said


def rayjob(**made: Any) -> tuple[RayJob, RayCluster]:
    """A RayJob that has no submitter, and its RayCluster, which differs from its spec as told."""
    template = {"spec": {"containers": CONTAINERS}}
    spec = {
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"groupName": "Big", "replicas": 2, "template": template}],
    }
    status = {"jobDeploymentStatus": "Running"}
    job = decode(RayJob, {"spec": {"submissionMode": "HTTPMode", "rayClusterSpec": spec}, "status": status}, "ray")
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": "uid-ray", "controller": True}
    body = {"metadata": {"ownerReferences": [owner]}, "spec": {**spec, **made}}
    return job, decode(RayCluster, body, "ray-x")


def ray_pod(name: str, node: str, **labels: str) -> Pod:
    """A pod of the RayCluster, with labels of KubeRay."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray-x", "uid": "uid-ray-x"}
    return pod(name, node=node, owner=owner, labels={f"ray.io/{key}": value for key, value in labels.items()})


def test_a_rayjob_is_charged_for_the_pods_of_its_raycluster() -> None:
    """Each group in the flavor of the nodes of its pods, by the labels of KubeRay."""
    head = ray_pod("h", "p1", **{"node-type": "head", "group": "headgroup"})
    workers = [ray_pod(name, "s1", **{"node-type": "worker", "group": "Big"}) for name in ("a", "b")]
    found = importer(*rayjob(), head, *workers)
    (planned,) = found.plan()
    assert found.findings == []
    assert (planned.entry.kind, charged(planned)) == ("RayJob", [("plain", "cpu", "1"), ("spot", "cpu", "2")])


def test_a_rayjob_is_not_imported_if_its_pods_would_be_made_anew() -> None:
    """KubeRay would do that when the templates of its RayCluster are marked."""
    check, says = refused(importer(*rayjob(upgradeStrategy={"type": "Recreate"})))
    assert (check, "KubeRay makes all pods anew" in says) == (Check.JOB, True)


def test_a_rayjob_for_an_existing_cluster_is_left_alone() -> None:
    """It has no pods of its own."""
    spec = {"clusterSelector": {"ray.io/cluster": "shared"}}
    found = importer(decode(RayJob, {"spec": spec, "status": {"jobDeploymentStatus": "Running"}}, "ray"))
    assert (found.plan(), found.findings) == ([], [])


def test_namespaces_that_are_not_managed_are_left_alone() -> None:
    """The controller follows no pod there."""
    assert refused(importer(pod(), labels={}))[0] is Check.NAMESPACE


def test_what_does_not_run_or_is_queued_is_left_alone() -> None:
    """Suspended, ended, being deleted, or with a Workload."""
    owned = decode(
        Workload,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "uid-q"}]}},
    )
    ended = pod("e")
    ended.status.phase = "Succeeded"
    found = importer(
        job(suspend=True),
        ended,
        pod("d", deletionTimestamp="2026-01-02T03:04:05Z"),
        pod("q"),
        objects=(PLAIN, queue("plain"), owned),
    )
    assert (found.plan(), found.findings, found.queued) == ([], [], 1)


def test_rules_skip_and_miss() -> None:
    """A job that no rule matches is reported."""
    rules = "- {match: {labels: {to: none}}, skip: true}\n- {match: {resources: [gpu]}, toLocalQueue: main}"
    found = importer(pod("a", labels={"to": "none"}), pod("b"), mapping=rules)
    assert (found.plan(), found.skipped, [each.check for each in found.findings]) == ([], 1, [Check.MAPPING])


def test_pods_of_a_set_are_imported_by_themselves_and_its_next_ones_are_told_of() -> None:
    """Of a Deployment and of a StatefulSet."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db"}
    found = importer(pod("db-0", owner=owner), pod("db-1", owner=owner))
    assert [each.entry.name for each in found.plan()] == ["db-0", "db-1"]
    (finding,) = found.findings
    assert finding.says.startswith("StatefulSet team/db: pods that it makes later run without quota (2 of now")


def test_the_workload_belongs_to_nobody_until_its_quota_is_written() -> None:
    """It is created behind a gate, and becomes that of its job when it is admitted."""
    (planned,) = importer(job(), of_job("a")).plan()
    created = planned.created()
    assert created["metadata"]["annotations"] == {"kueue.x-k8s.io/admission-gated-by": GATE}
    assert not created["metadata"].get("ownerReferences")
    assert created["spec"]["queueName"] == "main"
    workload = Workload.decoder()(orjson.dumps(created))
    status = planned.status(workload, datetime(2026, 1, 2, tzinfo=UTC))
    admitted = Workload.decoder()(orjson.dumps({**created, "status": status}))
    for kind in ("QuotaReserved", "Admitted"):
        condition = find_condition(admitted.status.conditions, kind)
        assert condition is not None
        assert (condition.status, condition.reason) == ("True", "Imported")
    joined = planned.connection()
    assert joined["annotations"] == {"kueue.x-k8s.io/admission-gated-by": None}
    assert [each["uid"] for each in joined["ownerReferences"]] == ["uid-train"]
