"""The controller of LeaderWorkerSet.

Makes a StatefulSet of leaders, and for each leader's pod a StatefulSet of its workers. Its webhooks give a
LeaderWorkerSet its defaults, validate it, and label each pod with its group.
"""

from testbed.operators.description import Operator, configuration_file

OPERATOR = Operator(
    name="lws",
    module="sigs.k8s.io/lws",
    package="sigs.k8s.io/lws/cmd",
    folder="config",
    kustomization="default",
    arguments=lambda places: [
        configuration_file(places, "config.lws.x-k8s.io/v1alpha1"),
        f"--health-probe-bind-address=127.0.0.1:{places.health_port}",
        "--metrics-bind-address=0",
    ],
)
