"""Every manifest of the documentation and the examples whose kind an operator brings is one that its CRD and webhooks,
and Turnstile's, take."""

import pytest

from testbed.client import Json
from testbed.controlplane import ControlPlane
from testbed.installation import MANAGED
from tests.cluster.test_docs import OPERATED, assert_taken
from tests.documents import manifests
from tests.operators.rows import ROWS
from tests.turnstile import Turnstile

BY_GROUP = {(row.api_version, row.kind): row for row in ROWS if row.operators}


@pytest.fixture(scope="module")
def teams(control_plane: ControlPlane) -> str:
    """A managed namespace in the place of those that the documentation names."""
    return control_plane.namespace("docs", labels=MANAGED)


@pytest.mark.parametrize(
    ("where", "manifest"),
    [
        pytest.param(where, found, id=where, marks=BY_GROUP[found["apiVersion"], found["kind"]].marks)
        for where, found in manifests()
        if found["apiVersion"].rpartition("/")[0] in OPERATED
    ],
)
def test_the_api_server_takes_it(
    where: str, manifest: Json, control_plane: ControlPlane, teams: str, turnstile: Turnstile
) -> None:
    """A server-side dry run; every field is known."""
    assert_taken(manifest, control_plane.api, teams)
