"""Jobs are held whole, and pods at all, where their namespace is managed, and become so when it is relabelled."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from testbed import Api, ControlPlane
from testbed.client import resource_path
from testbed.installation import MANAGED
from tests.cluster.absent_kinds import running, until
from tests.cluster.scenario import Scenario, job, job_path
from tests.turnstile import Turnstile
from turnstile.api.core import Job, Namespace, Pod
from turnstile.api.selectors import LabelSelector
from turnstile.api.workload import Workload
from turnstile.controllers.jobs.jobreconciler import index_jobs
from turnstile.controllers.view.managed import ManagedNamespaces
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import raws
from turnstile.kube.caches import Caches
from turnstile.kube.transport import Transport

pytestmark = pytest.mark.cluster

LABEL = next(iter(MANAGED))


def label(api: Api, namespace: str, value: str | None) -> None:
    """Give a namespace the label that makes it managed, or take it away."""
    api.patch(resource_path("v1", "namespaces", namespace), {"metadata": {"labels": {LABEL: value}}})


@pytest_asyncio.fixture
async def transport(control_plane: ControlPlane) -> AsyncIterator[Transport]:
    """A transport as administrator."""
    async with await Transport.connect(str(control_plane.kubeconfig())) as transport:
        yield transport


@pytest.fixture
def away(control_plane: ControlPlane, turnstile: Turnstile, nodes: dict[str, str]) -> Iterator[Scenario]:
    """A namespace that is not managed."""
    scenario = Scenario(control_plane.api, control_plane.namespace("away"))
    yield scenario
    scenario.remove()


def test_a_job_is_queued_once_its_namespace_is_managed(away: Scenario) -> None:
    """Its Workload has the templates of the Job, which were not held until then."""
    flavor = away.flavor("plain", labels={"pool": "plain"})
    away.queue("main", {flavor: {"cpu": "1"}})
    away.job("late", queue="main", cpu="1")
    path = resource_path("kueue.x-k8s.io/v1beta2", "workloads", namespace=away.namespace)
    assert away.api.items(path) == []
    label(away.api, away.namespace, "true")
    (pod_set,) = away.workload_of("late")["spec"]["podSets"]
    (container,) = pod_set["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1"}
    away.wait_admitted("late")
    away.wait_started("late")


@pytest.mark.asyncio
async def test_templates_are_held_while_the_namespace_is_managed(
    control_plane: ControlPlane, transport: Transport
) -> None:
    """What was there before it was relabelled is read again, in both directions, and also when the rules change."""
    api = control_plane.api
    namespace = await asyncio.to_thread(control_plane.namespace, "relabelled")
    caches = Caches(transport)
    options = JobOptions(managed_jobs_namespace_selector=LabelSelector(match_labels=dict(MANAGED)))
    registry = Registry(["batch/job"])
    managed = ManagedNamespaces(caches, options, registry)
    store = caches.of(Job, optional=True, keep=managed.keep, after=(Namespace, Workload))
    index_jobs(caches.of(Workload), registry, {Job: store})
    key = f"{namespace}/a"

    def template() -> bytes:
        found = store.get(key)
        return bytes(found.spec.template) if found is not None else b"not seen"

    async with running(caches):
        await asyncio.wait_for(caches.synced(), 10)
        await asyncio.to_thread(api.create, job("a", namespace=namespace, queue=None))
        await until(lambda: template() == b"")
        found = store.get(key)
        assert found is not None
        assert raws.stripped(found)
        for value, whole in (("true", True), (None, False), ("true", True)):
            await asyncio.to_thread(label, api, namespace, value)
            await until(lambda whole=whole: (b"containers" in template()) == whole)  # type: ignore[misc]
        managed.take_options(JobOptions(managed_jobs_namespace_selector=LabelSelector(match_labels={"other": "label"})))
        await until(lambda: template() == b"")
    await asyncio.to_thread(api.delete, job_path(namespace, "a"))
    await asyncio.to_thread(api.delete, resource_path("v1", "namespaces", namespace))


@pytest.mark.asyncio
async def test_pods_are_held_while_the_namespace_is_managed(control_plane: ControlPlane, transport: Transport) -> None:
    """A pod that was left out is taken up although it is older than the list that was read before, and the other way
    round."""
    api = control_plane.api
    namespace = await asyncio.to_thread(control_plane.namespace, "relabelled")
    caches = Caches(transport)
    options = JobOptions(managed_jobs_namespace_selector=LabelSelector(match_labels=dict(MANAGED)))
    managed = ManagedNamespaces(caches, options, Registry())
    store = caches.of(Pod, optional=True, keep=managed.keep_pod, after=(Namespace,))
    key = f"{namespace}/a"
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "nowhere"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": namespace}, "spec": spec}
    await asyncio.to_thread(api.create, body)
    await asyncio.to_thread(api.create, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    async with running(caches):
        await asyncio.wait_for(caches.synced(), 10)
        assert key not in store
        for value, held in (("true", True), (None, False), ("true", True)):
            await asyncio.to_thread(label, api, namespace, value)
            await until(lambda held=held: (key in store) == held)  # type: ignore[misc]
        await asyncio.to_thread(api.delete, resource_path("v1", "pods", "a", namespace=namespace), grace_seconds=0)
        await until(lambda: key not in store)
    await asyncio.to_thread(api.delete, resource_path("v1", "configmaps", "x", namespace="default"))
    await asyncio.to_thread(api.delete, resource_path("v1", "namespaces", namespace))
