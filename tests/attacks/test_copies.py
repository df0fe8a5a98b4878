"""A job that says it is the copy of another cluster's runs on no quota but its own.

Such a copy has the label of its manager, and names a Workload that the manager has made: a tenant can write both.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from testbed import ApiError
from testbed.client import Json, condition, resource_path
from tests.attacks.conftest import Tenant, pod_spec
from tests.attacks.conftest import Turnstile as Attacked
from tests.cluster.every_kind import definition
from tests.cluster.scenario import QUEUE
from turnstile.api import names

ORIGIN = "kueue.x-k8s.io/multikueue-origin"


@pytest.fixture
def jaxjobs(attacked: Attacked) -> Iterator[str]:
    """JAXJobs exist, and their operator does not run."""
    api = attacked.installation.control_plane.api
    api.create(definition("kubeflow.org/v1", "JAXJob", "jaxjobs"))
    path = resource_path("apiextensions.k8s.io/v1", "customresourcedefinitions", "jaxjobs.kubeflow.org")
    api.wait_for(path, lambda found: condition(found, "Established").get("status") == "True", timeout=30)
    yield path
    api.delete(path)


def workload_of(tenant: Tenant, job: str, **kind: str) -> str:
    """Name of the Workload of a job."""
    name: str = tenant.world.workload_of(job, **kind)["metadata"]["name"]
    return name


def copied_set(tenant: Tenant, name: str, workload: str) -> Json:
    """A StatefulSet of two pods; with the name of a Workload, as if a manager of other clusters had made it."""
    marks: Json = {"labels": {QUEUE: "main"}}
    if workload:
        marks = {"labels": {QUEUE: "main", ORIGIN: "multikueue"}, "annotations": {names.PREBUILT_WORKLOAD: workload}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {**pod_spec("1"), "restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": tenant.namespace, **marks},
        "spec": {
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def test_a_set_names_the_workload_of_a_job(tenant: Tenant) -> None:
    """Create a StatefulSet that says it is another cluster's, and names the Workload of a running Job."""
    tenant.job("a")
    tenant.wait_runs(2)
    with suppress(ApiError):
        tenant.api.create(copied_set(tenant, "b", workload_of(tenant, "a")))
    tenant.job("c")
    tenant.within_quota()


def test_a_set_names_the_workload_of_another(tenant: Tenant) -> None:
    """Create a StatefulSet that says it is another cluster's, and names the Workload of one that runs."""
    tenant.api.create(copied_set(tenant, "a", ""))
    tenant.wait_runs(2)
    with suppress(ApiError):
        tenant.api.create(copied_set(tenant, "b", workload_of(tenant, "a", kind="StatefulSet")))
    tenant.within_quota()


def test_a_set_names_the_workload_of_a_set_that_was_deleted(tenant: Tenant) -> None:
    """Delete a StatefulSet, leave its pods running, and let the next one name its Workload."""
    tenant.api.create(copied_set(tenant, "a", ""))
    tenant.wait_runs(2)
    name = workload_of(tenant, "a", kind="StatefulSet")
    tenant.delete("apps/v1", "statefulsets", "a", propagation="Orphan")
    tenant.world.api.wait_gone(tenant.path("apps/v1", "statefulsets", "a"))
    with suppress(ApiError):
        tenant.api.create(copied_set(tenant, "b", name))
    tenant.within_quota()


def test_a_running_set_is_marked_later(tenant: Tenant) -> None:
    """Give a StatefulSet that waits the label and the name of the Workload of a running Job."""
    tenant.job("a")
    tenant.wait_runs(2)
    tenant.api.create(copied_set(tenant, "b", ""))
    tenant.world.workload_of("b", kind="StatefulSet")
    marks = {"labels": {ORIGIN: "multikueue"}, "annotations": {names.PREBUILT_WORKLOAD: workload_of(tenant, "a")}}
    with suppress(ApiError):
        tenant.patch("apps/v1", "statefulsets", "b", {"metadata": marks})
    tenant.within_quota()


def test_a_jaxjob_names_the_workload_of_a_job(tenant: Tenant, jaxjobs: str) -> None:
    """Create a JAXJob that says it is another cluster's, and names the Workload of a running Job."""
    tenant.job("a")
    tenant.wait_runs(2)
    name = workload_of(tenant, "a")
    labels = {QUEUE: "main", ORIGIN: "multikueue", names.PREBUILT_WORKLOAD: name}
    template = {"spec": {**pod_spec("1"), "containers": [{**pod_spec("1")["containers"][0], "name": "jax"}]}}
    tenant.world.create({
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "b", "namespace": tenant.namespace, "labels": labels},
        "spec": {"jaxReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
    })  # fmt: skip
    tenant.within_quota()
    path = resource_path("kubeflow.org/v1", "jaxjobs", "b", namespace=tenant.namespace)
    assert tenant.world.api.get(path)["spec"]["runPolicy"]["suspend"]
    (owner,) = tenant.world.workload_of("a")["metadata"]["ownerReferences"]
    assert owner["kind"] == "Job"
