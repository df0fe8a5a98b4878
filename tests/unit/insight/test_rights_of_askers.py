"""No conclusion is drawn from objects that the asker may not list."""

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue, ClusterQueueStatus
from turnstile.api.cohort import Cohort
from turnstile.api.core import Namespace
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.insight import forecast, rights
from turnstile.insight.explain import Explanation, explain
from turnstile.insight.snapshot import Snapshot

LINES: dict[type[Kind], str] = {Workload: "team", LocalQueue: "team"}


def partly(hidden: dict[type[Kind], str], *, reserved: str = "3", strategy: str = "BestEffortFIFO") -> Snapshot:
    """A queue of 4 cpus, most of which Workloads of other namespaces hold, by its status."""
    queue = b.queue("main", {"default": {"cpu": 4}}, queueingStrategy=strategy)
    held = [{"name": "default", "resources": [{"name": "cpu", "total": reserved}]}]
    status = msgspec.convert({"flavorsReservation": held, "pendingWorkloads": 2}, ClusterQueueStatus)
    snapshot = Snapshot(hidden=dict(hidden))
    for each in (b.flavor(), msgspec.structs.replace(queue, status=status), b.local("main", "main")):
        if type(each) not in hidden or hidden[type(each)]:
            snapshot.put(each)
    if hidden.get(Workload, "team"):
        snapshot.put(b.workload("waits", cpu=2, second=1))
    return snapshot


def told(snapshot: Snapshot) -> Explanation:
    """The explanation of the Workload that waits."""
    return explain(snapshot, Options(), b.NOW, "team/waits", sees=lambda _: True)


def test_workloads_of_other_namespaces_are_hidden() -> None:
    """The status of the ClusterQueue says what they hold, and the owner is told what to do about it."""
    answer = told(partly({**LINES, Namespace: ""}))
    assert answer.sentence == (
        "Waits for 1 more CPU on default nodes: asks 2, 1 free; Workloads of other namespaces hold it."
    )
    assert [each.does for each in answer.remedies] == ["ask for 1 CPU instead of 2 in each pod"]
    assert answer.unread == ("you may not list Workloads and LocalQueues outside namespace team",)
    assert answer.place is None


def test_devices_of_one_claim_are_held_once() -> None:
    """The status counts them once, also if the asker sees two Workloads that hold them: the rest is of others."""
    snapshot = partly({**LINES, Namespace: ""}, reserved="2")
    queue = snapshot.get(ClusterQueue, "main")
    assert queue is not None
    resources = [{"name": "cpu", "total": "2"}, {"name": "gpus", "total": "4"}]
    held = {"flavorsReservation": [{"name": "default", "resources": resources}]}
    snapshot.put(msgspec.structs.replace(queue, status=msgspec.convert(held, ClusterQueueStatus)))
    for name in ("a", "b"):
        body = msgspec.to_builtins(b.held(name, "main", {"cpu": "1", "gpus": "2"}))
        claims = [{"name": "gpu", "resourceClaimName": "mine"}]
        body["spec"]["podSets"][0]["template"]["spec"]["resourceClaims"] = claims
        snapshot.put(msgspec.convert(body, Workload))
    found = rights.with_usage_of_others(snapshot, b.NOW).of(Workload)
    (others,) = (each for each in found if each.metadata.name == "others-in-main")
    assert others.status.admission is not None
    (assigned,) = others.status.admission.pod_set_assignments
    assert assigned.resource_usage == {"gpus": "2"}


def test_others_may_be_before_it() -> None:
    """In a strict queue in which Workloads wait that nobody sees, nothing is known to admit it."""
    assert told(partly(LINES, strategy="StrictFIFO")).remedies == ()


def test_queues_are_hidden() -> None:
    """They are not said to be absent; what is hidden is one sentence."""
    answer = told(partly({**LINES, ClusterQueue: "", Cohort: "", Namespace: ""}))
    assert answer.remedies == ()
    assert "does not exist" not in answer.sentence
    assert answer.unread == (
        "you may not list ClusterQueues and Cohorts, nor Workloads and LocalQueues outside namespace team",
    )


def test_figures_that_are_older_than_the_decision() -> None:
    """The status of a ClusterQueue follows a moment later: that is said, and the condition is believed."""
    snapshot = partly(LINES, reserved="0")
    missing = "insufficient unused quota for cpu in flavor default, 1 more needed"
    message = f"couldn't assign flavors to pod set main: {missing}"
    waits = b.with_conditions(b.workload("waits", cpu=2, second=1), QuotaReserved=("False", "Pending"))
    (condition,) = waits.status.conditions
    conditions = [msgspec.structs.replace(condition, message=message)]
    snapshot.put(msgspec.structs.replace(waits, status=msgspec.structs.replace(waits.status, conditions=conditions)))
    answer = told(snapshot)
    assert answer.sentence == "Waits for 1 more CPU on default nodes."
    assert (
        answer.unread[-1] == "the figures of ClusterQueue main are older than the last decision: ask again in a moment"
    )


def test_all_is_hidden() -> None:
    """A Workload is not said to be absent, nor that nothing waits."""
    snapshot = partly({Workload: "", LocalQueue: ""})
    for ask in (
        lambda: told(snapshot),
        lambda: forecast.pending(snapshot, "team"),
    ):
        with pytest.raises(InvalidValue, match="you may not list Workloads in namespace team"):
            ask()


def test_kinds_that_do_not_matter() -> None:
    """Namespaces whose labels no ClusterQueue asks for, and Cohorts that no ClusterQueue is in."""
    found = rights.relevant(partly({Namespace: "", Cohort: ""}))
    assert found.hidden == {}
    assert found.get(Namespace, "team") is not None
