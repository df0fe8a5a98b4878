"""What was admitted is followed to its end, also when its kind is switched off, or jobs without a queue name are."""

from pathlib import Path

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, QUEUE, Scenario

pytestmark = pytest.mark.cluster

FILE = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def pod(world: Scenario, name: str, cpu: str) -> Json:
    """Create a Pod in queue `main` that runs until it is deleted."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": world.namespace, "labels": {QUEUE: "main"}}
    return world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}})


def restart(made: Configured, text: str) -> None:
    """Start Turnstile anew with another file."""
    made.started[-1].terminate()
    made.file.write_text(text)
    made.start()


def reserved(world: Scenario) -> str:
    """CPUs that are reserved in the ClusterQueue of the test."""
    found = world.api.get(resource_path(GROUP, "clusterqueues", world.named("main")))
    flavors = found.get("status", {}).get("flavorsReservation", [])
    return next((each["total"] for flavor in flavors for each in flavor["resources"]), "0")


def wait_reserved(world: Scenario, amount: str) -> None:
    """Wait until so much is reserved."""
    wait_until(
        lambda: reserved(world) == amount, timeout=15, describe=lambda: f"{reserved(world)} are reserved, not {amount}"
    )


def test_pods_and_jobs_of_kinds_that_are_switched_off(idle_installation: Installation, tmp_path: Path) -> None:
    """A file without `integrations` enables batch Jobs alone; then Pods alone are enabled. What ran keeps its quota
    until it ends or is deleted, finalizers are removed, and nothing new is queued."""
    both = FILE + "integrations: {frameworks: [batch/job, pod]}\n"
    with configured(idle_installation, tmp_path, both) as made:
        made.start()
        with made.team() as world:
            world.queue("main", {world.flavor("plain"): {"cpu": "4"}})
            pod(world, "a", "1")
            world.wait_admitted("a", kind="Pod")
            world.job("b", queue="main", cpu="2")
            world.wait_admitted("b")
            wait_reserved(world, "3")

            restart(made, FILE)
            assert not pod(world, "c", "1")["spec"].get("schedulingGates")
            path = resource_path("v1", "pods", "a", namespace=world.namespace)
            assert reserved(world) == "3"
            world.api.delete(path, grace_seconds=0)
            world.api.wait_gone(path)
            wait_reserved(world, "2")

            restart(made, FILE + "integrations: {frameworks: [pod]}\n")
            world.job("d", queue="main", cpu="1")
            assert not world.suspended("d")
            wait_reserved(world, "2")
            world.finish("b")
            world.wait_workload("b", lambda found: condition(found, "Finished").get("reason") == "Succeeded")
            wait_reserved(world, "0")


def test_jobs_without_a_queue_name_that_are_not_managed_any_more(
    idle_installation: Installation, tmp_path: Path
) -> None:
    """A Job that was held leaves the queue when the file changes; its user may resume it."""
    with configured(idle_installation, tmp_path, FILE + "manageJobsWithoutQueueName: true\n") as made:
        made.start()
        with made.team() as world:
            world.queue("main", {world.flavor("plain"): {"cpu": "4"}})
            world.job("held", queue=None)
            world.workload_of("held")
            world.job("queued", queue="main")
            world.wait_started("queued")
            made.file.write_text(FILE)
            workloads = resource_path(GROUP, "workloads", namespace=world.namespace)
            wait_until(
                lambda: len(world.api.items(workloads)) == 1, timeout=30, describe=lambda: "the Workload is still there"
            )
            assert world.suspended("held")
            assert not world.suspended("queued")
            path = resource_path("batch/v1", "jobs", "held", namespace=world.namespace)
            world.api.patch(path, {"spec": {"suspend": False}})
            wait_until(lambda: world.pods_of("held"), timeout=15, describe=lambda: "it does not run")
            assert not world.suspended("held")
