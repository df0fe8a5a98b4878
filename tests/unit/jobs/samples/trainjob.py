"""A TrainJob, whose templates are in a JobSet that Trainer makes."""

from typing import Any, Final

from tests.unit.jobs.samples.jobset import jobset_pods
from tests.unit.jobs.samples.sample import CONDITION, Sample

Json = dict[str, Any]


SAMPLES: Final = (
    Sample(
        framework="trainer.kubeflow.org/trainjob",
        api_version="trainer.kubeflow.org/v1alpha1",
        kind="TrainJob",
        spec={
            "suspend": False,
            "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
            "runtimePatches": [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {}}}],
        },
        status={"conditions": [CONDITION], "jobsStatus": [{"name": "node", "active": 1, "ready": 1}]},
        pods=lambda body: jobset_pods(body["jobSet"]),
    ),
)
