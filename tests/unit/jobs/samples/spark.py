"""A SparkApplication."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import POD_TEMPLATE, Sample, moments

Json = dict[str, Any]


def _pods(body: Json) -> int:
    spec = body["spec"]
    conf, dynamic = spec.get("sparkConf", {}), spec.get("dynamicAllocation") or {}
    executors = spec["executor"].get("instances", int(conf.get("spark.executor.instances", 2)))
    if dynamic.get("enabled") or conf.get("spark.dynamicAllocation.enabled") == "true":
        executors = max(
            executors, dynamic.get("maxExecutors", int(conf.get("spark.dynamicAllocation.maxExecutors", 10)))
        )
    return 1 + executors


SPARK: Final = moments(
    {"driver": {}, "executor": {"instances": 2}},
    ("nothing is written yet", {}, False),
    ("the driver is submitted", {"applicationState": {"state": "SUBMITTED"}}, False),
    ("the driver runs", {"applicationState": {"state": "RUNNING"}, "executorState": {}}, False),
    (
        "one of two executors runs",
        {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "PENDING"}},
        False,
    ),
    (
        "all run, or have ended",
        {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "COMPLETED"}},
        True,
    ),
    (
        "an executor has failed",
        {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "FAILED"}},
        False,
    ),
)

SAMPLES: Final = (
    Sample(
        framework="sparkoperator.k8s.io/sparkapplication",
        api_version="sparkoperator.k8s.io/v1beta2",
        kind="SparkApplication",
        spec={
            "type": "Python",
            "mode": "cluster",
            "sparkConf": {"spark.executor.cores": "2", "spark.memory.offHeap.enabled": "true"},
            "volumes": [{"name": "v"}],
            "driver": {"memory": "1g", "template": POD_TEMPLATE, "volumeMounts": [{"name": "v"}]},
            "executor": {"instances": 2, "sidecars": POD_TEMPLATE["spec"]["containers"], "gpu": {"name": "a/b"}},
            "dynamicAllocation": {"enabled": False},
        },
        status={"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING"}},
        pods=_pods,
        moments=SPARK,
        gone={"applicationState": {"state": "SUSPENDED"}},
    ),
)
