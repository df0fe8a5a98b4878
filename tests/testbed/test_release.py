"""The bed runs the release of Kubernetes that is asked for."""

import pytest

from testbed import ControlPlane, build
from testbed.errors import BuildError


def test_the_server_is_of_the_release(control_plane: ControlPlane) -> None:
    """As it says itself."""
    assert control_plane.api.get("/version")["gitVersion"] == f"v{build.kubernetes()}"


def test_a_release_that_is_not_pinned_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With those that are."""
    monkeypatch.setenv(build.ASKED_FOR, "1.29")
    with pytest.raises(BuildError, match=r"'1\.29' is none of 1\.30, 1\.36"):
        build.kubernetes()
