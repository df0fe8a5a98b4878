"""The judges of the soak see what they are there for."""

from typing import Any

import pytest

from testbed.client import Json
from tests.faults.following import GAP, Change, sorted_out
from tests.faults.forbidden import RULES, Deadlines, World
from tests.faults.overshoot import FOR_QUEUE, Overshoot

KINDS = (
    "workloads", "localqueues", "clusterqueues", "cohorts", "pods", "jobs", "deployments", "replicasets",
    "statefulsets", "jobsets", "namespaces",
)  # fmt: skip
LATER = "2026-01-01T00:00:00Z"


def meta(name: str, **more: Any) -> Json:
    """Metadata of a namespaced object."""
    return {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", **more}


def cluster_queue(nominal: int) -> Json:
    """The ClusterQueue `main`."""
    quota = [{"name": "cpu", "nominalQuota": nominal}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": quota}]}]
    return {"metadata": {"name": "main", "uid": "main"}, "spec": {"resourceGroups": groups}}


def workload(name: str, **conditions: str) -> Json:
    """A Workload of one pod of 1 cpu that belongs to the Job of that name; with quota if QuotaReserved says so."""
    assignment = {"name": "main", "count": 1, "resourceUsage": {"cpu": "1"}}
    stated = [
        {"type": kind, "status": status, "reason": "Test", "lastTransitionTime": LATER}
        for kind, status in conditions.items()
    ]
    container = {"resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": meta(f"job-{name}", ownerReferences=[{"uid": name, "kind": "Job", "name": name}]),
        "spec": {
            "queueName": "main",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
        },
        "status": {
            "conditions": stated,
            "admission": {"clusterQueue": "main", "podSetAssignments": [assignment]},
        },
    }


def job(name: str, *, suspend: bool) -> Json:
    """A Job in the queue `main`."""
    return {"metadata": meta(name, labels={"kueue.x-k8s.io/queue-name": "main"}), "spec": {"suspend": suspend}}


def pod(name: str) -> Json:
    """A pod of 1 cpu on a node, for the ClusterQueue `main`."""
    container = {"resources": {"requests": {"cpu": "1"}}}
    spec = {"nodeName": "node", "containers": [container]}
    return {"metadata": meta(name, labels={FOR_QUEUE: "main"}), "spec": spec, "status": {"phase": "Running"}}


def judged(*objects: tuple[str, Json]) -> list[str]:
    """What is wrong when these objects come one after the other."""
    overshoot = Overshoot()
    overshoot.follow(
        Change(number, float(number), kind, obj["metadata"]["uid"], obj)
        for number, (kind, obj) in enumerate(objects, 1)
    )
    return overshoot.wrong


def stuck(**objects: list[Json]) -> set[str]:
    """Names of the rules that these objects break when they stay for three minutes."""
    queues = {"metadata": meta("main"), "spec": {"clusterQueue": "main"}}
    world = World(
        {kind: [] for kind in KINDS} | {"localqueues": [queues], "clusterqueues": [cluster_queue(2)]} | objects
    )
    deadlines = Deadlines()
    for _ in range(180):
        deadlines.look(world, 1.0)
    return {each.split()[0] for each in deadlines.wrong}


def test_a_pod_that_failed_never_runs_again() -> None:
    """kwok may set the phase of a failed pod to Running once more; no container runs then."""
    failed = {**pod("one"), "status": {"phase": "Failed"}}
    assert judged(("clusterqueues", cluster_queue(2)), ("pods", failed), ("pods", pod("one"))) == []


def test_pods_beyond_what_workloads_hold_are_seen() -> None:
    """One pod is reserved for, the second is not."""
    queue, held = ("clusterqueues", cluster_queue(2)), ("workloads", workload("a", QuotaReserved="True"))
    assert judged(queue, held, ("pods", pod("one"))) == []
    assert "pods use 2 of main, Workloads hold 1" in judged(queue, held, ("pods", pod("one")), ("pods", pod("two")))[0]


@pytest.mark.parametrize(("owner", "wrong"), [("jobset", 0), ("", 1)])
def test_pods_of_an_orphan_count_for_the_queue_of_its_own_workload(owner: str, *, wrong: int) -> None:
    """The definition of JobSets was deleted: what is left of a JobSet gets the namespace's default queue."""
    child, orphaned = job("child", suspend=False), pod("p")
    child["metadata"]["ownerReferences"] = [{"uid": owner, "kind": "JobSet", "name": owner}] if owner else []
    orphaned["metadata"] |= {"ownerReferences": [{"uid": "child", "kind": "Job", "name": "child"}]}
    orphaned["metadata"]["labels"] = {FOR_QUEUE: "elsewhere"}
    found = judged(
        ("clusterqueues", cluster_queue(2)), ("jobs", child), ("workloads", workload("child", QuotaReserved="True")),
        ("pods", orphaned),
    )  # fmt: skip
    assert len(found) == wrong


def test_nothing_is_judged_before_the_list_after_a_watch_that_ended() -> None:
    """The list shows a Workload later than it got its quota; what is wrong still then is seen."""
    overshoot = Overshoot()
    overshoot.follow(
        [
            Change(1, 1.0, "clusterqueues", "main", cluster_queue(2)),
            Change(1, 3.0, GAP, "workloads", None, until=5),
            Change(2, 2.0, "pods", "one", pod("one")),
            Change(3, 2.0, "pods", "two", pod("two")),
            Change(4, 3.0, "workloads", "a", workload("a", QuotaReserved="True")),
        ]
    )
    assert overshoot.wrong == []
    overshoot.follow([Change(6, 4.0, "pods", "one", pod("one"))])
    assert "pods use 2 of main, Workloads hold 1" in overshoot.wrong[0]


def test_a_change_that_a_slower_watch_told_later_is_judged_in_its_place() -> None:
    """A Workload got quota before its pod started, and was heard of after it, and after the horizon of the judge."""
    admitted = Change(2, 2.1, "workloads", "a", workload("a", QuotaReserved="True"))
    started = Change(3, 2.0, "pods", "one", pod("one"))
    ended = Change(4, 2.2, "pods", "one", None)
    quota = Change(1, 1.0, "clusterqueues", "main", cluster_queue(2))
    taken, left = sorted_out([quota, started, admitted, ended], 2.05)
    assert [each.revision for each in taken] == [1, 2, 3]
    assert left == [ended]
    overshoot = Overshoot()
    overshoot.follow(taken)
    assert overshoot.wrong == []


def test_a_reservation_beyond_the_quota_is_seen() -> None:
    """The quota is for one."""
    held = [("workloads", workload(name, QuotaReserved="True")) for name in ("a", "b")]
    assert "job-b gets 1 in main" in judged(("clusterqueues", cluster_queue(1)), *held)[0]


def test_a_reservation_decided_before_a_cut_is_none() -> None:
    """The leader could not know."""
    held = [("workloads", workload(name, QuotaReserved="True")) for name in ("a", "b")]
    assert judged(("clusterqueues", cluster_queue(2)), held[0], ("clusterqueues", cluster_queue(1)), held[1]) == []


def test_states_that_last_too_long_are_seen() -> None:
    """Each under the name of its rule."""
    admitted = {"QuotaReserved": "True", "Admitted": "True"}
    assert stuck(jobs=[job("a", suspend=True)], workloads=[workload("a", **admitted)]) == {"admitted_but_suspended"}
    assert stuck(jobs=[job("a", suspend=False)]) == {"running_without_admission", "without_workload"}
    assert stuck(jobs=[job("a", suspend=True)], workloads=[workload("a")]) == {"waits_beside_free_quota"}
    assert stuck(workloads=[workload("a", **admitted)]) == {"orphaned", "not_collected"}
    evicted = workload("a", **admitted, Evicted="True")
    assert stuck(jobs=[job("a", suspend=True)], workloads=[evicted]) == {"evicted_with_quota"}


def test_what_the_garbage_collector_has_not_done_is_not_ours() -> None:
    """A Workload that was let go, and one whose owner left a Job that may make pods; both have a deadline all the
    same."""
    gone = workload("a", QuotaReserved="True", Finished="True")
    assert stuck(workloads=[gone]) == {"not_collected", "finished_and_kept"}
    held = workload("a", QuotaReserved="True", Admitted="True")
    child = {"metadata": meta("child", ownerReferences=held["metadata"]["ownerReferences"]), "spec": {}}
    assert stuck(workloads=[held], jobs=[child]) == {"not_collected"}
    evicted = workload("a", QuotaReserved="True", Admitted="True", Evicted="True")
    assert stuck(workloads=[evicted], jobs=[child]) == {"not_collected"}
    assert stuck(workloads=[evicted]) == {"orphaned", "not_collected", "evicted_with_quota"}
    kept = {**gone, "metadata": gone["metadata"] | {"deletionTimestamp": LATER, "finalizers": ["kueue.x-k8s.io/x"]}}
    assert stuck(workloads=[kept]) == {"orphaned", "not_let_go", "finished_and_kept"}
    kept = {**evicted, "metadata": kept["metadata"]}
    assert stuck(workloads=[kept], jobs=[child]) == {"not_collected"}


def test_a_gated_pod_waits_for_its_workload_only_while_its_controller_is_there() -> None:
    """The garbage collector deletes what a deleted StatefulSet has left, when it has seen the pod."""
    owner = {"uid": "db", "kind": "StatefulSet", "name": "db", "controller": True}
    left = {
        "metadata": meta("db-0", ownerReferences=[owner]),
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": []},
        "status": {"phase": "Pending"},
    }
    assert stuck(pods=[left], statefulsets=[{"metadata": meta("db"), "spec": {}}]) == {"gated_without_workload"}
    assert stuck(pods=[left]) == {"not_collected"}
    assert stuck(pods=[{**left, "status": {"phase": "Succeeded"}}]) == set()


def test_a_deactivated_job_that_is_gone_is_not_kept() -> None:
    """Its Workload is then an orphan, with the deadline of one: its kind may have been removed in the meantime."""
    left = workload("a", QuotaReserved="False", Evicted="True")
    left["status"]["conditions"][1]["reason"] = "DeactivatedDueToRequeuingLimitExceeded"
    left["spec"]["active"] = False
    assert "deactivated_and_kept" in stuck(jobs=[job("a", suspend=True)], workloads=[left])
    assert stuck(workloads=[left]) == {"orphaned", "not_collected"}


def of_job(name: str, revision: int, *, at: float) -> Change:
    """A pod of the Job `train` comes."""
    made = pod(name)
    made["metadata"]["ownerReferences"] = [{"uid": "train", "kind": "Job", "name": "train"}]
    return Change(revision, at, "pods", name, made)


@pytest.mark.parametrize(
    ("parallelism", "pod_at", "wrong"),
    [(1, 10.0, False), (2, 10.0, True), (1, 100.0, True)],
    ids=["the controller asked twice", "within its parallelism", "no watch broke"],
)
def test_a_pod_that_a_dying_api_server_stored_is_not_ours(parallelism: int, pod_at: float, *, wrong: bool) -> None:
    """The Job controller had no answer and asked again: one pod too many, for seconds after the API server died."""
    train = {"metadata": meta("train"), "spec": {"parallelism": parallelism}}
    overshoot = Overshoot()
    overshoot.follow(
        [
            Change(1, 1.0, "clusterqueues", "main", cluster_queue(2)),
            Change(2, 1.0, "workloads", "a", workload("a", QuotaReserved="True")),
            Change(3, 1.0, "jobs", "train", train),
            Change(3, 9.0, GAP, "pods", None, until=4),
            of_job("one", 5, at=9.5),
            of_job("two", 6, at=pod_at),
        ]
    )
    assert bool(overshoot.wrong) is wrong


def test_what_runs_as_it_should_is_none() -> None:
    """An admitted Job that is not suspended."""
    held = workload("a", QuotaReserved="True", Admitted="True")
    assert stuck(jobs=[job("a", suspend=False)], workloads=[held]) == set()


def test_every_rule_has_a_deadline() -> None:
    """And a sentence."""
    assert all(rule.__doc__ and seconds > 0 for rule, seconds in RULES.items())
