"""A SparkApplication and its Workload: what is changed after the admission is charged, or stopped."""

from typing import Any

import pytest

from tests.unit.controllers.job_cluster import Cluster
from turnstile.api import names
from turnstile.api.conditions import timestamp
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.jobs.kinds.spark.application import SparkApplication

KEY = "sparkoperator.k8s.io/sparkapplication:team/pi"
Body = dict[str, Any]


class Spark(Cluster):
    """An admitted application whose driver runs."""

    def __init__(self) -> None:
        super().__init__()
        self.flavor()
        meta = {"name": "pi", "namespace": "team", "labels": {names.QUEUE_LABEL: "main"}}
        driver, executor = {"coreRequest": "1", "memory": "1g"}, {"coreRequest": "1", "memory": "1g", "instances": 2}
        spec = {"type": "Scala", "mode": "cluster", "suspend": True, "driver": driver, "executor": executor}
        self.put(SparkApplication, {"metadata": meta, "spec": spec})
        self.state("SUSPENDED")
        self.admit()
        self.state("SUSPENDED")
        self.state("RUNNING")
        assert not self.spec["suspend"]
        self.writes.clear()
        self.events.clear()

    @property
    def spec(self) -> Body:
        """The application's spec."""
        found = self.get(SparkApplication, "team/pi")
        assert found is not None
        spec: Body = found["spec"]
        return spec

    def state(self, state: str) -> None:
        """What the operator writes; Turnstile reconciles until nothing is left to write."""
        self.patch(SparkApplication, "team/pi", {"status": {"applicationState": {"state": state}}})
        self.settle(KEY)

    def change(self, **spec: Any) -> None:
        """A user's change."""
        self.patch(SparkApplication, "team/pi", {"spec": spec})
        self.settle(KEY)

    def pod(self, name: str, *, role: str = "executor", cpu: str = "1", marked: bool = True, **_: Any) -> None:
        """A pod that the operator, or the program in the driver, has made."""
        meta: Body = {
            "name": name,
            "namespace": "team",
            "creationTimestamp": timestamp(self.now),
            "labels": {names.PODSET_LABEL: role} if marked else {},
            "annotations": {names.WORKLOAD: self.workload["metadata"]["name"]},
        }
        requests = {"cpu": cpu, "memory": f"{1024 + 384}Mi"}
        containers = [{"name": "c", "resources": {"requests": requests}}]
        self.put(
            Pod,
            {"metadata": meta, "spec": {"nodeName": "n", "containers": containers}, "status": {"phase": "Running"}},
        )
        self.settle(KEY)

    @property
    def active(self) -> bool:
        """Whether the Workload is not deactivated."""
        self.settle(KEY)
        return bool(self.workload["spec"].get("active", True))

    @property
    def reserved(self) -> bool:
        """Whether the Workload holds quota."""
        found = self.condition("QuotaReserved")
        return found is not None and found[0] == "True"

    def admit(self, **_: Any) -> None:
        """The scheduler's write, for both pod sets."""
        super().admit()
        pod_sets = self.workload["spec"]["podSets"]
        assigned = [{"name": each["name"], "flavors": {"cpu": "default"}, "count": each["count"]} for each in pod_sets]
        admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
        self.patch(Workload, self.workload_key, {"status": {"admission": admission}})


def test_an_evicted_application_keeps_its_quota_until_the_operator_has_stopped_it() -> None:
    """Whatever states it passes on the way."""
    cluster = Spark()
    cluster.evict()
    cluster.settle(KEY)
    assert cluster.spec["suspend"] is True
    for state in ("RUNNING", "SUSPENDING"):
        cluster.state(state)
        assert cluster.reserved
    cluster.state("SUSPENDED")
    assert not cluster.reserved
    assert "labels" not in cluster.spec["driver"]


def test_an_application_that_is_evicted_while_it_is_submitted_keeps_its_quota() -> None:
    """The operator runs spark-submit for many seconds before it writes a state."""
    cluster = Spark()
    cluster.state("")
    cluster.evict()
    cluster.settle(KEY)
    assert cluster.spec["suspend"] is True
    assert cluster.reserved
    cluster.state("SUSPENDED")
    assert not cluster.reserved


@pytest.mark.parametrize(
    "change",
    [
        {"executor": {"instances": 5}},
        {"executor": {"memory": "9g"}},
        {"executor": {"memoryOverhead": "9g"}},
        {"driver": {"coreRequest": "9"}},
        {"driver": {"memory": "9g"}},
        {"sparkConf": {"spark.driver.memoryOverhead": "9g"}},
        {"memoryOverheadFactor": "0.9"},
        {"type": "Python", "sparkConf": {"spark.executor.pyspark.memory": "9g"}},
        {"dynamicAllocation": {"enabled": True, "maxExecutors": 50}},
        {"sparkConf": {"spark.dynamicAllocation.enabled": "true"}},
    ],
)
def test_what_raises_use_after_the_admission_stops_the_application(change: Body) -> None:
    """Where no webhook refused it."""
    cluster = Spark()
    cluster.change(**change)
    assert cluster.spec["suspend"] is True
    cluster.state("SUSPENDED")
    assert not cluster.reserved


def test_a_workload_that_kueue_made_still_fits() -> None:
    """It is charged without the memory overhead, as Kueue does, until the application is admitted anew."""
    cluster = Spark()
    pod_sets = cluster.workload["spec"]["podSets"]
    for each in pod_sets:
        del each["template"]["spec"]["overhead"]
    cluster.patch(Workload, cluster.workload_key, {"spec": {"podSets": pod_sets}})
    cluster.settle(KEY)
    assert not cluster.spec["suspend"]
    assert cluster.writes == []


def test_an_application_that_failed_to_be_submitted_and_will_be_again_keeps_its_quota() -> None:
    """The operator starts another driver later."""
    cluster = Spark()
    cluster.change(restartPolicy={"type": "OnFailure", "onSubmissionFailureRetries": 3})
    cluster.state("SUBMISSION_FAILED")
    assert cluster.reserved
    cluster.state("FAILED")
    assert cluster.condition("Finished") is not None


def test_a_driver_that_makes_more_executors_than_are_charged_is_stopped() -> None:
    """Its program decides how many it makes. The Workload is deactivated: evicted alone, it would do so again."""
    cluster = Spark()
    cluster.pod("driver", role="driver")
    cluster.pod("one")
    cluster.pod("two")
    cluster.later(seconds=60)
    assert cluster.active
    cluster.pod("three")
    assert cluster.active  # it may replace one that is about to be deleted
    cluster.later(seconds=6)
    assert not cluster.active
    problem = "Pod three is one of more than 2 pods of pod set 'executor'"
    assert cluster.events == [("NotCharged", f"Workload '{cluster.workload_key}' is deactivated: {problem}")]


def test_an_executor_that_replaces_one_that_terminates_is_no_excess() -> None:
    """Nor one in the place of an executor that has ended."""
    cluster = Spark()
    for name in ("one", "two"):
        cluster.pod(name)
    cluster.delete(Pod, "team/one")
    cluster.patch(Pod, "team/two", {"status": {"phase": "Failed"}})
    for name in ("three", "four"):
        cluster.pod(name)
    cluster.later(seconds=60)
    assert cluster.active


@pytest.mark.parametrize("pod", [{"cpu": "2"}, {"role": "worker"}, {"marked": False}])
def test_a_pod_that_is_not_charged_for_stops_the_application(pod: Body) -> None:
    """It is larger than what is charged, or names no pod set of the Workload."""
    cluster = Spark()
    cluster.pod("one", **pod)
    cluster.later(seconds=6)
    assert not cluster.active
