"""What people copy from introductory pages works as it is: several API versions, on the plain chart, unchanged.

The project's own copy is examples/tutorial. `MANIFESTS_DIR` may name a directory with others (default
`../shared/manifests` beside the checkout); each file there that has a Workload is applied too.
"""

import os
from pathlib import Path

import pytest
import yaml

from testbed.client import Json, condition
from tests.cluster.deployed import Deployed

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
OWN = ROOT / "examples" / "tutorial"
OTHERS = Path(os.environ.get("MANIFESTS_DIR") or ROOT.parent / "shared" / "manifests").resolve()


def sources() -> list[object]:
    """What is applied: our directory, and the files of others, if there are any."""
    found = sorted(OTHERS.glob("*.yaml"))
    absent = pytest.mark.skip(reason=f"no manifests in {OTHERS}: set MANIFESTS_DIR to their directory")
    return [
        pytest.param(OWN, id="examples/tutorial"),
        *(pytest.param(path, id=path.name) for path in found),
        *([] if found else [pytest.param(OTHERS, marks=absent, id="others")]),
    ]


def workloads(source: Path) -> list[Json]:
    """The Workloads among the manifests of a file or a directory."""
    files = sorted(source.glob("*.yaml")) if source.is_dir() else [source]
    documents = (document for file in files for document in yaml.safe_load_all(file.read_text()))
    return [document for document in documents if document and document["kind"] == "Workload"]


@pytest.mark.parametrize("source", sources())
def test_copied_manifests_are_applied_unchanged_and_admitted(deployed: Deployed, source: Path) -> None:
    """`kubectl apply` takes every object, twice, and the Workload in it is admitted; the same file takes it away."""
    wanted = workloads(source)
    assert wanted
    cluster = deployed.cp
    cluster.kubectl("apply", "-f", str(source))
    for workload in wanted:
        meta = workload["metadata"]
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{meta['namespace']}/workloads/{meta['name']}"
        cluster.api.wait_for(
            path, lambda found: condition(found, "Admitted").get("status") == "True", describe="admitted"
        )
    again = cluster.kubectl("apply", "-f", str(source))
    assert {line.rsplit(" ", 1)[-1] for line in again.splitlines()} == {"unchanged"}
    cluster.kubectl("delete", "-f", str(source), "--wait=false")


def test_the_tutorial_has_every_version_that_is_copied() -> None:
    """Ours is of the sort that it stands for."""
    versions = {
        document["apiVersion"]
        for file in OWN.glob("*.yaml")
        for document in yaml.safe_load_all(file.read_text())
        if document["apiVersion"].startswith("kueue")
    }
    assert versions == {"kueue.x-k8s.io/v1alpha2", "kueue.x-k8s.io/v1beta1"}
