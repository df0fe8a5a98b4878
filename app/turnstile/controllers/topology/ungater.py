"""Lifts the topology gates of a Workload's pods, and says by a node selector in which domain each pod has to run.

Kubernetes lets a node selector be extended only while a gate holds the pod, so both are one patch. A pod gets its
domain once: what was decided is remembered until the pod is seen without its gate, because the answer to a write may be
lost.
Must never lift the gate of a pod that its Workload is not charged for.
"""

from collections.abc import Generator, Iterable
from functools import partial
from typing import Final

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.workload import PodSetAssignment, Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.charging.podcharge import Charge, allowed_by
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.runtime.actions import Action, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch, every
from turnstile.controllers.topology.ranks import Places, Values, first_ranks
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs import pods
from turnstile.jobs.integration import Change
from turnstile.kube.gate import Rank

NAME: Final = "topology-ungater"
AT_ONCE: Final = 250
"""Pods whose gates one reconcile lifts at most; their changes have the Workload reconciled again."""
_STEP: Final = 20
"""Pods that are looked at before other tasks may run."""


class Decided:
    """The domains that gated pods were given, by Workload and by the uid of the pod."""

    def __init__(self) -> None:
        self._domains: dict[str, dict[str, Values]] = {}

    def of(self, key: str) -> dict[str, Values]:
        """The domains of the pods of a Workload."""
        return self._domains.get(key, {})

    def note(self, key: str, domains: dict[str, Values]) -> None:
        """These are the gated pods of a Workload that have a domain."""
        if domains:
            self._domains[key] = domains
        else:
            self._domains.pop(key, None)


def decide(key: str, cluster: ClusterView, decided: Decided) -> Generator[None, None, ReconcileResult]:
    """The patches that lift the topology gates of a Workload's pods."""
    workload = cluster.workloads.get(key)
    assigned = assigned_pod_sets(workload) if workload is not None and _places_pods(workload) else {}
    if workload is None or not assigned:
        decided.note(key, {})
        return ReconcileResult(why="no pod of it has a place in a topology")
    if not any(names.TOPOLOGY_GATE in pods.gates(pod) for pod in charges.left_gated_pods(workload, cluster)):
        decided.note(key, {})
        return ReconcileResult(why="no topology gate holds a pod of it")
    if not cluster.pods.complete:  # when the watch goes on, no event may follow that reconciles this Workload
        return ReconcileResult([RequeueAfter(RETRY_SECONDS)], why="other pods may have its places")
    members: dict[str, list[Pod]] = {name: [] for name in assigned}
    charge = Charge(allowed_by(workload), workload.metadata.namespace, cluster)
    for number, pod in enumerate(charges.claimants(workload, cluster)):
        name = pod.metadata.labels.get(names.PODSET_LABEL, "")
        if (
            name in members
            and charges.may_belong(pod, workload, cluster.registry)
            and (names.TOPOLOGY_GATE not in pods.gates(pod) or covers(charge, name, pod, workload, cluster))
        ):
            members[name].append(pod)
        if number % _STEP == _STEP - 1:
            yield
    kept, found = decided.of(key), dict[str, Values]()
    unhealthy = {each.name for each in workload.status.unhealthy_nodes}
    first = first_ranks(workload, assigned, numbers_leader=_numbers_leader(workload, cluster))
    actions: list[Action] = []
    for pod_set in workload.spec.pod_sets:
        given = assigned.get(pod_set.name)
        if given is None or given.topology_assignment is None:
            continue
        pods_of_it = sorted(members[pod_set.name], key=lambda pod: pod.metadata.name)
        places = Places(given.topology_assignment, pods_of_it, unhealthy=unhealthy)
        domains = yield from places.fill(
            pod_set.topology_request,
            count=pod_set.count if given.count is None else given.count,
            first=first.get(pod_set.name, 0),
            kept=kept,
        )
        for pod in pods_of_it:
            domain = domains.get(pod.metadata.uid)
            if domain is not None and len(actions) < AT_ONCE:
                actions.append(_ungated(pod, dict(zip(places.levels, domain, strict=True))))
                if len(actions) % _STEP == 0:
                    yield
        found |= domains
        yield
    decided.note(key, found)
    return ReconcileResult(actions, why="its pods get their places" if actions else "no place is free", rank=Rank.START)


def covers(charge: Charge, pod_set: str, pod: Pod, workload: Workload, cluster: ClusterView) -> bool:
    """Whether a pod requests no more than is charged for one. An operator may add containers to the pods that it makes,
    which request what no pod of the template does, and no quota counts for them: KubeRay's workers wait for their head
    in one with memory. On its node such a pod counts with all that it requests."""
    beyond = charge.exceeded_by_pod(pod_set, pod)
    if not beyond:
        return True
    admission = workload.status.admission
    given = {each.name: each.flavors for each in (admission.pod_set_assignments if admission is not None else ())}
    resources = set(beyond.split(", "))
    readable = not any(" " in resource for resource in resources)
    uncounted = readable and pod_set in given and not given[pod_set].keys() & resources
    return uncounted and _is_made_for(pod, workload, cluster)


def _is_made_for(pod: Pod, workload: Workload, cluster: ClusterView) -> bool:
    """Whether the controller of a pod is an owner of the Workload, or an object that such an owner's controller made,
    as a RayJob's RayCluster."""
    owners, maker = {each.uid for each in workload.metadata.owner_references}, pod.metadata.controller
    if maker is None or maker.uid in owners:
        return maker is not None
    integration = cluster.registry.known_owner(maker)
    store = cluster.jobs.get(integration.kind) if integration is not None else None
    found = store.get(f"{pod.metadata.namespace}/{maker.name}") if store is not None else None
    above = found.metadata.controller if found is not None and found.metadata.uid == maker.uid else None
    return above is not None and above.uid in owners


def _numbers_leader(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a job that owns the Workload says that its leader is numbered with its workers."""
    for owner in workload.metadata.owner_references:
        integration = cluster.registry.known_owner(owner)
        store = cluster.jobs.get(integration.kind) if integration is not None else None
        job = store.get(f"{workload.metadata.namespace}/{owner.name}") if store is not None else None
        if integration is not None and job is not None and job.metadata.uid == owner.uid:
            return integration.additions.numbers_leader(job)
    return False


def assigned_pod_sets(workload: Workload) -> dict[str, PodSetAssignment]:
    """The assignments of pod sets whose pods have places in a topology, by the name of the pod set."""
    admission = workload.status.admission
    return {
        each.name: each
        for each in (admission.pod_set_assignments if admission is not None else ())
        if each.topology_assignment is not None
    }


def _places_pods(workload: Workload) -> bool:
    return workload.admitted and not (workload.evicted or workload.finished or workload.metadata.deletion_timestamp)


def _ungated(pod: Pod, selector: dict[str, str]) -> Action:
    rest = [{"name": gate} for gate in pods.gates(pod) if gate != names.TOPOLOGY_GATE]
    spec = {"nodeSelector": selector, "schedulingGates": rest or None}
    return job_patch(Pod, pod, Change({"spec": spec}, fresh=True, target=pod))


def controller(cluster: ClusterView) -> Controller:
    """The controller that reconciles the Workloads whose pods have places in a topology."""
    decided = Decided()

    def workload_changed(key: str, old: Workload | None, new: Workload | None) -> Iterable[str]:
        return (key,) if any(each is not None and assigned_pod_sets(each) for each in (old, new)) else ()

    def pod_changed(_: str, old: Pod | None, new: Pod | None) -> Iterable[str]:
        pod = new or old
        name = pod.metadata.annotations.get(names.WORKLOAD) if pod is not None else None
        if pod is None or not name or names.PODSET_LABEL not in pod.metadata.labels:
            return ()
        key = f"{pod.metadata.namespace}/{name}"
        workload = cluster.workloads.get(key)
        return (key,) if workload is not None and assigned_pod_sets(workload) else ()

    return Controller(
        name=NAME,
        kind=Workload,
        decide=partial(decide, cluster=cluster, decided=decided),
        watches=[Watch(cluster.workloads, workload_changed), Watch(cluster.pods, pod_changed)],
        initial=lambda: every(cluster.workloads),
        workers=4,
    )
