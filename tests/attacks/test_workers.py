"""A tenant of a manager, and of its worker cluster, reaches nothing there but what a copy may be.

The tenant may edit the namespace of one name on both clusters. The manager has a quota of 2 CPUs, the worker of 4.
"""

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from testbed import ApiError
from testbed.client import Api, Json, condition, resource_path, wait_until
from testbed.components import STOP_FOR
from testbed.installation import NAMESPACE
from tests.attacks.conftest import QUIET_SECONDS
from tests.attacks.eve import MANAGER_CPUS, ORIGIN, UID, WORKER_CPUS, Eve, a_tenant, refused, slow, two_clusters
from tests.cluster.scenario import GROUP, QUEUE, job
from tests.cluster.sites import POD, Sites, wait_active
from turnstile.api import names

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    """A manager and a worker that is connected."""
    with two_clusters() as found:
        yield found


@pytest.fixture
def eve(sites: Sites) -> Iterator[Eve]:
    """The tenant, in a fresh namespace."""
    with a_tenant(sites) as found:
        yield found


# --- names that the worker's own tenants use --------------------------------------------------------------------------


def test_a_job_has_the_name_of_a_job_of_the_worker(eve: Eve) -> None:
    """Submit a Job to the manager whose copy would have the name of a Job that runs on the worker: that stays as it is,
    its status is not taken, and the check says why the Job does not run."""
    eve.worker.job("train", queue="team", cpu="1")
    before = eve.worker.wait_started("train", timeout=30)
    eve.here.create(eve.job("train", cpu="2"))
    eve.wait_told('has another Job "train"')
    eve.wait_reserved(0)
    after = eve.worker.read_job("train")
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert ORIGIN not in after["metadata"]["labels"]
    assert not eve.team.here.read_job("train")["status"].get("active")
    eve.here.delete(eve.job_path("train"))
    eve.wait_reserved(0)
    assert eve.worker.read_job("train")["metadata"]["uid"] == before["metadata"]["uid"]
    eve.stays_apart()


def test_a_group_has_the_name_of_a_group_of_the_worker(eve: Eve) -> None:
    """Submit a group of pods to the manager whose Workload would have the name of a Workload of the worker's own: that
    stays as it is, and the check says so."""
    eve.worker.create(grouped(eve, "mine"))
    eve.team.wait_pod("mine", lambda p: p.get("status", {}).get("phase") == "Running", on="east")
    before = eve.worker.api.get(eve.path(GROUP, "workloads", "gang"))
    eve.here.create(grouped(eve, "theirs"))
    eve.wait_told('has another Workload "gang"')
    after = eve.worker.api.get(eve.path(GROUP, "workloads", "gang"))
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    eve.here.delete(eve.path("v1", "pods", "theirs"))
    eve.wait_reserved(0)
    assert eve.worker.api.get(eve.path("v1", "pods", "mine"))["status"]["phase"] == "Running"
    eve.stays_apart()


def grouped(eve: Eve, name: str) -> Json:
    """The manifest of a Pod that is the group `gang`."""
    marks = {names.POD_GROUP_TOTAL_COUNT: "1"}
    labels = {QUEUE: "team", "kueue.x-k8s.io/pod-group-name": "gang"}
    meta = {"name": name, "namespace": eve.team.here.namespace, "labels": labels, "annotations": marks}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": POD}


# --- objects of the worker that pretend to be copies ------------------------------------------------------------------


def test_a_job_of_the_worker_pretends_to_be_the_copy(eve: Eve) -> None:
    """Create a Job on the worker with the name and the label of a copy before there is one: its status is not taken
    for that of the Job on the manager, whose own copy runs."""
    forged = job(
        "train", namespace=eve.team.here.namespace, queue=None, cpu="0", run_for="0s", labels={ORIGIN: "multikueue"}
    )
    uid = eve.there.create(forged)["metadata"]["uid"]  # the manager deletes it at once
    eve.here.create(eve.job("train", cpu="2"))
    eve.sent("train")
    assert eve.worker.read_job("train")["metadata"]["uid"] != uid
    assert not eve.team.here.read_job("train")["status"].get("succeeded")
    eve.stays_apart()


def test_a_job_of_the_worker_takes_the_workload_of_the_manager(eve: Eve) -> None:
    """Let a Job of the worker with more pods name the Workload that was sent there: it does not run by it."""
    eve.here.create(eve.job("train", cpu="1"))
    name = eve.sent("train")
    marks = {"labels": {QUEUE: "team", names.PREBUILT_WORKLOAD: name, ORIGIN: "multikueue"}}
    body = eve.job("greedy", cpu="1", pods=9)
    body["metadata"] |= marks
    with suppress(ApiError):
        eve.there.create(body)
    eve.stays_apart()


def test_another_managers_copies_are_left_alone(eve: Eve) -> None:
    """Create a Job on the worker with the name of a copy and the label of another manager: it is neither taken nor
    deleted."""
    forged = job("train", namespace=eve.team.here.namespace, queue=None, cpu="0", labels={ORIGIN: "other"})
    eve.there.create(forged)
    uid = eve.worker.read_job("train")["metadata"]["uid"]
    eve.here.create(eve.job("train", cpu="2"))
    eve.wait_told('has another Job "train"')
    assert eve.worker.read_job("train")["metadata"]["uid"] == uid
    eve.stays_apart()


def test_a_copy_whose_status_the_manager_refuses(eve: Eve) -> None:
    """Have the Workload on the worker taken by a Job of yours, whose status the manager's API server refuses for the
    Job there: the manager's quota is released when it is evicted."""
    eve.here.create(eve.job("train", cpu="2"))
    name = eve.sent("train")
    eve.there.patch(eve.job_path("train"), {"metadata": {"finalizers": ["example.com/kept"]}})
    eve.there.delete(eve.job_path("train"))
    eve.there.patch(eve.job_path("train"), {"metadata": {"finalizers": None}})
    body = eve.job("train", cpu="2")
    body["metadata"]["labels"] |= {names.PREBUILT_WORKLOAD: name, ORIGIN: "multikueue"}
    body["spec"] |= {"completionMode": "Indexed", "suspend": True}
    for _ in range(3):
        with suppress(ApiError):
            eve.there.create(body)
    workload = eve.team.here.api.path_of(eve.team.here.workload_of("train"))
    eve.team.here.api.patch(workload, {"spec": {"active": False}})
    eve.wait_reserved(0)
    eve.stays_apart()


# --- copies that are changed on the worker ----------------------------------------------------------------------------


def test_a_copy_without_its_label_runs_on(eve: Eve) -> None:
    """Take the manager's label off a copy whose pods take long to stop, and have it evicted on the manager: the quota
    there is held until the worker has released its own."""
    eve.here.create(slow(eve, "train"))
    name = eve.sent("train")
    eve.there.patch(eve.job_path("train"), {"metadata": {"labels": {ORIGIN: None}}})
    workload = eve.path(GROUP, "workloads", name)
    eve.team.here.api.patch(workload, {"spec": {"active": False}})
    held_until_stopped(eve)
    eve.stays_apart()


def test_a_job_is_deleted_while_its_copy_stops(eve: Eve) -> None:
    """Delete a Job on the manager whose copy's pods take long to stop, to have its quota twice."""
    eve.here.create(slow(eve, "train"))
    eve.sent("train")
    eve.here.delete(eve.job_path("train"))
    held_until_stopped(eve)
    eve.stays_apart()


def held_until_stopped(eve: Eve) -> None:
    """Wait until the pod of a copy is being deleted, with the quota still reserved; then end it."""

    def stops() -> list[Json]:
        pods = eve.worker.api.items(eve.path("v1", "pods"))
        return [each for each in pods if each["metadata"].get("deletionTimestamp")]

    wait_until(stops, timeout=40, describe=eve.story)
    eve.here.create(eve.job("next", cpu="2"))
    wait_until(lambda: eve.sentry.quiet_for(2 * QUIET_SECONDS), timeout=40, describe=eve.story)
    assert eve.sentry.most <= MANAGER_CPUS, eve.story()
    for pod in stops():
        path = eve.path("v1", "pods", pod["metadata"]["name"])
        eve.worker.api.patch(path, {"metadata": {"annotations": {STOP_FOR: "0s"}}})
    eve.sent("next")


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"parallelism": 9}},
        {"spec": {"suspend": True}},
        {"metadata": {"labels": {QUEUE: None}}},
        {"metadata": {"labels": {names.PREBUILT_WORKLOAD: None}, "annotations": {names.PREBUILT_WORKLOAD: None}}},
        {"metadata": {"annotations": {UID: "another"}}},
    ],
    ids=["more pods", "suspended", "no queue", "no Workload", "of another Job"],
)
def test_a_copy_is_changed(eve: Eve, change: Json) -> None:
    """Change a copy on the worker: its pods, its queue, its Workload, the Job that it is a copy of. What is not
    refused stops it, or has it made anew."""
    body = eve.job("train", cpu="1", pods=2)
    body["spec"]["completions"] = 9
    eve.here.create(body)
    eve.sent("train")
    with suppress(ApiError):
        eve.there.patch(eve.job_path("train"), change)
    eve.stays_apart()
    assert eve.sentry.most <= MANAGER_CPUS, eve.story()
    eve.here.delete(eve.job_path("train"))
    eve.wait_reserved(0)


def test_a_copy_is_kept_by_a_finalizer(eve: Eve) -> None:
    """Give a copy a finalizer: its pods are stopped and the quotas are free when the Job on the manager is deleted."""
    eve.here.create(eve.job("train", cpu="2"))
    eve.sent("train")
    eve.there.patch(eve.job_path("train"), {"metadata": {"finalizers": ["example.com/kept"]}})
    eve.here.delete(eve.job_path("train"))
    eve.wait_reserved(0)
    wait_until(lambda: eve.sentry.runs == 0, timeout=30, describe=eve.story)
    eve.there.patch(eve.job_path("train"), {"metadata": {"finalizers": None}})
    eve.team.wait_clean("east")
    eve.stays_apart()


# --- marks that the manager's tenant writes ---------------------------------------------------------------------------


def test_a_job_of_the_manager_says_it_is_a_copy(eve: Eve) -> None:
    """Give a Job on the manager the label of another origin, the uid and the Workload of another Job: it does not run
    by the quota of the other."""
    first = eve.here.create(eve.job("first", cpu="1"))
    name = eve.sent("first")
    body = eve.job("second", cpu="1", pods=4)
    body["metadata"]["labels"] |= {ORIGIN: "other", names.PREBUILT_WORKLOAD: name}
    body["metadata"]["annotations"] = {UID: first["metadata"]["uid"], names.PREBUILT_WORKLOAD: name}
    with suppress(ApiError):
        eve.here.create(body)
    eve.stays_apart()
    assert eve.worker.api.find(eve.job_path("second")) is None
    assert eve.sentry.most <= MANAGER_CPUS, eve.story()


def test_the_gate_of_a_copied_pod_is_lifted(eve: Eve) -> None:
    """Lift the gate of a Pod on the manager, and that of its copy before the worker has admitted it."""
    eve.worker.job("local", queue="team", cpu=str(WORKER_CPUS))
    eve.worker.wait_admitted("local")
    meta = {"name": "p", "namespace": eve.team.here.namespace, "labels": {QUEUE: "team"}}
    eve.here.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": POD})
    path = eve.path("v1", "pods", "p")
    refused(lambda: eve.here.patch(path, {"spec": {"schedulingGates": []}}))
    eve.worker.delete_job("local")
    eve.team.wait_pod("p", lambda p: p.get("status", {}).get("phase") == "Running", on="east")
    eve.team.wait_pod("p", lambda p: p.get("status", {}).get("phase") == "Running")
    refused(lambda: eve.here.patch(path, {"spec": {"schedulingGates": []}}))
    status = eve.here.get(path)["status"]
    assert not {"podIP", "podIPs", "hostIP", "hostIPs", "nominatedNodeName", "resourceClaimStatuses"} & set(status)
    eve.stays_apart()


# --- kubeconfigs ------------------------------------------------------------------------------------------------------


def test_a_tenant_connects_no_cluster(eve: Eve) -> None:
    """Make a MultiKueueCluster or a MultiKueueConfig, or put a kubeconfig into Turnstile's namespace or a Secret of the
    name of a cluster's into yours: what the manager reads stays as it is."""
    before = wait_active(eve.team.here.api, "east")
    source = {"kubeConfig": {"location": "mine", "locationType": "Secret"}}
    for kind, spec in (("MultiKueueCluster", {"clusterSource": source}), ("MultiKueueConfig", {"clusters": ["mine"]})):
        refused(lambda k=kind, s=spec: eve.here.create(of_group(k, "mine", s)))
    for namespace in (NAMESPACE, eve.team.here.namespace):
        with suppress(ApiError):
            eve.here.create(secret("east", namespace, b"clusters: []"))
    assert eve.here.get(eve.path("v1", "secrets", "east"))
    eve.here.create(eve.job("train", cpu="1"))
    eve.sent("train")
    assert wait_active(eve.team.here.api, "east")["spec"] == before["spec"]
    eve.stays_apart()


def test_a_kubeconfig_that_reaches_for_more(eve: Eve, tmp_path: Path) -> None:
    """Put a kubeconfig into a Secret that the manager reads, with programs, files, an unverified server, or more than
    memory holds; or name a file outside the folder: nothing of it is run or read, and the condition says why."""
    api, ran = eve.team.here.api, tmp_path / "ran"
    program = {
        "exec": {"command": "/usr/bin/touch", "args": [str(ran)], "apiVersion": "client.authentication.k8s.io/v1"}
    }
    server = {"server": "https://127.0.0.1:1"}
    told = {
        "exec plugins are not allowed": kubeconfig(server, program),
        "auth providers are not allowed": kubeconfig(server, {"auth-provider": {"name": "oidc"}}),
        "tokenFile is not allowed": kubeconfig(server, {"tokenFile": "/etc/passwd"}),
        "client keys must be inline": kubeconfig(server, {"client-key": "/etc/passwd"}),
        "file paths are not allowed": kubeconfig({**server, "certificate-authority": "/etc/passwd"}, {}),
        "insecure TLS verification is not allowed": kubeconfig({**server, "insecure-skip-tls-verify": True}, {}),
        "untrusted server endpoint": kubeconfig({"server": "http://127.0.0.1:1"}, {}),
        "has an alias": b"a: &a [x, x]\nclusters: [{name: c, cluster: {server: [*a, *a]}}]\n",
        "more than 256 KiB": kubeconfig(server, {"token": "t" * 600_000}),
    }
    path = resource_path("v1", "secrets", "west", namespace=NAMESPACE)
    api.create(secret("west", NAMESPACE, b"{}"))
    source: Json = {"kubeConfig": {"location": "west", "locationType": "Secret"}}
    made = api.create(of_group("MultiKueueCluster", "west", {"clusterSource": source}))
    try:
        for why, data in told.items():
            api.patch(path, {"data": secret("west", NAMESPACE, data)["data"]})
            wait_said(api, "west", why)
        assert not ran.exists()
        source["kubeConfig"] |= {"location": "/etc/multikueue/kubeconfigs/../../passwd", "locationType": "Path"}
        api.patch(api.path_of(made), {"spec": {"clusterSource": source}})
        wait_said(api, "west", "has the element '..'")
    finally:
        api.delete(api.path_of(made))
        api.delete(path)
    wait_active(api, "east")
    eve.stays_apart()


def wait_said(api: Api, cluster: str, why: str) -> None:
    """Wait until the condition of a cluster says why it is not reached."""
    api.wait_for(
        resource_path(GROUP, "multikueueclusters", cluster),
        lambda found: why in condition(found, "Active").get("message", ""),
        timeout=30,
        describe=why,
    )


def of_group(kind: str, name: str, spec: Json) -> Json:
    """The manifest of an object without a namespace."""
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}


def secret(name: str, namespace: str, kubeconfig: bytes) -> Json:
    """The manifest of a Secret with a kubeconfig."""
    data = {"kubeconfig": base64.b64encode(kubeconfig).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}


def kubeconfig(cluster: Json, user: Json) -> bytes:
    """A kubeconfig of one cluster and one user, as YAML."""
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    named = {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}]}
    return yaml.safe_dump({**named, "contexts": contexts, "current-context": "c"}).encode()
