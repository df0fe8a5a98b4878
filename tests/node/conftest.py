"""Fixtures for tests on a real node: a control plane with that node, and the release installed there."""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane, realnode
from tests.node.images import BUSYBOX, archives, why_not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pods start within seconds, and a release is rolled pod by pod."""
    for item in items:
        item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane whose one node is real."""
    if reason := why_not():
        pytest.skip(reason)
    if not archives():
        pytest.skip("a real node needs namespaces of its own: make test-node")
    arguments = {"kube-apiserver": realnode.API_SERVER}
    with (
        ControlPlane(components=realnode.COMPONENTS, extra_arguments=arguments) as cp,
        realnode.running(cp, images=archives(), pause=BUSYBOX),
    ):
        yield cp
