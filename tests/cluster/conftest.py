"""Fixtures for tests of Turnstile on a real control plane.

`control_plane`, `api` and `namespace` come from tests/conftest.py; what runs Turnstile itself belongs here. Start it
with `control_plane.start_process(...)`, so that it dies with the bed and its output is in `control_plane.log(name)`.
"""

from collections.abc import Callable, Iterator

import pytest

from testbed import ControlPlane


@pytest.fixture
def add_node(control_plane: ControlPlane) -> Iterator[Callable[..., str]]:
    """`add_node("gpu-1", labels=...)` as ControlPlane.add_node, returning the name; the nodes go with the test."""
    added: list[str] = []

    def add(name: str, **options: object) -> str:
        added.append(name)
        control_plane.add_node(name, **options)  # type: ignore[arg-type]
        return name

    yield add
    for name in added:
        control_plane.remove_node(name)
