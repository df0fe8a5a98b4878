"""waitForPodsReady where pods are gated, or templates are in another object: a Pod, the gang of a StatefulSet, a
PipelineRun and a TrainJob whose pods do not get ready, or are lost, make way."""

from datetime import timedelta
from typing import Any, Final

import pytest

from tests.unit.controllers.job_cluster import POD, Body, Cluster
from tests.unit.controllers.test_pipelineruns import RUN, Runs, task
from tests.unit.controllers.test_serving_sets import GROUP, SET, gated, put_pod, put_set
from tests.unit.controllers.test_trainjob import KEY, Training
from turnstile.api.conditions import timestamp
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.workloads import workload
from turnstile.jobs.kinds.pipelinerun.run import PipelineRun
from turnstile.jobs.options import JobOptions, PodsReadyOptions

OPTIONS: Final = JobOptions(pods_ready=PodsReadyOptions(timeout=60.0, recovery_timeout=30.0, backoff_base=10.0))


def admit(cluster: Cluster, *keys: str) -> None:
    """The scheduler admits all pod sets, now."""
    sets = cluster.workload["spec"]["podSets"]
    given = [{"name": each["name"], "flavors": {"cpu": "default"}, "count": each["count"]} for each in sets]
    now, changed = timestamp(cluster.now), {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}
    old = cluster.workload.get("status", {}).get("conditions", [])
    new = [
        {
            "type": kind,
            "status": status,
            "reason": "ByTest",
            "message": "",
            "lastTransitionTime": now,
        }
        for kind, status in changed.items()
    ]
    conditions = [*(each for each in old if each["type"] not in changed), *new]
    admission = {"clusterQueue": "cq", "podSetAssignments": given}
    cluster.patch(Workload, cluster.workload_key, {"status": {"admission": admission, "conditions": conditions}})
    rest(cluster, *keys)


def rest(cluster: Cluster, *keys: str, seconds: float = 0) -> None:
    """Time passes; then the job and its Workload are reconciled until nothing is left to write."""
    cluster.now += timedelta(seconds=seconds)
    for _ in range(10):
        before = len(cluster.writes)
        for key in keys:
            cluster.settle(key)
        for each in cluster.workloads:
            meta = each["metadata"]
            for action in workload.decide(f"{meta['namespace']}/{meta['name']}", cluster.world).actions:
                cluster.act(action)
        if len(cluster.writes) == before:
            return
    raise AssertionError(f"still writing: {cluster.writes[-10:]}")


def told(cluster: Cluster, kind: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    return (cluster.condition(kind) or ("", ""))[:2]


def says(cluster: Cluster, name: str, ready: str, **spec: Any) -> None:
    """The kubelet reports about a pod that runs."""
    status: Body = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    cluster.patch(Pod, f"team/{name}", {"spec": {"nodeName": "node", **spec}, "status": status})


class TestAPod:
    @pytest.fixture
    def cluster(self) -> Cluster:
        """A Pod that was admitted now."""
        made = Cluster(options=OPTIONS)
        made.flavor()
        made.pod()
        made.settle(POD)
        admit(made, POD)
        return made

    def test_that_gets_no_node_is_deleted(self, cluster: Cluster) -> None:
        """It does not come back: its Workload waits for no other attempt."""
        assert told(cluster, "PodsReady") == ("False", "WaitForStart")
        rest(cluster, POD, seconds=61)
        assert cluster.get(Pod, "team/train") is None
        assert told(cluster, "Evicted") == ("True", "PodsReadyTimeout")
        assert told(cluster, "Finished") == ("True", "OwnerNotFound")

    def test_that_is_ready_no_more_has_time_to_recover(self, cluster: Cluster) -> None:
        """And is deleted at the end of that."""
        says(cluster, "train", "True")
        rest(cluster, POD)
        assert told(cluster, "PodsReady") == ("True", "Started")
        says(cluster, "train", "False")
        rest(cluster, POD, seconds=20)
        assert told(cluster, "PodsReady") == ("False", "WaitForRecovery")
        says(cluster, "train", "True")
        rest(cluster, POD, seconds=20)
        assert told(cluster, "PodsReady") == ("True", "Recovered")
        says(cluster, "train", "False")
        rest(cluster, POD)
        rest(cluster, POD, seconds=31)
        assert told(cluster, "Evicted") == ("True", "PodsReadyTimeout")


class TestASet:
    """A StatefulSet; the gangs of a LeaderWorkerSet are groups of the same kind."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        """A StatefulSet of two pods that was admitted now, and has created both."""
        made = Cluster(options=OPTIONS)
        made.flavor()
        put_set(made)
        for name in ("db-0", "db-1"):
            put_pod(made, name)
        for key in (SET, GROUP, SET, GROUP):
            made.settle(key)
        admit(made, SET, GROUP)
        return made

    def test_is_ready_when_all_its_pods_are(self, cluster: Cluster) -> None:
        """A pod that its controller has yet to create is not."""
        says(cluster, "db-0", "True")
        rest(cluster, SET, GROUP)
        assert told(cluster, "PodsReady") == ("False", "WaitForStart")
        says(cluster, "db-1", "True")
        rest(cluster, SET, GROUP)
        assert told(cluster, "PodsReady") == ("True", "Started")

    def test_whose_pods_do_not_get_ready_waits_and_is_tried_again(self, cluster: Cluster) -> None:
        """Its pods are deleted, and those that take their places wait."""
        says(cluster, "db-0", "True", nodeName="")
        rest(cluster, SET, GROUP, seconds=61)
        assert told(cluster, "Evicted") == ("True", "PodsReadyTimeout")
        assert [cluster.get(Pod, f"team/{name}") for name in ("db-0", "db-1")] == [None, None]
        for name in ("db-0", "db-1"):
            put_pod(cluster, name)
        rest(cluster, SET, GROUP)
        assert told(cluster, "QuotaReserved")[0] == "False"
        assert [gated(cluster, name) for name in ("db-0", "db-1")] == [True, True]
        rest(cluster, SET, GROUP, seconds=11)
        assert told(cluster, "Requeued") == ("True", "BackoffFinished")
        admit(cluster, SET, GROUP)
        assert [gated(cluster, name) for name in ("db-0", "db-1")] == [False, False]
        assert told(cluster, "PodsReady") == ("False", "WaitForStart")

    def test_that_loses_a_pod_has_time_to_recover(self, cluster: Cluster) -> None:
        """Until the pod that takes its place is ready."""
        for name in ("db-0", "db-1"):
            says(cluster, name, "True")
        rest(cluster, SET, GROUP)
        says(cluster, "db-1", "False")
        rest(cluster, SET, GROUP)
        assert told(cluster, "PodsReady") == ("False", "WaitForRecovery")
        rest(cluster, SET, GROUP, seconds=31)
        assert told(cluster, "Evicted") == ("True", "PodsReadyTimeout")


class TestAPipelineRun:
    """Its pods come and go with its tasks, so it is ready when Tekton has begun."""

    @pytest.fixture
    def cluster(self) -> Runs:
        """A run that was admitted now."""
        made = Runs()
        made.world.options = OPTIONS
        made.run(task("one", "1"))
        made.settle(RUN)
        admit(made, RUN)
        return made

    def test_that_has_begun_stays(self, cluster: Runs) -> None:
        """However long none of its pods is ready."""
        cluster.patch(PipelineRun, "team/build", {"status": {"startTime": "2026-01-02T03:04:05Z"}})
        rest(cluster, RUN)
        assert told(cluster, "PodsReady") == ("True", "Started")
        rest(cluster, RUN, seconds=1000)
        assert told(cluster, "Evicted")[0] == "False"

    def test_that_tekton_does_not_begin_is_cancelled(self, cluster: Runs) -> None:
        """A run that was begun cannot be pending again. Its pods are gated, so that its quota is free at once."""
        rest(cluster, RUN, seconds=61)
        assert told(cluster, "Evicted") == ("True", "PodsReadyTimeout")
        found = cluster.get(PipelineRun, "team/build")
        assert found is not None
        assert found["spec"]["status"] == "CancelledRunFinally"
        assert told(cluster, "QuotaReserved")[0] == "False"
        ended = {"conditions": [{"type": "Succeeded", "status": "False", "message": "cancelled"}]}
        cluster.patch(PipelineRun, "team/build", {"status": ended})
        rest(cluster, RUN)
        assert told(cluster, "Finished") == ("True", "Failed")


class TestATrainJob:
    """Its pods are ready when those of its JobSet are."""

    @pytest.fixture
    def cluster(self) -> Training:
        """A TrainJob that was admitted now, and runs."""
        made = Training()
        made.world.options = OPTIONS
        made.settle(KEY)
        admit(made, KEY)
        made.render(active=1)
        rest(made, KEY)
        return made

    def test_that_does_not_get_ready_waits_and_is_tried_again(self, cluster: Training) -> None:
        """It is suspended, and resumed after its back-off."""
        assert told(cluster, "PodsReady") == ("False", "WaitForStart")
        rest(cluster, KEY, seconds=61)
        assert told(cluster, "Evicted") == ("True", "PodsReadyTimeout")
        assert cluster.train_job["spec"]["suspend"] is True
        cluster.render()
        rest(cluster, KEY)
        cluster.render()  # without the admission
        rest(cluster, KEY)
        assert told(cluster, "QuotaReserved")[0] == "False"
        rest(cluster, KEY, seconds=11)
        assert told(cluster, "Requeued") == ("True", "BackoffFinished")
        admit(cluster, KEY)
        assert cluster.train_job["spec"]["suspend"] is False

    def test_that_loses_a_pod_has_time_to_recover(self, cluster: Training) -> None:
        """And is evicted at the end of that."""
        cluster.render(ready=1)
        rest(cluster, KEY)
        assert told(cluster, "PodsReady") == ("True", "Started")
        cluster.render(active=1)
        rest(cluster, KEY)
        assert told(cluster, "PodsReady") == ("False", "WaitForRecovery")
        rest(cluster, KEY, seconds=31)
        assert told(cluster, "Evicted") == ("True", "PodsReadyTimeout")
