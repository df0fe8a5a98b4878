"""The controller of JobSet.

Makes the child Jobs, follows them, and applies success and failure policies. Its webhooks give a JobSet its defaults
(completion mode, network, policies), validate it, and place pods where the JobSet wants each Job on nodes of its own.
"""

from testbed.operators.description import Operator, configuration_file

OPERATOR = Operator(
    name="jobset",
    module="sigs.k8s.io/jobset",
    package="sigs.k8s.io/jobset",
    folder="config",
    kustomization="default",
    arguments=lambda places: [
        configuration_file(places, "config.jobset.x-k8s.io/v1alpha1", featureGates={"ElasticJobSet": True}),
        f"--health-probe-bind-address=127.0.0.1:{places.health_port}",
        "--metrics-bind-address=0",
    ],
)
