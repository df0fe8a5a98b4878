"""Each job kind has a controller of its own, and a Workload says by its owner which of them it concerns."""

import asyncio

import pytest

from tests.unit.controllers import worlds
from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.test_imported import SET, Brood
from tests.unit.controllers.test_runner import Diary, settled
from turnstile.api.core import Job, Namespace, Pod
from turnstile.api.workload import Workload
from turnstile.controllers.jobs import frameworks, jobreconciler
from turnstile.controllers.runtime.runner import Runner
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs.kinds.jobset import JobSet

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def world(*objects: Job | Pod | Workload | Namespace) -> ClusterView:
    """A world whose Workloads are found by job."""
    made = worlds.world(*objects)
    jobreconciler.index_jobs(made.workloads, made.registry, made.jobs)
    return made


def waiting(runner: Runner) -> dict[str, int]:
    """How many keys wait for each controller that has any."""
    return {name: len(queue) for name, queue in runner.queues.items() if len(queue)}


def runner_of(made: ClusterView) -> Runner:
    """The controllers of all job kinds; they have no workers while only `subscribed`."""
    return Runner(Diary(), frameworks.controllers(made), [frameworks.dispatch(made)])


def pod(number: int) -> Pod:
    """A new Pod."""
    labels = {"kueue.x-k8s.io/managed": "true"}
    meta = {"name": f"p{number}", "namespace": "ns", "labels": labels, "resourceVersion": str(number + 1)}
    return worlds.decode(Pod, {"metadata": meta})


def job(**metadata: object) -> Job:
    """Job `ns/job`."""
    return worlds.decode(Job, {"metadata": {"name": "job", "namespace": "ns", "resourceVersion": "1", **metadata}})


async def test_a_flood_of_pods_is_not_in_the_way_of_a_job() -> None:
    """They wait in different queues."""
    made = world()
    runner = runner_of(made)
    with runner.subscribed():
        for number in range(1000):
            made.jobs[Pod].observe(pod(number))
        made.jobs[Job].observe(job())
    assert waiting(runner) == {"pod": 1000, "batch/job": 1}


async def test_a_workload_concerns_the_controller_of_its_owner() -> None:
    """Only that one."""
    made = world()
    runner = runner_of(made)
    with runner.subscribed():
        made.workloads.observe(worlds.workload())
    assert waiting(runner) == {"batch/job": 1}
    assert await runner.queues["batch/job"].get() == "batch/job:ns/job"


async def test_a_workload_that_loses_its_admission_concerns_the_jobs_that_it_was_charged_for() -> None:
    """Those below its owner, at any depth; their own controllers may not stop them."""
    made = world()
    owner = {"name": "job", "uid": "job-uid", "controller": True}
    template = {"metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}}, "spec": {"containers": []}}
    owner |= {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    for number, name in enumerate(("one", "two"), 1):
        meta = {
            "name": name,
            "namespace": "ns",
            "resourceVersion": str(number),
            "uid": name,
            "ownerReferences": [owner],
        }
        made.jobs[Job].observe(worlds.decode(Job, {"metadata": meta, "spec": {"template": template}}))

    def workload(status: str, version: str) -> Workload:
        condition = worlds.condition("Admitted", status, "ByTest")
        pod_sets = [{"name": "main", "count": 2, "template": template}]
        return worlds.workload(condition, spec={"podSets": pod_sets}, resourceVersion=version)

    made.workloads.observe(workload("True", "1"))
    runner = runner_of(made)
    with runner.subscribed():
        made.workloads.observe(workload("False", "2"))
    keys = {await runner.queues["batch/job"].get() for _ in range(waiting(runner)["batch/job"])}
    assert keys == {"batch/job:ns/job", "batch/job:ns/one", "batch/job:ns/two"}


async def test_a_new_pod_of_an_imported_jobset_concerns_the_jobset() -> None:
    """Which marks it: the pod is made of a template without marks. A pod of another job concerns none."""
    cluster = Brood()
    cluster.settle_all("one", "two")
    cluster.delete(Pod, "team/one-0", grace_seconds=0)
    runner = runner_of(cluster.world)
    with runner.subscribed():
        cluster.pod_of("one")
        assert waiting(runner).pop("jobset.x-k8s.io/jobset") == 1
        assert await runner.queues["jobset.x-k8s.io/jobset"].get() == SET
        cluster.job(name="alone")
        cluster.pod_of("alone")
    assert "jobset.x-k8s.io/jobset" not in waiting(runner)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"suspend": False}, {"suspend": True}),
        ({"suspend": True}, None),
        ({"suspend": False}, None),
    ],
)
async def test_the_end_of_a_child_concerns_its_owner(before: dict[str, bool], after: dict[str, bool] | None) -> None:
    """A stop waits for suspended children, the Workload of a deleted owner until the children are deleted too."""
    made = Cluster().world

    def child(number: int, spec: dict[str, bool]) -> Job:
        owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u"}
        meta = {"name": "child", "namespace": "ns", "uid": "c", "resourceVersion": str(number)}
        body = {"metadata": {**meta, "ownerReferences": [{**owner, "controller": True}]}, "spec": spec}
        return worlds.decode(Job, body)

    made.jobs[Job].observe(child(1, before))
    runner = runner_of(made)
    with runner.subscribed():
        if after is not None:
            made.jobs[Job].observe(child(2, after))
        else:
            made.jobs[Job].delete("ns/child", resource_version="2")
    assert await runner.queues["jobset.x-k8s.io/jobset"].get() == "jobset.x-k8s.io/jobset:ns/set"


async def test_a_job_whose_templates_are_in_another_object_is_reconciled_with_it() -> None:
    """A TrainJob with its JobSet; JobSets of other owners concern none."""
    made = Cluster().world
    runner = runner_of(made)
    with runner.subscribed():
        for number, kind in enumerate(("TrainJob", "Other"), 1):
            owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "name": "train", "uid": "u"}
            meta = {"name": f"set{number}", "namespace": "ns", "resourceVersion": str(number)}
            body = {"metadata": {**meta, "ownerReferences": [{**owner, "controller": True}]}, "spec": {}}
            made.jobs[JobSet].observe(worlds.decode(JobSet, body))
    assert waiting(runner) == {"jobset.x-k8s.io/jobset": 2, "trainer.kubeflow.org/trainjob": 1}
    assert await runner.queues["trainer.kubeflow.org/trainjob"].get() == "trainer.kubeflow.org/trainjob:ns/train"


async def test_a_new_term_finds_jobs_that_were_deleted_before_it() -> None:
    """By the Workloads that they have left behind."""
    made = world(worlds.workload(), pod(1))
    runner = runner_of(made)
    task = asyncio.ensure_future(runner.run())
    await settled()
    assert runner.reconciles == {("batch/job", "success"): 1, ("pod", "success"): 1}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_new_pod_concerns_a_job_whose_pods_are_counted() -> None:
    """The AppWrapper whose Workload it names; a pod of a Job concerns nobody."""
    made = Cluster().world
    for number, kind in enumerate(("AppWrapper", "Job"), 1):
        version = {"AppWrapper": "workload.codeflare.dev/v1beta2", "Job": "batch/v1"}[kind]
        owner = {"apiVersion": version, "kind": kind, "name": "job", "uid": "u", "controller": True}
        meta = {"name": kind.lower(), "namespace": "ns", "resourceVersion": str(number), "ownerReferences": [owner]}
        made.workloads.observe(worlds.decode(Workload, {"metadata": meta, "spec": {"podSets": []}}))
    runner = runner_of(made)
    with runner.subscribed():
        for number, name in enumerate(("appwrapper", "job"), 1):
            annotations = {"kueue.x-k8s.io/workload": name}
            meta = {"name": name, "namespace": "ns", "resourceVersion": str(number), "annotations": annotations}
            made.pods.observe(worlds.decode(Pod, {"metadata": meta, "spec": {}, "status": {"phase": "Pending"}}))
    assert waiting(runner) == {"workload.codeflare.dev/appwrapper": 1}


@pytest.mark.parametrize(("elastic", "found"), [("true", {"batch/job": 1}), ("false", {})])
async def test_the_end_of_a_pod_concerns_an_elastic_job(elastic: str, found: dict[str, int]) -> None:
    """Its slice gives quota back when the pods that go have gone; any other job waits for the end of all its pods."""
    made = Cluster().world
    made.jobs[Job].observe(job(uid="u"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": True}
    annotations = {"kueue.x-k8s.io/elastic-job": elastic}
    meta = {"name": "w", "namespace": "ns", "resourceVersion": "1", "ownerReferences": [owner]}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "ByTest", "message": ""}
    status = {"conditions": [reserved, {**reserved, "type": "Admitted"}]}
    body = {"metadata": {**meta, "annotations": annotations}, "spec": {"podSets": []}, "status": status}
    made.workloads.observe(worlds.decode(Workload, body))

    def phase(version: int, phase: str) -> None:
        meta = {"name": "p", "namespace": "ns", "ownerReferences": [owner], "resourceVersion": str(version)}
        spec = {"nodeName": "node"}
        made.pods.observe(worlds.decode(Pod, {"metadata": meta, "spec": spec, "status": {"phase": phase}}))

    phase(1, "Running")
    runner = runner_of(made)
    with runner.subscribed():
        phase(2, "Succeeded")
    assert waiting(runner) == found


async def test_a_relabelled_namespace_concerns_the_jobs_in_it() -> None:
    """Of each kind, and no others."""
    made = world(job(), pod(1))
    runner = runner_of(made)
    other = worlds.decode(Namespace, {"metadata": {"name": "other", "resourceVersion": "100"}})
    changed = worlds.decode(Namespace, {"metadata": {"name": "ns", "resourceVersion": "101", "labels": {"new": "x"}}})
    task = asyncio.ensure_future(runner.run())
    await settled()
    before = runner.reconciles.copy()
    made.namespaces.observe(other)
    await settled()
    assert runner.reconciles == before
    made.namespaces.observe(changed)
    await settled()
    assert runner.reconciles - before == {("batch/job", "success"): 1, ("pod", "success"): 1}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
