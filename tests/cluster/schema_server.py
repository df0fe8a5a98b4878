"""An API server that knows our CRDs and nothing else of us: no webhook and no controller answers for the schema.

One a session: tests keep to names or namespaces of their own. Nothing is removed from it, for no controller runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed import Api, ControlPlane
from tests.shared import Shared

CRDS = Path(__file__).parents[2] / "charts" / "turnstile" / "crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API_VERSION = "kueue.x-k8s.io/v1beta2"

Json = dict[str, Any]


def _established(crd: Json) -> bool:
    conditions = crd["status"].get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


@pytest.fixture(scope="session")
def schema_server(shared: Shared) -> ControlPlane:
    """etcd and kube-apiserver with the CRDs of the chart, all of them established."""
    return shared.enter("schema_server", with_crds())


@contextmanager
def with_crds() -> Iterator[ControlPlane]:
    """etcd and kube-apiserver with the CRDs of the chart."""
    with ControlPlane(components=("etcd", "kube-apiserver")) as cp:
        for path in sorted(CRDS.glob("*.yaml")):
            for applied in cp.api.apply_yaml(path):
                name = applied["metadata"]["name"]
                cp.api.wait_for(
                    f"{DEFINITIONS}/{name}",
                    _established,
                    describe="Established",
                )
        yield cp


@pytest.fixture
def crd_api(schema_server: ControlPlane) -> Api:
    """A client with all rights."""
    return schema_server.api


def thing(kind: str, name: str, spec: Json, *, namespace: str = "") -> Json:
    """An object of ours."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def update(api: Api, obj: Json, changes: Json, *, subresource: str = "", dry_run: bool = False) -> Json:
    """Merge changes into an object."""
    path = api.path_of(obj) + (f"/{subresource}" if subresource else "")
    return api.patch(path, changes, params={"dryRun": "All"} if dry_run else None)
