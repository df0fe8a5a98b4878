"""The judge of histories counts what runs from pods alone."""

from testbed.client import Json
from tests.faults.moments import Replay
from tests.faults.promises import Judge
from tests.faults.recording import Event

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
