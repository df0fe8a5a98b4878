"""Jobs whose pods come and go while they run, and share what the job's Workload reserves in all (`pods_label`).

Such a pod is gated when it is created, and names its job by a label. The reconcile of the job starts pods, the oldest
first, as long as all pods that run under its Workload request at most what the admitted pod sets request, and are at
most as many if pods count against a quota. That sum is the only rule: whatever created a pod and whatever its owners
are, more than was reserved never runs. A pod of the job that runs although it was not started, because a tenant lifted
its gate, is deleted, and so are the youngest pods if more run than was reserved. A pod that requests more than the job
has reserved is queued by itself, and so is a pod that names no job with an unfinished Workload.

One job is reconciled once at a time, so two pods are never started with the same quota. Must never write to the job.

In a topology the first pod set, which has all requests, is one pod in one domain: all pods of the job run in that
domain. Without that all but one would be held by the topology gate, since no domain has a place for them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.pods import PodSpec
from turnstile.api.topologyassignment import decode, hosts
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.charging.podcharge import requested
from turnstile.controllers.jobs.plan import Outcome, Plan, job_patch
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView
from turnstile.engine.quota.requests import Exact
from turnstile.jobs import pods
from turnstile.jobs.integration import NOT_ADMITTED, Change
from turnstile.jobs.naming import job_key
from turnstile.jobs.podsets import PodSetInfo
from turnstile.jobs.registry import Registry
from turnstile.kube.gate import Rank
from turnstile.kube.store import Store
from turnstile.wording.grammar import sentence
from turnstile.wording.standing import cannot_start

PODS_BY_NAMED_JOB: Final = "named-job"
"""Index of pods by the key of the job that they name in a label (`tekton.dev/pipelinerun:team-a/build`)."""

_PODS: Final = "pods"


def index_named_jobs(store: Store[Any], registry: Registry) -> None:
    """Declare the index of pods by the job that they name."""
    plain = registry.known_kind(Pod)
    groups = plain.groups if plain is not None else None

    def named(pod: Pod) -> list[str]:
        jobs = list(jobs_named_by(pod, registry))
        return jobs if jobs and groups is not None and not groups.group_of(pod) else []

    store.add_index(PODS_BY_NAMED_JOB, named)


def jobs_named_by(pod: Pod, registry: Registry) -> Iterator[str]:
    """Keys of the jobs that a pod names."""
    for framework, label in registry.pods_labels:
        if name := pod.metadata.labels.get(label):
            yield job_key(framework, pod.metadata.namespace, name)


def sharing(pod: Pod, cluster: ClusterView) -> Workload | None:
    """The unfinished Workload of the job that a pod names, if the pod may share what it reserves; None if the pod is
    queued by itself."""
    named = jobs_named_by(pod, cluster.registry)
    workloads = [each for key in named for each in cluster.workloads.by_index(WORKLOADS_BY_JOB, key)]
    if not workloads or _own_workload(pod, cluster):
        return None
    templates, wanted = cluster.requests_in(pod.metadata.namespace), _requested(pod)
    found = (each for each in workloads if not each.finished and not _above(wanted, _reserved(each, templates)))
    return next(found, None)


def share(view: JobView) -> Outcome | None:
    """Start gated pods within what the Workload reserves; delete pods of the job that run beyond it."""
    workload, cluster, plan = view.roles.current, view.cluster, Plan(view)
    if workload is None or not (view.integration.pods_label and cluster.pods.complete):
        return None
    key = cluster.registry.key_of(view.job)
    named = [pod for pod in cluster.pods.by_index(PODS_BY_NAMED_JOB, key) if not _own_workload(pod, cluster)]
    mine = {pod.metadata.uid for pod in named}
    charged = [pod for pod in charges.pods_of(workload, cluster) if pod.metadata.uid not in mine]
    admitted = workload.admitted
    limit = _reserved(workload, cluster.requests_in(view.job.metadata.namespace)) if admitted else {}
    free = _counted_pods(workload) if admitted else 0
    used: Exact = {}

    def started(pod: Pod) -> bool:
        return pod.metadata.annotations.get(names.WORKLOAD) == workload.metadata.name

    for pod in sorted((*named, *charged), key=lambda each: (not started(each), *_age(each))):
        if not charges.may_run(pod) or pods.is_gated(pod):
            continue
        used = _added(used, _requested(pod))
        free = free - 1 if free is not None else None
        beyond = _above(used, limit) or (free is not None and free < 0)
        if (beyond or not started(pod)) and pod.metadata.uid in mine and not pod.metadata.deletion_timestamp:
            _delete(plan, pod)
    if not admitted:
        return plan.goes_on()
    try:
        info = _placed(cluster.infos_of(workload)[0], workload)
    except LookupError as error:
        plan.wake(RETRY_SECONDS)
        return plan.ends(str(error))
    if info is None:
        return plan.goes_on()
    for pod in sorted(named, key=_age):
        if not pods.is_gated(pod) or pod.metadata.deletion_timestamp or pods.is_over(pod):
            continue
        wanted = _requested(pod)
        total = _added(used, wanted)
        if _above(wanted, limit) or _above(total, limit) or free == 0:
            continue  # the first is queued by itself
        if _begin(plan, pod, info, workload):
            used = total
            free = free - 1 if free is not None else None
    return plan.goes_on()


def _placed(info: PodSetInfo, workload: Workload) -> PodSetInfo | None:
    """The additions to each pod: the domain of the pod set in the place of the gate, if it has one. None while the node
    of that domain has failed; the Workload gets another one then."""
    admission = workload.status.admission
    given = next(
        (each for each in (admission.pod_set_assignments if admission else ()) if each.name == info.name), None
    )
    assignment = given.topology_assignment if given is not None else None
    if assignment is None or names.TOPOLOGY_GATE not in info.scheduling_gates:
        return info
    failed = {each.name for each in workload.status.unhealthy_nodes}
    domain = next(decode(assignment), None)
    if domain is None or not failed.isdisjoint(hosts(assignment)):
        return None
    selector = {**info.node_selector, **dict(zip(assignment.levels, domain.values, strict=True))}
    gates = tuple(gate for gate in info.scheduling_gates if gate != names.TOPOLOGY_GATE)
    return replace(info, node_selector=selector, scheduling_gates=gates)


def _begin(plan: Plan, pod: Pod, info: PodSetInfo, workload: Workload) -> bool:
    """Start a pod. Returns whether it can be started."""
    try:
        change = pods.started(pod, info)
    except PermanentError as error:
        plan.emit("CannotStart", sentence(cannot_start(str(error))), warning=True, about=[pod])
        return False
    plan.rank = Rank.START
    plan.actions.append(job_patch(Pod, pod, change))
    queue = workload.status.admission.cluster_queue if workload.status.admission else ""
    plan.emit("Started", f"Admitted by clusterQueue {queue}", about=[pod])
    return True


def _delete(plan: Plan, pod: Pod) -> None:
    """Delete a pod that runs without having been started, or beyond what the Workload reserves."""
    view = plan.view
    message = f"The Workload of {view.job.KIND} {view.job.metadata.name} does not charge for it"
    for step in pods.stopped(pod, reason=NOT_ADMITTED, message=message, now=view.cluster.now):
        if isinstance(step, Change):
            plan.actions.append(job_patch(Pod, pod, step))
        else:
            plan.actions.append(patience.deletion(pod, at_most=patience.SHORT))
    plan.emit("Stopped", message, about=[pod])


def _own_workload(pod: Pod, cluster: ClusterView) -> bool:
    """Whether a pod has an unfinished Workload of its own."""
    if cluster.registry.known_kind(Pod) is None:
        return False
    owned = cluster.workloads.by_index(WORKLOADS_BY_JOB, cluster.registry.key_of(pod))
    return any(not each.finished for each in owned)


def _counted_pods(workload: Workload) -> int | None:
    """How many pods may run at a time; None if pods do not count against a quota. All pods get the flavors of the first
    pod set, so only pods that were admitted with that flavor count."""
    assignments = workload.status.admission.pod_set_assignments if workload.status.admission else []
    flavor = assignments[0].flavors.get(_PODS) if assignments else None
    if flavor is None:
        return None
    counts = {each.name: each.count for each in workload.spec.pod_sets}
    return sum(counts.get(each.name, 0) for each in assignments if each.flavors.get(_PODS) == flavor)


def _reserved(workload: Workload, requests: Callable[[PodSpec], Exact]) -> Exact:
    """The sum of the requests of all pod sets of a Workload."""
    total: Exact = {}
    for pod_set in workload.spec.pod_sets:
        try:
            single = requests(pod_set.template.spec)
        except InvalidValue:
            continue
        for name, value in single.items():
            total[name] = total.get(name, 0) + value * pod_set.count
    return total


def _requested(pod: Pod) -> Exact:
    """The requests of a pod; of one that cannot be read, more than is ever reserved."""
    try:
        return requested(pod)
    except (InvalidValue, msgspec.ValidationError):
        return {"": 1}


def _above(wanted: Mapping[str, int], limit: Mapping[str, int]) -> bool:
    return any(value > limit.get(name, 0) for name, value in wanted.items())


def _added(total: Exact, more: Exact) -> Exact:
    return {name: total.get(name, 0) + more.get(name, 0) for name in {**total, **more}}


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name
