"""What a process with the role webhook holds of the cluster: no more than reviews read."""

import pytest

from app.api.cohort import Cohort
from app.api.core import Namespace
from app.api.localqueue import LocalQueue
from app.api.workload import Workload
from app.api.workloadpriorityclass import WorkloadPriorityClass
from app.engine import Options
from app.insight.offer import OFFERED
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
        WebhookCaches(caches, JobOptions(), registry, engine=Options())
    assert Workload not in caches.stores
    whole = {cache.kind for cache in caches.all if not cache.scope.metadata_only}
    assert whole == {LocalQueue, *OFFERED}
    assert {cache.kind for cache in caches.all} - whole == {each.kind for each in registry.watched}


@pytest.mark.asyncio
async def test_only_what_decides_is_waited_for() -> None:
    """What is read for warnings alone may be missing: reviews are answered without warnings then."""
    async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed())) as transport:
        caches = Caches(transport)
        view = WebhookCaches(caches, JobOptions(), Registry(), engine=Options())
        required = {cache.kind for cache in caches.all if not cache.scope.optional}
        assert required == {LocalQueue, Namespace, WorkloadPriorityClass}
        assert view.offer is None
        for store in caches.stores.values():
            store.complete = True
        assert view.offer is not None
        caches.stores[Cohort].complete = False
        assert view.offer is None
