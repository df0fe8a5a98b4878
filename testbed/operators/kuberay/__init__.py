"""The KubeRay operator: RayCluster, RayJob, RayService.

Makes the head and worker pods of RayClusters, and RayClusters for RayJobs and RayServices. Installed without webhooks,
which is also the default of its Helm chart. It asks the Ray head by HTTP for the state of a RayJob or RayService. No
container runs here, so nothing answers, and RayJobs and RayServices come as far as a RayCluster that is ready.
"""

from testbed.operators.description import Operator

OPERATOR = Operator(
    name="kuberay",
    module="github.com/ray-project/kuberay/ray-operator",
    package="github.com/ray-project/kuberay/ray-operator",
    folder="config",
    kustomization="default",
    arguments=lambda places: [
        f"--health-probe-bind-address=127.0.0.1:{places.health_port}",
        "--metrics-addr=0",
        "--enable-leader-election=false",  # there is one replica
    ],
)
