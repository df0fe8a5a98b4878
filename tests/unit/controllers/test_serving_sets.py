"""A StatefulSet or a LeaderWorkerSet: the Workloads of its gangs, its pods, and what is not charged for."""

import contextlib
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.controllers.job_cluster import TEMPLATE, Body, Cluster
from tests.unit.engine import builders as b
from turnstile.api.core import LimitRange, Pod
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.jobs import servingsets
from turnstile.controllers.jobs.servingsets import AHEAD, MOST_WRITES
from turnstile.controllers.runtime.actions import Create, Emit, RequeueAfter
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSet
from turnstile.jobs.kinds.statefulset import StatefulSet, StatefulSets
from turnstile.jobs.naming import workload_name
from turnstile.jobs.options import JobOptions

SET = "statefulset:team/db"
LWS = "leaderworkerset.x-k8s.io/leaderworkerset:team/model"
NAME = workload_name(StatefulSet, "db", "uid-db")
OLDER = workload_name(StatefulSet, "db", "")
GROUP = f"pod:team/group/{NAME}"
GATE = "kueue.x-k8s.io/admission"
QUEUE = {"kueue.x-k8s.io/queue-name": "main"}


def put_set(
    cluster: Cluster,
    *,
    replicas: int = 2,
    cpu: str = "1",
    status: Body | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> None:
    """A StatefulSet in queue `main`, if the labels do not say otherwise."""
    meta: Body = {"name": "db", "namespace": "team", "uid": "uid-db", "labels": {**QUEUE, **(labels or {})}}
    meta["annotations"] = annotations or {}
    spec = {"replicas": replicas, "template": template(cpu)}
    cluster.put(StatefulSet, {"metadata": meta, "spec": spec, "status": status or {}})


def template(cpu: str = "1") -> Body:
    """A pod template of one container."""
    container = {**TEMPLATE["spec"]["containers"][0], "resources": {"requests": {"cpu": cpu}} if cpu else {}}
    return {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container]}}


def put_pod(cluster: Cluster, name: str, *, cpu: str = "1", gated: bool = True, **metadata: Any) -> None:
    """A pod that the StatefulSet has created, as the Pod webhook leaves it."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": True}
    meta: Body = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "ownerReferences": [owner],
        "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
        **metadata,
    }
    spec = {**template(cpu)["spec"], "schedulingGates": [{"name": GATE}] if gated else []}
    cluster.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})


def older(cluster: Cluster, owner: tuple[str, str] | None, *, uid: str = "") -> Body:
    """The Workload of the StatefulSet as a version of Kueue made it that left the uid out of its name."""
    pod_set = {"name": "main", "count": 2, "template": {"spec": template()["spec"]}}
    meta: Body = {"name": OLDER, "namespace": "team", "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
    if owner is not None:
        version = "v1" if owner[0] == "Pod" else "apps/v1"
        named = {"apiVersion": version, "kind": owner[0], "name": owner[1], "uid": uid or f"uid-{owner[1]}"}
        meta["ownerReferences"] = [named]
    body: Body = {"metadata": meta, "spec": {"queueName": "main", "podSets": [pod_set]}}
    cluster.put(Workload, body)
    return body


def settle(cluster: Cluster) -> None:
    """Both reconcilers, until nothing is written."""
    for _ in range(3):
        cluster.settle(SET)
        cluster.settle(GROUP)


def gated(cluster: Cluster, name: str) -> bool | None:
    """Whether a pod is gated; None if there is none."""
    pod = cluster.get(Pod, f"team/{name}")
    return bool(pod["spec"].get("schedulingGates")) if pod is not None else None


def run(cluster: Cluster, name: str) -> None:
    """The scheduler binds the pod, which will take its time to stop."""
    patch = {"spec": {"nodeName": "node"}, "metadata": {"finalizers": ["test/stops-slowly"]}}
    cluster.patch(Pod, f"team/{name}", {**patch, "status": {"phase": "Running"}})


def gone(cluster: Cluster, name: str) -> None:
    """The pod has stopped."""
    cluster.patch(Pod, f"team/{name}", {"metadata": {"finalizers": []}})


@pytest.fixture
def cluster() -> Cluster:
    """A flavor, and a StatefulSet of two pods, the first of which was created."""
    made = Cluster()
    made.flavor()
    put_set(made)
    settle(made)
    put_pod(made, "db-0")
    settle(made)
    return made


class TestAdmission:
    def test_one_workload_charges_for_all_pods(self, cluster: Cluster) -> None:
        """Before they are there; it is the StatefulSet's, and a group's."""
        workload = cluster.workload
        assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("main", 2)]
        assert workload["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"] == "true"
        assert gated(cluster, "db-0")

    def test_its_workload_gets_its_labels_that_the_configuration_names(self) -> None:
        """When it is created."""
        cluster = Cluster(options=JobOptions(label_keys_to_copy=("kueue.x-k8s.io/queue-name", "absent")))
        put_set(cluster)
        settle(cluster)
        assert cluster.workload["metadata"]["labels"] == {**QUEUE, "kueue.x-k8s.io/job-uid": "uid-db"}

    def test_pods_are_started_as_they_come(self, cluster: Cluster) -> None:
        """The second one on the quota that is reserved already; their Workload is not written for that."""
        cluster.admit()
        settle(cluster)
        assert gated(cluster, "db-0") is False
        run(cluster, "db-0")
        before = cluster.workload["metadata"]["resourceVersion"]
        put_pod(cluster, "db-1")
        settle(cluster)
        assert gated(cluster, "db-1") is False
        assert cluster.workload["metadata"]["resourceVersion"] == before

    @pytest.mark.parametrize(("cpu", "started"), [("500m", True), ("1", True), ("2", False)])
    def test_a_pod_is_charged_for_by_what_it_requests(self, cluster: Cluster, cpu: str, started: bool) -> None:
        """Whatever role it says it has; a larger one stays gated, and stops nobody."""
        cluster.admit()
        put_pod(cluster, "db-1", cpu=cpu)
        settle(cluster)
        assert gated(cluster, "db-0") is False
        assert gated(cluster, "db-1") is not started

    def test_pods_beyond_the_count_stay_gated(self, cluster: Cluster) -> None:
        """They are not deleted: their controller would only create the next."""
        cluster.admit()
        for number in range(1, 4):
            put_pod(cluster, f"db-{number}")
        settle(cluster)
        assert [gated(cluster, f"db-{number}") for number in range(4)].count(True) == 2

    @pytest.mark.parametrize("owners", ["none", "its pods", "itself"])
    def test_a_workload_of_the_older_name_is_taken_over(self, owners: str) -> None:
        """Versions of Kueue before the uid was part of the name made it: a second one would be charged for the same
        pods. It keeps its quota, and new pods join it."""
        cluster = Cluster()
        put_set(cluster)
        put_pod(cluster, "db-0")
        body = older(cluster, {"none": None, "its pods": ("Pod", "db-0"), "itself": ("StatefulSet", "db")}[owners])
        settle(cluster)
        assert cluster.workload["metadata"]["name"] == OLDER
        assert {"name": "db", "uid": "uid-db"}.items() <= cluster.workload["metadata"]["ownerReferences"][-1].items()
        assert cluster.workload["spec"]["podSets"] == body["spec"]["podSets"]
        marks = cluster.get(Pod, "team/db-0")["metadata"]["annotations"]  # type: ignore[index]
        assert marks["kueue.x-k8s.io/pod-group-name"] == OLDER

    def test_a_workload_of_the_older_name_that_others_own_is_left_alone(self) -> None:
        """An earlier set of that name, say, which is being collected."""
        cluster = Cluster()
        put_set(cluster)
        older(cluster, ("StatefulSet", "db"), uid="another")
        cluster.settle(SET)
        assert NAME in [each["metadata"]["name"] for each in cluster.workloads]

    @pytest.mark.parametrize(
        ("revision", "cpu", "partition", "stays"),
        [("old", "2", 0, False), ("old", "1", 0, True), ("new", "2", 0, True), ("old", "2", 1, True)],
        ids=["not charged for", "charged for", "the newest", "kept by the partition"],
    )
    def test_a_gated_pod_of_an_old_revision_gives_way(
        self, revision: str, cpu: str, partition: int, *, stays: bool
    ) -> None:
        """If no Workload charges for it, it would wait for ever, and all pods behind it."""
        cluster = Cluster()
        put_set(cluster, status={"updateRevision": "new"})
        strategy = {"rollingUpdate": {"partition": partition}}
        cluster.patch(StatefulSet, "team/db", {"spec": {"updateStrategy": strategy}})
        put_pod(cluster, "db-0", cpu=cpu, labels={"controller-revision-hash": revision})
        settle(cluster)
        assert (gated(cluster, "db-0") is not None) == stays

    def test_a_limit_range_counts(self) -> None:
        """The pods request what it adds to their template."""
        cluster = Cluster()
        cluster.flavor()
        limit = {"type": "Container", "defaultRequest": {"cpu": "2"}}
        body = {"metadata": {"name": "limits", "namespace": "team"}, "spec": {"limits": [limit]}}
        cluster.world.limit_ranges.observe(LimitRange.decoder()(_json(body)))
        put_set(cluster, cpu="")
        put_pod(cluster, "db-0", cpu="2")
        settle(cluster)
        cluster.admit()
        settle(cluster)
        assert gated(cluster, "db-0") is False


OTHER = {"kueue.x-k8s.io/queue-name": "other"}


class TestLabels:
    """The Workload of a gang follows the labels of its set in every state without quota, before anything else."""

    def test_one_on_hold_follows_queue_and_priority_at_zero(self, cluster: Cluster) -> None:
        """So that the set is charged to the new queue when it is scaled up again."""
        cluster.put(WorkloadPriorityClass, {"metadata": {"name": "high"}, "value": 7})
        put_set(cluster, replicas=0)
        settle(cluster)
        assert cluster.condition("QuotaReserved")[1] == "OnHold"  # type: ignore[index]
        put_set(cluster, replicas=0, labels={**OTHER, "kueue.x-k8s.io/priority-class": "high"})
        settle(cluster)
        assert (cluster.workload["spec"]["queueName"], cluster.workload["spec"]["priority"]) == ("other", 7)
        assert cluster.condition("QuotaReserved")[1] == "OnHold"  # type: ignore[index]

    def test_one_on_hold_is_moved_before_it_is_let_back(self, cluster: Cluster) -> None:
        """Label and number changed before the set was reconciled: no cycle may admit it in the old queue."""
        put_set(cluster, replicas=0)
        settle(cluster)
        put_set(cluster, labels=OTHER)
        cluster.step(SET)
        assert cluster.workload["spec"]["queueName"] == "other"
        assert cluster.condition("QuotaReserved")[1] == "OnHold"  # type: ignore[index]
        settle(cluster)
        assert cluster.condition("QuotaReserved")[1] == "PendingEvaluation"  # type: ignore[index]

    def test_one_that_waits_for_its_checks_gives_the_quota_back(self, cluster: Cluster) -> None:
        """Gated pods stay."""
        cluster.set_condition("QuotaReserved")
        put_set(cluster, labels=OTHER)
        settle(cluster)
        assert cluster.workload["spec"]["queueName"] == "other"
        assert cluster.condition("QuotaReserved")[:2] == ("False", "PendingEvaluation")  # type: ignore[index]
        assert gated(cluster, "db-0")

    def test_pods_that_never_got_ready_are_stopped_when_their_set_is_moved(self, cluster: Cluster) -> None:
        """Their Workload goes when they are gone; the next one is in the new queue."""
        cluster.admit()
        settle(cluster)
        run(cluster, "db-0")
        put_set(cluster, labels=OTHER)
        settle(cluster)
        assert cluster.workload["metadata"]["deletionTimestamp"]
        assert cluster.workload["status"]["admission"] is not None
        gone(cluster, "db-0")
        settle(cluster)
        assert cluster.workload["spec"]["queueName"] == "other"

    def test_pods_that_serve_are_not_stopped_for_a_label(self, cluster: Cluster) -> None:
        """The webhook refuses to move them; a set that was relabelled past it goes on."""
        cluster.admit()
        settle(cluster)
        run(cluster, "db-0")
        put_set(cluster, labels=OTHER, status={"readyReplicas": 1, "replicas": 2})
        settle(cluster)
        assert "deletionTimestamp" not in cluster.workload["metadata"]
        assert cluster.workload["spec"]["queueName"] == "main"

    def test_only_the_set_changes_the_priority(self, cluster: Cluster) -> None:
        """Its pods carry the label that it had when they joined their group."""
        for name, value in (("high", 7), ("higher", 8)):
            cluster.put(WorkloadPriorityClass, {"metadata": {"name": name}, "value": value})
        put_set(cluster, labels={"kueue.x-k8s.io/priority-class": "high"})
        cluster.patch(Pod, "team/db-0", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
        settle(cluster)
        put_set(cluster, labels={"kueue.x-k8s.io/priority-class": "higher"})
        settle(cluster)
        assert cluster.workload["spec"]["priority"] == 8


class TestEnd:
    def test_an_evicted_one_waits_with_gated_pods(self, cluster: Cluster) -> None:
        """Its quota is free when the pods that ran are gone, though others are there already."""
        cluster.admit()
        settle(cluster)
        run(cluster, "db-0")
        cluster.evict()
        settle(cluster)
        assert cluster.workload["status"].get("admission") is not None
        gone(cluster, "db-0")
        put_pod(cluster, "db-1")
        settle(cluster)
        assert cluster.workload["status"].get("admission") is None
        assert cluster.condition("Requeued") == ("True", "Preempted", "Preempted to make room")

    @pytest.mark.parametrize("change", ["evicted", "scaled", "changed"])
    def test_its_quota_is_kept_while_a_pod_may_be_starting(self, cluster: Cluster, change: str) -> None:
        """The gate of a pod is being lifted: the reconciler of the group has decided that, and its write has not
        landed. The reconciler of the set must not release the quota meanwhile."""
        cluster.admit()
        start = cluster.decide(GROUP)
        match change:
            case "evicted":
                cluster.evict()
            case "scaled":
                put_set(cluster, replicas=0)
            case "changed":
                put_set(cluster, cpu="2")
        cluster.settle(SET)
        for action in start.actions:
            cluster.act(action)
        assert gated(cluster, "db-0") is False
        assert cluster.workload["status"].get("admission") is not None

    def test_scaled_to_zero_it_keeps_no_quota(self, cluster: Cluster) -> None:
        """From when its pods are gone; scaled up to another number it waits for that."""
        cluster.admit()
        settle(cluster)
        run(cluster, "db-0")
        put_set(cluster, replicas=0)
        settle(cluster)
        assert cluster.workload["status"].get("admission") is not None
        cluster.delete(Pod, "team/db-0")
        settle(cluster)
        assert cluster.workload["status"].get("admission") is not None
        gone(cluster, "db-0")
        settle(cluster)
        assert (cluster.condition("QuotaReserved") or ())[:2] == ("False", "OnHold")
        put_set(cluster, replicas=5)
        settle(cluster)
        assert cluster.workload["spec"]["podSets"][0]["count"] == 5
        assert (cluster.condition("QuotaReserved") or ())[:2] == ("False", "PendingEvaluation")

    def test_scaled_past_its_webhook_it_runs_on(self, cluster: Cluster) -> None:
        """Down, the quota of the pods that are gone is released; up, nothing is stopped, and an event says why."""
        cluster.admit()
        settle(cluster)
        run(cluster, "db-0")
        put_set(cluster, replicas=1)
        settle(cluster)
        assert cluster.workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
        put_set(cluster, replicas=9)
        settle(cluster)
        assert gated(cluster, "db-0") is False
        assert "NotCharged" in {reason for reason, _ in cluster.events}

    def test_its_workload_ends_with_it(self, cluster: Cluster) -> None:
        """But not while a pod that was started runs."""
        cluster.admit()
        settle(cluster)
        run(cluster, "db-0")
        cluster.delete(StatefulSet, "team/db")
        settle(cluster)
        assert cluster.condition("Finished") is None
        cluster.patch(Pod, "team/db-0", {"status": {"phase": "Succeeded"}})
        settle(cluster)
        assert (cluster.condition("Finished") or ())[:2] == ("True", "OwnerNotFound")


class TestPods:
    def test_a_pod_without_a_gate_does_not_join(self, cluster: Cluster) -> None:
        """It was created past the webhook: it is deleted."""
        put_pod(cluster, "db-1", gated=False, annotations={})
        settle(cluster)
        assert gated(cluster, "db-1") is None

    def test_a_gate_that_is_lifted_by_hand(self, cluster: Cluster) -> None:
        """The pod is deleted, for it has no quota."""
        cluster.patch(Pod, "team/db-0", {"spec": {"schedulingGates": []}})
        settle(cluster)
        assert gated(cluster, "db-0") is None

    def test_a_pod_of_another_set_of_that_name(self, cluster: Cluster) -> None:
        """A pod whose controller has another uid is none of its pods."""
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "older", "controller": True}
        put_pod(cluster, "db-1", ownerReferences=[owner])
        cluster.admit()
        settle(cluster)
        assert gated(cluster, "db-1")


def put_lws(
    cluster: Cluster, *, replicas: int, existing: int = 0, update: Body | None = None, status: Body | None = None
) -> None:
    """A LeaderWorkerSet of groups of two pods."""
    meta = {"name": "model", "namespace": "team", "uid": "uid-model", "labels": QUEUE}
    templates = {"size": 2, "leaderTemplate": template(), "workerTemplate": template("2")}
    strategy = {"rollingUpdateConfiguration": update} if update else {}
    spec = {"replicas": replicas, "leaderWorkerTemplate": templates, "rolloutStrategy": strategy}
    cluster.put(LeaderWorkerSet, {"metadata": meta, "spec": spec, "status": {"replicas": existing, **(status or {})}})


def groups(cluster: Cluster) -> list[str]:
    """The indexes of the groups that have a Workload, with their place in a rollout."""
    found = [each["metadata"]["annotations"] for each in cluster.workloads]
    return [
        f"{each['kueue.x-k8s.io/component-workload-index']} {each.get('turnstile.dev/rollout', '')}".strip()
        for each in found
    ]


class TestGroups:
    def test_each_group_has_a_workload(self) -> None:
        """Of a leader and a worker; those of groups that are not asked for any more are deleted."""
        cluster = Cluster()
        put_lws(cluster, replicas=3)
        cluster.settle(LWS)
        assert groups(cluster) == ["0", "1", "2"]
        pod_sets = cluster.workloads[0]["spec"]["podSets"]
        assert [(each["name"], each["count"]) for each in pod_sets] == [("leader", 1), ("worker", 1)]
        put_lws(cluster, replicas=1)
        cluster.settle(LWS)
        assert groups(cluster) == ["0"]

    def test_groups_that_surge(self) -> None:
        """They have Workloads while they are there, which take the quota of none but an old group."""
        cluster, update = Cluster(), {"maxSurge": 1, "maxUnavailable": 0}
        put_lws(cluster, replicas=1, update=update)
        cluster.settle(LWS)
        assert groups(cluster) == ["0"]
        put_lws(cluster, replicas=1, existing=2, update=update)
        cluster.settle(LWS)
        assert groups(cluster) == ["0 leaderworkerset/model:0", "1 leaderworkerset/model:1:replaces"]
        put_lws(cluster, replicas=1, existing=1, update=update)
        cluster.settle(LWS)
        assert groups(cluster) == ["0"]

    def test_groups_beyond_those_asked_for_surge_only_while_a_rolling_update_is_under_way(self) -> None:
        """Else they are left over from a set that was scaled down; near the end of an update its condition tells."""
        cluster, update = Cluster(), {"maxSurge": 1, "maxUnavailable": 0}
        under_way = {"updatedReplicas": 1, "conditions": [{"type": "UpdateInProgress", "status": "True"}]}
        put_lws(cluster, replicas=1, existing=2, update=update, status=under_way)
        cluster.settle(LWS)
        assert len(groups(cluster)) == 2
        cluster.events.clear()
        put_lws(cluster, replicas=1, existing=2, update=update, status={"updatedReplicas": 1})
        cluster.settle(LWS)
        assert groups(cluster) == ["0"]
        assert cluster.events == []


def put_leader(cluster: Cluster, group: int) -> None:
    """The gated leader of a group, as LeaderWorkerSet's controller makes it."""
    labels = {"leaderworkerset.sigs.k8s.io/name": "model", "leaderworkerset.sigs.k8s.io/group-index": str(group)}
    put_pod(cluster, f"model-{group}", labels=labels, ownerReferences=[])


class TestManyGroups:
    """The number of groups is a number that the set states: decisions are bounded by what exists, and by themselves."""

    def test_groups_without_pods_get_workloads_up_to_a_number(self) -> None:
        """A set of a million groups of which no pod exists fills neither a decision nor the API server."""
        cluster = Cluster()
        put_lws(cluster, replicas=1_000_000)
        cluster.settle(LWS)
        assert sorted(map(int, groups(cluster))) == list(range(AHEAD))

    def test_groups_with_pods_have_workloads_however_many_there_are(self) -> None:
        """Also where the pods of later groups exist and those of earlier ones do not; others follow them."""
        cluster = Cluster()
        put_lws(cluster, replicas=10 * AHEAD)
        cluster.settle(LWS)
        for group in range(5 * AHEAD, 5 * AHEAD + 20):
            put_leader(cluster, group)
        cluster.settle(LWS, limit=40)
        wanted = [*range(AHEAD), *range(5 * AHEAD, 5 * AHEAD + 20)]
        assert sorted(map(int, groups(cluster))) == wanted
        for group in range(30):
            put_leader(cluster, group)
        cluster.settle(LWS, limit=40)
        assert len(groups(cluster)) == len(wanted) + 30

    def test_a_decision_has_so_many_writes_and_the_rest_follows_at_once(self) -> None:
        """Whether Workloads are created, deleted with the groups, or ended with the set."""
        cluster = Cluster()
        put_lws(cluster, replicas=10 * AHEAD)
        for group in range(10 * AHEAD):
            put_leader(cluster, group)
        for replicas in (10 * AHEAD, 1):
            put_lws(cluster, replicas=replicas)
            decision = cluster.step(LWS)
            writes = [each for each in decision.actions if not isinstance(each, Emit | RequeueAfter)]
            assert MOST_WRITES <= len(writes) <= MOST_WRITES + 1
            assert decision.actions[-1] == RequeueAfter(0.0)
            cluster.settle(LWS, limit=40)
            assert len(groups(cluster)) == replicas
        put_lws(cluster, replicas=10 * AHEAD)
        cluster.settle(LWS, limit=40)
        cluster.delete(LeaderWorkerSet, "team/model")
        assert len(cluster.decide(LWS).actions) <= MOST_WRITES + 1

    def test_new_workloads_of_a_decision_are_bounded_in_bytes(self) -> None:
        """Each has a copy of the templates of the set, which may be a megabyte."""
        cluster = Cluster()
        put_lws(cluster, replicas=10 * AHEAD)
        body = cluster.get(LeaderWorkerSet, "team/model")
        assert body is not None
        [container] = body["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
        container["env"] = [{"name": f"v{number}", "value": "x" * 1000} for number in range(400)]
        cluster.put(LeaderWorkerSet, body)
        created = [each for each in cluster.decide(LWS).actions if isinstance(each, Create)]
        assert sum(len(each.body) for each in created) < 2 << 20
        cluster.settle(LWS, limit=60)
        assert len(groups(cluster)) == AHEAD

    def test_other_tasks_run_while_a_large_set_is_decided_about(self) -> None:
        """A decision is made in steps, each of a millisecond at most in the middle."""
        cluster = Cluster()
        put_lws(cluster, replicas=500)
        for group in range(500):
            put_leader(cluster, group)
        cluster.settle(LWS, limit=40)
        steps = []
        deciding = servingsets.steps(LWS, cluster.world)
        with contextlib.suppress(StopIteration):
            while True:
                began = time.thread_time()
                next(deciding)
                steps.append(time.thread_time() - began)
        assert len(steps) > 1000
        assert sorted(steps)[len(steps) // 2] < 0.001
        assert max(steps) < 0.05


def _json(body: Body) -> bytes:
    return json.dumps(body).encode()


def test_a_member_without_a_gate_is_in_the_queue_of_its_set() -> None:
    """Also if what made it a member did not say so."""
    cluster = Cluster()
    put_set(cluster)
    put_pod(cluster, "db-0", gated=False, annotations={"kueue.x-k8s.io/pod-group-name": NAME})
    put_pod(cluster, "db-1", gated=False, annotations={"kueue.x-k8s.io/pod-group-name": "another"})
    cluster.settle(SET)
    labels = [(cluster.get(Pod, f"team/db-{number}") or {})["metadata"].get("labels") for number in (0, 1)]
    assert labels == [QUEUE, None]


def test_a_finished_workload_stays_while_its_set_asks_for_no_pods() -> None:
    """It is replaced when another is needed, and else kept for as long as finished Workloads are."""
    cluster = Cluster()
    put_set(cluster)
    cluster.settle(SET)
    cluster.set_condition("Finished", reason="Succeeded")
    put_set(cluster, replicas=0)
    cluster.settle(SET)
    assert cluster.condition("Finished") is not None
    put_set(cluster, replicas=2)
    cluster.settle(SET)
    assert cluster.condition("Finished") is None


ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


class TestGrowth:
    """An elastic StatefulSet is queued pod by pod, and may be scaled while it runs."""

    @staticmethod
    def name_of(ordinal: int) -> str:
        """The name of a pod's Workload."""
        return workload_name(StatefulSet, f"db-{ordinal}", "uid-db")

    def settle(self, cluster: Cluster) -> None:
        """All reconcilers, until nothing is written."""
        for _ in range(3):
            cluster.settle(SET)
            for each in cluster.workloads:
                cluster.settle(f"pod:team/group/{each['metadata']['name']}")

    def admit(self, cluster: Cluster, ordinal: int) -> None:
        """The scheduler's write."""
        assigned = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1}
        conditions = [
            {"type": kind, "status": "True", "reason": "ByTest", "message": "", "lastTransitionTime": b.STAMP}
            for kind in ("QuotaReserved", "Admitted")
        ]
        status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]}, "conditions": conditions}
        cluster.patch(Workload, f"team/{self.name_of(ordinal)}", {"status": status})

    @pytest.fixture
    def grown(self) -> Cluster:
        """One of two pods runs, the second waits."""
        cluster = Cluster()
        cluster.flavor()
        put_set(cluster, annotations=ELASTIC)
        self.settle(cluster)
        assert cluster.workloads == []  # a pod that comes later could get the quota that the first lacks
        put_pod(cluster, "db-0")
        self.settle(cluster)
        self.admit(cluster, 0)
        self.settle(cluster)
        run(cluster, "db-0")
        put_pod(cluster, "db-1")
        self.settle(cluster)
        return cluster

    def test_each_pod_that_exists_has_a_workload(self, grown: Cluster) -> None:
        """The first runs while the second waits for its own quota."""
        names = [each["metadata"]["name"] for each in grown.workloads]
        assert names == sorted(map(self.name_of, (0, 1)))
        assert [each["spec"]["podSets"][0]["count"] for each in grown.workloads] == [1, 1]
        assert (gated(grown, "db-0"), gated(grown, "db-1")) == (False, True)
        self.admit(grown, 1)
        self.settle(grown)
        assert gated(grown, "db-1") is False

    def test_a_pod_more_waits_for_its_own_quota(self, grown: Cluster) -> None:
        """The others run on; numbers begin where the set says."""
        self.admit(grown, 1)
        grown.patch(StatefulSet, "team/db", {"spec": {"replicas": 3}})
        put_pod(grown, "db-2")
        self.settle(grown)
        assert [gated(grown, f"db-{number}") for number in range(3)] == [False, False, True]
        self.admit(grown, 2)
        self.settle(grown)
        assert gated(grown, "db-2") is False

    def test_the_quota_of_one_less_is_free_when_that_pod_is_gone(self, grown: Cluster) -> None:
        """Not while it stops."""
        self.admit(grown, 1)
        self.settle(grown)
        run(grown, "db-1")
        grown.patch(StatefulSet, "team/db", {"spec": {"replicas": 1}})
        grown.delete(Pod, "team/db-1")
        self.settle(grown)
        assert len(grown.workloads) == 2
        gone(grown, "db-1")
        self.settle(grown)
        assert [each["metadata"]["name"] for each in grown.workloads] == [self.name_of(0)]

    def test_a_pod_of_another_size_stays_gated(self, grown: Cluster) -> None:
        """Its Workload is charged by the template: a tenant's pod with the ordinal of another gets no more."""
        self.admit(grown, 1)
        grown.delete(Pod, "team/db-1")
        put_pod(grown, "db-1", cpu="8")
        self.settle(grown)
        assert gated(grown, "db-1") is True

    @pytest.mark.parametrize("longest", [63, 253])
    def test_ordinals_that_start_elsewhere_and_long_names(self, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """The number of a pod is not read from the name of its Workload, which may be cut."""
        cluster = Cluster()
        if longest == 63:
            monkeypatch.setattr(StatefulSets, "handling", replace(StatefulSets.handling, longest_name=63))
        cluster.flavor()
        long = "d" * 52
        meta = {"name": long, "namespace": "team", "uid": "uid-db", "labels": QUEUE, "annotations": ELASTIC}
        spec = {"replicas": 2, "ordinals": {"start": 1000}, "template": template()}
        cluster.put(StatefulSet, {"metadata": meta, "spec": spec, "status": {}})
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": long, "uid": "uid-db", "controller": True}
        for ordinal in (999, 1001):
            put_pod(cluster, f"{long}-{ordinal}", ownerReferences=[owner])
        cluster.settle(f"statefulset:team/{long}")
        (workload,) = cluster.workloads
        assert workload["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"] == "1001"


def test_an_evicted_set_keeps_its_quota_until_its_copy_on_another_cluster_has_released_its_own() -> None:
    """No pod of it runs here; and a set that is scaled to zero waits for none, because its copy goes after it."""
    cluster, holds = Cluster(), True
    cluster.flavor()
    cluster.world.multikueue.elsewhere.holds = lambda workload: holds
    put_set(cluster)
    cluster.settle(SET)
    cluster.admit()
    cluster.evict()
    cluster.settle(SET)
    assert cluster.workload["status"].get("admission")
    assert any(isinstance(each, RequeueAfter) for each in cluster.decide(SET).actions)
    holds = False
    cluster.settle(SET)
    assert not cluster.workload["status"].get("admission")
    holds = True
    cluster.admit()
    put_set(cluster, replicas=0)
    cluster.settle(SET)
    assert not cluster.workload["status"].get("admission")
