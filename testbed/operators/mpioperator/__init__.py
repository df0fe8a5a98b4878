"""The MPI operator: MPIJob of version v2beta1.

Makes the workers' pods, the launcher's Job, and the hostfile and keys by which the launcher reaches the workers with
ssh. No container runs here, so a launcher runs until a test ends its pod.
"""

from testbed.build import Edit
from testbed.operators.description import Operator

_MODULE = "github.com/kubeflow/mpi-operator"

OPERATOR = Operator(
    name="mpioperator",
    module=_MODULE,
    package=f"{_MODULE}/cmd/mpi-operator",
    folder="manifests",
    kustomization="overlays/standalone",
    arguments=lambda _: ["--alsologtostderr", "--lock-namespace=mpi-operator"],
    environment=lambda places: {"HEALTH_ADDRESS": f"127.0.0.1:{places.health_port}"},
    ready="/healthz",
    edits=(
        Edit(
            _MODULE,
            "cmd/mpi-operator/app/server.go",
            'fmt.Sprintf(":%d", healthCheckPort)',
            'os.Getenv("HEALTH_ADDRESS")',
        ),
    ),
)
