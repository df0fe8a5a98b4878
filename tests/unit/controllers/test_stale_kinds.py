"""What a new leader must not decide while a kind of jobs, or the pods, may be missing or stale in its stores."""

import asyncio

import pytest

from tests.unit.controllers.test_children import SET, Nursery
from tests.unit.controllers.test_frameworks import job, runner_of, waiting, world
from tests.unit.controllers.test_pipelineruns import RUN, Runs, task
from tests.unit.controllers.test_runner import settled
from tests.unit.controllers.test_sparkapplications import Spark
from turnstile.api.core import Job
from turnstile.jobs.kinds.jobset import JobSet


def test_a_child_whose_owner_is_not_read_yet_runs_on() -> None:
    """It is a stray without one, and would be suspended."""
    cluster = Nursery()
    cluster.child()
    cluster.look()
    cluster.delete(JobSet, "team/set")
    cluster.world.jobs[JobSet].doubt()
    assert cluster.look() == "jobsets are not read yet"
    assert cluster.runs()
    cluster.world.jobs[JobSet].believe()
    cluster.later(seconds=10)
    cluster.look()
    assert not cluster.runs()


def test_the_workload_of_a_deleted_job_waits_until_its_children_are_read() -> None:
    """One of them may be still to make pods that the Workload is charged for."""
    cluster = Nursery()
    cluster.delete(JobSet, "team/set")
    cluster.later(seconds=60)
    cluster.world.jobs[Job].doubt()
    cluster.settle(SET)
    assert cluster.condition("Finished") is None
    cluster.world.jobs[Job].believe()
    cluster.settle(SET)
    assert cluster.condition("Finished") is not None


def test_pods_are_not_counted_until_they_are_read() -> None:
    """One that is stale may be gone, and another in its place."""
    cluster = Spark()
    cluster.world.pods.doubt()
    for number in range(4):
        cluster.pod(f"e{number}")
    cluster.later(seconds=60)
    assert cluster.active
    cluster.world.pods.believe()
    assert not cluster.active


def test_no_pod_is_started_within_a_reservation_until_pods_are_read() -> None:
    """Others may run within it."""
    runs = Runs()
    runs.admitted(task("a", "1"))
    runs.world.pods.doubt()
    runs.task_pod("a", "1")
    runs.settle(RUN)
    assert runs.held() == ["a"]
    runs.world.pods.believe()
    runs.settle(RUN)
    assert runs.held() == []


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_kind_that_was_read_concerns_its_own_jobs_and_those_that_follow_owners() -> None:
    """The jobs of other kinds are not decided about again."""
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}
    made = world(job(), job(name="child", ownerReferences=[owner]))
    made.jobs[Job].doubt()
    made.pods.doubt()
    runner = runner_of(made)
    with runner.subscribed():
        adding = asyncio.create_task(runner._add())
        made.pods.believe()
        await settled()
        assert waiting(runner) == {"batch/job": 1}
        made.jobs[Job].believe()
        await settled()
        assert waiting(runner) == {"batch/job": 2}
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
