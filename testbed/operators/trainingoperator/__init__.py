"""The training operator of Kubeflow: PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob.

Makes the pods of each replica type, a Service for each pod, and for a PyTorchJob a HorizontalPodAutoscaler where its
elastic policy wants one. Its webhooks validate all five kinds.

Its own management of certificates cannot be switched off and waits for a file below /tmp, so it is edited out. MPIJob
of version 1 is left out, as everywhere where the MPI operator runs too: its CRD has the same name as theirs.
"""

from testbed.build import Edit
from testbed.operators.description import Operator

_MODULE = "github.com/kubeflow/training-operator"
_KINDS = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")
_MAIN = "cmd/training-operator.v1/main.go"

OPERATOR = Operator(
    name="trainingoperator",
    module=_MODULE,
    package=f"{_MODULE}/cmd/training-operator.v1",
    folder="manifests",
    kustomization=lambda _: {
        "resources": ["overlays/standalone"],
        "patches": [
            {
                "target": {"kind": "CustomResourceDefinition", "name": "mpijobs.kubeflow.org"},
                "patch": "{$patch: delete, kind: CustomResourceDefinition, metadata: {name: mpijobs.kubeflow.org}}",
            }
        ],
    },
    arguments=lambda places: [
        *(f"--enable-scheme={kind}" for kind in _KINDS),
        f"--webhook-server-port={places.webhook_port}",
        f"--health-probe-bind-address=127.0.0.1:{places.health_port}",
        "--metrics-bind-address=0",
    ],
    edits=(
        Edit(_MODULE, _MAIN, "Port: webhookServerPort,", 'Host: "127.0.0.1", Port: webhookServerPort,'),
        Edit(_MODULE, _MAIN, "defer close(certsReady)", "close(certsReady)"),
        Edit(_MODULE, _MAIN, "certGenerationConfig := cert.Config{", "_ = cert.Config{"),
        Edit(_MODULE, _MAIN, "cert.ManageCerts(mgr, certGenerationConfig, certsReady)", "error(nil)"),
    ),
)
