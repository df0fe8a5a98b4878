"""The pages of docs/roles with commands, read from top to bottom: administrator, user of batch, user of serving."""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane
from testbed.client import condition, resource_path
from tests.cluster.reader import Reader, team
from tests.cluster.scenario import GROUP, Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

NAMESPACE = "genomics"


@pytest.fixture(scope="module")
def administered(control_plane: ControlPlane, installation: Turnstile, nodes: dict[str, str]) -> Iterator[None]:
    """What the administrator's page makes."""
    installation.start()
    page = Reader("../roles/batch-administrator.md", control_plane)
    page.do()
    page.see("Can admit new workloads")
    page.see("^0 wait, in use: .*steady")
    page.do()
    page.end()
    yield
    api = control_plane.api
    for kind, names in {"clusterqueues": ("laboratory",), "resourceflavors": ("steady", "preemptible")}.items():
        for name in names:
            api.delete(resource_path(GROUP, kind, name))
    api.delete(resource_path("v1", "namespaces", NAMESPACE))
    api.delete(resource_path("rbac.authorization.k8s.io/v1", "clusterrolebindings", "quota-owners"))
    api.wait_gone(resource_path("v1", "namespaces", NAMESPACE), timeout=60)


@pytest.fixture
def genomics(control_plane: ControlPlane, turnstile: Turnstile, administered: None) -> Iterator[Scenario]:
    """The namespace of the pages; its jobs go with the test."""
    yield from team(control_plane, NAMESPACE)


def test_a_patched_quota_is_in_force(genomics: Scenario) -> None:
    """The administrator has made it 12 cpus: a Job of 12 starts in the first flavor."""
    genomics.job("wide", queue=NAMESPACE, cpu="12")
    found = genomics.wait_workload("wide", lambda workload: condition(workload, "QuotaReserved"))
    assert found["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] == "steady"


def test_a_batch_user(control_plane: ControlPlane, genomics: Scenario) -> None:
    """The Job is admitted, explained and deleted."""
    page = Reader("../roles/batch-user.md", control_plane)
    page.do()
    genomics.wait_started("align")
    page.see(r"genomics +laboratory", r"job-align-\w+ +genomics +laboratory +True")
    page.see("align")
    page.do()
    page.end()


def test_a_serving_user(control_plane: ControlPlane, genomics: Scenario) -> None:
    """The pods run, and go when it is scaled to zero."""
    page = Reader("../roles/serving-user.md", control_plane)
    page.do()
    page.see(r"viewer-\w+-\w+ .*Running(.|\n)*viewer-\w+-\w+ .*Running")
    page.do()
    page.end()
    genomics.api.delete(resource_path("apps/v1", "deployments", "viewer", namespace=NAMESPACE))
