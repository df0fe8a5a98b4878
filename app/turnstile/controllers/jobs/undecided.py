"""Jobs about which nothing can be decided, because deciding fails: what cannot be decided does not run.

Nothing of such a job is started, and its Workloads keep the quota that they hold. Whatever was not started for an
admission that still holds is stopped: pods are deleted, other jobs suspended. The error is an event of the job, and the
job is tried again after a back-off. No other job is concerned. Must never read more of a job than that takes, since the
reading may be what fails.
"""

from typing import Any, Final

import structlog

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.charging.patience import SHORT, deletion
from turnstile.controllers.jobs.jobreconciler import JOBS_BY_GROUP
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.runtime.actions import Action, Emit, ReconcileResult
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView
from turnstile.jobs import pods
from turnstile.jobs.integration import NOT_ADMITTED, Change, Integration
from turnstile.jobs.labels import queue_name
from turnstile.jobs.naming import group_in, split_job_key
from turnstile.kube import raws

log = structlog.get_logger(__name__)

_REASON: Final = "NotDecided"


def undecided(key: str, cluster: ClusterView, error: Exception) -> ReconcileResult:
    """The actions for a job of that key; deciding about the job raised `error`."""
    framework, name = split_job_key(key)
    integration = cluster.registry.known.get(framework)
    store = cluster.jobs.get(integration.kind) if integration is not None else None
    actions: list[Action] = []
    if integration is not None and store is not None:
        workloads = cluster.workloads.by_index(WORKLOADS_BY_JOB, key)
        grouped = integration.groups is not None and group_in(name)
        found = store.by_index(JOBS_BY_GROUP, key) if grouped else [store.get(name)]
        jobs = [each for each in found if each is not None]
        note = f"It cannot be decided about, and is not started: {type(error).__name__}: {error}"
        actions += [Emit(each, "Warning", _REASON, note) for each in jobs[:1]]
        for job in jobs:
            try:
                actions += _stopped(integration, job, workloads, cluster)
            except Exception as another:
                log.debug("undecided.not_stopped", key=key, error=str(another))
    return ReconcileResult(actions, why=f"cannot be decided: {error}", failure=error)


def _stopped(integration: Integration[Any], job: Kind, workloads: list[Workload], cluster: ClusterView) -> list[Action]:
    """The actions that stop a job which was not started for an admission that holds; empty if it was, or is not
    queued."""
    started_for = {
        each.metadata.name
        for each in workloads
        if each.admitted and not each.evicted and not each.finished and not each.metadata.deletion_timestamp
    }
    ignored = job.metadata.deletion_timestamp or raws.stripped(job) or integration.exceptions.skip(job)
    if ignored or not _managed(job, cluster):
        return []
    if isinstance(job, Pod):
        started = job.metadata.annotations.get(names.WORKLOAD) in started_for
        if started or not charges.may_run(job) or pods.is_gated(job):
            return []
        return [deletion(job, at_most=SHORT)]
    everything = cluster.options.manage_jobs_without_queue_name and job.metadata.controller is None
    queued = workloads or queue_name(job) or everything
    if started_for or not queued or integration.suspended(job) or integration.finished(job) is not None:
        return []
    suspension = integration.suspension
    steps = [suspension.suspend(job)] if suspension is not None else _steps(integration, job, cluster)
    return [job_patch(integration.kind, job, each, stops=True) for each in steps]


def _steps(integration: Integration[Any], job: Kind, cluster: ClusterView) -> list[Change]:
    """The patches that stop a job of a kind without a suspend field."""
    stop = integration.stop(job, None, reason=NOT_ADMITTED, message="It cannot be decided about", now=cluster.now)
    return [each for each in stop.steps if isinstance(each, Change)]


def _managed(job: Kind, cluster: ClusterView) -> bool:
    namespace = cluster.namespaces.get(job.metadata.namespace)
    return namespace is not None and cluster.options.managed_jobs_namespace_selector.matches(namespace.metadata.labels)
