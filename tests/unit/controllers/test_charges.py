"""Whether a Workload keeps its quota, by the pods that it is charged for; and which pods are cached."""

from typing import Any

import msgspec
import orjson
import pytest

from tests.unit.controllers.job_cluster import JOB, POD, Body, Cluster
from tests.unit.controllers.worlds import decode
from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Job, Namespace, Pod
from turnstile.api.meta import ObjectMeta
from turnstile.api.selectors import LabelSelector
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import frameworks
from turnstile.controllers.runtime.actions import Delete, Patch, RequeueAfter
from turnstile.controllers.view.managed import ManagedNamespaces
from turnstile.controllers.workloads import workload
from turnstile.jobs import pods
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import auth
from turnstile.kube.caches import Caches
from turnstile.kube.raws import Keep
from turnstile.kube.transport import Transport

CHARGED = "kueue.x-k8s.io/workload"


def running() -> Cluster:
    """A Job that was admitted a minute ago and has one pod, which runs."""
    cluster = Cluster()
    cluster.flavor()
    cluster.job()
    cluster.settle()
    cluster.admit()
    cluster.settle()
    cluster.run_pods()
    job = cluster.get(Job, "team/train")
    assert job is not None
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    put_pod(cluster, ownerReferences=[owner], **marks(cluster))
    cluster.later(minutes=1)
    return cluster


def marks(cluster: Cluster) -> dict[str, Any]:
    """What a start adds to the pods of the Job."""
    return {
        "annotations": {CHARGED: cluster.workload["metadata"]["name"]},
        "labels": {names.PODSET_LABEL: names.DEFAULT_PODSET},
    }


def put_pod(cluster: Cluster, *, phase: str = "Running", node: str = "node", **metadata: Any) -> None:
    """A pod `a` of a job."""
    meta = {"name": "a", "namespace": "team", **metadata}
    spec = {"nodeName": node, "containers": [{"name": "c"}]}
    cluster.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": phase}})


def orphan(cluster: Cluster) -> None:
    """The garbage collector takes the owner off pods and Workload, and the Job goes."""
    for kind, key in ((type(workload_of(cluster)), cluster.workload_key), (Pod, "team/a")):
        body = cluster.get(kind, key)
        assert body is not None
        body["metadata"]["ownerReferences"] = []
        cluster.put(kind, body)
    cluster.delete(Job, "team/train")


def workload_of(cluster: Cluster) -> Any:
    """The one Workload as it is cached."""
    return cluster.world.workloads.get(cluster.workload_key)


def finished(cluster: Cluster) -> bool:
    """Whether the one Workload is finished."""
    return cluster.condition("Finished") is not None


def test_a_deleted_job_keeps_its_quota_until_its_pods_have_ended() -> None:
    """Whether a pod is charged by its annotation or by its controller."""
    for lost in ({"annotations": None}, {"ownerReferences": None}):
        cluster = running()
        cluster.patch(Pod, "team/a", {"metadata": lost})
        cluster.delete(Job, "team/train")
        cluster.settle(JOB)
        assert not finished(cluster)
        cluster.patch(Pod, "team/a", {"status": {"phase": "Succeeded"}})
        cluster.settle(JOB)
        assert finished(cluster)


def charged(made: Body, workload: Body) -> bool:
    """Whether a pod may be one of those of a Workload."""
    return charges.may_belong(decode(Pod, made), decode(Workload, workload), Registry())


def reference(kind: str, api_version: str, uid: str = "u") -> Body:
    """A reference to a controller."""
    return {"apiVersion": api_version, "kind": kind, "name": "train", "uid": uid, "controller": True}


JOB_SET = reference("JobSet", "jobset.x-k8s.io/v1alpha2")
SPARK = reference("SparkApplication", "sparkoperator.k8s.io/v1beta2")


@pytest.mark.parametrize(
    ("of", "owner", "labels", "expected"),
    [
        (reference("Job", "batch/v1"), reference("Job", "batch/v1"), {}, True),
        (reference("Job", "batch/v1"), reference("Job", "batch/v1", "other"), {}, False),
        (reference("Job", "batch/v1"), reference("Job", "example.com/v1"), {}, False),
        (reference("Job", "batch/v1"), reference("Thing", "example.com/v1"), {}, False),
        (reference("Job", "batch/v1"), None, {names.PODSET_LABEL: "main"}, True),
        (reference("Job", "batch/v1"), None, {names.PODSET_LABEL: "other"}, False),
        (reference("Job", "batch/v1"), None, {}, False),
        (reference("Job", "batch/v1"), reference("ReplicaSet", "apps/v1", "r"), {names.PODSET_LABEL: "main"}, False),
        (reference("Pod", "v1"), reference("Pod", "v1"), {}, False),
        (JOB_SET, reference("Job", "batch/v1", "child"), {names.PODSET_LABEL: "main"}, True),
        (JOB_SET, reference("Job", "batch/v1", "child"), {}, False),
        (JOB_SET, reference("Thing", "example.com/v1", "child"), {names.PODSET_LABEL: "main"}, False),
        (SPARK, reference("Pod", "v1", "driver"), {}, True),
    ],
)
def test_a_pod_is_charged_only_to_a_workload_whose_pod_it_can_be(
    of: Body, owner: Body | None, labels: dict[str, str], *, expected: bool
) -> None:
    """That it names the Workload, or has a controller with the uid of the Workload's job, is not enough."""
    workload = {
        "metadata": {"name": "w", "namespace": "team", "ownerReferences": [of]},
        "spec": {"podSets": [{"name": "main", "count": 1}]},
    }
    meta = {"name": "p", "namespace": "team", "uid": "p", "labels": labels, "annotations": {CHARGED: "w"}}
    assert charged({"metadata": {**meta, "ownerReferences": [owner] if owner else []}}, workload) is expected


@pytest.mark.parametrize(("group", "expected"), [("w", True), ("other", False), (None, False)])
def test_a_pod_is_charged_to_a_group_that_it_names(group: str | None, *, expected: bool) -> None:
    """Unless it owns the Workload of the group."""
    of = reference("Pod", "v1") | {"controller": False}
    meta = {"name": "w", "namespace": "team", "ownerReferences": [of], "annotations": {names.IS_GROUP_WORKLOAD: "true"}}
    workload: Body = {"metadata": meta, "spec": {"podSets": []}}
    labels = {names.POD_GROUP_NAME: group} if group else {}
    body = {"name": "p", "namespace": "team", "uid": "p", "labels": labels, "annotations": {CHARGED: "w"}}
    assert charged({"metadata": body}, workload) is expected
    assert charged({"metadata": {**body, "uid": "u"}}, workload)


def test_after_an_eviction_the_pods_that_hold_the_quota_are_deleted() -> None:
    """Also those that the Job controller does not know: the Job says that none of its pods is active."""
    cluster = running()
    cluster.patch(Pod, "team/a", {"metadata": {"ownerReferences": None}})
    cluster.patch(Job, "team/train", {"status": {"active": 0, "ready": 0}})
    cluster.evict()
    for _ in range(6):
        actions = cluster.step(JOB).actions
        if any(isinstance(each, Delete) for each in actions):
            break
    (delete,) = [each for each in actions if isinstance(each, Delete)]
    assert (delete.kind, delete.name) == (Pod, "a")


@pytest.mark.parametrize("end", ["deactivated", "drained"])
def test_pods_of_a_workload_that_is_being_deleted_do_not_hold_its_quota_for_ever(end: str) -> None:
    """Who deactivates it, or drains its queue, has it evicted, and these pods deleted."""
    cluster = running()
    cluster.patch(Pod, "team/a", {"metadata": {"ownerReferences": None}})
    cluster.delete(Job, "team/train")
    cluster.patch(Workload, cluster.workload_key, {"metadata": {"deletionTimestamp": "2026-01-02T03:05:00Z"}})
    cluster.settle(JOB)
    assert not workload.decide(cluster.workload_key, cluster.world).actions
    if end == "drained":
        queue = {"metadata": {"name": "cq", "resourceVersion": "1"}, "spec": {"stopPolicy": "HoldAndDrain"}}
        cluster.world.cluster_queues.observe(decode(ClusterQueue, queue))
    else:
        cluster.patch(Workload, cluster.workload_key, {"spec": {"active": False}})
    evict, _ = workload.decide(cluster.workload_key, cluster.world).actions
    cluster.act(evict)
    assert cluster.condition("Evicted") is not None
    (delete,) = cluster.step(JOB).actions
    assert isinstance(delete, Delete)


class TestWhatIsGivenBack:
    """Of what a job says is done, no more than is not used by pods that may run."""

    def cluster(self, *pods: str) -> Cluster:
        """A Job of two pods, of three completions of which two have succeeded."""
        cluster = Cluster()
        cluster.flavor()
        cluster.job(parallelism=2, completions=3)
        cluster.settle()
        cluster.admit()
        cluster.settle()
        cluster.run_pods()
        owner = reference("Job", "batch/v1", self.uid(cluster))
        for name in pods:
            put_pod(cluster, name=name, ownerReferences=[owner], **marks(cluster))
        cluster.patch(Job, "team/train", {"status": {"succeeded": 2}})
        return cluster

    @staticmethod
    def uid(cluster: Cluster) -> str:
        """That of the Job."""
        job = cluster.get(Job, "team/train")
        assert job is not None
        return str(job["metadata"]["uid"])

    def test_nothing_while_all_pods_run(self) -> None:
        """The Job controller counts pods that it has adopted. The Job is looked at again a second later."""
        cluster = self.cluster("a", "b")
        assert RequeueAfter(1.0) in cluster.step(JOB).actions
        assert not cluster.workload["status"].get("reclaimablePods")

    def test_the_rest_once_a_pod_has_ended(self) -> None:
        """It changes nothing in the Job."""
        cluster = self.cluster("a", "b")
        cluster.settle(JOB)
        cluster.patch(Pod, "team/b", {"status": {"phase": "Succeeded"}})
        cluster.settle(JOB)
        assert cluster.workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]

    def test_nothing_while_pods_are_not_read(self) -> None:
        """There may be more."""
        cluster = self.cluster("a")
        cluster.world.pods.doubt()
        cluster.step(JOB)
        assert not cluster.workload["status"].get("reclaimablePods")


def test_pods_of_a_deleted_job_that_a_finalizer_holds_are_deleted_when_its_workload_is_evicted() -> None:
    """A suspended Job that is being deleted keeps its pods: the Job controller deletes none of them."""
    cluster = running()
    cluster.patch(Job, "team/train", {"metadata": {"finalizers": ["example.com/keep"]}})
    cluster.delete(Job, "team/train")
    assert not cluster.step(JOB).actions
    cluster.set_condition("Evicted")
    (delete,) = cluster.step(JOB).actions
    assert isinstance(delete, Delete)
    assert (delete.kind, delete.name) == (Pod, "a")


def test_an_orphaned_workload_keeps_its_quota_until_its_pods_have_ended() -> None:
    """It has no owner any more: its pods name it."""
    cluster = running()
    orphan(cluster)
    key = cluster.workload_key
    assert not workload.decide(key, cluster.world).actions
    cluster.patch(Pod, "team/a", {"status": {"phase": "Failed"}})
    (finish,) = workload.decide(key, cluster.world).actions
    assert isinstance(finish, Patch)
    assert b"OwnerNotFound" in finish.body


def test_a_job_that_was_admitted_a_moment_ago_may_have_pods_that_were_not_seen() -> None:
    """Its controller creates what it has begun with. A job that was deleted keeps its quota for five seconds."""
    cluster = running()
    cluster.later(minutes=-1, seconds=-4)  # one second after the time of the condition
    cluster.delete(Job, "team/train")
    cluster.patch(Pod, "team/a", {"status": {"phase": "Failed"}})
    assert cluster.step(JOB).actions == [RequeueAfter(4.0)]
    assert not finished(cluster)
    cluster.later(seconds=5)
    cluster.settle(JOB)
    assert finished(cluster)


def test_a_pod_that_joins_a_group_while_it_runs_keeps_its_quota_until_it_has_ended() -> None:
    """Its Workload is of no use to the group, but charges for the pod."""
    cluster = Cluster()
    cluster.flavor()
    cluster.pod()
    cluster.settle(POD)
    cluster.admit()
    cluster.settle(POD)
    labels = {"kueue.x-k8s.io/pod-group-name": "late"}
    cluster.patch(Pod, "team/train", {"metadata": {"labels": labels}, "spec": {"nodeName": "node"}})
    assert cluster.decide(POD).actions == []
    cluster.patch(Pod, "team/train", {"status": {"phase": "Succeeded"}})
    cluster.settle(POD)
    assert cluster.workloads == []


@pytest.mark.parametrize(
    ("admitted", "released", "charged"),
    [(None, 0, 4), (4, 0, 4), (4, 1, 3), (2, 1, 2), (3, 1, 3), (3, 2, 2), (3, 4, 0)],
    ids=[
        "not admitted",
        "all of them",
        "one has succeeded since",
        "admitted partially, one of the others has succeeded",
        "one had succeeded before",
        "one had succeeded before, and one since",
        "none is left",
    ],
)
def test_how_many_pods_are_charged(admitted: int | None, released: int, charged: int) -> None:
    """At most those admitted, and at most those that are left of four: an admission after one has succeeded is for
    three, and these are not counted off again."""
    assigned = [] if admitted is None else [{"name": "main", "count": admitted, "flavors": {}, "resourceUsage": {}}]
    found = decode(
        Workload,
        {
            "metadata": {"name": "job-train", "namespace": "team"},
            "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 4, "template": {"spec": {}}}]},
            "status": {
                "reclaimablePods": [{"name": "main", "count": released}],
                **({"admission": {"clusterQueue": "team", "podSetAssignments": assigned}} if assigned else {}),
            },
        },
    )
    assert charges.pods_charged(found) == {"main": charged}


def test_while_pods_are_not_read_no_quota_is_given_back() -> None:
    """There may be any."""
    cluster = running()
    cluster.patch(Pod, "team/a", {"status": {"phase": "Succeeded"}})
    cluster.world.pods.doubt()
    cluster.delete(Job, "team/train")
    cluster.later(minutes=1)
    cluster.settle(JOB)
    assert not finished(cluster)
    cluster.world.pods.believe()
    cluster.settle(JOB)
    assert finished(cluster)


@pytest.mark.parametrize(
    ("phase", "node", "deleted", "may_run"),
    [
        ("Running", "n", False, True),
        ("Running", "n", True, True),
        ("Pending", "", False, True),
        ("Pending", "", True, False),
        ("Succeeded", "n", False, False),
        ("Failed", "n", True, False),
        ("Unknown", "n", True, True),
    ],
)
def test_which_pods_may_run(phase: str, node: str, deleted: bool, may_run: bool) -> None:
    """Until they have ended, unless they can never be bound to a node."""
    meta = {"name": "a", "namespace": "team"} | ({"deletionTimestamp": "2026-01-02T03:04:05Z"} if deleted else {})
    body = {"metadata": meta, "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}
    assert charges.may_run(Pod.decoder()(orjson.dumps(body))) is may_run


def test_only_the_end_of_the_last_pod_of_a_job_that_goes_is_news() -> None:
    """While the Job goes on, and while another of its pods runs, nothing is reconciled because of a pod."""
    cluster = running()
    store = cluster.world.pods
    (watch,) = [each for each in frameworks.dispatch(cluster.world).watches if each.store is store]
    told: list[Any] = []
    store.subscribe(lambda key, old, new: told.extend(watch.keys(key, old, new)))
    body = cluster.get(Pod, "team/a")
    assert body is not None
    second = {**body, "metadata": {**body["metadata"], "name": "b", "uid": "b"}}
    cluster.put(Pod, second)
    cluster.patch(Pod, "team/a", {"metadata": {"labels": {"x": "y"}}})
    cluster.patch(Pod, "team/b", {"status": {"phase": "Succeeded"}})
    cluster.patch(Pod, "team/a", {"status": {"phase": "Succeeded"}})
    assert not told  # the Job is not deleted
    cluster.put(Pod, body)
    cluster.delete(Job, "team/train")
    assert not told
    cluster.patch(Pod, "team/a", {"status": {"phase": "Failed"}})
    assert told == [("batch/job", JOB)]


class TestWhatIsCached:
    """Of all pods of the cluster."""

    async def keep(
        self,
        *,
        phase: str = "Running",
        conditions: tuple[dict[str, str], ...] = (),
        grace: int = 30,
        topologies: bool = False,
        node: str = "n",
        **metadata: Any,
    ) -> tuple[Keep, Pod]:
        """How much of a pod is cached, and what of it; the namespace `team` is managed. With `topologies` there is a
        Topology."""
        async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed("Bearer t"))) as transport:
            caches = Caches(transport)
            for name, labels in (("team", {"managed": "yes"}), ("other", {})):
                body = {"metadata": {"name": name, "labels": labels, "resourceVersion": "1"}}
                caches.of(Namespace).observe(msgspec.convert(body, Namespace))
            if topologies:
                caches.of(Topology).observe(Topology(metadata=ObjectMeta(name="racks", resource_version="1")))
            options = JobOptions(managed_jobs_namespace_selector=LabelSelector(match_labels={"managed": "yes"}))
            managed = ManagedNamespaces(caches, options, Registry())
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m", "x.io/gpu": 1}}}
            body = {"metadata": {"name": "a", "namespace": "team", **metadata}}
            body["status"] = {"phase": phase, "conditions": list(conditions)}
            body["spec"] = {"nodeName": node, "nodeSelector": {"pool": "x"}, "containers": [container, container]}
            body["spec"]["terminationGracePeriodSeconds"] = grace
            pod = Pod.decoder()(orjson.dumps(body))
            return managed.keep_pod(pod), pod

    @pytest.mark.asyncio
    async def test_pods_of_other_namespaces_are_not(self) -> None:
        """Unless they carry a mark of Turnstile: the namespace may have been managed when they were admitted."""
        assert (await self.keep(namespace="other"))[0] is Keep.NOTHING
        for marks in (
            {"labels": {"kueue.x-k8s.io/managed": "true"}},
            {"labels": {"kueue.x-k8s.io/podset": "main"}},
            {"annotations": {CHARGED: "w"}},
            {"finalizers": ["kueue.x-k8s.io/managed"]},
        ):
            assert (await self.keep(namespace="other", **marks))[0] is Keep.WHOLE

    @pytest.mark.asyncio
    async def test_pods_of_other_namespaces_are_where_nodes_matter(self) -> None:
        """While there is a Topology: those that are bound and may run, as far as they use their node."""
        given: Any = {"namespace": "other", "topologies": True}
        found, pod = await self.keep(labels={"app": "x"}, annotations={"a": "b"}, finalizers=["x.io/y"], **given)
        assert found is Keep.WHOLE
        assert (pod.metadata.labels, pod.metadata.annotations, pod.metadata.finalizers) == ({}, {}, ())
        assert b'"cpu":"3000m"' in bytes(pod.spec)
        assert (await self.keep(phase="Succeeded", **given))[0] is Keep.NOTHING
        assert (await self.keep(node="", **given))[0] is Keep.NOTHING

    @pytest.mark.asyncio
    async def test_of_a_pod_of_a_job_its_number_is_where_nodes_matter(self) -> None:
        """Its rank decides which node of its Workload it gets."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        labels = {"app": "x", "batch.kubernetes.io/job-completion-index": "3", "jobset.sigs.k8s.io/job-index": "1"}
        _, pod = await self.keep(labels=labels, ownerReferences=[owner], topologies=True)
        del labels["app"]
        assert pod.metadata.labels == labels

    @pytest.mark.asyncio
    @pytest.mark.parametrize("grace", [0, 30, 31536000])
    async def test_of_a_pod_of_a_job_its_grace_period_is(self, grace: int) -> None:
        """It decides whether the deletion of the pod has to say another one."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        _, pod = await self.keep(ownerReferences=[owner], grace=grace)
        assert pods.grace_seconds(pod) == grace

    @pytest.mark.asyncio
    async def test_of_a_pod_of_a_job_what_it_requests_is(self) -> None:
        """In place of its spec, with the nodes that it asks for; its other labels and annotations are left out."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        labels = {"app": "x", "kueue.x-k8s.io/podset": "main"}
        _, pod = await self.keep(labels=labels, ownerReferences=[owner])
        assert pod.metadata.labels == {"kueue.x-k8s.io/podset": "main"}
        assert orjson.loads(bytes(pod.spec)) == {
            "nodeName": "n",
            "nodeSelector": {"pool": "x"},
            "containers": [{"resources": {"requests": {"cpu": "3000m", "x.io/gpu": "2"}}}],
        }

    @pytest.mark.asyncio
    @pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
    async def test_of_its_conditions_that_there_is_no_node_for_it_is(self, reason: str) -> None:
        """With what kube-scheduler says, once in memory for all pods of which it says the same."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        refused = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes are available"}
        given: Any = {"ownerReferences": [owner], "conditions": ({"type": "Ready", "status": "False"}, refused)}
        (_, one), (_, other) = await self.keep(**given), await self.keep(**given)
        assert [each.reason for each in one.status.conditions] == [reason] * (reason == "Unschedulable")
        for first, second in zip(one.status.conditions, other.status.conditions, strict=True):
            assert first.message is second.message

    @pytest.mark.asyncio
    async def test_a_pod_of_a_job_that_has_ended_is_not(self) -> None:
        """It may stay for as long as its Job does; a queued pod is cached until it is gone."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        assert (await self.keep(phase="Succeeded", ownerReferences=[owner]))[0] is Keep.NOTHING
        assert (await self.keep(phase="Running", ownerReferences=[owner]))[0] is Keep.WHOLE
        queued = {"labels": {"kueue.x-k8s.io/managed": "true"}}
        assert (await self.keep(phase="Succeeded", **queued))[0] is Keep.WHOLE

    @pytest.mark.asyncio
    async def test_a_queued_pod_is_cached_whole(self) -> None:
        """Also without its label: its Workload is made from its spec."""
        for marks in ({"finalizers": ["kueue.x-k8s.io/managed"]}, {"annotations": {CHARGED: "w"}}):
            _, pod = await self.keep(**marks)
            assert b"image" in bytes(pod.spec)
