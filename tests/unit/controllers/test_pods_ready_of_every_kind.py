"""All or nothing for every kind: a job whose pods do not get ready, or are lost, makes way, comes back after its
back-off, and is given up at the limit."""

import json
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from tests.unit.controllers.job_cluster import Body, Cluster
from tests.unit.jobs.samples import SAMPLES, Moment
from tests.unit.jobs.subjects import REGISTRY
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.conditions import timestamp
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.controllers.charging.charges import UNREAD_SECONDS
from turnstile.controllers.workloads import workload
from turnstile.jobs.options import JobOptions, PodsReadyOptions

NOT_STOPPED: Final = {"pod", "tekton.dev/pipelinerun"}
"""A Pod is deleted when it is evicted, and does not come back. Of a PipelineRun the pods are stopped."""
KINDS: Final = sorted({each for each, found in SAMPLES.items() if found.moments} - NOT_STOPPED)
OPTIONS: Final = PodsReadyOptions(timeout=60.0, recovery_timeout=30.0, backoff_base=60.0, backoff_limit=1)
QUEUE: Final = {"kueue.x-k8s.io/queue-name": "main"}


def lives(framework: str) -> tuple[Moment, Moment]:
    """Two moments of the same job: its pods are not ready, and they are."""
    for ready in (each for each in SAMPLES[framework].moments if each.ready):
        for other in SAMPLES[framework].moments:
            if other.spec == ready.spec and not other.ready:
                return other, ready
    raise AssertionError(f"{framework} has no job in the table that is ready and is not")


class Life(Cluster):
    """A job of a kind from its admission on, and its Workload, both reconciled until nothing is left to write."""

    def __init__(self, framework: str) -> None:
        super().__init__(options=JobOptions(pods_ready=OPTIONS), registry=REGISTRY)
        self.integration = REGISTRY.known[framework]
        self.key = f"{framework}:team/train"
        self.world.local_queues.observe(_decoded(LocalQueue, "main", {"clusterQueue": "cq"}, namespace="team"))
        self.world.cluster_queues.observe(_decoded(ClusterQueue, "cq", {"namespaceSelector": {}}))
        self.flavor()
        self.waits, self.runs = lives(framework)
        meta = {"name": "train", "namespace": "team", "labels": QUEUE}
        spec = json.loads(json.dumps(self.waits.spec))  # no two parts of it are the same object
        self.put(self.integration.kind, {"metadata": meta, "spec": spec})
        self.settle(self.key)
        if not self.workloads:
            self.stops()

    def says(self, status: Body) -> None:
        """The kind's controller writes the status of the job."""
        body = self.get(self.integration.kind, "team/train")
        assert body is not None
        self.put(self.integration.kind, {**body, "status": status})
        self.settle(self.key)
        self.rest()

    def rest(self) -> None:
        """Reconcile both until nothing is left to write."""
        for _ in range(10):
            before = len(self.writes)
            self.settle(self.key, limit=30)
            for action in workload.decide(self.workload_key, self.world).actions:
                self.act(action)
            if len(self.writes) == before:
                return
        raise AssertionError(f"still writing: {self.writes[-10:]}")

    def admit_all(self) -> None:
        """The scheduler admits all pod sets, now."""
        sets = self.workload["spec"].get("podSets", [])
        given = [{"name": each["name"], "flavors": {"cpu": "default"}, "count": each["count"]} for each in sets]
        admission = {"clusterQueue": "cq", "podSetAssignments": given}
        old = self.workload.get("status", {}).get("conditions", [])
        changed = {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}
        now = timestamp(self.now)
        new = [{"type": kind, "status": status, "reason": "ByTest", "message": "", "lastTransitionTime": now}
               for kind, status in changed.items()]  # fmt: skip
        conditions = [*(each for each in old if each["type"] not in changed), *new]
        self.patch(Workload, self.workload_key, {"status": {"admission": admission, "conditions": conditions}})
        self.rest()

    @property
    def held(self) -> bool:
        """Whether no pod of the job can run."""
        store = self.world.jobs[self.integration.kind]
        job = store.get("team/train")
        return job is not None and self.integration.suspended(job)

    def told(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        return (self.condition(kind) or ("", ""))[:2]

    def stops(self) -> None:
        """Its pods have ended."""
        self.says(SAMPLES[self.integration.framework].gone)


def _decoded(kind: Any, name: str, spec: Body, **metadata: str) -> Any:
    body = {"metadata": {"name": name, "resourceVersion": "1", **metadata}, "spec": spec}
    return msgspec.convert(body, kind)


@pytest.mark.parametrize("framework", KINDS)
def test_from_the_first_timeout_to_the_last(framework: str) -> None:
    """Its pods do not get ready in time; after the back-off it is admitted again, loses a pod, and is given up."""
    life = Life(framework)
    assert life.held
    life.admit_all()
    assert not life.held
    life.says(life.waits.status)
    assert life.told("PodsReady") == ("False", "WaitForStart")
    life.now += timedelta(seconds=61)
    life.rest()
    assert life.told("Evicted") == ("True", "PodsReadyTimeout")
    assert life.workload["status"]["requeueState"]["count"] == 1
    assert life.held
    life.stops()
    life.now += timedelta(seconds=UNREAD_SECONDS)
    life.rest()
    assert life.told("QuotaReserved")[0] == "False"
    assert life.told("Requeued") == ("False", "PodsReadyTimeout")
    life.now += timedelta(seconds=OPTIONS.backoff_base)
    life.rest()
    assert life.told("Requeued") == ("True", "BackoffFinished")
    life.admit_all()
    assert not life.held
    life.says(life.runs.status)
    assert life.told("PodsReady") == ("True", "Started")
    life.says(life.waits.status)
    assert life.told("PodsReady") == ("False", "WaitForRecovery")
    life.now += timedelta(seconds=31)
    life.rest()
    assert life.workload["spec"]["active"] is False
    assert life.told("Evicted") == ("True", "DeactivatedDueToRequeuingLimitExceeded")
    assert life.held
