"""The Kubeflow Trainer: TrainJob, TrainingRuntime, ClusterTrainingRuntime.

Makes a JobSet of each TrainJob after the template of its runtime, so it needs JobSet's operator. Its own
ClusterTrainingRuntimes are installed with it. Its webhooks give a TrainJob its defaults and validate all three kinds.
"""

from testbed.operators.description import Operator, configuration_file

_MODULE = "github.com/kubeflow/trainer/v2"

OPERATOR = Operator(
    name="trainer",
    module=_MODULE,
    package=f"{_MODULE}/cmd/trainer-controller-manager",
    folder="manifests",
    # As overlays/manager and overlays/runtimes, without the manifests of JobSet, which they fetch.
    kustomization=lambda _: {
        "namespace": "kubeflow-system",
        "resources": [f"base/{part}" for part in ("crds", "manager", "rbac", "webhook", "runtimes")],
    },
    arguments=lambda places: [
        configuration_file(
            places,
            "config.trainer.kubeflow.org/v1alpha1",
            internalCertManagement=None,
            certManagement={"enable": False},
            webhook={"host": "127.0.0.1", "port": places.webhook_port},
            health={"healthProbeBindAddress": f"127.0.0.1:{places.health_port}"},
            metrics={"bindAddress": "0"},
        )
    ],
)
