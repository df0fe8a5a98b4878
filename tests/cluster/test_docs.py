"""Every manifest that people may copy from the documentation or the examples is one the API server takes.

Those of kinds that an operator brings are in `tests/operators/test_manifests.py`.
"""

from typing import Any

import pytest

from testbed.client import Api
from testbed.controlplane import ControlPlane
from testbed.installation import MANAGED
from tests.documents import manifests
from tests.turnstile import Turnstile
from turnstile.jobs.registry import ALL

pytestmark = pytest.mark.cluster

Json = dict[str, Any]


@pytest.fixture(scope="module")
def teams(control_plane: ControlPlane) -> str:
    """A managed namespace in the place of those that the documentation names."""
    return control_plane.namespace("docs", labels=MANAGED)


OPERATED = {each.kind.GROUP for each in ALL if "." in each.kind.GROUP}
"""The API groups of kinds that an operator brings."""
OF_TOOLS = {"argoproj.io", "helm.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io"}
"""Those of the tools that examples/gitops is for."""
MANIFESTS = [
    found
    for found in manifests()
    if found[1]["apiVersion"].rpartition("/")[0] not in {"example.com", *OPERATED, *OF_TOOLS}
]
"""Without kinds that a page defines itself: test_configured_kind.py does what that page says."""


@pytest.mark.parametrize(("where", "manifest"), [pytest.param(*found, id=found[0]) for found in MANIFESTS])
def test_the_api_server_takes_it(
    where: str, manifest: Json, control_plane: ControlPlane, teams: str, turnstile: Turnstile
) -> None:
    """A server-side dry run through schema, rules and webhooks; every field is known."""
    assert_taken(manifest, control_plane.api, teams)
    # The tutorial is what people bring along from elsewhere, in the versions they have it in.
    if manifest["apiVersion"].startswith("kueue.x-k8s.io/") and not where.startswith("examples/tutorial/"):
        assert manifest["apiVersion"] == "kueue.x-k8s.io/v1beta2"


def assert_taken(manifest: Json, api: Api, namespace: str) -> None:
    """The API server takes a manifest, in this namespace if it names one."""
    if manifest["metadata"].get("namespace"):
        manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
    applied = api.request(
        "PATCH",
        api.path_of(manifest),
        manifest,
        params={"fieldManager": "docs", "force": "true", "dryRun": "All", "fieldValidation": "Strict"},
        content_type="application/apply-patch+yaml",
    )
    assert applied["metadata"]["name"] == manifest["metadata"]["name"]
