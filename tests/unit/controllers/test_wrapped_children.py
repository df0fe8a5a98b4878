"""The objects that an AppWrapper wraps run as far as its Workload charges for them."""

from typing import Any

from tests.unit.controllers.job_cluster import Cluster
from turnstile.api import names
from turnstile.api.core import Job, Pod
from turnstile.jobs.kinds.appwrapper.wrapper import AppWrapper
from turnstile.jobs.kinds.jobset import JobSet

KEY = "workload.codeflare.dev/appwrapper:team/aw"
QUEUED = {names.QUEUE_LABEL: "main"}
Body = dict[str, Any]


def template(pod_set: str = "", *, cpu: str = "1") -> Body:
    """A pod template; with `pod_set`, as the AppWrapper controller leaves it."""
    labels = {"metadata": {"labels": {names.PODSET_LABEL: pod_set}}} if pod_set else {}
    return {**labels, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}


class Wrapped(Cluster):
    """An admitted AppWrapper of one component, whose objects its controller has not created yet."""

    def __init__(self, component: Body) -> None:
        super().__init__()
        self.flavor(nodeLabels={"pool": "a"})
        meta = {"name": "aw", "namespace": "team", "labels": QUEUED}
        self.put(AppWrapper, {"metadata": meta, "spec": {"suspend": True, "components": [component]}})
        self.settle(KEY)
        self.admit()
        self.settle(KEY)
        self.writes.clear()
        self.events.clear()

    @property
    def wrapper(self) -> Body:
        """The AppWrapper as it is now."""
        found = self.get(AppWrapper, "team/aw")
        assert found is not None
        return found

    def owner(self, kind: type[AppWrapper | JobSet] = AppWrapper, name: str = "aw") -> list[Body]:
        """A reference to an owner."""
        found = self.get(kind, f"team/{name}")
        assert found is not None
        api = {"apiVersion": f"{kind.GROUP}/{kind.VERSION}", "kind": kind.KIND, "name": name}
        return [{**api, "uid": found["metadata"]["uid"], "controller": True}]

    def child(
        self, name: str = "child", *, owner: list[Body] | None = None, labels: Body | None = None, **spec: Any
    ) -> None:
        """A Job that its controller owner created."""
        meta = {
            "name": name,
            "namespace": "team",
            "labels": labels or {},
            "ownerReferences": owner or self.owner(),
            "creationTimestamp": "2026-01-02T03:04:10Z",
        }
        self.put(Job, {"metadata": meta, "spec": {"suspend": False, "template": template("aw-0"), **spec}})

    def look(self, name: str = "child") -> str:
        """Reconcile a child until nothing is written; the last reason."""
        self.settle(f"batch/job:team/{name}")
        return self.decide(f"batch/job:team/{name}").why

    def runs(self, name: str = "child") -> bool:
        """Whether a Job is not suspended."""
        found = self.get(Job, f"team/{name}")
        assert found is not None
        return not found["spec"]["suspend"]


def wrapped(api_version: str, kind: str, **spec: Any) -> Body:
    """A component."""
    return {"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": "child"}, "spec": spec}}


def test_an_admission_is_written_beside_the_component_and_taken_back() -> None:
    """The wrapped object stays what its user wrote; when nothing is deployed any more, the quota is free."""
    component = wrapped("batch/v1", "Job", parallelism=2, template=template())
    cluster = Wrapped(component)
    spec = cluster.wrapper["spec"]
    assert spec["suspend"] is False
    assert spec["components"][0]["podSetInfos"][0]["nodeSelector"] == {"pool": "a"}
    cluster.patch(AppWrapper, "team/aw", {"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}})
    cluster.evict()
    cluster.settle(KEY)
    assert cluster.wrapper["spec"] == {"suspend": True, "components": [component]}
    assert cluster.condition("QuotaReserved")[0] == "True"  # type: ignore[index]
    cluster.patch(AppWrapper, "team/aw", {"status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}})
    cluster.settle(KEY)
    assert cluster.condition("QuotaReserved")[0] == "False"  # type: ignore[index]


def test_a_wrapped_job_runs() -> None:
    """It has no Workload of its own."""
    cluster = Wrapped(wrapped("batch/v1", "Job", parallelism=2, template=template()))
    cluster.child(parallelism=2)
    assert cluster.look() == "queued with AppWrapper aw"
    assert (cluster.runs(), cluster.writes, cluster.events) == (True, [], [])


def test_a_wrapped_job_of_more_pods_is_stopped() -> None:
    """Its parallelism was raised after the admission, or its declaration said less."""
    cluster = Wrapped(wrapped("batch/v1", "Job", parallelism=2, template=template()))
    cluster.child(parallelism=3)
    assert "it has 3 pods of pod set 'aw-0', and the Workload of AppWrapper aw charges for 2" in cluster.look()
    assert not cluster.runs()
    assert cluster.events[-1][0] == "NotCharged"


def test_the_jobs_of_a_wrapped_jobset_run_within_its_charge() -> None:
    """The JobSet is charged by the AppWrapper, and its Jobs by the JobSet."""

    def jobs(pod_set: str) -> list[Body]:
        return [{"name": "w", "replicas": 2, "template": {"spec": {"template": template(pod_set)}}}]

    cluster = Wrapped(wrapped("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=jobs("")))
    meta = {"name": "set", "namespace": "team", "ownerReferences": cluster.owner()}
    cluster.put(JobSet, {"metadata": meta, "spec": {"replicatedJobs": jobs("aw-0")}})
    cluster.settle("jobset.x-k8s.io/jobset:team/set")
    for name in ("a", "b", "c"):
        cluster.child(name, owner=cluster.owner(JobSet, "set"), parallelism=1)
    assert cluster.look("a") == cluster.look("b") == "queued with AppWrapper aw"
    cluster.look("c")
    assert [cluster.runs(name) for name in ("a", "b", "c")] == [True, True, False]


def test_a_wrapped_appwrapper_needs_quota_itself() -> None:
    """No AppWrapper makes another: the reference to the owner is a tenant's word."""
    cluster = Wrapped(wrapped("batch/v1", "Job", parallelism=2, template=template()))
    meta = {"name": "inner", "namespace": "team", "labels": QUEUED, "ownerReferences": cluster.owner()}
    component = wrapped("batch/v1", "Job", template=template("aw-0"))
    cluster.put(AppWrapper, {"metadata": meta, "spec": {"components": [component]}})
    cluster.settle("workload.codeflare.dev/appwrapper:team/inner")
    inner = cluster.get(AppWrapper, "team/inner")
    assert inner is not None
    assert inner["spec"]["suspend"] is True
    assert len(cluster.workloads) == 2


def test_a_component_that_is_added_after_the_admission_stops_the_appwrapper() -> None:
    """Its own webhook refuses that; where it is not installed, a new Workload is charged for all components."""
    component = wrapped("batch/v1", "Job", parallelism=2, template=template())
    cluster = Wrapped(component)
    spec = cluster.wrapper["spec"]
    cluster.patch(AppWrapper, "team/aw", {"spec": {"components": [*spec["components"], component]}})
    cluster.settle(KEY)
    assert cluster.wrapper["spec"]["suspend"] is True
    assert [each["count"] for each in cluster.workload["spec"]["podSets"]] == [2, 2]
    assert not cluster.condition("Admitted")


def test_a_wrapped_pod_is_left_to_the_appwrapper() -> None:
    """It is charged by the annotation that its start added."""
    cluster = Wrapped(wrapped("v1", "Pod", **template()["spec"]))
    info = cluster.wrapper["spec"]["components"][0]["podSetInfos"][0]
    meta = {
        "name": "child",
        "namespace": "team",
        "labels": info["labels"],
        "annotations": info["annotations"],
        "ownerReferences": cluster.owner(),
    }
    cluster.put(Pod, {"metadata": meta, "spec": template()["spec"], "status": {"phase": "Running"}})
    cluster.settle("pod:team/child")
    assert (cluster.writes, len(cluster.workloads)) == ([], 1)


def test_a_wrapped_deployment_that_was_scaled_stops_the_appwrapper() -> None:
    """Its pods are counted: scaling it changes no object that has a Workload."""
    cluster = Wrapped(wrapped("apps/v1", "Deployment", replicas=2, template=template()))
    info = cluster.wrapper["spec"]["components"][0]["podSetInfos"][0]
    for number in range(3):
        meta = {
            "name": f"web-{number}",
            "namespace": "team",
            "creationTimestamp": "2026-01-02T03:04:00Z",
            "labels": info["labels"],
            "annotations": info["annotations"],
        }
        spec = {"nodeName": "n", **template()["spec"]}
        cluster.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
        cluster.settle(KEY)
        assert cluster.workload["spec"].get("active", True) == (number < 2)
