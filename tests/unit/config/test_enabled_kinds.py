"""A job kind that is not among the frameworks is not looked at: not held, not changed, not taken for an owner."""

import pytest

from tests.unit.controllers import job_cluster
from tests.unit.webhooks.reviews import Cluster, job, mutated, owned_by, pod, request
from turnstile.api import names
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.registry import Registry
from turnstile.webhooks.jobreview import mutating
from turnstile.webhooks.review import ALLOWED
from turnstile.webhooks.routes import routes

QUEUED = {names.QUEUE_LABEL: "queue"}


def only(*frameworks: str) -> Registry:
    """A registry with these job kinds enabled."""
    return Registry(frameworks)


@pytest.mark.parametrize(
    ("enabled", "path", "obj"),
    [
        ("batch/job", "/mutate--v1-pod", pod(labels=QUEUED)),
        ("batch/job", "/validate--v1-pod", pod(labels={names.QUEUE_LABEL: "no name!"})),
        ("pod", "/mutate-batch-v1-job", job(labels=QUEUED)),
        ("pod", "/validate-batch-v1-job", job(labels={names.QUEUE_LABEL: "no name!"})),
    ],
)
def test_reviews_of_other_kinds_pass(enabled: str, path: str, obj: dict[str, object]) -> None:
    """Also those that would be refused or changed if the kind was enabled."""
    assert routes(Cluster(registry=only(enabled)))[path](request(obj)) is ALLOWED
    assert routes(Cluster(registry=only("batch/job", "pod")))[path](request(obj)) != ALLOWED


def test_an_owner_of_another_kind_is_no_job() -> None:
    """A Job's pod that names a queue is queued by itself where Jobs are not, although nobody has seen the Job."""
    child = pod(labels=QUEUED, owner=owned_by("Job", "unknown"))
    after = mutated(mutating(PlainPod(), Cluster(registry=only("pod"))), child)
    gates = [{"name": names.ADMISSION_GATE}, {"name": names.TOPOLOGY_GATE}]
    assert after["spec"]["schedulingGates"] == gates


def test_reconcilers_leave_other_kinds_alone() -> None:
    """A Pod gets no Workload."""
    cluster = job_cluster.Cluster(registry=only("batch/job"))
    cluster.pod()
    decision = job_cluster.jobreconciler.decide(job_cluster.POD, cluster.world)
    assert (list(decision.actions), decision.why) == ([], "the framework pod is not enabled")


@pytest.mark.parametrize(("gates", "allowed"), [((), True), (("WorkloadValidateResourcesAreNonNegative",), False)])
def test_rules_of_the_webhooks_follow_the_gates(gates: tuple[str, ...], allowed: bool) -> None:
    """A gate of the file switches its rule."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1"}}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team-a"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]},
    }
    answer = routes(Cluster(), gates=gates)["/validate-kueue-x-k8s-io-v1beta2-workload"](request(workload))
    assert (answer is ALLOWED) == allowed
