"""A tenant of a worker cluster changes copies of jobs, and a tenant of the manager makes very many of them: no quota is
exceeded on either cluster, the manager writes a bounded number of times, and other tenants' jobs start as before.

The tenant may edit the namespace of one name on both clusters. The manager has a quota of 2 CPUs, the worker of 4.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from testbed import ApiError
from testbed.client import Json, condition, resource_path, wait_until
from tests.attacks.conftest import QUIET_SECONDS
from tests.attacks.eve import MANAGER_CPUS, ORIGIN, UID, WORKER_CPUS, Eve, Writes, a_tenant, refused, slow, two_clusters
from tests.cluster.every_kind import definition
from tests.cluster.scenario import GROUP, QUEUE, job
from tests.cluster.sites import CHECK, Sites, a_team
from turnstile.api import names

pytestmark = pytest.mark.timeout(900)

ACCOUNT = "turnstile-manager"
"""The manager's account on the worker."""
FLOOD = 60
AGAIN = 5


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    """A manager and a worker that is connected, and records requests."""
    with two_clusters(audit=True) as found:
        yield found


@pytest.fixture
def eve(sites: Sites) -> Iterator[Eve]:
    """The tenant, in a fresh namespace."""
    with a_tenant(sites) as found:
        yield found


@pytest.fixture
def writes(sites: Sites, eve: Eve) -> Writes:
    """What the manager writes to the namespace on the worker."""
    return Writes(eve, sites.workers["east"].cp, ACCOUNT)


# --- who runs a job ---------------------------------------------------------------------------------------------------


def test_a_job_says_that_its_copy_runs_where_nothing_is_sent(eve: Eve) -> None:
    """Create a Job on the worker whose `managedBy` names MultiKueue, in a queue that sends nothing away: nothing runs,
    and its quota is free when it is deleted."""
    body = eve.job("train", cpu="4")
    body["spec"]["managedBy"] = CHECK
    eve.there.create(body)
    eve.worker.wait_admitted("train", timeout=30)
    eve.there.delete(eve.job_path("train"))
    wait_until(lambda: eve.reserved(eve.worker) == 0, timeout=40, describe=eve.story)
    eve.stays_apart()
    assert eve.sentry.most == 0, eve.story()


@pytest.mark.parametrize("runner", [None, "kubernetes.io/job-controller", "example.com/mine"])
def test_a_job_is_run_by_another_while_its_copy_runs(eve: Eve, runner: str | None) -> None:
    """Take `managedBy` off a Job on the manager while its copy runs, or name another controller, so that it runs twice:
    refused."""
    eve.here.create(eve.job("train", cpu="2"))
    eve.sent("train")
    refused(lambda: eve.here.patch(eve.job_path("train"), {"spec": {"managedBy": runner}}))
    eve.stays_apart()


@pytest.fixture
def rayjobs(sites: Sites) -> Iterator[str]:
    """RayJobs exist on both clusters, and no operator runs. KubeRay's definition lets `managedBy` be taken away."""
    places = (sites.manager, *sites.workers.values())
    path = resource_path("apiextensions.k8s.io/v1", "customresourcedefinitions", "rayjobs.ray.io")
    for site in places:
        site.api.create(definition("ray.io/v1", "RayJob", "rayjobs"))
        site.api.wait_for(path, lambda found: condition(found, "Established").get("status") == "True", timeout=30)
    yield "ray.io/v1"
    for site in places:
        site.api.delete(path)


def test_a_rayjob_is_run_by_another_while_its_copy_runs(eve: Eve, rayjobs: str) -> None:
    """Take `managedBy` off a RayJob on the manager while its copy runs, so that KubeRay runs it there too: refused."""
    template = {"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}]}}
    cluster = {"headGroupSpec": {"rayStartParams": {}, "template": template}}
    path = eve.path(rayjobs, "rayjobs", "train")
    eve.team.here.create({
        "apiVersion": rayjobs,
        "kind": "RayJob",
        "metadata": {"name": "train", "namespace": eve.team.here.namespace, "labels": {QUEUE: "team"}},
        "spec": {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster},
    })  # fmt: skip
    eve.worker.api.wait_for(
        path, lambda found: bool(found) and not found["spec"]["suspend"], timeout=60, describe="a copy that runs"
    )
    api = eve.team.here.api
    for runner in (None, "ray.io/kuberay-operator"):
        refused(lambda r=runner: api.patch(path, {"spec": {"managedBy": r}}))
        refused(lambda r=runner: api.patch(path, {"spec": {"managedBy": r, "suspend": True}}))
    assert api.get(path)["spec"]["managedBy"] == CHECK
    api.delete(path)
    eve.wait_reserved(0)
    eve.team.wait_clean("east")


# --- copies that are changed, deleted and replaced --------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/mine"}]}}}},
        {"spec": {"template": {"metadata": {"labels": {"app": "mine"}}}}},
        {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: "high"}}},
        {"metadata": {"labels": {names.MAX_EXEC_TIME_LABEL: "1"}}},
        {"spec": {"parallelism": 9}},
    ],
    ids=["image", "labels of pods", "priority", "time", "pods"],
)
def test_a_copy_is_changed_before_it_runs(eve: Eve, change: Json) -> None:
    """Change the image, the labels, the priority or the number of pods of each copy as soon as it is there: it runs
    within the manager's quota, or not at all."""
    high = eve.worker.priority_class("high", 1000)
    if names.PRIORITY_CLASS_LABEL in change.get("metadata", {}).get("labels", {}):
        change = {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: high}}}
    path = eve.path("batch/v1", "jobs")
    watch = eve.there.watch(path, resource_version=eve.there.get(path)["metadata"]["resourceVersion"])
    body = eve.job("train", cpu="1", pods=2)
    body["spec"]["completions"] = 9
    eve.here.create(body)
    seen = 0
    for event in watch:
        if event["type"] == "ADDED":
            seen += 1
            with suppress(ApiError):
                eve.there.patch(eve.job_path("train"), change)
        if seen == 2 or event["object"].get("status", {}).get("active"):
            break
    watch.close()
    eve.stays_apart()
    assert eve.sentry.most <= MANAGER_CPUS, eve.story()
    found = eve.worker.api.items(eve.path(GROUP, "workloads"))
    assert [each["spec"].get("priority") or 0 for each in found] == [0] * len(found)
    eve.here.delete(eve.job_path("train"))
    eve.wait_reserved(0)
    eve.team.wait_clean("east")


@pytest.mark.parametrize("way", ["deleted", "changed"])
def test_a_copy_is_attacked_again_and_again(eve: Eve, writes: Writes, way: str) -> None:
    """Delete each copy, or give it more pods, whenever it runs: each time it is made anew by a handful of writes, and
    none is written when the tenant stops."""
    body = eve.job("train", cpu="1", pods=2)
    body["spec"]["completions"] = 9
    eve.here.create(body)
    before = ""
    for _ in range(AGAIN):
        before = next_copy(eve, after=before)
        with suppress(ApiError):
            if way == "deleted":
                eve.there.delete(eve.job_path("train"))
            else:
                eve.there.patch(eve.job_path("train"), {"spec": {"suspend": True, "parallelism": 9}})
    next_copy(eve, after=before)
    wait_until(lambda: eve.sentry.quiet_for(2 * QUIET_SECONDS), timeout=60, describe=eve.story)
    most = writes.since()
    assert most <= 6 * (AGAIN + 1), eve.story()
    wait_until(lambda: eve.sentry.quiet_for(4 * QUIET_SECONDS), timeout=60, describe=eve.story)
    assert writes.since() == most
    eve.stays_apart()
    assert eve.sentry.most <= MANAGER_CPUS, eve.story()


def next_copy(eve: Eve, *, after: str) -> str:
    """Wait until another copy runs than that of a uid; its uid."""

    def runs(found: Json) -> bool:
        return bool(found) and found["metadata"]["uid"] != after and bool(found.get("status", {}).get("active"))

    found = eve.worker.api.wait_for(eve.job_path("train"), runs, timeout=60, describe="the next copy runs")
    uid: str = found["metadata"]["uid"]
    return uid


def test_the_workload_of_a_copy_is_changed(eve: Eve) -> None:
    """Change, deactivate and delete the Workload of a copy on the worker: refused."""
    eve.here.create(eve.job("train", cpu="2"))
    path = eve.path(GROUP, "workloads", eve.sent("train"))
    refused(lambda: eve.there.patch(path, {"spec": {"active": False}}))
    refused(lambda: eve.there.patch(path, {"metadata": {"labels": {ORIGIN: None}}}))
    refused(lambda: eve.there.patch(f"{path}/status", {"status": {"reclaimablePods": [{"name": "main", "count": 1}]}}))
    refused(lambda: eve.there.delete(path))
    eve.stays_apart()


def test_a_job_without_a_queue_takes_the_place_of_a_copy(eve: Eve) -> None:
    """Delete a copy and leave its pods running; then create a Job of its name without a queue, with all of its marks,
    that ends at once: the manager's quota is not free while the copy's pods run, and free when they are gone and the
    Job is deleted."""
    uid = eve.here.create(slow(eve, "train"))["metadata"]["uid"]
    name = eve.sent("train")
    eve.there.delete(eve.job_path("train"), propagation="Orphan")
    forged = job("train", namespace=eve.team.here.namespace, queue=None, cpu="0", run_for="0s")
    forged["metadata"]["labels"] = {ORIGIN: "multikueue", names.PREBUILT_WORKLOAD: name}
    forged["metadata"]["annotations"] = {UID: uid, names.PREBUILT_WORKLOAD: name}
    wait_until(lambda: in_place(eve, forged), timeout=30, describe=eve.story)
    eve.worker.api.wait_for(
        eve.job_path("train"), lambda found: found["status"].get("succeeded") == 1, timeout=30, describe="has ended"
    )
    eve.here.create(eve.job("next", cpu="2"))
    wait_until(lambda: eve.sentry.quiet_for(2 * QUIET_SECONDS), timeout=60, describe=eve.story)
    assert eve.sentry.most <= MANAGER_CPUS, eve.story()
    eve.here.delete(eve.job_path("train"))
    path = eve.path("v1", "pods")
    for pod in eve.worker.api.items(path):
        eve.worker.api.delete(f"{path}/{pod['metadata']['name']}", grace_seconds=0)
    eve.sent("next")
    eve.stays_apart()
    assert eve.sentry.most <= MANAGER_CPUS, eve.story()


def in_place(eve: Eve, body: Json) -> bool:
    """Whether a Job of the worker could be created by now; deletes the copy that has its name."""
    with suppress(ApiError):
        eve.there.create(body)
        return True
    eve.there.delete(eve.job_path("train"), propagation="Orphan")
    return False


# --- many copies ------------------------------------------------------------------------------------------------------


def test_a_flood_of_jobs(sites: Sites, eve: Eve, writes: Writes) -> None:
    """Create and delete many Jobs that ask for nothing, so that all of them are sent: each costs a handful of writes on
    the worker, nothing is left there, and the Job of another tenant is sent meanwhile."""
    with a_team(sites.manager, sites.workers) as other:
        for number in range(FLOOD):
            eve.here.create(eve.job(f"flood-{number}", cpu="0"))
        other.here.job("other", queue="team", cpu="1")
        for number in range(FLOOD):
            eve.here.delete(eve.job_path(f"flood-{number}"))
            eve.here.create(eve.job(f"again-{number}", cpu="0"))
        other.wait_on("other", "east")
    eve.here.delete(eve.path("batch/v1", "jobs"))
    eve.wait_reserved(0)
    wait_until(lambda: not eve.team.left("east"), timeout=120, describe=eve.story)
    assert writes.since() <= 5 * 2 * FLOOD
    eve.stays_apart()


def test_a_flood_of_forged_copies(eve: Eve, writes: Writes) -> None:
    """Create many Jobs on the worker with the manager's label, which a finalizer keeps: each is deleted once."""
    for number in range(FLOOD):
        marks = {ORIGIN: "multikueue", names.PREBUILT_WORKLOAD: f"no-{number}"}
        forged = job(f"forged-{number}", namespace=eve.team.here.namespace, queue=None, cpu="0", labels=marks)
        forged["metadata"]["finalizers"] = ["example.com/kept"]
        eve.there.create(forged)
    path = eve.path("batch/v1", "jobs")

    def left() -> list[Json]:
        return [each for each in eve.worker.api.items(path) if not each["metadata"].get("deletionTimestamp")]

    wait_until(lambda: not left(), timeout=60, describe=eve.story)
    eve.here.create(eve.job("train", cpu="2"))
    eve.sent("train")
    assert writes.since() <= FLOOD + 6
    for each in eve.worker.api.items(path):
        if each["metadata"].get("finalizers") and each["metadata"]["name"].startswith("forged"):
            eve.there.patch(eve.job_path(each["metadata"]["name"]), {"metadata": {"finalizers": None}})
    eve.stays_apart()
    assert eve.sentry.most <= WORKER_CPUS
