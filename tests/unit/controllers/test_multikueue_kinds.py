"""Kinds without `managedBy`, whose copies run on other clusters: pods, groups of pods, and serving sets."""

from typing import Any

from tests.unit.controllers.group_cluster import GROUP, GroupCluster
from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.test_serving_sets import QUEUE, SET, put_pod, template
from tests.unit.controllers.worlds import decode
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue import worker
from turnstile.controllers.multikueue.remotes import Sent
from turnstile.controllers.multikueue.situation import Remote, RemoteJob
from turnstile.controllers.runtime.actions import Create
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSet, LeaderWorkerSets
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.kinds.statefulset import StatefulSet

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
COPY = {"labels": {**QUEUE, ORIGIN: "multikueue"}, "annotations": {f"{ORIGIN}-uid": "there"}}


def dispatch(cluster: Cluster) -> None:
    """The Workload has a check that sends it to other clusters, and one has admitted it."""
    spec = {"controllerName": "kueue.x-k8s.io/multikueue"}
    cluster.world.admission_checks.observe(decode(AdmissionCheck, {"metadata": {"name": "elsewhere"}, "spec": spec}))
    checks = [{"name": "elsewhere", "state": "Ready", "message": ""}]
    cluster.patch(Workload, cluster.workload_key, {"status": {"admissionChecks": checks, "clusterName": "east"}})


class TestAGroupOfPods:
    """On the manager."""

    def test_stays_gated_when_it_is_admitted(self) -> None:
        """Its copies run elsewhere."""
        cluster = GroupCluster()
        for name in ("a", "b"):
            cluster.member(name)
        cluster.settle(GROUP)
        dispatch(cluster)
        cluster.admit_all()
        cluster.settle(GROUP)
        assert cluster.held() == ["a", "b"]

    def test_keeps_its_quota_while_a_copy_runs(self) -> None:
        """The status says so, until the manager has cleared it."""
        cluster = GroupCluster()
        for name in ("a", "b"):
            cluster.member(name)
        cluster.settle(GROUP)
        dispatch(cluster)
        cluster.admit_all()
        cluster.patch(Pod, "team/a", {"status": {"phase": "Running"}})
        cluster.evict()
        cluster.settle(GROUP)
        assert cluster.workload["status"]["admission"]
        cluster.patch(Pod, "team/a", {"status": PlainPod.copies.emptied})
        cluster.settle(GROUP)
        assert not cluster.workload["status"].get("admission")


class TestThePodOfTheManager:
    """Its status is that of the copy."""

    def test_waits_at_its_gate_until_the_copy_has_a_node(self) -> None:
        """An autoscaler adds nodes for pods that are unschedulable."""
        gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        spec = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
        here = decode(Pod, {"metadata": {"name": "p"}, "spec": spec, "status": {"conditions": [gate]}})
        returned = PlainPod.copies.returned
        assert returned is not None
        away = {**gate, "reason": "Unschedulable"}
        (found,) = returned(here, {"conditions": [away]})["conditions"]
        assert found["reason"] == "SchedulingGated"
        scheduled = {"conditions": [{**gate, "status": "True"}]}
        assert returned(here, scheduled) == scheduled


class TestACopyOfASet:
    """On a worker: its Workload comes from the manager."""

    def test_makes_no_workload(self) -> None:
        """One of its own would be charged for beside the manager's."""
        cluster = Cluster()
        cluster.put(StatefulSet, copied_set())
        put_pod(cluster, "db-0")
        assert not [each for each in cluster.decide(SET).actions if isinstance(each, Create)]

    def test_takes_over_the_workload_that_it_names(self) -> None:
        """Its pods join the group of that name."""
        cluster = Cluster()
        cluster.flavor()
        cluster.put(StatefulSet, copied_set())
        pod_set = {"name": "main", "count": 2, "template": {"spec": template()["spec"]}}
        meta = {"name": "made-there", "namespace": "team", "labels": {ORIGIN: "multikueue"}}
        cluster.put(Workload, {"metadata": meta, "spec": {"queueName": "main", "podSets": [pod_set]}})
        cluster.settle(SET)
        put_pod(cluster, "db-0")
        cluster.settle(SET)
        pod, workload = cluster.get(Pod, "team/db-0"), cluster.get(Workload, "team/made-there")
        assert pod is not None
        assert workload is not None
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"] == "made-there"
        assert workload["metadata"]["ownerReferences"][0]["uid"] == "uid-db"

    def test_of_several_groups_finds_their_workloads_by_the_uid_of_its_origin(self) -> None:
        """They were named there."""
        origin = decode(LeaderWorkerSet, {"metadata": {"name": "model", "namespace": "team", "uid": "there"}})
        copy = decode(LeaderWorkerSet, {"metadata": {"name": "model", "namespace": "team", "uid": "here", **COPY}})
        kind = LeaderWorkerSets()
        assert kind.components(copy).name(0) == kind.components(origin).name(0)


def copied_set() -> dict[str, Any]:
    """StatefulSet `db` as a manager has made it."""
    annotations = {**COPY["annotations"], "kueue.x-k8s.io/prebuilt-workload-name": "made-there"}
    meta = {"name": "db", "namespace": "team", "uid": "uid-db", "labels": COPY["labels"], "annotations": annotations}
    return {"metadata": meta, "spec": {"replicas": 2, "template": template()}}


class TestTheGroupsOfASet:
    """Workloads of one LeaderWorkerSet on the manager."""

    SET = decode(LeaderWorkerSet, {"metadata": {"name": "model", "uid": "u"}, "spec": {"replicas": 2}})
    GANGS = LeaderWorkerSets().components(SET)

    def sent(self, *clusters: str) -> Sent:
        """The Workloads that exist, with the cluster of each."""
        made = (
            decode(Workload, {"metadata": {"name": self.GANGS.name(index)}, "status": {"clusterName": each or None}})
            for index, each in enumerate(clusters)
        )
        return Sent(LeaderWorkerSets(), (self.SET,), tuple(made), self.GANGS)

    def test_are_sent_once_all_are_there_the_first_one_first(self) -> None:
        """The others follow it."""
        first, second = self.sent("", "").siblings
        assert not self.sent("").leads(first)
        assert self.sent("", "").leads(first)
        assert not self.sent("", "").leads(second)

    def test_run_on_one_cluster(self) -> None:
        """Also the first, when it is sent anew."""
        first, second = self.sent("", "").siblings
        assert self.sent("east", "").cluster(second) == "east"
        assert self.sent("", "east").cluster(first) == "east"

    def test_share_the_copy_of_their_set(self) -> None:
        """It stays while another one runs with it."""
        copy = decode(RemoteJob, {"metadata": {"name": "model"}})
        assert not worker.decide("east", None, Remote(jobs=[copy], shared=True), dispatched=False).delete_jobs
        assert worker.decide("east", None, Remote(jobs=[copy]), dispatched=False).delete_jobs
