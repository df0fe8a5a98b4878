"""Random histories of one Job: whatever happens, the decisions come to rest, and nothing runs without quota."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.examples import examples
from tests.unit.controllers.job_cluster import JOB, Body, Cluster
from turnstile.api.core import Job
from turnstile.api.workload import Workload
from turnstile.controllers.view.ends import UNSEEN_SECONDS


class OneJob(RuleBasedStateMachine):
    """A user, a scheduler, a Job controller and a garbage collector around one Job; looks that may die half way.

    The cluster refuses what the API server would refuse, and a patch that changes nothing, so every rule also checks
    that no write is wasted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.flavor("a", nodeLabels={"pool": "a"})
        self.cluster.flavor("b", nodeLabels={"pool": "b"}, tolerations=[{"key": "b", "operator": "Exists"}])
        self.cluster.job(parallelism=2)
        self.settled = False

    @property
    def job(self) -> Body | None:
        """The Job, if it is there."""
        return self.cluster.get(Job, "team/train")

    @property
    def pods_left(self) -> bool:
        """Whether pods run or terminate."""
        status = (self.job or {}).get("status", {})
        return bool(status.get("active") or status.get("terminating"))

    def only(self) -> Body | None:
        """The Workload, if there is exactly one that lives."""
        found = self.cluster.workloads
        return found[0] if len(found) == 1 else None

    def true(self, kind: str) -> bool:
        """Whether the one Workload has that condition."""
        return self.only() is not None and (self.cluster.condition(kind) or ("",))[0] == "True"

    @rule()
    def settle(self) -> None:
        """Looks until nothing is written; the end is reached, and soon."""
        self.cluster.settle()
        self.settled = True

    @rule(only=st.integers(0, 3))
    def look(self, only: int) -> None:
        """One look that dies after some writes."""
        self.cluster.step(JOB, only=only)
        self.settled = False

    @rule(flavor=st.sampled_from(["a", "b"]))
    def admit(self, flavor: str) -> None:
        """The scheduler lets in what waits."""
        self.settle()
        if self.only() is not None and not (self.true("QuotaReserved") or self.true("Finished")):
            self.cluster.admit(flavor=flavor)
            self.settled = False

    @precondition(lambda self: self.true("Admitted") and not self.true("Evicted"))
    @rule(reason=st.sampled_from(["Preempted", "ClusterQueueStopped", "Deactivated"]))
    def evict(self, reason: str) -> None:
        """Somebody takes the quota back."""
        self.cluster.evict(reason)
        self.settled = False

    @rule(suspend=st.booleans())
    def toggle(self, suspend: bool) -> None:
        """The user suspends or unsuspends the Job, as they may."""
        self.change({"spec": {"suspend": suspend}})

    @rule(parallelism=st.integers(1, 3))
    def resize(self, parallelism: int) -> None:
        """The user edits the Job."""
        self.change({"spec": {"parallelism": parallelism}})

    @rule(name=st.sampled_from(["main", "other"]))
    def requeue(self, name: str) -> None:
        """The user moves a waiting Job to another queue; the webhook refuses it for a running one."""
        if self.job is not None and self.job["spec"]["suspend"]:
            self.change({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": name}}})

    @rule()
    def run_pods(self) -> None:
        """The Job controller follows the Job."""
        if self.job is None:
            return
        if self.job["spec"]["suspend"]:
            self.change({"status": {"active": 0}})
        else:
            self.change({"status": {"active": self.job["spec"]["parallelism"], "startTime": "2026-01-02T03:04:00Z"}})

    @precondition(lambda self: self.job is not None and self.job.get("status", {}).get("active"))
    @rule(kind=st.sampled_from(["Complete", "Failed"]))
    def finish(self, kind: str) -> None:
        """The Job ends."""
        self.change({"status": {"active": 0, "conditions": [{"type": kind, "status": "True"}]}})

    @precondition(lambda self: self.true("QuotaReserved"))
    @rule()
    def delete_workload(self) -> None:
        """The user deletes the Workload by hand."""
        self.delete_workloads()

    def delete_workloads(self) -> None:
        """Ask for the deletion of all Workloads."""
        for workload in self.cluster.workloads:
            self.cluster.delete(Workload, f"team/{workload['metadata']['name']}")
        self.settled = False

    @precondition(lambda self: self.true("QuotaReserved") or self.true("Finished"))
    @rule()
    def delete_job(self) -> None:
        """The user deletes the Job; the garbage collector asks for the Workload's deletion."""
        self.cluster.delete(Job, "team/train")
        self.wait()
        self.delete_workloads()

    def wait(self) -> None:
        """Time passes until no pod can be on its way that was not seen."""
        self.cluster.later(seconds=UNSEEN_SECONDS)

    @precondition(lambda self: self.job is None)
    @rule(suspend=st.booleans())
    def create_job(self, suspend: bool) -> None:
        """The user sends a Job of the same name again."""
        self.cluster.job(suspend=suspend, parallelism=2)
        self.settled = False

    def change(self, patch: dict[str, Any]) -> None:
        """Somebody changes the Job, if it is there."""
        if self.job is not None:
            self.cluster.patch(Job, "team/train", patch)
            self.settled = False

    @invariant()
    def nothing_runs_without_quota(self) -> None:
        """At rest a Job that has not ended is unsuspended only if its one Workload is admitted and not evicted."""
        job = self.job
        if self.settled and job is not None and not job.get("status", {}).get("conditions"):
            assert job["spec"]["suspend"] or (self.true("Admitted") and not self.true("Evicted"))

    @invariant()
    def nothing_waits_with_quota(self) -> None:
        """At rest, and once the pods of an earlier run are gone, an admitted Job runs."""
        job = self.job
        if not self.settled or job is None or self.pods_left or self.true("Finished"):
            return
        if self.true("Admitted") and not self.true("Evicted"):
            assert not job["spec"]["suspend"]

    @invariant()
    def what_waits_is_as_the_user_wrote_it(self) -> None:
        """At rest a suspended Job with a Workload carries nothing of an earlier run."""
        job = self.job
        if not self.settled or job is None or not job["spec"]["suspend"] or job.get("status", {}).get("conditions"):
            return
        if self.pods_left:
            return  # nothing can be restored before they are gone
        assert not job["spec"]["template"]["spec"].get("nodeSelector")
        assert job["spec"]["template"]["metadata"]["labels"] == {"app": "train"}
        assert not job["metadata"].get("annotations")
        assert not job.get("status", {}).get("startTime")

    @invariant()
    def no_quota_is_held_for_nothing(self) -> None:
        """At rest there is one Workload at most, and none that nobody owns holds quota."""
        if not self.settled:
            return
        live = [w for w in self.cluster.workloads if not w["metadata"].get("deletionTimestamp")]
        assert len(live) <= 1
        assert self.job is not None or not self.cluster.workloads


OneJob.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
TestOneJob = OneJob.TestCase
