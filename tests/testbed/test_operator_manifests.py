"""What is made of the manifests that an operator's module carries."""

import base64
from typing import Any

import pytest

from testbed.operators import OPERATORS
from testbed.operators.manifests import at_loopback, read

RENDERED = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trains.example.com}
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig: {service: {name: webhook, namespace: trains, path: /convert}}
      conversionReviewVersions: [v1]
---
apiVersion: v1
kind: Namespace
metadata: {name: trains}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: trains}
spec: {template: {spec: {serviceAccountName: driver}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: trains}
webhooks:
- name: train.example.com
  clientConfig: {service: {name: webhook, namespace: trains, path: /mutate}}
  failurePolicy: Fail
"""


def test_documents_are_sorted() -> None:
    """The Deployment is set apart, and says whose rights the process has."""
    manifests = read(RENDERED)
    assert [document["kind"] for document in manifests.definitions] == ["CustomResourceDefinition"]
    assert [document["kind"] for document in manifests.others] == ["Namespace", "MutatingWebhookConfiguration"]
    assert (manifests.namespace, manifests.service_account) == ("trains", "driver")
    assert manifests.webhook_paths() == ["/mutate"]


def test_webhooks_are_called_at_loopback() -> None:
    """Only the address and whom to trust change, in webhook configurations and in conversions of CRDs."""
    manifests = read(RENDERED)
    definition, _, webhooks = (
        at_loopback(document, port=4711, authority=b"ca") for document in (*manifests.definitions, *manifests.others)
    )
    bundle = base64.b64encode(b"ca").decode()
    assert webhooks["webhooks"] == [
        {
            "name": "train.example.com",
            "clientConfig": {"url": "https://127.0.0.1:4711/mutate", "caBundle": bundle},
            "failurePolicy": "Fail",
        }
    ]
    conversion: dict[str, Any] = definition["spec"]["conversion"]["webhook"]
    assert conversion["clientConfig"] == {"url": "https://127.0.0.1:4711/convert", "caBundle": bundle}
    assert manifests.others[1]["webhooks"][0]["clientConfig"] != conversion["clientConfig"]


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_pinned(name: str) -> None:
    """Its folder has a go.mod that builds its package, and requires its module, as a tool."""
    operator = OPERATORS[name]
    pins = (operator.go_module.directory / "go.mod").read_text()
    assert f"tool {operator.package}\n" in pins
    assert f"require {operator.module} v" in pins
    assert (operator.go_module.directory / "go.sum").exists()
