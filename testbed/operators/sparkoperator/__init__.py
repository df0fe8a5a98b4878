"""The Spark operator: SparkApplication and its like, of a controller and a webhook server.

Calls `spark-submit` for each SparkApplication, which makes the pod of the driver, and follows the pods of driver and
executors. There is no Spark here: `submit.py` plays `spark-submit`, and a test plays the driver, which would make the
executors. The webhooks give applications their defaults, validate them, and change the pods.

The webhook server insists on an authority of its own. Its manifests have it look at the namespace default only.
"""

import json
import sys
from collections.abc import Mapping

from testbed.build import Edit
from testbed.client import Json
from testbed.operators.description import Operator, Places, Program, python_environment

_MODULE = "github.com/kubeflow/spark-operator/v2"
_NAMESPACE = "spark-operator"


def _kustomization(_: Places) -> Json:
    def everywhere(kind: str, webhooks: int) -> Json:
        removals = [{"op": "remove", "path": f"/webhooks/{number}/namespaceSelector"} for number in range(webhooks)]
        return {"target": {"kind": kind}, "patch": json.dumps(removals)}

    patches = [everywhere("MutatingWebhookConfiguration", 4), everywhere("ValidatingWebhookConfiguration", 3)]
    return {"resources": ["default"], "patches": patches}


def _environment(places: Places) -> Mapping[str, str]:
    home = places.directory / "spark"
    command = home / "bin" / "spark-submit"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {__name__}.submit "$@"\n')
    command.chmod(0o755)
    return {
        "SPARK_HOME": str(home),
        **python_environment(),
        # Where an application would find the API server; the operator itself has a kubeconfig.
        "KUBERNETES_SERVICE_HOST": "kubernetes.default.svc",
        "KUBERNETES_SERVICE_PORT": "443",
    }


OPERATOR = Operator(
    name="sparkoperator",
    module=_MODULE,
    package=f"{_MODULE}/cmd/operator",
    folder="config",
    kustomization=_kustomization,
    deployment="spark-operator-controller",
    arguments=lambda places: [
        "controller",
        "start",
        "--namespaces=",
        f"--health-probe-bind-address=127.0.0.1:{places.health_port}",
    ],
    environment=_environment,
    beside=(
        Program(
            name="sparkoperator-webhook",
            package=f"{_MODULE}/cmd/operator",
            deployment="spark-operator-webhook",
            arguments=lambda places: [
                "webhook",
                "start",
                "--namespaces=",
                f"--webhook-port={places.webhook_port}",
                f"--webhook-cert-dir={places.certificates}",
                f"--webhook-secret-namespace={_NAMESPACE}",
                "--webhook-svc-name=spark-operator-webhook-svc",
                f"--webhook-svc-namespace={_NAMESPACE}",
                "--mutating-webhook-name=mutating-webhook-configuration",
                "--validating-webhook-name=validating-webhook-configuration",
                f"--health-probe-bind-address=127.0.0.1:{places.health_port}",
            ],
        ),
    ),
    edits=(
        Edit(
            _MODULE,
            "cmd/operator/webhook/start.go",
            "Port:     webhookPort,",
            'Host: "127.0.0.1", Port: webhookPort,',
        ),
    ),
    own_certificates=True,
)
