"""In which namespaces a LocalQueue `default` is kept, and when one is replaced or deleted."""

from typing import Any

import msgspec
import pytest

from tests.unit.controllers import worlds as w
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.selectors import LabelSelector
from turnstile.controllers.queues.defaultqueues import controller, decide
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit
from turnstile.jobs.options import DefaultQueueRule, JobOptions

RESEARCH = DefaultQueueRule(namespaces=LabelSelector(match_labels={"tier": "research"}), cluster_queue="research")
BY_LABEL = DefaultQueueRule(namespaces=LabelSelector(), cluster_queue_label="example.com/cluster-queue")
OURS = {"app.kubernetes.io/managed-by": "turnstile"}


def namespace(**labels: str) -> Namespace:
    """Namespace `lab` with these labels, of which `queue` is short for the label that names a ClusterQueue."""
    found = {"example.com/cluster-queue" if key == "queue" else key: value for key, value in labels.items()}
    return w.decode(Namespace, {"metadata": {"name": "lab", "labels": found}})


def queue(cluster_queue: str = "research", **metadata: Any) -> LocalQueue:
    """LocalQueue `lab/default` that Turnstile made."""
    meta = {"name": "default", "namespace": "lab", "uid": "u1", "labels": OURS, **metadata}
    return w.decode(LocalQueue, {"metadata": meta, "spec": {"clusterQueue": cluster_queue}})


def workload(*conditions: dict[str, str]) -> Kind:
    """A Workload of that queue."""
    return w.workload(*conditions, spec={"queueName": "default"}, namespace="lab")


def actions(*objects: Kind, rules: tuple[DefaultQueueRule, ...] = (BY_LABEL, RESEARCH)) -> list[Action]:
    """What is decided about namespace `lab`."""
    return decide("lab", w.world(*objects, options=JobOptions(default_local_queues=rules))).actions


def made(found: list[Action]) -> str:
    """The ClusterQueue of the LocalQueue that is made."""
    (create,) = found
    assert isinstance(create, Create)
    body = msgspec.json.decode(create.body)
    assert (create.namespace, create.name, body["metadata"]["labels"]) == ("lab", "default", OURS)
    return str(body["spec"]["clusterQueue"])


def deleted(found: list[Action]) -> bool:
    """Whether exactly the LocalQueue with uid `u1` is deleted."""
    return [(each.name, each.uid) for each in found if isinstance(each, Delete)] == [("default", "u1")]


def test_the_first_rule_with_an_answer_decides() -> None:
    """A rule by label has no answer for a namespace without the label."""
    assert made(actions(namespace(tier="research"))) == "research"
    assert made(actions(namespace(tier="research", queue="own"))) == "own"
    assert made(actions(namespace(queue="own"))) == "own"
    assert actions(namespace(tier="other")) == []


def test_namespaces_that_are_not_managed_get_none() -> None:
    """Whatever the rules: kube-system by default."""
    system = w.decode(
        Namespace, {"metadata": {"name": "lab", "labels": {"kubernetes.io/metadata.name": "kube-system"}}}
    )
    everywhere = DefaultQueueRule(namespaces=LabelSelector(), cluster_queue="research")
    assert actions(system, rules=(everywhere,)) == []


def test_nothing_is_done_without_rules() -> None:
    """The queues of an earlier configuration stay."""
    assert actions(namespace(), queue(), rules=()) == []


def test_a_right_queue_stays() -> None:
    """No write."""
    assert actions(namespace(tier="research"), queue()) == []


def test_a_namespace_that_is_being_deleted_gets_none() -> None:
    """The API server would refuse it."""
    leaving = namespace(tier="research")
    leaving.metadata.deletion_timestamp = w.EARLIER
    assert actions(leaving) == []


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "argocd"}])
def test_the_queue_of_another_author_is_never_touched(labels: dict[str, str]) -> None:
    """Neither if it leads elsewhere, nor if no rule selects the namespace."""
    assert actions(namespace(tier="research"), queue("other", labels=labels)) == []
    assert actions(namespace(), queue("other", labels=labels)) == []


def test_a_wrong_queue_is_replaced_once_no_workload_holds_quota_through_it() -> None:
    """The ClusterQueue of a LocalQueue is immutable. Workloads that wait or have ended do not hold the queue."""
    here = namespace(tier="research")
    assert deleted(actions(here, queue("old")))
    assert deleted(actions(here, queue("old"), workload()))
    finished = w.condition("Finished", "True", "Succeeded")
    assert deleted(actions(here, queue("old"), workload(w.RESERVED, w.ADMITTED, finished)))
    assert actions(here, queue("old"), workload(w.RESERVED)) == []
    assert actions(here, queue("old", deletionTimestamp=w.EARLIER)) == []


def test_a_queue_that_no_rule_wants_goes_when_it_is_empty() -> None:
    """A Workload that waits keeps it: without its queue it would wait for ever."""
    assert deleted(actions(namespace(), queue()))
    assert actions(namespace(), queue(), workload()) == []


def test_a_label_that_names_no_cluster_queue_is_reported() -> None:
    """As an event of the namespace; the queue that is there stays."""
    for objects in ((), (queue(),)):
        (event,) = actions(namespace(queue="Not_A_Name"), *objects)
        assert isinstance(event, Emit)
        assert (event.type, event.reason) == ("Warning", "InvalidClusterQueue")
        assert "'Not_A_Name'" in event.note


def test_what_requires_a_decision() -> None:
    """New labels, the queue itself, and Workloads that leave it; nothing else."""
    cluster = w.world(options=JobOptions(default_local_queues=(RESEARCH,)))
    namespaces, queues, workloads = controller(cluster).watches
    assert list(namespaces.keys("lab", namespace(), namespace(tier="research"))) == ["lab"]
    assert list(namespaces.keys("lab", namespace(), namespace())) == []
    assert list(queues.keys("lab/default", queue(), None)) == ["lab"]
    assert list(queues.keys("lab/other", None, queue())) == []
    assert list(workloads.keys("lab/wl", workload(w.RESERVED), workload())) == ["lab"]
    assert list(workloads.keys("lab/wl", workload(), None)) == ["lab"]
    assert list(workloads.keys("lab/wl", workload(), workload(w.RESERVED))) == []
    elsewhere = w.workload(w.RESERVED, namespace="lab")
    assert list(workloads.keys("lab/wl", elsewhere, None)) == []
