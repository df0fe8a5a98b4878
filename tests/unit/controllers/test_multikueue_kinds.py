"""Kinds without `managedBy`, whose copies run on other clusters: pods, groups of pods, and serving sets."""

from typing import Any

from tests.unit.controllers.group_cluster import GROUP, GroupCluster
from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.test_serving_sets import QUEUE, SET, put_pod, template
from tests.unit.controllers.worlds import ADMITTED, RESERVED, condition, decode
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.core import Pod
from turnstile.api.workload import AdmissionCheckState, Workload
from turnstile.controllers.multikueue import manager, worker
from turnstile.controllers.multikueue.remotes import Sent
from turnstile.controllers.multikueue.situation import Remote, Situation, SizedRemoteJob, remote_kind
from turnstile.controllers.runtime.actions import Create
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSet, LeaderWorkerSets
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.kinds.ray.job import RayJob
from turnstile.jobs.kinds.statefulset import StatefulSet
from turnstile.jobs.remote import copied_job

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

    def test_goes_while_copies_run(self) -> None:
        """These are deleted when the pods on the manager are gone; the quota is free after that."""
        cluster = GroupCluster()
        for name in ("a", "b"):
            cluster.member(name)
        cluster.settle(GROUP)
        dispatch(cluster)
        cluster.world.multikueue.elsewhere.holds = lambda workload: True
        cluster.admit_all()
        for name in ("a", "b"):
            cluster.delete(Pod, f"team/{name}")
        cluster.settle(GROUP)
        assert cluster.get(Pod, "team/a") is None
        assert cluster.condition("Finished") is None


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

    def test_names_nothing_of_the_other_cluster(self) -> None:
        """A Service here would send requests to an address there, which another pod may have here."""
        there = {"podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}], "hostIP": "10.1.0.1", "hostIPs": []}
        there |= {"nominatedNodeName": "n1", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "other"}]}
        returned = PlainPod.copies.returned
        assert returned is not None
        assert returned(decode(Pod, {"metadata": {"name": "p"}}), {"phase": "Running", **there}) == {"phase": "Running"}


class TestAJobOnAWorker:
    """What the manager reads of it."""

    def test_may_have_any_spec_unless_its_size_may_change(self) -> None:
        """A field of another kind may have the name of a size, and another type."""
        spec = {"parallelism": {"max": 5}, "replicas": "three"}
        found = decode(remote_kind(RayJob, sized=False), {"metadata": {"name": "run"}, "spec": spec})
        assert found.metadata.name == "run"


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
        copy = decode(SizedRemoteJob, {"metadata": {"name": "model"}})
        assert not worker.decide("east", None, Remote(jobs=[copy], shared=True), dispatched=False).delete_jobs
        assert worker.decide("east", None, Remote(jobs=[copy]), dispatched=False).delete_jobs

    def test_are_not_named_by_the_copy_whatever_the_set_says(self) -> None:
        """It serves all of them: a name that its user wrote would have it taken for the copy of another Workload."""
        named = {"kueue.x-k8s.io/prebuilt-workload-name": "another"}
        meta = {"name": "model", "namespace": "team", "uid": "u", "labels": named, "annotations": named}
        body = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": meta, "spec": {}}
        copies = LeaderWorkerSets().copies
        assert copies is not None
        made = copied_job(body, copies, workload="first", origin="multikueue")["metadata"]
        assert not named.keys() & (made["labels"].keys() | made["annotations"].keys())

    def test_give_the_copy_the_number_of_groups_of_their_set(self) -> None:
        """Groups by which the set has grown would have no pods there, and hold quota."""
        copies = LeaderWorkerSets.copies
        assert copies.size is not None
        status = {"clusterName": "east", "conditions": [RESERVED, ADMITTED]}
        meta = {"name": self.GANGS.name(0), "namespace": "ns", "labels": {ORIGIN: "multikueue"}}
        here = decode(Workload, {"metadata": meta, "spec": {"queueName": "q"}, "status": status})

        def resized(replicas: int, workload: Workload = here) -> bool:
            copy = decode(SizedRemoteJob, {"metadata": {"name": "model"}, "spec": {"replicas": replicas}})
            remote = Remote(workload=workload, jobs=[copy], shared=True, size=copies.size(self.SET, {}))
            return worker.decide("east", here, remote, dispatched=True).resize

        assert self.sent("east", "").sizes(here, "east")
        assert [resized(each) for each in (1, 2, 3)] == [True, False, True]


class TestTheSlicesOfAnElasticJob:
    """A job that grows has a second Workload, which takes the place of the first."""

    SLICE, BEFORE = "kueue.x-k8s.io/workload-slice-name", "kueue.x-k8s.io/workload-slice-replacement-for"

    def slice(self, name: str, count: int, *, before: str = "", cluster: str | None = "east") -> Workload:
        """A Workload on the manager, or with the marks of its copy."""
        marks = {self.SLICE: "first", **({self.BEFORE: before} if before else {})}
        meta = {"name": name, "namespace": "ns", "annotations": marks, "labels": {ORIGIN: "multikueue"}}
        status = {"clusterName": cluster, "conditions": [RESERVED, ADMITTED]}
        spec = {"queueName": "q", "podSets": [{"name": "main", "count": count}]}
        return decode(Workload, {"metadata": meta, "spec": spec, "status": status})

    def test_go_where_the_first_runs(self) -> None:
        """And nowhere before it has a cluster."""
        first, second = self.slice("first", 1), self.slice("second", 3, before="ns/first", cluster=None)
        sent = Sent(BatchJob(), (), (first, second))
        assert (sent.cluster(second), sent.leads(second)) == ("east", False)

    def test_decide_about_the_size_until_the_next_has_won(self) -> None:
        """Then the next does."""
        first, second = self.slice("first", 1), self.slice("second", 3, before="ns/first")
        waits = self.slice("second", 3, before="ns/first", cluster=None)
        assert Sent(BatchJob(), (), (first, waits)).sizes(first, "east")
        assert not Sent(BatchJob(), (), (first, second)).sizes(first, "east")
        assert Sent(BatchJob(), (), (first, second)).sizes(second, "east")

    def test_give_the_copy_their_size_and_their_name(self) -> None:
        """Once the cluster has admitted them, and only if it has another."""
        here, copy = self.slice("second", 3, before="ns/first"), {"kueue.x-k8s.io/prebuilt-workload-name": "first"}

        def order(named: dict[str, str], parallelism: int) -> worker.Order:
            job = {"metadata": {"name": "job", "annotations": named}, "spec": {"parallelism": parallelism}}
            remote = Remote(workload=here, jobs=[decode(SizedRemoteJob, job)], size={"parallelism": 3})
            return worker.decide("east", here, remote, dispatched=True)

        assert order(copy, 1).resize
        assert not order({"kueue.x-k8s.io/prebuilt-workload-name": "second"}, 3).resize

    def test_that_shrink_are_not_made_anew(self) -> None:
        """The worker writes their numbers when the pods have gone."""
        there = self.slice("first", 3)
        order = worker.decide("east", self.slice("first", 1), Remote(workload=there), dispatched=True)
        assert not order.delete_workload

    def test_that_were_replaced_there_have_not_finished(self) -> None:
        """The manager admits the next one first."""
        done = condition("Finished", "True", "WorkloadSliceReplaced")
        there = decode(Workload, {"metadata": {"name": "first"}, "status": {"conditions": [done]}})
        here = self.slice("first", 1)
        check = AdmissionCheckState(name="elsewhere", state="Ready")
        verdict = manager.decide(Situation(workload=here, check=check, remotes={"east": Remote(workload=there)}))
        assert (verdict.finish, verdict.check) == (None, None)
