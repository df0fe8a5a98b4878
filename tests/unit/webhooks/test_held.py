"""What a process with the role webhook holds of the cluster: no more than reviews read."""

import pytest

from turnstile.advice.offer import OFFERED
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.cohort import Cohort
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import Options
from turnstile.jobs.generate import below
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import auth
from turnstile.kube.caches import Caches
from turnstile.kube.transport import Transport
from turnstile.process.views import WebhookCaches


@pytest.mark.asyncio
async def test_no_workloads() -> None:
    """Its memory does not grow with them, and of jobs and pods it holds the metadata alone."""
    registry = Registry()
    async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed())) as transport:
        caches = Caches(transport)
        WebhookCaches(caches, JobOptions(), registry, engine=Options())
    assert Workload not in caches.stores
    whole = {cache.kind for cache in caches.all if not cache.scope.metadata_only}
    assert whole == {LocalQueue, AdmissionCheck, *OFFERED}
    between = {kind for each in registry.enabled for kind in below(each)}
    assert {cache.kind for cache in caches.all} - whole == {each.kind for each in registry.watched} | between
    assert all("labelSelector" in caches.scope(kind).params for kind in between)


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
