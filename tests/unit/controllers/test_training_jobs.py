"""A job of a Kubeflow operator that is stopped keeps its quota until the operator has said that it is suspended."""

from typing import Any

import pytest

from tests.unit.controllers.job_cluster import TEMPLATE, Body, Cluster
from turnstile.api.conditions import timestamp
from turnstile.api.workload import Workload
from turnstile.controllers.charging.charges import UNREAD_SECONDS
from turnstile.controllers.view.ends import UNSEEN_SECONDS
from turnstile.jobs.kinds.kubeflow.mpijob import MPI_JOBS
from turnstile.jobs.kinds.kubeflow.replicas import ReplicaJob
from turnstile.jobs.kinds.kubeflow.training import PYTORCH_JOBS

SUSPENDED = [{"type": "Suspended", "status": "True"}]
RESUMED = [{"type": "Suspended", "status": "False"}]
FIELDS = {PYTORCH_JOBS.kind: "pytorchReplicaSpecs", MPI_JOBS.kind: "mpiReplicaSpecs"}

pytestmark = pytest.mark.parametrize("kind", FIELDS)


class Training(Cluster):
    """A job that was admitted and started a minute ago, of whose pods none exists yet."""

    def __init__(self, kind: type[ReplicaJob], said: list[Body], **policy: Any) -> None:
        super().__init__()
        self.kind = kind
        self.key = f"kubeflow.org/{kind.KIND.lower()}:team/train"
        self.flavor()
        meta = {"name": "train", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
        replicas = {"Worker": {"replicas": 2, "template": TEMPLATE}}
        spec = {"runPolicy": {"suspend": True, **policy}, FIELDS[kind]: replicas}
        self.put(kind, {"metadata": meta, "spec": spec})
        self.settle(self.key)
        self.admit()
        self.settle(self.key)
        self.say(said)
        self.later(minutes=1)

    def say(self, conditions: list[Body]) -> None:
        """The operator writes the status."""
        self.patch(self.kind, "team/train", {"status": {"conditions": conditions}})

    def stop(self) -> None:
        """The job is preempted, and reconciled until longer than unseen pods of other kinds are waited for."""
        evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": ""}
        evicted["lastTransitionTime"] = timestamp(self.now)
        conditions = [*self.workload["status"]["conditions"], evicted]
        self.patch(Workload, self.workload_key, {"status": {"conditions": conditions}})
        self.settle(self.key)
        self.later(seconds=UNSEEN_SECONDS + 1)
        self.settle(self.key)

    @property
    def reserved(self) -> bool:
        """Whether the Workload has its quota."""
        return (self.condition("QuotaReserved") or ("",))[0] == "True"


@pytest.mark.parametrize("said", [[], SUSPENDED, RESUMED], ids=["nothing", "before the start", "resumed"])
def test_until_the_operator_has_read_of_the_stop(kind: type[ReplicaJob], said: list[Body]) -> None:
    """Whatever it has said before: it may be making pods. That the job was suspended before the start is taken back."""
    cluster = Training(kind, said)
    cluster.stop()
    found = cluster.get(kind, "team/train")
    assert found is not None
    assert found["spec"]["runPolicy"]["suspend"] is True
    assert found["status"]["conditions"] == ([] if said is SUSPENDED else said)
    assert cluster.reserved
    cluster.say(SUSPENDED)
    cluster.settle(cluster.key)
    assert not cluster.reserved


def test_not_for_ever(kind: type[ReplicaJob]) -> None:
    """The operator may not run, and the quota is needed by others."""
    cluster = Training(kind, SUSPENDED)
    cluster.stop()
    cluster.later(seconds=UNREAD_SECONDS)
    cluster.settle(cluster.key)
    assert not cluster.reserved


def test_of_another_controller_nothing_is_expected(kind: type[ReplicaJob]) -> None:
    """It may not write that condition."""
    cluster = Training(kind, [], managedBy="kueue.x-k8s.io/multikueue")
    cluster.stop()
    assert not cluster.reserved
