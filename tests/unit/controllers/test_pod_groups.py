"""Pods of one group are one job: composed, started, stopped, replaced and ended together."""

from typing import ClassVar

import pytest

from tests.unit.controllers.group_cluster import FINALIZER, GROUP, GroupCluster
from tests.unit.controllers.job_cluster import TEMPLATE, Body
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Delete, Patch, RequeueAfter
from turnstile.jobs.options import JobOptions

REPLACE = "WaitingForReplacementPods"


def running(*cpus: int, total: int | None = None, early: bool = False) -> GroupCluster:
    """A group whose pods `p0`, `p1`, ... were admitted and run; `early`: gate FastQuotaReleaseInPodIntegration."""
    cluster = GroupCluster(total=total or len(cpus), options=JobOptions(fast_quota_release=early))
    for number, cpu in enumerate(cpus):
        cluster.member(f"p{number}", cpu=cpu)
    cluster.settle(GROUP)
    cluster.admit_all()
    cluster.settle(GROUP)
    cluster.bind()
    cluster.settle(GROUP)
    cluster.writes.clear()
    cluster.events.clear()
    return cluster


def finalized(cluster: GroupCluster) -> list[str]:
    """Names of the pods that our finalizer keeps."""
    return sorted(name for name, each in cluster.pods.items() if FINALIZER in each["metadata"].get("finalizers", ()))


def counts(workload: Body) -> list[tuple[str, int]]:
    """CPU of each pod set's pods, and how many they are."""
    return sorted(
        (each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], each["count"])
        for each in workload["spec"]["podSets"]
    )


class TestComposition:
    def test_waits_for_the_last_pod_and_says_so(self) -> None:
        """The next pod wakes the group."""
        cluster = GroupCluster(total=3)
        cluster.member("a")
        cluster.member("b")
        cluster.settle(GROUP)
        assert cluster.writes == []
        assert cluster.events == [("ErrWorkloadCompose", "'ring' group has fewer runnable pods than expected")]
        cluster.member("c", cpu=2)
        cluster.settle(GROUP)
        meta = cluster.workload["metadata"]
        assert meta["name"] == "ring"
        assert meta["annotations"] == {"kueue.x-k8s.io/is-group-workload": "true"}
        assert [(each["name"], each.get("controller")) for each in meta["ownerReferences"]] == [
            ("a", None),
            ("b", None),
            ("c", None),
        ]
        assert counts(cluster.workload) == [("1", 2), ("2", 1)]

    def test_a_failed_member_is_kept_for_no_workload(self) -> None:
        """A member that failed before its group was composed is released: there is nothing that it could be replaced
        in. One that succeeded counts as a member, and is kept."""
        cluster = GroupCluster(total=3)
        for name in ("a", "b", "c"):
            cluster.member(name, held=name == "a")
        cluster.patch(Pod, "team/b", {"status": {"phase": "Failed"}})
        cluster.patch(Pod, "team/c", {"status": {"phase": "Succeeded"}})
        cluster.settle(GROUP)
        assert finalized(cluster) == ["a", "c"]
        assert cluster.workloads == []

    @pytest.mark.parametrize(
        ("labels", "count", "told"),
        [
            ({"kueue.x-k8s.io/queue-name": "other"}, "2", "queue names: 'main' and 'other'"),
            ({}, "3", "kueue.x-k8s.io/pod-group-total-count: 2 and 3"),
            ({}, "many", "kueue.x-k8s.io/pod-group-total-count: 2 and 0"),
        ],
    )
    def test_refuses_pods_that_contradict_each_other(self, labels: Body, count: str, told: str) -> None:
        """In one event that names both."""
        cluster = GroupCluster()
        cluster.member("a")
        cluster.member("b", labels=labels, pod_group_total_count=count)
        cluster.settle(GROUP)
        assert cluster.writes == []
        ((reason, note),) = cluster.events
        assert reason == "ErrWorkloadCompose"
        assert note.endswith(told)

    def test_its_workload_gets_labels_of_its_pods(self) -> None:
        """The keys that the configuration names, from any pod that has them."""
        cluster = GroupCluster(total=2)
        cluster.world.options = JobOptions(label_keys_to_copy=("team", "tier", "absent"))
        cluster.member("a", labels={"team": "vision", "other": "a"})
        cluster.member("b", labels={"team": "vision", "tier": "gold", "other": "b"})
        cluster.settle(GROUP)
        assert cluster.workload["metadata"]["labels"] == {"team": "vision", "tier": "gold"}

    def test_pods_with_different_values_of_a_copied_label_get_no_workload(self) -> None:
        """The event names the label and the values."""
        cluster = GroupCluster(total=2)
        cluster.world.options = JobOptions(label_keys_to_copy=("team",))
        cluster.member("a", labels={"team": "vision"})
        cluster.member("b", labels={"team": "speech"})
        cluster.settle(GROUP)
        assert cluster.writes == []
        note = "the pods have different values of the label team: vision, speech"
        assert cluster.events == [("ErrWorkloadCompose", note)]

    @pytest.mark.parametrize("other", ["lab", None])
    def test_pods_with_different_values_of_a_measured_annotation_get_no_workload(self, other: str | None) -> None:
        """A metric has one value for a group; a pod may leave the annotation out."""
        key = "kueue.x-k8s.io/site"
        cluster = GroupCluster(total=2)
        cluster.world.options = JobOptions(copied_annotations=(key,))
        cluster.member("a", **({"site": other} if other else {}))
        cluster.member("b", site="field")
        cluster.settle(GROUP)
        if other is None:
            assert cluster.workload["metadata"]["annotations"][key] == "field"
            return
        assert cluster.writes == []
        note = f"the pods have different values of the annotation {key}: lab, field"
        assert cluster.events == [("ErrWorkloadCompose", note)]

    def test_pods_with_different_values_of_a_measured_label_get_no_workload(self) -> None:
        """As of an annotation."""
        cluster = GroupCluster(total=2)
        cluster.world.options = JobOptions(copied_labels=("team",))
        cluster.member("a", labels={"team": "vision"})
        cluster.member("b", labels={"team": "speech"})
        cluster.settle(GROUP)
        assert cluster.writes == []

    def test_does_not_believe_what_a_pod_says_of_its_role(self) -> None:
        """A larger pod has a pod set of its own, whatever role it claims."""
        cluster = GroupCluster()
        cluster.member("a", role_hash="small")
        cluster.member("b", cpu=8, role_hash="small")
        cluster.settle(GROUP)
        assert counts(cluster.workload) == [("1", 1), ("8", 1)]

    def test_refuses_pods_that_the_role_hash_does_not_tell_apart(self) -> None:
        """A sidecar asks for its resources beside the containers, an init container before them."""
        cluster = GroupCluster()
        for name, sidecar in (("a", {}), ("b", {"restartPolicy": "Always"})):
            cluster.member(name)
            init = {"name": "i", "resources": {"requests": {"cpu": "9"}}, **sidecar}
            cluster.patch(Pod, f"team/{name}", {"spec": {"initContainers": [init]}})
        cluster.settle(GROUP)
        assert cluster.workloads == []
        assert cluster.events[-1][1] == "pods 'a' and 'b' have the same role hash but ask for different resources"

    def test_with_fast_admission_charges_for_all_from_the_first_pod(self) -> None:
        """Later pods join; one of another role has no place."""
        cluster = GroupCluster(total=3)
        cluster.member("a", pod_group_fast_admission="true")
        cluster.settle(GROUP)
        assert counts(cluster.workload) == [("1", 3)]
        cluster.admit_all()
        cluster.member("b", pod_group_fast_admission="true")
        cluster.member("c", cpu=2, pod_group_fast_admission="true")
        cluster.settle(GROUP)
        assert cluster.started() == ["a", "b"]
        assert ("ExcessPodDeleted", "Excess pod deleted") in cluster.events
        assert cluster.condition(REPLACE) is None

    def test_leaves_a_workload_of_its_name_alone_that_is_not_a_groups(self) -> None:
        """The group is told, and composed once that one is gone."""
        cluster = GroupCluster(total=1)
        cluster.put(Workload, {"metadata": {"name": "ring", "namespace": "team"}, "spec": {"podSets": []}})
        cluster.member("a")
        cluster.settle(GROUP)
        assert cluster.writes == []
        assert [reason for reason, _ in cluster.events] == ["WorkloadNameConflict"]
        cluster.delete(Workload, "team/ring")
        cluster.settle(GROUP)
        assert counts(cluster.workload) == [("1", 1)]

    def test_lets_deleted_pods_of_an_incomplete_group_go(self) -> None:
        """Nobody waits for their replacement."""
        cluster = GroupCluster(total=3)
        cluster.member("a")
        cluster.delete(Pod, "team/a")
        cluster.settle(GROUP)
        assert cluster.pods == {}

    def test_is_rewritten_while_it_waits_when_other_pods_come(self) -> None:
        """In place: it keeps its place in the queue."""
        cluster = GroupCluster()
        cluster.member("a")
        cluster.member("b")
        cluster.settle(GROUP)
        uid = cluster.workload["metadata"]["uid"]
        cluster.delete(Pod, "team/b")
        cluster.member("c", cpu=2)
        cluster.settle(GROUP)
        assert counts(cluster.workload) == [("1", 1), ("2", 1)]
        assert cluster.workload["metadata"]["uid"] == uid
        assert sorted(cluster.pods) == ["a", "c"]


class TestStart:
    def test_lifts_all_gates_and_says_where_to_run(self) -> None:
        """Each pod by one patch, each told of."""
        cluster = running(1, 2)
        assert cluster.started() == ["p0", "p1"]
        for pod in cluster.pods.values():
            assert pod["spec"]["nodeSelector"] == {"pool": "a"}
            assert pod["spec"]["tolerations"] == [{"key": "a", "operator": "Exists"}]
            assert "kueue.x-k8s.io/podset" in pod["metadata"]["labels"]

    def test_a_started_pod_keeps_its_role_although_its_spec_has_changed(self) -> None:
        """Node selector and tolerations are part of the role hash."""
        cluster = running(1, 2)
        cluster.settle(GROUP)
        assert cluster.writes == []

    def test_stops_at_what_the_workload_charges_for(self) -> None:
        """A raised total count is only a word."""
        cluster = running(1, 1)
        for name in ("p0", "p1"):
            cluster.patch(
                Pod, f"team/{name}", {"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "9"}}}
            )
        cluster.total = 9
        cluster.member("late")
        cluster.settle(GROUP)
        assert cluster.started() == ["p0", "p1"]
        assert "late" not in cluster.pods

    def test_does_not_let_a_larger_pod_run_in_a_small_role(self) -> None:
        """A replacement with another shape stops the group, which is composed anew."""
        cluster = running(1, 1)
        role = cluster.workload["spec"]["podSets"][0]["name"]
        cluster.end("p0", "Failed")
        cluster.member("big", cpu=8, role_hash=role)
        cluster.settle(GROUP)
        assert "big" in cluster.held()
        assert cluster.started() == []

    def test_waits_for_the_pod_that_is_replaced(self) -> None:
        """It has its place until it is gone or its grace period is over."""
        cluster = running(1, 1)
        cluster.delete(Pod, "team/p0")
        cluster.member("new")
        cluster.settle(GROUP)
        assert cluster.held() == ["new"]
        assert RequeueAfter(60.0) in cluster.decide(GROUP).actions
        cluster.later(seconds=61)
        cluster.settle(GROUP)
        assert cluster.held() == []

    @pytest.mark.parametrize("seconds", [10**12, 10**15, 2**63 - 1])
    @pytest.mark.parametrize("end", ["1900-01-01T00:00:00Z", "2300-01-01T00:00:00Z"])
    def test_waits_for_a_pod_with_a_grace_period_without_end(self, seconds: int, end: str) -> None:
        """A grace period of any length is decided about: its pod keeps its place for as long as it may run, also where
        the API server's sum of such a grace period and a time has wrapped."""
        cluster = running(1, 1)
        meta = {"deletionTimestamp": end, "deletionGracePeriodSeconds": seconds}
        cluster.patch(Pod, "team/p0", {"metadata": meta})
        cluster.member("new")
        cluster.settle(GROUP)
        assert cluster.held() == ["new"]

    def test_does_not_start_again_what_has_given_its_quota_back(self) -> None:
        """Also once the pod that has succeeded is out of sight."""
        cluster = running(1, 1)
        cluster.end("p0", "Succeeded")
        cluster.settle(GROUP)
        assert cluster.workload["status"]["reclaimablePods"][0]["count"] == 1
        cluster.patch(Pod, "team/p0", {"metadata": {"finalizers": [], "deletionTimestamp": "2026-01-02T03:04:05Z"}})
        cluster.member("again")
        cluster.settle(GROUP)
        assert cluster.started() == ["p1"]
        assert sum(cluster.containers()) == cluster.charged() == 1

    def test_a_late_pod_that_contradicts_its_flavor_stops_the_group_before_it_fails(self) -> None:
        """Quota is not free while others of the group run."""
        cluster = running(1, 1)
        cluster.end("p0", "Failed")
        cluster.member("late", labels={"kueue.x-k8s.io/podset": "mine"})
        cluster.settle(GROUP)
        assert cluster.started() == []
        assert cluster.condition("Finished") is None
        cluster.kubelet_stops()
        cluster.settle(GROUP)
        assert cluster.condition("Finished") is not None
        assert cluster.containers() == []


class TestStop:
    def test_keeps_the_quota_until_the_last_pod_has_stopped(self) -> None:
        """Then it waits in the queue for its replacements."""
        cluster = running(1, 2)
        cluster.evict()
        cluster.settle(GROUP)
        assert cluster.started() == []
        assert [reason for reason, _ in cluster.events].count("Stopped") == 2
        target = cluster.pods["p0"]["status"]["conditions"][0]
        assert (target["type"], target["reason"]) == ("TerminationTarget", "WorkloadEvictedDueToPreempted")
        assert cluster.charged() == 3
        cluster.end("p0", "Failed")
        cluster.settle(GROUP)
        assert cluster.charged() == 3
        cluster.end("p1", "Failed")
        cluster.settle(GROUP)
        assert cluster.charged() == 0
        assert cluster.condition("Requeued") == ("True", "Preempted", "Preempted to make room")
        assert cluster.condition(REPLACE) == ("True", "Preempted", "Preempted to make room")
        assert finalized(cluster) == ["p0", "p1"]

    def test_each_step_repeated_is_harmless(self) -> None:
        """Wherever a look dies, the next one does the rest, and no more."""
        for died in range(1, 6):
            cluster = running(1, 2)
            cluster.evict()
            cluster.step(GROUP, only=died)
            cluster.settle(GROUP)
            assert cluster.started() == []
            done = cluster.writes.copy()
            cluster.settle(GROUP)
            assert cluster.writes == done
            assert sorted(done) == ["delete Pod"] * 2 + ["patch Pod status"] * 2

    def test_without_a_workload_nothing_runs(self) -> None:
        """What was started is deleted; a new Workload is made when that is gone."""
        cluster = running(1, 1)
        cluster.patch(Workload, "team/ring", {"metadata": {"finalizers": []}})
        cluster.delete(Workload, "team/ring")
        cluster.member("new-0")
        cluster.member("new-1")
        cluster.settle(GROUP)
        assert cluster.started() == []
        assert cluster.workloads == []
        cluster.kubelet_stops()
        cluster.settle(GROUP)
        assert counts(cluster.workload) == [("1", 2)]
        assert sorted(cluster.pods) == ["new-0", "new-1"]

    def test_a_deleted_workload_is_kept_until_its_pods_are_gone(self) -> None:
        """Then pods and Workload go."""
        cluster = running(1, 1)
        cluster.delete(Workload, "team/ring")
        cluster.settle(GROUP)
        assert cluster.charged() == 2
        cluster.kubelet_stops()
        cluster.settle(GROUP)
        assert cluster.workloads == []
        assert cluster.pods == {}


class TestPrebuilt:
    """A Workload that was made before the pods of its group, as Kueue's suites and MultiKueue make it."""

    PREBUILT: ClassVar = {"kueue.x-k8s.io/prebuilt-workload-name": "ring"}

    def made_first(self, cluster: GroupCluster, resources: Body, *, finalizers: tuple[str, ...] = ()) -> None:
        """The Workload `ring` with one pod set for all pods of the group, named as its maker likes."""
        template = {**TEMPLATE["spec"], "containers": [{"name": "c", "image": "x", "resources": resources}]}
        pod_set = {"name": "role-a", "count": cluster.total, "template": {"spec": template}}
        marks = {"kueue.x-k8s.io/is-group-workload": "true"}
        meta = {"name": "ring", "namespace": "team", "annotations": marks, "finalizers": [*finalizers]}
        cluster.put(Workload, {"metadata": meta, "spec": {"queueName": "main", "podSets": [pod_set]}})

    @pytest.mark.parametrize("finalizers", [(), ("example.com/mine",)])
    def test_waits_for_its_pods(self, finalizers: tuple[str, ...]) -> None:
        """A Workload without an owner is orphaned only if it had one."""
        cluster = GroupCluster()
        self.made_first(cluster, {"requests": {"cpu": "1"}}, finalizers=finalizers)
        cluster.settle(GROUP)
        assert cluster.writes == []

    def test_is_taken_over_and_starts_its_pods(self) -> None:
        """All pods own it, none as its controller."""
        cluster = GroupCluster()
        self.made_first(cluster, {"requests": {"cpu": "1"}})
        cluster.admit_all()
        for name in ("a", "b"):
            cluster.member(name, labels=self.PREBUILT, role_hash="role-a")
        cluster.settle(GROUP)
        owners = cluster.workload["metadata"]["ownerReferences"]
        assert [(each["name"], each.get("controller")) for each in owners] == [("a", None), ("b", None)]
        assert cluster.started() == ["a", "b"]

    def test_that_was_taken_over_ends_with_its_pods(self) -> None:
        """It had owners."""
        cluster = GroupCluster()
        self.made_first(cluster, {"requests": {"cpu": "1"}})
        for name in ("a", "b"):
            cluster.member(name, labels=self.PREBUILT, role_hash="role-a")
        cluster.settle(GROUP)
        for name in ("a", "b"):
            cluster.delete(Pod, f"team/{name}")
        cluster.settle(GROUP)
        assert cluster.condition("Finished") == ("True", "OwnerNotFound", "The workload's owner no longer exists")

    @pytest.mark.parametrize("resources", [{"limits": {"cpu": "1"}}, {"requests": {"cpu": "2"}}])
    def test_charges_for_pods_that_the_api_server_completed(self, resources: Body) -> None:
        """Its template is compared as the pod that the API server makes of it; a pod that asks for less is covered."""
        cluster = GroupCluster()
        self.made_first(cluster, resources)
        cluster.admit_all()
        for name in ("a", "b"):
            cluster.member(name, labels=self.PREBUILT, role_hash="role-a")
        cluster.settle(GROUP)
        assert cluster.condition("Finished") is None
        assert cluster.started() == ["a", "b"]

    def test_leaves_a_replacement_gated_that_asks_for_more(self) -> None:
        """And says so; the pods that run go on, and another replacement starts."""
        cluster = GroupCluster()
        self.made_first(cluster, {"requests": {"cpu": "1"}})
        cluster.admit_all()
        for name in ("a", "b"):
            cluster.member(name, labels=self.PREBUILT, role_hash="role-a")
        cluster.settle(GROUP)
        cluster.bind()
        cluster.end("b", "Failed")
        cluster.member("large", cpu=2, labels=self.PREBUILT, role_hash="role-a")
        cluster.settle(GROUP)
        assert (cluster.started(), cluster.held()) == (["a"], ["large"])
        assert "PodExceedsRoleRequests" in [reason for reason, _ in cluster.events]
        cluster.delete(Pod, "team/large")
        cluster.member("small", labels=self.PREBUILT, role_hash="role-a")
        cluster.settle(GROUP)
        assert cluster.started() == ["a", "small"]
        assert cluster.condition("Finished") is None


class TestReplacement:
    def test_a_failed_pod_is_kept_until_another_one_takes_its_place(self) -> None:
        """The Workload says that it waits for it."""
        cluster = running(1, 1)
        cluster.end("p0", "Failed")
        cluster.settle(GROUP)
        assert cluster.condition(REPLACE) == ("True", "PodsFailed", "Some Failed pods need replacement")
        assert finalized(cluster) == ["p0", "p1"]
        cluster.member("new")
        cluster.settle(GROUP)
        assert cluster.started() == ["new", "p1"]
        assert finalized(cluster) == ["new", "p1"]
        assert cluster.condition(REPLACE) == ("False", "PodsReady", "No pods need replacement")
        assert [each["name"] for each in cluster.workload["metadata"]["ownerReferences"]] == ["p0", "p1", "new"]

    def test_the_youngest_excess_pods_are_deleted(self) -> None:
        """Those that are held before those that run."""
        cluster = running(1, 1)
        cluster.member("late")
        cluster.settle(GROUP)
        assert sorted(cluster.pods) == ["p0", "p1"]
        assert cluster.events == [("ExcessPodDeleted", "Excess pod deleted")]

    def test_a_stranger_beyond_the_count_does_not_stop_the_group(self) -> None:
        """It is one too many, whatever it asks for."""
        cluster = running(1, 1)
        cluster.member("stranger", cpu=4)
        cluster.settle(GROUP)
        assert cluster.started() == ["p0", "p1"]
        assert "stranger" not in cluster.pods

    def test_pods_can_be_waited_for_no_longer_when_the_group_is_deleted(self) -> None:
        """The user deletes all of them: they go, and the Workload with them."""
        cluster = running(1, 1)
        for name in ("p0", "p1"):
            cluster.delete(Pod, f"team/{name}")
        cluster.settle(GROUP)
        assert cluster.charged() == 2
        cluster.kubelet_stops()
        cluster.settle(GROUP)
        assert cluster.pods == {}
        assert cluster.condition("Finished") == ("True", "OwnerNotFound", "The workload's owner no longer exists")
        assert cluster.workload["metadata"]["finalizers"] == []


class TestEnd:
    def test_comes_with_the_last_success(self) -> None:
        """What is done before gives its quota back."""
        cluster = running(1, 2)
        cluster.end("p1", "Succeeded")
        cluster.settle(GROUP)
        assert cluster.charged() == 1
        cluster.end("p0", "Succeeded")
        cluster.settle(GROUP)
        assert cluster.condition("Finished") == ("True", "Succeeded", "Pods succeeded: 2/2.")
        assert finalized(cluster) == []

    def test_comes_with_the_last_pod_of_a_group_that_cannot_be_mended(self) -> None:
        """However its pods ended."""
        cluster = running(1, 1)
        cluster.patch(Pod, "team/p0", {"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}}})
        cluster.end("p0", "Failed")
        cluster.settle(GROUP)
        assert cluster.condition("Finished") is None
        cluster.end("p1", "Succeeded")
        cluster.settle(GROUP)
        assert cluster.condition("Finished") == ("True", "Succeeded", "Pods succeeded: 1/2.")

    def test_is_not_called_for_by_a_smaller_total_count(self) -> None:
        """While a pod may run, its quota is held."""
        cluster = running(1, 1)
        for name in ("p0", "p1"):
            cluster.patch(
                Pod, f"team/{name}", {"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "1"}}}
            )
        cluster.end("p0", "Succeeded")
        cluster.settle(GROUP)
        assert cluster.condition("Finished") is None
        assert cluster.charged() == 1

    def test_never_comes_for_a_serving_group(self) -> None:
        """It keeps its queue, and its quota until no pod may run."""
        cluster = GroupCluster(total=1)
        cluster.member("a", pod_group_serving="true")
        cluster.settle(GROUP)
        cluster.patch(Pod, "team/a", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        cluster.settle(GROUP)
        assert cluster.workload["spec"]["queueName"] == "main"
        cluster.admit_all()
        cluster.settle(GROUP)
        cluster.bind()
        cluster.end("a", "Succeeded")
        cluster.settle(GROUP)
        assert cluster.condition("Finished") is None
        assert cluster.charged() == 0

    @pytest.mark.parametrize("serving", ["true", "false"])
    def test_is_not_needed_to_give_quota_back(self, serving: str) -> None:
        """A group without a pod that may run holds nothing, and is queued again with the next pod that may."""
        cluster = GroupCluster(total=1)
        cluster.member("a", pod_group_serving=serving)
        cluster.settle(GROUP)
        cluster.admit_all()
        cluster.settle(GROUP)
        cluster.bind()
        cluster.end("a", "Failed")
        cluster.settle(GROUP)
        waits = ("False", "OnHold", "All pods of the group have ended; the group waits for a pod that may run")
        assert (cluster.charged(), cluster.condition("QuotaReserved")) == (0, waits)
        cluster.member("b", pod_group_serving=serving)
        cluster.settle(GROUP)
        assert cluster.condition("QuotaReserved")[1] == "PendingEvaluation"  # type: ignore[index]
        assert cluster.held() == ["b"]
        cluster.admit_all()
        cluster.settle(GROUP)
        assert cluster.started() == ["b"]

    def test_of_a_pod_that_was_never_charged_gives_no_quota_back(self) -> None:
        """The members that run need as much as before, whatever says that it has succeeded."""
        cluster = running(1, 1)
        cluster.member("old", held=False)
        cluster.end("old", "Succeeded")
        cluster.settle(GROUP)
        assert cluster.charged() == 2
        assert cluster.workload["status"].get("reclaimablePods") is None

    def test_gives_no_right_to_run_to_pods_that_come_after_it(self) -> None:
        """Nor to those whose gate a user lifts."""
        cluster = running(1)
        cluster.end("p0", "Succeeded")
        cluster.settle(GROUP)
        cluster.member("late", held=False)
        cluster.bind()
        cluster.settle(GROUP)
        assert cluster.started() == []


def test_a_single_pods_workload_goes_when_the_pod_joins_a_group() -> None:
    """The group has one of its own."""
    cluster = GroupCluster(total=1)
    cluster.pod()
    cluster.settle("pod:team/train")
    assert len(cluster.workloads) == 1
    group = {"annotations": {"kueue.x-k8s.io/pod-group-name": "ring", "kueue.x-k8s.io/pod-group-total-count": "1"}}
    cluster.patch(Pod, "team/train", {"metadata": group})
    cluster.settle("pod:team/train")
    cluster.settle(GROUP)
    assert cluster.workload["metadata"]["name"] == "ring"


def test_a_group_asks_to_be_looked_at_again_when_a_grace_period_is_over() -> None:
    """A node that is lost says nothing."""
    cluster = running(1)
    cluster.evict()
    cluster.settle(GROUP)
    assert [each for each in cluster.decide(GROUP).actions if isinstance(each, RequeueAfter)] == [RequeueAfter(60.0)]
    cluster.later(seconds=61)
    assert not [each for each in cluster.decide(GROUP).actions if isinstance(each, RequeueAfter)]
    cluster.settle(GROUP)
    assert cluster.charged() == 1  # as long as the API server has the pod


def test_a_late_look_changes_nothing() -> None:
    """What is as it should be is not written."""
    actions = running(1, 2).decide(GROUP).actions
    assert not [each for each in actions if isinstance(each, Patch | Delete)]


class TestFastQuotaRelease:
    """Gate FastQuotaReleaseInPodIntegration: no quota is kept for pods that are being deleted."""

    @pytest.mark.parametrize(("early", "charged"), [(False, 2), (True, 0)])
    def test_an_evicted_group_gives_its_quota_back_while_its_pods_terminate(self, *, early: bool, charged: int) -> None:
        """All of them are being deleted, and run on until their grace period is over."""
        cluster = running(1, 1, early=early)
        cluster.evict()
        cluster.settle(GROUP)
        assert cluster.charged() == charged
        assert len(cluster.containers()) == 2

    @pytest.mark.parametrize(("early", "charged"), [(False, 1), (True, 0)])
    def test_so_does_a_pod_that_is_queued_by_itself(self, *, early: bool, charged: int) -> None:
        """Likewise."""
        cluster = GroupCluster(total=1, options=JobOptions(fast_quota_release=early))
        cluster.pod()
        cluster.settle("pod:team/train")
        cluster.admit_all()
        cluster.settle("pod:team/train")
        cluster.bind()
        cluster.evict()
        cluster.settle("pod:team/train")
        assert cluster.charged() == charged

    def test_pods_keep_their_grace_period(self) -> None:
        """A program may write a checkpoint, within the patience with victims."""
        cluster = running(1, early=True)
        cluster.delete(Pod, "team/p0", grace_seconds=300)
        cluster.evict()
        cluster.settle(GROUP)
        assert cluster.charged() == 0
        assert cluster.pods["p0"]["metadata"]["deletionGracePeriodSeconds"] == 300

    def test_a_replacement_waits_for_the_pod_that_it_replaces(self) -> None:
        """A pod keeps its place in the group until it can run no more."""
        cluster = running(1, 1, early=True)
        cluster.delete(Pod, "team/p0")
        cluster.member("new")
        cluster.settle(GROUP)
        assert cluster.held() == ["new"]
