"""The controller of KServe: InferenceService in its Standard mode, which needs neither Knative nor a service mesh.

Makes a Deployment, a Service and a HorizontalPodAutoscaler for each component of an InferenceService. Its webhooks give
an InferenceService its defaults, validate it, and change the pods. No runtimes are installed: a predictor names its
container. Ingresses are switched off.
"""

import json

from testbed.build import Edit
from testbed.client import Json
from testbed.operators.description import Operator, Places

_MODULE = "github.com/kserve/kserve"
_INGRESS = {
    "ingressGateway": "knative-serving/knative-ingress-gateway",
    "localGateway": "knative-serving/knative-local-gateway",
    "localGatewayService": "knative-local-gateway.istio-system.svc.cluster.local",
    "ingressDomain": "example.com",
    "disableIstioVirtualHost": True,
    "disableIngressCreation": True,
}


def _kustomization(_: Places) -> Json:
    certificate = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "serving-cert"}}
    settings = [
        {"op": "replace", "path": "/data/deploy", "value": json.dumps({"defaultDeploymentMode": "Standard"})},
        {"op": "replace", "path": "/data/ingress", "value": json.dumps(_INGRESS)},
    ]
    return {
        "namespace": "kserve",
        "resources": ["default", "configmap"],
        "patches": [
            {"target": {"kind": "Certificate"}, "patch": json.dumps({"$patch": "delete", **certificate})},
            {"target": {"kind": "ConfigMap", "name": "inferenceservice-config"}, "patch": json.dumps(settings)},
        ],
    }


OPERATOR = Operator(
    name="kserve",
    module=_MODULE,
    package=f"{_MODULE}/cmd/manager",
    folder="config",
    kustomization=_kustomization,
    arguments=lambda places: [
        f"--webhook-port={places.webhook_port}",
        f"--health-probe-addr=127.0.0.1:{places.health_port}",
        "--metrics-addr=0",
    ],
    environment=lambda _: {"POD_NAMESPACE": "kserve"},
    edits=(
        Edit(
            _MODULE,
            "cmd/manager/main.go",
            "Port: options.webhookPort,",
            'Host: "127.0.0.1", Port: options.webhookPort,',
        ),
    ),
)
