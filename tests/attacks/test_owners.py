"""A reference to an owner excuses no job from the queue, unless the owner's Workload charges for its pods."""

from collections.abc import Iterator
from typing import Any

import pytest

from testbed import ApiError
from testbed.client import Api, Json, condition, resource_path, wait_until
from testbed.components import KILLED_IN_TIME, STOP_FOR
from tests.attacks.conftest import WITHOUT_QUEUE_NAME, Tenant, default_queue, leaves_alone, pod_spec
from tests.attacks.rest import comes_back_within_quota
from tests.turnstile import Turnstile
from turnstile.api import names
from turnstile.controllers.charging.charges import UNREAD_SECONDS

JOB_SETS = "jobset.x-k8s.io/v1alpha2"
POD_SET = {names.PODSET_LABEL: "workers"}


@pytest.fixture(scope="module", autouse=True)
def job_sets(attacked: Turnstile) -> Iterator[None]:
    """JobSets without their controller: the tenant creates their Jobs."""
    api = attacked.installation.control_plane.api
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    made = api.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "jobsets.jobset.x-k8s.io",
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/jobset"},
            },
            "spec": {
                "group": "jobset.x-k8s.io",
                "scope": "Namespaced",
                "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset"},
                "versions": [{**version, "subresources": {"status": {}}}],
            },
        }
    )
    path = api.path_of(made)
    wait_until(lambda: _served(api), timeout=20, describe=lambda: "JobSets are not served")
    yield
    api.delete(path)


def _served(api: Api) -> bool:
    try:
        return api.find(resource_path(JOB_SETS, "jobsets", namespace="default")) is not None
    except ApiError:  # the storage is being initialized
        return False


def reference(owner: Json, **other: Any) -> list[Json]:
    """A list with one owner reference, of a controller unless told otherwise."""
    meta = owner["metadata"]
    found = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return [{**found, "controller": True, **other}]


def job_set(tenant: Tenant, name: str = "set", *, pods: int = 2, **labels: str) -> Json:
    """A JobSet of `pods` pods of 1 CPU, in the queue unless it has other labels."""
    template = {"spec": pod_spec("1")}
    jobs = {"name": "workers", "replicas": 1, "template": {"spec": {"parallelism": pods, "template": template}}}
    return tenant.world.api.create(
        {
            "apiVersion": JOB_SETS,
            "kind": "JobSet",
            "metadata": {"name": name, "namespace": tenant.namespace, "labels": labels or {names.QUEUE_LABEL: "main"}},
            "spec": {"suspend": True, "replicatedJobs": [jobs]},
        }
    )


def admitted_job_set(tenant: Tenant, *, pods: int = 2) -> Json:
    """A JobSet that was started."""
    made = job_set(tenant, pods=pods)
    tenant.wait(
        lambda: not tenant.world.api.get(tenant.path(JOB_SETS, "jobsets", "set"))["spec"]["suspend"],
        timeout=20,
        describe=lambda: "the JobSet is suspended",
    )
    return made


def child(tenant: Tenant, name: str, owner: Json, **different: Any) -> Json:
    """Create a Job that names the owner as its controller, with the label that an admission adds to pod templates."""
    return tenant.api.create(child_body(tenant, name, owner, **different))


def child_body(
    tenant: Tenant,
    name: str,
    owner: Json,
    *,
    pods: int = 2,
    cpu: str = "1",
    labels: dict[str, str] | None = None,
    pod_labels: dict[str, str] | None = None,
    **metadata: Any,
) -> Json:
    """The manifest of such a Job."""
    metadata = {"ownerReferences": reference(owner), "labels": labels or {}, **metadata}
    made = tenant.job_body(name, pods=pods, cpu=cpu, **metadata)
    made["spec"]["template"]["metadata"] = {"labels": POD_SET if pod_labels is None else pod_labels}
    return made


def refused(tenant: Tenant, name: str, patch: Json, *, field: str = "spec.suspend") -> None:
    """Assert that the API server refuses a patch of a Job, and write it past all policies: as an administrator."""
    with pytest.raises(ApiError, match=field):
        tenant.patch("batch/v1", "jobs", name, patch)
    tenant.world.api.patch(tenant.path("batch/v1", "jobs", name), patch)


def owned_and_resumed(owner: Json) -> Json:
    """A patch that gives a Job an owner and starts it."""
    return {"metadata": {"ownerReferences": reference(owner)}, "spec": {"suspend": False}}


def suspended(tenant: Tenant, name: str) -> bool:
    """Whether a Job is suspended."""
    return bool(tenant.world.read_job(name)["spec"].get("suspend"))


def wait_suspended(tenant: Tenant, *names_of_jobs: str) -> None:
    """Wait until these Jobs are suspended."""
    tenant.wait(
        lambda: all(suspended(tenant, name) for name in names_of_jobs),
        describe=lambda: f"suspended: {[(name, suspended(tenant, name)) for name in names_of_jobs]}",
    )


class TestAnOwnerThatMakesNoSuchObjects:
    def test_a_pod_that_nobody_manages(self, tenant: Tenant) -> None:
        """Name a Pod that is not queued as the owner of a waiting Job, and unsuspend it in the same patch."""
        owner = tenant.pod("own", cpu="0", labels={})
        tenant.job("a", pods=9)
        wait_suspended(tenant, "a")
        refused(tenant, "a", owned_and_resumed(owner))
        wait_suspended(tenant, "a")
        comes_back_within_quota(tenant)

    @leaves_alone
    def test_the_honest_job_of_a_pod(self, tenant: Tenant) -> None:
        """A workflow engine in a Pod that is not queued makes a Job with a queue: it is admitted by itself."""
        owner = tenant.pod("engine", cpu="0", labels={})
        tenant.job("step", ownerReferences=reference(owner))
        tenant.wait_runs(2)
        tenant.within_quota()

    def test_two_jobs_that_own_each_other(self, tenant: Tenant) -> None:
        """Each of two waiting Jobs names the other one as its owner, and is unsuspended."""
        made = {name: tenant.job(name, pods=5) for name in "ab"}
        wait_suspended(tenant, "a", "b")
        for name, other in ("ab", "ba"):
            refused(tenant, name, owned_and_resumed(made[other]))
        wait_suspended(tenant, "a", "b")
        comes_back_within_quota(tenant)

    @pytest.mark.parametrize("labels", [{}, {names.QUEUE_LABEL: "main"}], ids=["no queue", "queue"])
    def test_an_admitted_job(self, tenant: Tenant, labels: dict[str, str]) -> None:
        """A Job of nine pods names a Job of one pod that runs as its owner, and copies the label of its pods."""
        owner = tenant.job("tiny", pods=1)
        tenant.wait_runs(1)
        child(tenant, "big", owner, pods=9, labels=labels, pod_labels={names.PODSET_LABEL: "main"})
        assert suspended(tenant, "big")
        tenant.within_quota()


class TestADeletedChild:
    @pytest.mark.parametrize("propagation", ["Background", "Orphan"])
    def test_which_its_operator_makes_anew(self, tenant: Tenant, propagation: str) -> None:
        """Delete a running Job of an admitted JobSet without its pods: the JobSet controller makes another at once."""
        child(tenant, "one", admitted_job_set(tenant))
        tenant.wait_runs(2)
        with pytest.raises(ApiError, match=r"propagationPolicy: Forbidden: .* for a Job of JobSet 'set'"):
            tenant.delete("batch/v1", "jobs", "one", propagation=propagation)
        tenant.within_quota()

    def test_with_its_pods(self, tenant: Tenant) -> None:
        """The honest deletion of a Job of an admitted JobSet, whose name is free when its pods are gone."""
        owner = admitted_job_set(tenant)
        child(tenant, "one", owner)
        tenant.wait_runs(2)
        tenant.delete("batch/v1", "jobs", "one", propagation="Foreground")
        tenant.world.api.wait_gone(tenant.path("batch/v1", "jobs", "one"))
        child(tenant, "one", owner)
        tenant.wait_runs(2)
        tenant.within_quota()


class TestAnOwnerThatIsNotThere:
    def test_another_uid(self, tenant: Tenant) -> None:
        """Name an admitted JobSet, with a uid that is not its own."""
        owner = admitted_job_set(tenant)
        child(tenant, "honest", owner)
        tenant.wait_runs(2)
        with_queue = {names.QUEUE_LABEL: "main"}
        forged = reference(owner, uid="00000000-0000-4000-8000-000000000000")
        child(tenant, "a", owner, labels=with_queue, ownerReferences=forged)
        tenant.within_quota()

    def test_another_namespace(self, tenant: Tenant) -> None:
        """Name an object of another namespace, which no reference can mean, in a Job that waits; then unsuspend it."""
        other = tenant.turnstile.installation.control_plane.namespace("other")
        owner = tenant.world.api.create(
            {"apiVersion": JOB_SETS, "kind": "JobSet", "metadata": {"name": "far", "namespace": other}, "spec": {}}
        )
        tenant.job("a", pods=9)
        wait_suspended(tenant, "a")
        refused(tenant, "a", owned_and_resumed(owner))
        tenant.wait(
            lambda: all(job["spec"].get("suspend") for job in tenant.world.api.items(tenant.path("batch/v1", "jobs"))),
            timeout=20,
            describe=lambda: "the Job runs, and was not deleted by the garbage collector either",
        )
        comes_back_within_quota(tenant, timeout=20)

    def test_deleted_while_its_child_runs(self, tenant: Tenant) -> None:
        """Delete a JobSet with orphan propagation: its Job, which names no queue, would make pods for ever."""
        owner = admitted_job_set(tenant)
        child(tenant, "a", owner)
        tenant.wait_runs(2)
        tenant.world.api.delete(tenant.path(JOB_SETS, "jobsets", "set"), propagation="Orphan")
        wait_suspended(tenant, "a")
        tenant.job("b")
        comes_back_within_quota(tenant, timeout=20)


class TestAnOwnerThatDoesNotChargeForIt:
    def test_no_pod_set_named(self, tenant: Tenant) -> None:
        """A Job that no admission has touched names an admitted JobSet: it never runs."""
        owner = admitted_job_set(tenant)
        child(tenant, "honest", owner)
        tenant.wait_runs(2)
        child(tenant, "a", owner, pods=9, pod_labels={})
        assert suspended(tenant, "a")
        tenant.within_quota()

    @pytest.mark.parametrize(
        "different",
        [{"pods": 9}, {"cpu": "2", "pods": 1}, {"pod_labels": {names.PODSET_LABEL: "other"}}],
        ids=["more pods", "larger pods", "another pod set"],
    )
    @pytest.mark.parametrize("labels", [{}, {names.QUEUE_LABEL: "main"}], ids=["no queue", "queue"])
    def test_other_pods(self, tenant: Tenant, labels: dict[str, str], different: dict[str, Any]) -> None:
        """The Job's pods name a pod set, but they are not the pods that the JobSet is charged for."""
        owner = admitted_job_set(tenant)
        child(tenant, "honest", owner)
        tenant.wait_runs(2)
        child(tenant, "a", owner, labels=labels, **different)
        wait_suspended(tenant, "a")
        if not labels and not WITHOUT_QUEUE_NAME:  # else it waits for a queue by itself
            note = tenant.world.wait_event("a", reason="NotCharged")["note"]
            assert "set the label kueue.x-k8s.io/queue-name" in note
        comes_back_within_quota(tenant)
        assert not suspended(tenant, "honest")

    def test_pods_that_take_a_year_to_stop(self, tenant: Tenant) -> None:
        """The pods of such a Job have a year to stop: the Job controller deletes them with that, Turnstile again."""
        owner = admitted_job_set(tenant)
        child(tenant, "honest", owner)
        tenant.wait_runs(2)
        body = child_body(tenant, "a", owner, pods=9)
        body["spec"]["template"]["metadata"]["annotations"] = {STOP_FOR: "2h", KILLED_IN_TIME: "true"}
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 31536000
        tenant.api.create(body)
        wait_suspended(tenant, "a")
        comes_back_within_quota(tenant, timeout=40)
        assert not suspended(tenant, "honest")

    def test_two_that_together_are_too_many(self, tenant: Tenant) -> None:
        """Two Jobs name the pod set of two pods, and have two pods each."""
        owner = admitted_job_set(tenant)
        for name in "ab":
            child(tenant, name, owner)
        tenant.wait(
            lambda: [suspended(tenant, name) for name in "ab"] == [False, True],
            describe=lambda: "not just the younger one is suspended",
        )
        comes_back_within_quota(tenant)

    def test_one_that_grows(self, tenant: Tenant) -> None:
        """Raise the parallelism of a Job that its owner's Workload charged for."""
        owner = admitted_job_set(tenant)
        made = child_body(tenant, "a", owner)
        del made["spec"]["completions"]
        tenant.api.create(made)
        tenant.wait_runs(2)
        refused(tenant, "a", {"spec": {"parallelism": 9}}, field="spec.parallelism")
        wait_suspended(tenant, "a")
        tenant.world.api.delete(tenant.path(JOB_SETS, "jobsets", "set"), propagation="Orphan")
        comes_back_within_quota(tenant, timeout=20)

    def test_a_job_that_runs_by_its_own_admission(self, tenant: Tenant) -> None:
        """Give a running Job an admitted owner: its own quota stays reserved while it runs."""
        owner = admitted_job_set(tenant, pods=1)
        child(tenant, "honest", owner, pods=1)
        tenant.job("a", pods=1)
        tenant.wait_runs(2)
        tenant.patch("batch/v1", "jobs", "a", {"metadata": {"ownerReferences": reference(owner)}})
        tenant.job("b")
        tenant.within_quota()
        tenant.wait_reserved(2)


def test_an_owner_that_is_stopped(tenant: Tenant) -> None:
    """A Job does not run on when its owner's Workload is deactivated, though no controller of the owner suspends it.
    The quota is free once such a controller would have read of the stop."""
    owner = admitted_job_set(tenant)
    child(tenant, "a", owner)
    tenant.wait_runs(2)
    (workload,) = tenant.workloads()
    tenant.world.api.patch(tenant.world.api.path_of(workload), {"spec": {"active": False}})
    wait_suspended(tenant, "a")
    tenant.job("b")
    tenant.world.wait_started("b", timeout=UNREAD_SECONDS + 15)
    comes_back_within_quota(tenant)


@leaves_alone
def test_an_owner_that_is_named_no_more(tenant: Tenant) -> None:
    """Where jobs have a default queue, name a JobSet in a suspended Job, take the reference away and resume the Job."""
    default_queue(tenant)
    owner = job_set(tenant, pods=9)
    body = tenant.job_body("a", pods=5, labels={}, ownerReferences=reference(owner))
    body["spec"]["suspend"] = True
    made = tenant.api.create(body)
    assert names.QUEUE_LABEL not in made["metadata"].get("labels", {})
    tenant.patch("batch/v1", "jobs", "a", {"metadata": {"ownerReferences": None}, "spec": {"suspend": False}})
    comes_back_within_quota(tenant)
    tenant.world.workload_of("a")


class TestAReferenceThatIsNone:
    def test_not_the_controller(self, tenant: Tenant) -> None:
        """An admitted JobSet is named as an owner, but not as the controller."""
        owner = admitted_job_set(tenant)
        child(tenant, "honest", owner)
        tenant.wait_runs(2)
        labels = {names.QUEUE_LABEL: "main"}
        child(tenant, "a", owner, labels=labels, ownerReferences=reference(owner, controller=False), pod_labels={})
        assert suspended(tenant, "a")
        tenant.within_quota()

    def test_a_cron_job(self, tenant: Tenant) -> None:
        """A Job of a CronJob is queued by itself."""
        spec = tenant.job_body("x")["spec"]
        owner = tenant.api.create(
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "nightly", "namespace": tenant.namespace},
                "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": spec}},
            }
        )
        tenant.job("a", pods=1, ownerReferences=reference(owner))
        tenant.job("b", pods=9, ownerReferences=reference(owner))
        tenant.wait_runs(1)
        assert suspended(tenant, "b")
        tenant.within_quota()

    def test_a_pod_owned_by_a_pod(self, tenant: Tenant) -> None:
        """A Pod with a queue names a queued Pod that runs as its owner."""
        owner = tenant.pod("first", cpu="2")
        tenant.wait_runs(2)
        tenant.pod("second", cpu="2", ownerReferences=reference(owner))
        tenant.world.workload_of("second", kind="Pod")
        tenant.within_quota()

    def test_a_replica_set_of_a_deployment_that_is_not_queued(self, tenant: Tenant) -> None:
        """Only the pod template of a ReplicaSet names a queue; its owner, a Deployment, does not."""
        owner = tenant.api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", "namespace": tenant.namespace},
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": _service()},
                },
            }
        )
        labels = {"app": "other", names.QUEUE_LABEL: "main"}
        tenant.api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": "own", "namespace": tenant.namespace, "ownerReferences": reference(owner)},
                "spec": {
                    "replicas": 5,
                    "selector": {"matchLabels": {"app": "other"}},
                    "template": {"metadata": {"labels": labels}, "spec": _service()},
                },
            }
        )
        tenant.wait_runs(2)
        tenant.within_quota()
        assert len(tenant.workloads()) == 5
        assert sum(condition(each, "Admitted").get("status") == "True" for each in tenant.workloads()) == 2


def _service() -> Json:
    return {**pod_spec("1"), "restartPolicy": "Always"}
