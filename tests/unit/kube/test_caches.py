"""Which stores a process has."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from turnstile.api.core import Job, Namespace, Node
from turnstile.api.meta import ObjectMeta
from turnstile.api.topology import Topology
from turnstile.kube import auth
from turnstile.kube.cache import Standing, State
from turnstile.kube.caches import Caches
from turnstile.kube.transport import Transport

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def caches() -> AsyncIterator[Caches]:
    """No server, and nothing started."""
    async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed("Bearer t"))) as transport:
        yield Caches(transport)


async def test_a_kind_is_held_in_one_way(caches: Caches) -> None:
    """To ask for it again is to get the same store, to ask for something else of it is an error."""
    store = caches.of(Job, metadata_only=True)
    assert caches.of(Job, metadata_only=True) is store
    assert caches.held(Job) is store
    for other in ({}, {"metadata_only": True, "namespace": "a"}, {"metadata_only": True, "params": {"limit": 1}}):
        with pytest.raises(ValueError, match="Job is held as"):
            caches.of(Job, **other)  # type: ignore[arg-type]
    assert caches.held(Namespace) is None


async def test_before_anything_was_read_nothing_is_complete(caches: Caches) -> None:
    """Nobody may take an object for deleted."""
    for optional, kind in ((True, Job), (False, Namespace)):
        assert not caches.of(kind, optional=optional).complete
        assert caches.standing(kind) == Standing(State.READING)
    assert caches.missing() == ["jobs.batch", "namespaces"]
    assert caches.failing() == []


async def test_a_kind_rests_until_another_kind_has_an_object(caches: Caches) -> None:
    """One that makes it matter. Nobody waits for it and it is not complete, because its objects exist."""
    topologies = caches.of(Topology)
    nodes = caches.of(Node, optional=True, only_with={Topology: lambda each: each.metadata.name == "racks"})
    assert caches.standing(Node) == Standing(State.RESTING)
    assert caches.missing() == ["topologies.kueue.x-k8s.io"]
    catching_up = caches.catch_up([Node])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(catching_up.run())
        await catching_up.of([Node])
        await running
    assert not nodes.complete
    topologies.observe(Topology(metadata=ObjectMeta(name="others", resource_version="1")))
    assert caches.standing(Node) == Standing(State.RESTING)
    topologies.observe(Topology(metadata=ObjectMeta(name="racks", resource_version="2")))
    assert caches.standing(Node) == Standing(State.READING)
