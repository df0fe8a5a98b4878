"""What is wrong with an object already refuses no update of something else, and never a write of Turnstile itself."""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from tests.unit.webhooks.reviews import Cluster, Json, job, pod, refusal, request
from turnstile.api import names
from turnstile.api.core import Job
from turnstile.api.patch import apply_merge_patch
from turnstile.api.workload import PodSet
from turnstile.jobs.integration import Change
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.podsets import PodSetInfo
from turnstile.webhooks.routes import routes

ROUTES = routes(Cluster())
PATHS = {
    "Job": "/validate-batch-v1-job",
    "Pod": "/validate--v1-pod",
    **{
        kind: f"/validate-kueue-x-k8s-io-v1beta2-{kind.lower()}"
        for kind in ("ResourceFlavor", "ClusterQueue", "Cohort", "Workload")
    },
}
PREFIX = "kueue.x-k8s.io/"
QUEUED = {names.QUEUE_LABEL: "main"}
TIME = "2026-01-02T03:04:05Z"
RESERVED = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "QuotaReserved",
    "message": "",
    "lastTransitionTime": TIME,
}
BATCH_JOB = BatchJob()


def thing(kind: str, **fields: object) -> Json:
    """An object of one of our kinds."""
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "x", "namespace": "team-a"}, **fields}


def groups(**quota: str) -> Json:
    """Resource groups of one flavor with cpu."""
    return {
        "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", **quota}]}]}
        ]
    }


def topology(**annotations: str) -> Json:
    """A Job of four pods that asks for a topology."""
    some = job(labels=QUEUED, parallelism=4, completions=4)
    some["spec"]["template"]["metadata"]["annotations"] = {
        f"{PREFIX}podset-{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    return some


def workload(*, status: Json | None = None, annotations: Json | None = None, **pod_set: object) -> Json:
    """A Workload of three pods."""
    made = thing("Workload", status=status or {})
    made["metadata"]["annotations"] = annotations or {}
    template = {"spec": {"containers": [{"name": "c"}]}}
    made["spec"] = {"podSets": [{"name": "main", "count": 3, "template": template, **pod_set}]}
    return made


def requests(**amounts: str) -> Json:
    """A pod template that asks for so much."""
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}}


def admission(**assignment: object) -> Json:
    """The status of a Workload that holds quota."""
    return {
        "conditions": [RESERVED],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 3, **assignment}]},
    }


MINIMUM = {names.JOB_MIN_PARALLELISM: "4"}
SYNC = {names.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}
BROKEN: dict[str, Json] = {
    "Job: queue": job(labels={names.QUEUE_LABEL: "No_Name"}),
    "Job: time limit": job(labels={**QUEUED, names.MAX_EXEC_TIME_LABEL: "soon"}),
    "Job: gates": job(labels=QUEUED, annotations={names.ADMISSION_GATED_BY: "acme.io/a,,acme.io/b"}),
    "Job: minimum": job(labels=QUEUED, annotations=MINIMUM, parallelism=4, completions=4),
    "Job: no number": job(labels=QUEUED, annotations={names.JOB_MIN_PARALLELISM: "two"}),
    "Job: elastic minimum": job(
        labels=QUEUED, annotations={names.JOB_MIN_PARALLELISM: "1", names.ELASTIC_JOB: "true"}, parallelism=2
    ),
    "Job: completions": job(labels=QUEUED, annotations=SYNC, completionMode="Indexed", parallelism=2, completions=3),
    "Job: not indexed": job(labels=QUEUED, annotations=SYNC),
    "Job: two topologies": topology(required_topology="a/b", preferred_topology="a/b"),
    "Job: slices": topology(slice_required_topology="a/b", slice_size="5"),
    "Pod: managed": pod(labels={**QUEUED, names.MANAGED_LABEL: "no"}),
    "Pod: no count": pod(labels={**QUEUED, names.MANAGED_LABEL: "true", names.POD_GROUP_NAME: "g"}),
    "Pod: topology": pod(labels=QUEUED, annotations={f"{PREFIX}podset-slice-size": "1"}),
    "ResourceFlavor: labels": thing("ResourceFlavor", spec={"nodeLabels": {"a b": "c"}}),
    "ClusterQueue: lending": thing(
        "ClusterQueue", spec={"cohortName": "c", **groups(nominalQuota="1", lendingLimit="2")}
    ),
    "ClusterQueue: no cohort": thing("ClusterQueue", spec=groups(nominalQuota="1", borrowingLimit="2")),
    "ClusterQueue: flavors": thing(
        "ClusterQueue",
        spec={
            **groups(nominalQuota="1"),
            "admissionChecksStrategy": {"admissionChecks": [{"name": "ac", "onFlavors": ["ghost"]}]},
        },
    ),
    "Cohort: quota": thing("Cohort", spec=groups(nominalQuota="-1")),
    "Cohort: limit": thing("Cohort", spec=groups(nominalQuota="1", borrowingLimit="2")),
    "Workload: requests": workload(template=requests(cpu="-1")),
    "Workload: pods": workload(template=requests(pods="1")),
    "Workload: labels": workload(
        template={"metadata": {"labels": {"a": "b c"}}, **requests(cpu="1")},
    ),
    "Workload: slices": workload(topologyRequest={"podSetSliceRequiredTopology": "a/b"}),
    "Workload: gates": workload(annotations={names.ADMISSION_GATED_BY: ","}),
    "Workload: no admission": workload(status={"conditions": [RESERVED]}),
    "Workload: usage": workload(status=admission(resourceUsage={"cpu": "1m"})),
    "Workload: assignment": workload(status=admission(name="other")),
    "Workload: condition": workload(status={"conditions": [{**RESERVED, "status": "False", "reason": "a b"}]}),
    "Workload: reclaimable": workload(status={"reclaimablePods": [{"name": "main", "count": 4}]}),
    "Workload: updates": workload(
        status={
            "admissionChecks": [
                {
                    "name": "ac",
                    "state": "Ready",
                    "message": "",
                    "podSetUpdates": [{"name": "x"}],
                    "lastTransitionTime": TIME,
                }
            ]
        }
    ),
}


def unrelated(old: Json) -> Iterator[Json]:
    """Writes that have nothing to do with what is wrong: a label, an annotation, a finalizer, the status."""
    for part, value in (("labels", {"a": "b"}), ("annotations", {"a": "b"}), ("finalizers", ["acme.io/x"])):
        new = copy.deepcopy(old)
        if isinstance(value, dict):
            new["metadata"].setdefault(part, {}).update(value)
        else:
            new["metadata"][part] = value
        yield new
    new = copy.deepcopy(old)
    new.setdefault("status", {})["conditions"] = [
        *new.get("status", {}).get("conditions", []),
        {"type": "Other", "status": "True", "reason": "Because", "message": "", "lastTransitionTime": TIME},
    ]
    yield new


@pytest.mark.parametrize("name", BROKEN)
def test_an_unrelated_update_of_an_object_that_is_already_wrong_is_accepted(name: str) -> None:
    """It could have come past the webhook, and must stay open to labels, finalizers and its status."""
    old = BROKEN[name]
    handler = ROUTES[PATHS[old["kind"]]]
    assert refusal(handler, old), "nothing is wrong with it"
    for new in unrelated(old):
        assert refusal(handler, new, old=old) == ""
        answer = handler(request(new, old=old, sub_resource="status"))
        assert answer.message == ""


@pytest.mark.parametrize("name", [name for name in BROKEN if name.startswith("Job")])
def test_a_job_that_is_already_wrong_may_be_started_and_stopped(name: str) -> None:
    """A Job whose start is refused waits for ever, and one whose stop is refused keeps its quota."""
    handler = ROUTES[PATHS["Job"]]
    running = copy.deepcopy(BROKEN[name])
    waiting = copy.deepcopy(BROKEN[name])
    waiting["spec"]["suspend"], running["spec"]["suspend"] = True, False
    assert refusal(handler, running, old=waiting) == ""
    assert refusal(handler, waiting, old=running) == ""


def test_a_name_of_a_prebuilt_workload_is_asked_again_while_the_job_waits() -> None:
    """As in Kueue, which does so even if it stays the same; but it stands in the way of no start and no stop."""
    handler = ROUTES[PATHS["Job"]]
    waiting = job(labels=QUEUED, annotations={names.PREBUILT_WORKLOAD: "no name"}, suspend=True)
    running = {**waiting, "spec": {**waiting["spec"], "suspend": False}}
    assert "prebuilt-workload-name]: Invalid value" in refusal(handler, waiting, old=waiting)
    assert refusal(handler, running, old=waiting) == ""
    assert refusal(handler, running, old=running) == ""
    assert refusal(handler, waiting, old=running) == ""


def test_another_error_in_the_same_place_is_refused() -> None:
    """Only the very same error is let pass."""
    handler = ROUTES[PATHS["Cohort"]]
    old, new = (thing("Cohort", spec=groups(nominalQuota=amount)) for amount in ("-1", "-2"))
    assert "nominalQuota: Invalid value" in refusal(handler, new, old=old)


# --- the writes of a partially admitted Job ---------------------------------------------------------------------------


def sliced() -> Json:
    """A Job whose pods are placed in slices of as many as it asks for."""
    some = topology(slice_required_topology="a/b", slice_size="4")
    some["metadata"]["annotations"] = {names.JOB_MIN_PARALLELISM: "1"}
    return some


PARTIAL = {
    "plain": job(labels=QUEUED, annotations={names.JOB_MIN_PARALLELISM: "1"}, parallelism=4, completions=6),
    "synchronized": job(
        labels=QUEUED,
        annotations={names.JOB_MIN_PARALLELISM: "1", **SYNC},
        parallelism=4,
        completions=4,
        completionMode="Indexed",
    ),
    "slices": sliced(),
}


@pytest.mark.parametrize("name", PARTIAL)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("known", [True, False])
def test_every_write_of_a_partially_admitted_job_is_accepted(name: str, count: int, known: bool) -> None:
    """Its start with any count from the minimum on, an edit of its labels, and each step of its stop.

    Also of a stop that cannot put the parallelism back, because the Workload that knows it is gone.
    """
    handler = ROUTES[PATHS["Job"]]
    now = copy.deepcopy(PARTIAL[name])
    now["metadata"]["resourceVersion"] = "1"
    now["spec"]["suspend"] = True
    asked = now["spec"]["parallelism"]

    def write(change: Change) -> None:
        nonlocal now
        new = apply_merge_patch(now, change.body)
        assert refusal(handler, new, old=now) == ""
        now = new

    start = BATCH_JOB.start(decoded(now), [PodSetInfo(name="main", count=count, labels={names.PODSET_LABEL: "main"})])
    assert start is not None
    write(start)
    assert (now["spec"]["suspend"], now["spec"]["parallelism"]) == (False, count)
    write(Change({"metadata": {"labels": {"team": "blue"}}}))

    own = {"name": "main", "count": asked, "minCount": 1, "template": PARTIAL[name]["spec"]["template"]}
    kept = msgspec.convert(own, PodSet)
    for _ in range(4):
        stop = BATCH_JOB.stop(
            decoded(now), [kept] if known else None, reason="Preempted", message="", now=datetime.now(UTC)
        )
        if not stop.steps:
            break
        for step in stop.steps:
            assert isinstance(step, Change)
            write(step)
        if now["spec"]["suspend"]:  # the Job controller confirms the stop
            write(Change({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}))
    assert now["spec"]["suspend"] is True
    assert now["spec"]["parallelism"] == (asked if known else count)
    write(Change({"metadata": {"labels": {"team": "red"}}}))


def decoded(body: Json) -> Job:
    """The Job as the controller sees it."""
    return msgspec.json.decode(msgspec.json.encode(body), type=Job)


def test_a_minimum_above_the_parallelism_is_still_refused_where_the_owner_writes_it() -> None:
    """On creation, when the annotation changes, and when the parallelism of a waiting Job does."""
    handler = ROUTES[PATHS["Job"]]

    def of(minimum: str, parallelism: int, *, suspend: bool = True) -> Json:
        annotations = {names.JOB_MIN_PARALLELISM: minimum}
        return job(labels=QUEUED, annotations=annotations, parallelism=parallelism, completions=8, suspend=suspend)

    assert "should be between 0 and 3" in refusal(handler, of("4", 4))
    assert "should be between 0 and 3" in refusal(handler, of("4", 4), old=of("3", 4))
    assert "should be between 0 and 2" in refusal(handler, of("3", 3), old=of("3", 4))
    assert "should be between 0 and 3" in refusal(handler, of("4", 4, suspend=False), old=of("3", 4, suspend=False))


# --- a Workload's life ------------------------------------------------------------------------------------------------


def test_a_waiting_workload_may_be_given_fewer_pods_than_were_reclaimable() -> None:
    """The spec is rewritten when its Job is made smaller; the counts in the status follow in a write of their own."""
    handler = ROUTES[PATHS["Workload"]]
    old = workload(status={"reclaimablePods": [{"name": "main", "count": 2}]})
    assert refusal(handler, workload(status=old["status"], count=1), old=old) == ""
    more = workload(status={"reclaimablePods": [{"name": "main", "count": 4}]})
    assert "should be less or equal to 3" in refusal(handler, more, old=old)


def test_an_admission_without_quota_may_be_replaced() -> None:
    """It is stale, and the next reservation writes its own; with quota it is immutable."""
    handler = ROUTES[PATHS["Workload"]]
    lost = {**admission(), "conditions": [{**RESERVED, "status": "False", "reason": "PendingEvaluation"}]}
    again = admission()
    again["admission"]["clusterQueue"] = "other"
    assert refusal(handler, workload(status=again), old=workload(status=lost)) == ""
    assert "status.admission: Invalid value" in refusal(
        handler, workload(status=again), old=workload(status=admission())
    )
