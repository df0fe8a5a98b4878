"""Kinds whose pods are queued in gangs, and kinds whose pods are queued by themselves."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import POD_TEMPLATE, Sample

Json = dict[str, Any]


SAMPLES: Final = (
    Sample(
        framework="deployment",
        api_version="apps/v1",
        kind="Deployment",
        spec={"template": POD_TEMPLATE},
        status={"readyReplicas": 1},
    ),
    Sample(
        framework="statefulset",
        api_version="apps/v1",
        kind="StatefulSet",
        spec={"replicas": 2, "template": POD_TEMPLATE},
        status={"replicas": 1, "readyReplicas": 1},
        pods=lambda body: int(body["spec"].get("replicas", 1)),
    ),
    Sample(
        framework="leaderworkerset.x-k8s.io/leaderworkerset",
        api_version="leaderworkerset.x-k8s.io/v1",
        kind="LeaderWorkerSet",
        spec={
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 2, "leaderTemplate": POD_TEMPLATE, "workerTemplate": POD_TEMPLATE},
        },
        status={"replicas": 1, "readyReplicas": 1},
        pods=lambda body: int(body["spec"].get("replicas", 1) * body["spec"]["leaderWorkerTemplate"].get("size", 1)),
    ),
    Sample(
        framework="serving.kserve.io/inferenceservice",
        api_version="serving.kserve.io/v1beta1",
        kind="InferenceService",
        status={"conditions": [{"type": "PredictorReady", "status": "True"}]},
    ),
    Sample(
        framework="kubeflow.org/notebook",
        api_version="kubeflow.org/v1",
        kind="Notebook",
        status={"readyReplicas": 1},
    ),
)
