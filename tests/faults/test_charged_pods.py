"""The judge of histories counts what runs from pods alone."""

from testbed.client import Json
from tests.faults.moments import QUEUE as NAMED
from tests.faults.moments import Replay
from tests.faults.promises import Judge
from tests.faults.recording import Event

QUEUE = {"metadata": {"name": "main"}, "spec": {"clusterQueue": "a"}}
DELETED = "2026-01-02T03:04:06Z"
TEMPLATE = {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}


def workload(*, owned: bool = True, holds: bool = True) -> Json:
    """The Workload of Job `job`, which may have been orphaned since."""
    return {
        "metadata": {
            "name": "job-1",
            "uid": "workload",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "ownerReferences": [{"uid": "job"}] if owned else [],
        },
        "spec": {"podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}] if holds else [],
            "admission": {"clusterQueue": "a"},
        },
    }


def pod(name: str, *, owned: bool = True, phase: str = "Running", node: str = "node") -> Json:
    """A pod of Job `job`, which may have been orphaned since."""
    owners = [{"uid": "job", "controller": True}] if owned else []
    spec = {**TEMPLATE["spec"], **({"nodeName": node} if node else {})}
    return {
        "metadata": {"name": name, "uid": name, "ownerReferences": owners},
        "spec": spec,
        "status": {"phase": phase},
    }


def wrong(*versions: Json) -> list[str]:
    """What is wrong about the pods in a history of these versions."""
    events = [
        Event(number, 0.0, "pods" if "podSets" not in each["spec"] else "workloads", None, each)
        for number, each in enumerate(versions, 1)
    ]
    judged = Judge(Replay().moments(events), [], fair=False).judge()
    return [sentence for sentence in judged.wrong if sentence.split(": ", 1)[1].startswith("pods of Job")]


def test_as_many_as_were_admitted() -> None:
    """A pod counts from when it is bound to a node until it has ended."""
    waits, ended = pod("b", node="", phase="Pending"), pod("a", phase="Succeeded")
    assert not wrong(workload(), pod("a"), waits, ended, pod("b"))


def test_one_more_than_was_admitted() -> None:
    """It is reported once, at the revision at which it begins."""
    assert wrong(workload(), pod("a"), pod("b"), pod("b")) == ["#2 revision 3: pods of Job job run 4 with quota for 2"]


def test_a_pod_that_runs_on_when_its_quota_is_given_back() -> None:
    """Though neither pod nor Workload name the Job any more."""
    history = workload(), pod("a"), pod("a", owned=False), workload(owned=False)
    assert not wrong(*history)
    assert wrong(*history, workload(owned=False, holds=False)) == [
        "#4 revision 5: pods of Job job run 2 with quota for 0"
    ]


def gives_back(job: Json, *pods: Json) -> list[str]:
    """What is wrong when the Workload of Job `job` gives its quota back beside these objects."""
    before = [("localqueues", QUEUE), ("workloads", workload()), ("jobs", job), *(("pods", each) for each in pods)]
    events = [Event(number, 0.0, kind, None, each) for number, (kind, each) in enumerate(before, 1)]
    events.append(Event(len(events) + 1, 0.0, "workloads", workload(), workload(holds=False)))
    judged = Judge(Replay().moments(events), [], fair=False).judge()
    return [sentence for sentence in judged.wrong if "gives quota back" in sentence]


def unsuspended(**meta: str) -> Json:
    """Job `job`, which runs."""
    spec = {"suspend": False, "completions": 1, "parallelism": 1, "template": TEMPLATE}
    return {"metadata": {"name": "job", "uid": "job", "labels": {NAMED: "main"}, **meta}, "spec": spec, "status": {}}


def test_quota_given_back_before_the_job_is_suspended() -> None:
    """Its controller may make further pods."""
    assert gives_back(unsuspended(), pod("a", phase="Failed")) == [
        "#4 revision 5: job-1 gives quota back while its Job runs"
    ]


def test_a_job_that_is_being_deleted_makes_no_further_pods() -> None:
    """Though nobody suspends it, a Workload may give its quota back when the last pod of the Job has ended."""
    assert not gives_back(unsuspended(deletionTimestamp=DELETED), pod("a", phase="Failed"))
    assert gives_back(unsuspended(deletionTimestamp=DELETED), pod("a"))
