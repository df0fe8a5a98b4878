"""What a process with the role webhook holds of the cluster: no more than reviews read."""

import pytest

from app.api.core import Namespace
from app.api.localqueue import LocalQueue
from app.api.workload import Workload
from app.api.workloadpriorityclass import WorkloadPriorityClass
from app.jobs.options import JobOptions
from app.jobs.registry import Registry
from app.kube import auth
from app.kube.caches import Caches
from app.kube.transport import Transport
from app.process.views import WebhookCaches


@pytest.mark.asyncio
async def test_no_workloads() -> None:
    """Its memory does not grow with them, and of jobs and pods it holds the metadata alone."""
    registry = Registry()
    async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed())) as transport:
        caches = Caches(transport)
        WebhookCaches(caches, JobOptions(), registry)
    assert Workload not in caches.stores
    whole = {cache.kind for cache in caches.all if not cache.scope.metadata_only}
    assert whole == {LocalQueue, Namespace, WorkloadPriorityClass}
    assert {cache.kind for cache in caches.all} - whole == {each.kind for each in registry.watched}
