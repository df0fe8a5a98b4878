"""How many pods of a job need their quota no longer."""

from typing import Any

import pytest

from tests.unit.jobs.subjects import CONFIGURED, REGISTRY, decode
from turnstile.api.workload import PodSet, Workload
from turnstile.jobs.groups import GroupIntegration
from turnstile.jobs.kinds.jobset import JobSet, JobSets
from turnstile.jobs.kinds.trainjob import Rendered, TrainJob, TrainJobs
from turnstile.jobs.workload import limited_reclaimable

Json = dict[str, Any]

RECLAIMING = {"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob", CONFIGURED.framework}
"""Kinds whose jobs release quota while they run, beside groups of pods: test_batch_job.py, test_configured.py,
test_pod_groups.py and below."""


def test_counts_are_limited_to_the_pod_sets_of_the_workload() -> None:
    """A Job that was made smaller may have more pods through than its Workload has; of a pod set that the Workload does
    not have nothing is known that could limit it."""
    workload = Workload()
    workload.spec.pod_sets = [PodSet(name="driver", count=1), PodSet(name="worker", count=5)]
    counts = {"driver": 3, "worker": 2, "other": 10}
    assert limited_reclaimable(workload, counts) == {"driver": 1, "worker": 2, "other": 10}


def test_these_kinds_and_no_others_release_quota_while_they_run() -> None:
    """As in Kueue; the table of kinds says so too."""
    whole = [*REGISTRY.enabled, *(each.groups for each in REGISTRY.enabled if each.groups is not None)]
    assert {each.framework for each in REGISTRY.enabled if each.reclaim is not None} == RECLAIMING
    assert [each.framework for each in whole if isinstance(each, GroupIntegration) and each.reclaim] == ["pod"]


LEADER_DONE = [{"name": "leader", "succeeded": 1}, {"name": "workers", "succeeded": 1, "active": 1}]


def jobset(policy: Json | None) -> JobSet:
    """A leader that has succeeded, and two replicas of three workers of which one has."""
    replicated = [
        {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods}}}
        for name, replicas, pods in (("leader", 1, 1), ("workers", 2, 3))
    ]
    spec = {"replicatedJobs": replicated, **({"failurePolicy": policy} if policy is not None else {})}
    status = {"replicatedJobsStatus": LEADER_DONE}
    found: JobSet = decode(JobSets(), {"metadata": {"name": "a"}, "spec": spec, "status": status})
    return found


IGNORING = {"rules": [{"action": "FailJobSet"}, {"action": "RestartJobSetAndIgnoreMaxRestarts"}]}


@pytest.mark.parametrize(
    "policy",
    [None, {"maxRestarts": 0}, {"rules": [{"action": "RestartJobAndIgnoreMaxRestarts"}]}],
    ids=["without a policy", "without restarts", "whose failed Jobs alone restart"],
)
def test_replicas_of_a_jobset_that_have_succeeded_release_their_quota(policy: Json | None) -> None:
    """The leader, and three of six workers."""
    assert JobSets().reclaimable(jobset(policy)) == {"leader": 1, "workers": 3}


@pytest.mark.parametrize("policy", [{"maxRestarts": 1}, IGNORING, {"maxRestarts": 1, **IGNORING}])
def test_a_jobset_that_may_restart_keeps_its_quota(policy: Json) -> None:
    """A restart makes all replicas again, also those that have succeeded; so of a TrainJob whose runtime has such a
    policy."""
    assert JobSets().reclaimable(jobset(policy)) == {}
    rendered = TrainJobs().joined(TrainJob(), jobset(policy))
    assert isinstance(rendered, Rendered)
    assert TrainJobs().reclaimable(rendered) == {}
