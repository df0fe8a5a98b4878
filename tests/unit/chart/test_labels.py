"""The labels by which Helm, Argo CD, dashboards, NetworkPolicies of others and an upgrade find the chart's objects."""

import pytest

from tests.unit.chart.conftest import Render

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds

RECOMMENDED = "app.kubernetes.io/"
"""Kubernetes, "Recommended Labels"."""


def test_a_deployment_selects_by_what_it_always_did(render: Render) -> None:
    """The API server refuses another selector of a Deployment that exists, and with it the upgrade."""
    found = {
        each["metadata"]["name"]: each["spec"]["selector"]["matchLabels"]
        for each in render("--set", "page.enabled=true")
        if each["kind"] == "Deployment"
    }
    assert found == {
        f"turnstile-{role}": {
            "app.kubernetes.io/name": "turnstile",
            "app.kubernetes.io/instance": "turnstile",
            "app.kubernetes.io/component": role,
        }
        for role in ("controller", "webhook", "page")
    }


def test_every_object_says_what_it_belongs_to(render: Render) -> None:
    """By the recommended labels; of Kubernetes' prefix the chart writes no other."""
    for each in render("--set", "page.enabled=true"):
        labels = each["metadata"].get("labels", {})
        told = f"{each['kind']} {each['metadata']['name']}: {labels}"
        assert labels.get(f"{RECOMMENDED}name") == "turnstile", told
        assert all(key.startswith(RECOMMENDED) for key in labels if ".kubernetes.io/" in key), told
