"""The quota of a JobSet that is stopped is kept until the JobSet controller has read that, and no child Job runs."""

import pytest

from tests.unit.controllers.test_children import SET, Nursery
from turnstile.api.conditions import timestamp
from turnstile.api.core import Job
from turnstile.api.workload import Workload
from turnstile.controllers.charging.charges import UNREAD_SECONDS
from turnstile.jobs.kinds.jobset import JobSet

RESUMED = [{"type": "Suspended", "status": "False"}]
SUSPENDED = [{"type": "Suspended", "status": "True"}]


class Evicted(Nursery):
    """A JobSet that was admitted a minute ago, and is evicted; its controller has said this, and reads nothing."""

    def __init__(self, said: list[dict[str, str]]) -> None:
        super().__init__()
        self.say(said)
        self.later(seconds=60)
        conditions = [each for each in self.workload["status"]["conditions"] if each["type"] != "Evicted"]
        evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": ""}
        evicted["lastTransitionTime"] = timestamp(self.now)
        self.patch(Workload, self.workload_key, {"status": {"conditions": [*conditions, evicted]}})
        self.clear()

    def say(self, conditions: list[dict[str, str]]) -> None:
        """The JobSet controller writes the status."""
        self.patch(JobSet, "team/set", {"status": {"conditions": conditions}})

    @property
    def reserved(self) -> bool:
        """Whether the Workload has its quota."""
        condition = self.condition("QuotaReserved")
        return condition is not None and condition[0] == "True"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the JobSet's pod template."""
        found = self.get(JobSet, "team/set")
        assert found is not None
        (job,) = found["spec"]["replicatedJobs"]
        return dict(job["template"]["spec"]["template"].get("metadata", {}).get("labels", {}))


@pytest.mark.parametrize("said", [[], RESUMED, SUSPENDED])
def test_until_the_controller_has_read_it(said: list[dict[str, str]]) -> None:
    """Whether it has said anything before or not, and although a `Suspended` from before the start looks like it."""
    cluster = Evicted(said)
    cluster.settle(SET)
    found = cluster.get(JobSet, "team/set")
    assert found is not None
    assert found["spec"]["suspend"] is True
    assert not cluster.labels
    assert cluster.reserved
    cluster.say(SUSPENDED)
    cluster.settle(SET)
    assert not cluster.reserved


def test_for_some_seconds_if_no_controller_runs() -> None:
    """The quota is needed by others; the controller reads the JobSet as it is then, when it comes back."""
    cluster = Evicted([])
    cluster.settle(SET)
    assert cluster.reserved
    cluster.later(seconds=UNREAD_SECONDS)
    cluster.settle(SET)
    assert not cluster.reserved


def test_no_longer_if_a_user_deletes_the_workload_meanwhile() -> None:
    """The JobSet was stopped when its Workload was evicted: the deletion tells its controller nothing new."""
    cluster = Evicted([])
    cluster.settle(SET)
    cluster.later(seconds=UNREAD_SECONDS - 5)
    evicted = cluster.get(Workload, cluster.workload_key)
    cluster.delete(Workload, cluster.workload_key)
    cluster.settle(SET)
    assert cluster.reserved
    cluster.later(seconds=5)
    cluster.settle(SET)
    made_anew = cluster.get(Workload, cluster.workload_key)
    assert evicted is not None
    assert made_anew is None or made_anew["metadata"]["uid"] != evicted["metadata"]["uid"]


def test_while_a_child_runs_that_was_made_before() -> None:
    """The controller made it when it had not read that the JobSet is suspended."""
    cluster = Evicted(RESUMED)
    cluster.child(pods=1)
    cluster.settle(SET)
    cluster.say(SUSPENDED)
    cluster.settle(SET)
    assert cluster.reserved
    cluster.patch(Job, "team/child", {"spec": {"suspend": True}})
    cluster.settle(SET)
    assert not cluster.reserved


def test_until_the_job_controller_has_read_that_a_child_is_suspended() -> None:
    """It may be making the child's pods, and until then it says what it said before the start."""
    cluster = Evicted(RESUMED)
    cluster.job_controller = False
    cluster.child(pods=1, pod_set="workers", suspend=True)
    before = {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-01-02T03:03:00Z"}
    cluster.patch(Job, "team/child", {"status": {"conditions": [before]}})
    cluster.settle(SET)
    cluster.say(SUSPENDED)
    cluster.settle(SET)
    assert cluster.reserved
    after = {**before, "lastTransitionTime": timestamp(cluster.now)}
    cluster.patch(Job, "team/child", {"status": {"conditions": [after]}})
    cluster.settle(SET)
    assert not cluster.reserved


def test_not_for_ever_until_the_job_controller_has_read_it() -> None:
    """It says nothing if a child was resumed and suspended again before it had read the child."""
    cluster = Evicted(SUSPENDED)
    cluster.job_controller = False
    cluster.child(pods=1, pod_set="workers", suspend=True)
    cluster.settle(SET)
    cluster.say(SUSPENDED)
    cluster.settle(SET)
    assert cluster.reserved
    cluster.later(seconds=UNREAD_SECONDS)
    cluster.settle(SET)
    assert not cluster.reserved


def test_a_child_that_is_left_running_is_suspended_after_some_seconds() -> None:
    """First it is left to the JobSet controller, which may not run."""
    cluster = Evicted(RESUMED)
    cluster.child(pods=1)
    cluster.look()
    assert cluster.runs()
    cluster.later(seconds=10)
    cluster.look()
    assert not cluster.runs()


def test_of_another_controller_nothing_is_expected() -> None:
    """It may not write that condition."""
    cluster = Evicted([])
    cluster.patch(JobSet, "team/set", {"spec": {"managedBy": "example.com/jobset"}})
    cluster.settle(SET)
    assert not cluster.reserved


def test_until_the_children_of_a_deleted_job_set_are_deleted() -> None:
    """The Job controller may not have made their pods yet, and an operator that has not heard of the deletion resumes
    them when they are suspended."""
    cluster = Evicted(RESUMED)
    cluster.child(pods=1)
    cluster.delete(JobSet, "team/set")
    cluster.later(seconds=10)
    cluster.settle(SET)
    cluster.look()
    assert not cluster.runs()
    cluster.settle(SET)
    assert cluster.condition("Finished") is None
    cluster.delete(Job, "team/child")
    cluster.settle(SET)
    assert cluster.condition("Finished") is not None
