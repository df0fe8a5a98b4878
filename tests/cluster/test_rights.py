"""Rights: both roles of Turnstile under their own service accounts, and people under the ClusterRoles made for them."""

from collections.abc import Iterator

import pytest

from testbed import Api, ApiError
from testbed.client import Json, wait_until
from testbed.installation import MANAGED, NAMESPACE, metrics_token
from tests.cluster.deployed import ACCOUNTS, Deployed
from tests.cluster.scenario import Scenario
from turnstile.jobs.generate import below
from turnstile.jobs.kinds.kubeflow.replicas import ReplicaJobs
from turnstile.jobs.registry import ALL

pytestmark = pytest.mark.cluster


@pytest.fixture
def world(deployed: Deployed) -> Iterator[Scenario]:
    """An empty managed namespace."""
    scenario = Scenario(deployed.cp.api, deployed.cp.namespace("team", labels=MANAGED))
    yield scenario
    scenario.remove()


def test_a_day_of_work_is_forbidden_nothing(deployed: Deployed, world: Scenario) -> None:
    """Admission, waiting, preemption, finishing, a held queue, a plain pod, deletion: no request of ours is refused."""
    flavor = world.flavor("plain")
    world.cohort("all")
    queue = world.queue(
        "team", {flavor: {"cpu": "2"}}, cohort="all", preemption={"withinClusterQueue": "LowerPriority"}
    )
    high = world.priority_class("high", 100)
    world.job("low", queue="team", cpu="2")
    world.wait_admitted("low")
    world.job("urgent", queue="team", cpu="2", labels={"kueue.x-k8s.io/priority-class": high})
    world.wait_admitted("urgent", timeout=20)
    world.wait_suspended("low")
    deployed.cp.finish_job(world.namespace, "urgent")
    world.wait_started("low")
    stop = [{"op": "add", "path": "/spec/stopPolicy", "value": "HoldAndDrain"}]
    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}"
    world.api.patch(path, stop, kind="json")
    world.wait_suspended("low")
    world.api.patch(path, [{"op": "replace", "path": "/spec/stopPolicy", "value": "None"}], kind="json")
    world.wait_started("low")
    world.api.delete(f"/apis/batch/v1/namespaces/{world.namespace}/jobs/low")
    world.create(pod("alone", world.namespace, queue="team"))
    alone = f"/api/v1/namespaces/{world.namespace}/pods/alone"
    world.api.wait_for(alone, lambda found: not found["spec"].get("schedulingGates"), describe="ungated")
    world.api.delete(alone, grace_seconds=0)
    world.api.wait_gone(alone)
    for replica in deployed.replicas:
        replica.process.require_running()
    assert {entry["user"]["username"] for entry in deployed.requests()} == set(ACCOUNTS)
    assert deployed.forbidden() == set()


def pod(name: str, namespace: str, *, queue: str) -> Json:
    """A Pod that queues by itself."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"containers": [container]},
    }


SELDOM = {
    **{f"{each.kind.PLURAL}/finalizers": "asked for by admission plugins that are not on here" for each in ALL},
    **{
        f"{each.kind.PLURAL}/status": "a job that is stopped before its operator has said that it was started"
        for each in ALL
        if isinstance(each, ReplicaJobs)
    },
    **{f"{each.kind.PLURAL}/status": "a job that runs on another cluster" for each in ALL if each.copies is not None},
    "multikueueclusters/status": "a cluster to which jobs are sent",
    "admissionchecks/status": "a check that this controller answers",
    "provisioningrequests/finalizers": "asked for by admission plugins that are not on here",
    "workloads/finalizers": "asked for by admission plugins that are not on here",
    **{
        kind.PLURAL: "read for reviews, also by a controller that answers them itself (`--role all`)"
        for each in ALL
        for kind in below(each)
    },
    "cohorts/status": "shares, which are told under fair sharing",
    "jobs/status": "a Job that was started before it was stopped",
    "jobsets/status": "a JobSet that is stopped before its controller has read that it was started",
    "nodes": "read only while there is a Topology",
    "pods/status": "a Pod that is stopped says why",
}
"""What a day of work may do without."""


@pytest.mark.parametrize("role", ["controller", "webhook"])
def test_an_account_has_what_it_uses(deployed: Deployed, world: Scenario, role: str) -> None:
    """Every resource that an account has rights on is asked for, but for those that say when they are."""
    world.queue("team", {world.flavor("plain"): {"cpu": "1"}})
    world.job("one", queue="team")
    world.wait_admitted("one")
    for replica in deployed.replicas:
        assert replica.scrape(metrics_token(deployed.cp)) == 200
    api = deployed.cp.api
    roles = "/apis/rbac.authorization.k8s.io/v1"
    paths = [f"{roles}/clusterroles/turnstile-{role}", f"{roles}/namespaces/{NAMESPACE}/roles/turnstile-{role}"]
    if role == "controller":  # how the API server names its users to the visibility API
        paths.append(f"{roles}/namespaces/kube-system/roles/extension-apiserver-authentication-reader")
    granted = {resource for path in paths for rule in api.get(path)["rules"] for resource in rule["resources"]}
    references = [
        entry["objectRef"]
        for entry in deployed.requests()
        if entry["user"]["username"].endswith(f"-{role}") and "objectRef" in entry
    ]
    used = {"/".join(filter(None, (each["resource"], each.get("subresource")))) for each in references}
    assert granted - used - SELDOM.keys() == set()
    assert used <= granted


# People.

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete")
KINDS = ("clusterqueues", "cohorts", "localqueues", "resourceflavors", "topologies", "workloads")
CLUSTER_KINDS = ("workloadpriorityclasses", "admissionchecks", "multikueueclusters")


@pytest.fixture(scope="module")
def people(deployed: Deployed) -> Api:
    """A user for each role: batch-admin everywhere; batch-user, view, edit and admin in namespace `shared`."""
    api = deployed.cp.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shared", "labels": MANAGED}})
    for role, user in (("turnstile-batch-admin-role", "ada"), ("view", "vic"), ("edit", "ed"), ("admin", "ann")):
        bind(api, role, user, namespace=None if user == "ada" else "shared")
    bind(api, "turnstile-batch-user-role", "bob", namespace="shared")
    for user, resource in (("ada", "clusterqueues"), ("bob", "jobs"), ("vic", "localqueues"), ("ann", "topologies")):
        wait_until(
            lambda user=user, resource=resource: can(api, user, "list", resource, "shared"),
            timeout=20,
            describe=lambda user=user: f"the rules of {user} were not gathered",
        )
    return api


def bind(api: Api, role: str, user: str, *, namespace: str | None) -> None:
    """Give a user a ClusterRole, everywhere or in one namespace."""
    api.create({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{user}-{role}", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })  # fmt: skip


def can(api: Api, user: str, verb: str, resource: str, namespace: str = "shared") -> bool:
    """What `kubectl auth can-i` says; a namespaced role says nothing of cluster-scoped kinds."""
    name, _, sub_resource = resource.partition("/")
    group = {"jobs": "batch", "pods": ""}.get(name, "kueue.x-k8s.io")
    attributes = {
        "verb": verb, "group": group, "resource": name, "subresource": sub_resource, "namespace": namespace,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("resource", [*KINDS, "jobs"])
def test_a_batch_admin_may_do_everything_with_queues_and_jobs(people: Api, resource: str) -> None:
    """In every namespace and for cluster-scoped kinds."""
    assert [verb for verb in READ + WRITE if not can(people, "ada", verb, resource, "")] == []


@pytest.mark.parametrize("resource", ["clusterqueues/status", "localqueues/status", "workloads/status", "jobs/status"])
def test_nobody_writes_a_status(people: Api, resource: str) -> None:
    """Statuses are Turnstile's to write; admins and users may read them."""
    for user in ("ada", "bob", "ed"):
        writes = [verb for verb in ("update", "patch") if can(people, user, verb, resource)]
        assert writes == [] or (user, resource) == ("ed", "jobs/status")
    assert can(people, "ada", "get", resource)


@pytest.mark.parametrize(
    ("resource", "verbs"),
    [
        ("jobs", READ + WRITE),
        ("localqueues", READ),
        ("workloads", READ),
        *((kind, READ) for kind in ("clusterqueues", "cohorts", "resourceflavors", "topologies")),
        ("pods", ()),
        *((kind, READ) for kind in ("workloadpriorityclasses", "admissionchecks")),
        ("multikueueclusters", ()),
    ],
)
def test_a_batch_user_submits_jobs_and_looks(people: Api, resource: str, verbs: tuple[str, ...]) -> None:
    """Jobs in their own namespace; their queues and Workloads to read; nothing elsewhere.

    The role reads quotas too, which a RoleBinding does not give: asked in the namespace, the API server says yes.
    """
    assert tuple(verb for verb in READ + WRITE if can(people, "bob", verb, resource)) == verbs
    assert not any(can(people, "bob", verb, resource, "kube-public") for verb in READ + WRITE)


@pytest.mark.parametrize("user", ["vic", "ed", "ann"])
def test_who_may_look_at_a_namespace_sees_its_queues(people: Api, user: str) -> None:
    """view, edit and admin have LocalQueues and Workloads to read, and nothing of them to write."""
    for resource in ("localqueues", "workloads"):
        assert tuple(verb for verb in READ + WRITE if can(people, user, verb, resource)) == READ
    assert can(people, user, "list", "clusterqueues") == (user == "ann")


@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_only_cluster_admins_touch_what_kueue_gives_no_role_for(people: Api, kind: str) -> None:
    """As in Kueue: priority classes of Workloads, admission checks and other clusters; some are read to explain."""
    assert not any(can(people, "ada", verb, kind, "") for verb in WRITE)


def test_a_batch_user_at_work(deployed: Deployed, people: Api) -> None:
    """Submits a Job and reads why it waits; may not lift its own quota, admit its own Workload or make a queue."""
    world = Scenario(people, "shared")
    world.queue("own", {world.flavor("own"): {"cpu": "0"}})
    bob = deployed.cp.api_as("bob")
    mine = Scenario(bob, "shared")
    mine.job("mine", queue="own")
    assert "insufficient" in mine.wait_pending("mine")["message"]
    workload = mine.workload_of("mine")["metadata"]["name"]
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/shared/workloads/{workload}"
    for forbidden in (
        lambda: bob.patch(f"{path}/status", {"status": {"conditions": []}}),
        lambda: bob.patch(path, {"spec": {"priority": 1000}}),
        lambda: bob.delete(path),
        lambda: bob.get("/apis/kueue.x-k8s.io/v1beta2/clusterqueues"),
        lambda: mine.local_queue("second", "own-shared"),
    ):
        with pytest.raises(ApiError) as caught:
            forbidden()
        assert caught.value.code == 403
    world.remove()
