"""SparkApplication: what its pods will request, when it is active, and where an admission is written."""

import json
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import pytest

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.workload import PodSet
from turnstile.api.workload import decode as decode_workload
from turnstile.engine.quota.requests import amount, effective_pod, pod_requests
from turnstile.jobs.integration import Change
from turnstile.jobs.kinds.spark.application import SparkApplication, SparkApplications
from turnstile.jobs.podsets import PodSetInfo

Json = dict[str, Any]
INTEGRATION = SparkApplications()
NOW = datetime(2026, 1, 2, tzinfo=UTC)
MEBI = 1 << 20
MARKED = {names.PODSET_LABEL: "driver"}


def body(*, driver: Json | None = None, executor: Json | None = None, state: str = "", **spec: Any) -> Json:
    """An application in a queue; `state` is that of its status."""
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "pi", "namespace": "team", "labels": {names.QUEUE_LABEL: "main"}},
        "spec": {"type": "Scala", "mode": "cluster", "driver": driver or {}, "executor": executor or {}, **spec},
        "status": {"applicationState": {"state": state}},
    }


def app(**fields: Any) -> SparkApplication:
    """The same as Turnstile sees it."""
    return SparkApplication.decoder()(json.dumps(body(**fields)).encode())


def requested(role: str = "executor", **fields: Any) -> dict[str, int]:
    """What a pod of a role is charged for: milli CPUs, and memory in MiB."""
    template = next(each for each in INTEGRATION.pod_sets(app(**fields)) if each.name == role).view
    totals = {name: amount(name, value) for name, value in pod_requests(effective_pod(template.spec)).items()}
    return {name: value // MEBI if name == "memory" else value for name, value in totals.items()}


def executors(**fields: Any) -> int:
    """How many executors are charged."""
    return INTEGRATION.pod_sets(app(**fields))[1].count


@pytest.mark.parametrize(
    ("fields", "cpu"),
    [
        ({"executor": {"coreRequest": "100m"}}, 100),
        ({"executor": {"coreRequest": "500m", "cores": 4}}, 500),
        ({"executor": {"cores": 4}}, 4000),
        ({}, 1000),
        ({"sparkConf": {"spark.executor.cores": "3"}}, 3000),
        ({"executor": {"cores": 2}, "sparkConf": {"spark.executor.cores": "3"}}, 2000),
        ({"sparkConf": {"spark.kubernetes.executor.request.cores": "1500m", "spark.executor.cores": "3"}}, 1500),
        ({"executor": {"cores": 2}, "sparkConf": {"spark.kubernetes.executor.request.cores": "5"}}, 5000),
    ],
)
def test_cpus_are_what_spark_requests(fields: Json, cpu: int) -> None:
    """`coreRequest`, else `cores`, else one; a field wins over the property of the same meaning in `sparkConf`."""
    assert requested(**fields)["cpu"] == cpu


@pytest.mark.parametrize(
    ("fields", "memory"),
    [
        ({}, 1024 + 384),
        ({"executor": {"memory": "512m"}}, 512 + 384),
        ({"executor": {"memory": "512Mi"}}, 512 + 384),
        ({"executor": {"memory": "10g"}}, 10240 + 1024),
        ({"executor": {"memory": "10g"}, "type": "Python"}, 10240 + 4096),
        ({"executor": {"memory": "10g"}, "memoryOverheadFactor": "0.5"}, 10240 + 5120),
        ({"executor": {"memory": "10g", "memoryOverhead": "1m"}, "memoryOverheadFactor": "0.5"}, 10240 + 1),
        ({"sparkConf": {"spark.executor.memory": "2048", "spark.executor.memoryOverhead": "3g"}}, 2048 + 3072),
        ({"memoryOverheadFactor": "0.5", "sparkConf": {"spark.kubernetes.memoryOverheadFactor": "2"}}, 1024 + 2048),
        ({"sparkConf": {"spark.executor.memoryOverheadFactor": "3"}}, 1024 + 3072),
        ({"sparkConf": {"spark.executor.minMemoryOverhead": "1g"}}, 1024 + 1024),
        ({"sparkConf": {"spark.executor.pyspark.memory": "1g"}, "type": "Python"}, 1024 + 409 + 1024),
        ({"sparkConf": {"spark.executor.pyspark.memory": "1g"}}, 1024 + 384),
        ({"sparkConf": {"spark.memory.offHeap.enabled": "TRUE", "spark.memory.offHeap.size": "1g"}}, 2048 + 384),
        ({"sparkConf": {"spark.memory.offHeap.size": "1g"}}, 1024 + 384),
    ],
)
def test_memory_is_what_spark_requests(fields: Json, memory: int) -> None:
    """With the overhead that Spark adds, for which Kueue does not charge."""
    assert requested(**fields)["memory"] == memory


def test_the_driver_has_no_memory_beside_the_heap() -> None:
    """Python workers and memory outside of the heap are the executors'."""
    conf = {"spark.executor.pyspark.memory": "1g", "spark.driver.memory": "2g"}
    assert requested("driver", sparkConf=conf, type="Python")["memory"] == 2048 + 819


def test_everything_else_in_a_pod_is_charged_too() -> None:
    """Devices, sidecars, and the containers of a pod template, which Kueue leaves out."""
    side = {"name": "side", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "spec": {
            "containers": [
                {"name": "log", "resources": {"requests": {"cpu": "2"}}},
                {
                    "name": "spark-kubernetes-executor",
                    "resources": {"requests": {"cpu": "64", "example.com/disk": "3"}},
                },
            ],
            "initContainers": [{"name": "load", "resources": {"requests": {"cpu": "9"}}}],
        }
    }
    executor = {"coreRequest": "4", "gpu": {"name": "nvidia.com/gpu", "quantity": 2}, "sidecars": [side]}
    conf = {"spark.executor.resource.fpga.amount": "1", "spark.executor.resource.fpga.vendor": "xilinx.com"}
    found = requested(executor={**executor, "template": template}, sparkConf=conf)
    assert found == {
        "cpu": 9000,
        "memory": 1408,
        "nvidia.com/gpu": 2,
        "xilinx.com/fpga": 1,
        "example.com/disk": 3,
    }


def test_the_overhead_of_a_runtime_class_counts_besides() -> None:
    """Its overhead is added by Kubernetes, so that of Spark must not take its place."""
    template = {"spec": {"containers": [{"name": "c"}], "runtimeClassName": "sandboxed"}}
    (_, executor) = INTEGRATION.pod_sets(app(executor={"template": template}))
    pod = effective_pod(executor.view.spec, overheads={"sandboxed": {"memory": "100Mi"}})
    assert amount("memory", pod_requests(pod)["memory"]) == (1024 + 384 + 100) * MEBI


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 2),
        ({"executor": {"instances": 5}}, 5),
        ({"sparkConf": {"spark.executor.instances": "4"}}, 4),
        ({"executor": {"instances": 5}, "sparkConf": {"spark.executor.instances": "4"}}, 5),
        ({"dynamicAllocation": {"enabled": False, "maxExecutors": 9}, "executor": {"instances": 5}}, 5),
        ({"dynamicAllocation": {"enabled": True, "maxExecutors": 9}, "executor": {"instances": 5}}, 9),
        ({"dynamicAllocation": {"enabled": True}}, 2**31 - 1),
        ({"sparkConf": {"spark.dynamicAllocation.enabled": "True"}}, 2**31 - 1),
        ({"sparkConf": {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "7"}}, 7),
    ],
)
def test_as_many_executors_are_charged_as_there_can_be(fields: Json, count: int) -> None:
    """Spark starts two unless it is told otherwise, and any number with dynamic allocation."""
    assert executors(**fields) == count


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"mode": "client"}, 'spec.mode: Invalid value: "client": only Cluster mode is supported'),
        (
            {"dynamicAllocation": {"enabled": True}},
            "spec.dynamicAllocation.enabled: Invalid value: true: a kueue managed",
        ),
        (
            {"sparkConf": {"spark.dynamicAllocation.enabled": "true"}, "dynamicAllocation": {"enabled": False}},
            'spec.sparkConf[spark.dynamicAllocation.enabled]: Invalid value: "true": a kueue managed job can',
        ),
        ({"driver": {"memory": "1.5g"}}, "spec.driver: Invalid value: '1.5g' is no size of memory"),
        ({"driver": {"template": {"spec": [[]]}}}, "spec.driver: Invalid value: a part of the pod is not what the CRD"),
        ({"executor": {"coreRequest": "many"}}, "spec.executor: Invalid value: 'many' is no number of cores"),
        ({"memoryOverheadFactor": "1e300"}, "spec.driver: Invalid value: memory overhead factor '1e300'"),
        ({"memoryOverheadFactor": "-1"}, "spec.driver: Invalid value: memory overhead factor '-1'"),
        ({"sparkConf": {"spark.executor.instances": "many"}}, "spec.executor: Invalid value: sparkConf["),
        (
            {"sparkConf": {"spark.executor.memory": "9" * 19 + "p"}},
            "spec.executor: Invalid value: executor: more memory",
        ),
        (
            {"executor": {"labels": {names.PODSET_LABEL: "driver"}}},
            'spec.executor.metadata.labels[kueue.x-k8s.io/podset]: Invalid value: "driver"',
        ),
    ],
)
def test_an_application_that_cannot_be_charged_is_refused(fields: Json, error: str) -> None:
    """In the words of Kueue where Kueue has the rule."""
    assert any(str(each).startswith(error) for each in INTEGRATION.create_errors(app(**fields)))


def test_dynamic_allocation_cannot_be_switched_on_later() -> None:
    """The same rule holds for a change."""
    before, after = app(), app(sparkConf={"spark.dynamicAllocation.enabled": "true"})
    assert len(INTEGRATION.update_errors(before, after)) == 1


@pytest.mark.parametrize(
    ("state", "marked", "active"),
    [
        ("", False, False),
        ("", True, True),
        ("SUBMITTED", True, True),
        ("RUNNING", True, True),
        ("PENDING_RERUN", True, True),
        ("INVALIDATING", True, True),
        ("SUSPENDING", True, True),
        ("SUSPENDED", True, False),
        ("COMPLETED", True, False),
        ("FAILED", True, False),
    ],
)
def test_it_is_active_until_the_operator_says_that_it_is_not(state: str, marked: bool, active: bool) -> None:
    """An application that was started and has no state yet may be about to get its driver."""
    assert INTEGRATION.active(app(state=state, driver={"labels": MARKED} if marked else {})) == active


@pytest.mark.parametrize(
    ("state", "policy", "finished"),
    [
        ("COMPLETED", "Never", True),
        ("FAILED", "Always", True),
        ("SUBMISSION_FAILED", "Never", True),
        ("SUBMISSION_FAILED", "OnFailure", False),
        ("FAILING", "OnFailure", False),
        ("RUNNING", "Never", False),
    ],
)
def test_it_has_finished_when_no_other_driver_will_be_started(state: str, policy: str, finished: bool) -> None:
    """Kueue takes a submission that is to be repeated for the end, and frees its quota."""
    found = INTEGRATION.finished(app(state=state, restartPolicy={"type": policy}))
    assert (found is not None) == finished
    if finished:
        assert found is not None
        assert found.success == (state == "COMPLETED")


INFOS = [
    PodSetInfo("driver", 1, labels=MARKED, node_selector={"pool": "a"}),
    PodSetInfo("executor", 2, labels={names.PODSET_LABEL: "executor"}, node_selector={"pool": "b"}),
]


def applied(before: Json, change: Any) -> Json:
    """The object after a patch."""
    assert isinstance(change, Change)
    after: Json = jsonpatch.apply_patch(before, json.loads(change.body.encode()))  # type: ignore[union-attr]
    return after


def read(found: Json) -> SparkApplication:
    """The object as Turnstile sees it."""
    return SparkApplication.decoder()(json.dumps(found).encode())


def pod_sets(found: Json) -> list[PodSet]:
    """The pod sets of the application's Workload."""
    made = [each.body(topologies=True) for each in INTEGRATION.pod_sets(read(found))]
    return decode_workload(json.dumps({"metadata": {"name": "w"}, "spec": {"podSets": made}}).encode()).spec.pod_sets


def test_a_start_merges_into_the_fields_of_both_roles() -> None:
    """The node selector of the application moves into both: the operator allows it in one place only."""
    before = body(suspend=True, nodeSelector={"zone": "z"}, executor={"labels": {"team": "a"}})
    after = applied(before, INTEGRATION.start(read(before), INFOS))["spec"]
    assert after["suspend"] is False
    assert "nodeSelector" not in after
    assert after["driver"] == {"labels": MARKED, "nodeSelector": {"zone": "z", "pool": "a"}}
    assert after["executor"]["labels"] == {"team": "a", names.PODSET_LABEL: "executor"}
    assert after["executor"]["nodeSelector"] == {"zone": "z", "pool": "b"}


def test_a_selector_that_contradicts_the_admission_cannot_be_started() -> None:
    """Also one for the whole application."""
    with pytest.raises(PermanentError, match="conflict for key=pool"):
        INTEGRATION.start(app(suspend=True, nodeSelector={"pool": "mine"}), INFOS)


def test_a_stop_restores_when_the_operator_has_acknowledged_it() -> None:
    """Until then the marks of the admission stay, by which the application counts as active."""
    before = body(suspend=True, driver={"labels": {"team": "a"}}, executor={"instances": 2})
    known = pod_sets(before)
    running = applied(before, INTEGRATION.start(read(before), INFOS))
    stop = INTEGRATION.stop(read(running), known, reason="", message="", now=NOW)
    assert (stop.announce, stop.complete) == (True, False)
    suspended = applied(running, stop.steps[0])
    assert suspended["spec"]["driver"]["labels"] == {"team": "a", **MARKED}
    waiting = INTEGRATION.stop(read(suspended), known, reason="", message="", now=NOW)
    assert (waiting.steps, waiting.complete) == ([], False)
    suspended["status"] = {"applicationState": {"state": "SUSPENDED"}}
    last = INTEGRATION.stop(read(suspended), known, reason="", message="", now=NOW)
    assert last.complete
    assert applied(suspended, last.steps[0])["spec"] == before["spec"]


def test_a_pod_template_that_only_held_gates_goes_with_them() -> None:
    """Gates exist in pod templates only; one that the user wrote stays."""
    before = body(suspend=True, executor={"template": {"spec": {"containers": [{"name": "c"}]}}, "instances": 2})
    known = pod_sets(before)
    gated = [PodSetInfo(each.name, each.count, labels=each.labels, scheduling_gates=("g",)) for each in INFOS]
    running = applied(before, INTEGRATION.start(read(before), gated))
    container = {"name": "spark-kubernetes-driver"}
    assert running["spec"]["driver"]["template"]["spec"] == {
        "containers": [container],
        "schedulingGates": [{"name": "g"}],
    }
    running["status"] = {"applicationState": {"state": "SUSPENDED"}}
    stop = INTEGRATION.stop(read(running), known, reason="", message="", now=NOW)
    assert applied(running, stop.steps[0])["spec"] == before["spec"]


def test_its_pods_are_ready_when_all_executors_are() -> None:
    """As many as are wanted run or have ended; the driver's state alone says nothing of them."""

    def ready(state: str, *found: str) -> bool:
        job = app(state=state, executor={"instances": 2})
        job.status.executor_state = {str(index): each for index, each in enumerate(found)}
        return INTEGRATION.pods_ready(job)

    assert ready("RUNNING", "RUNNING", "COMPLETED")
    assert not ready("RUNNING", "RUNNING", "PENDING")
    assert not ready("SUBMITTED", "RUNNING", "RUNNING")


def test_its_pods_are_not_ready_if_it_says_no_number_of_executors() -> None:
    """The watch asks this of every version of an object, also of one that no webhook has checked."""
    conf = {"spark.executor.instances": "many"}
    assert not INTEGRATION.pods_ready(app(state="RUNNING", sparkConf=conf))
