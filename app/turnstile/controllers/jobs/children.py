"""The children of managed jobs: which pods an ancestor's Workload charges for, and which children may still run.

The reference to an owner is a tenant's word. It counts only if the pods are charged: the pod templates name pod sets of
the ancestor's Workload by the label that a start adds, each pod requests at most what that pod set charges for a pod,
and the unfinished children of an owner have together at most as many pods as it charges for, the oldest first. In every
other case the job needs quota itself. The children of an imported job were made before their templates could name a pod
set: the marks of the job's controller say which is theirs. A running child beyond the count is suspended when any of
its siblings is reconciled. Must never decide about a job: `adoption` does.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from turnstile.api import names
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, find_condition
from turnstile.api.workload import ADMITTED, Workload
from turnstile.controllers.charging.charges import PODS_BY_CHARGE
from turnstile.controllers.charging.podcharge import Allowance, Charge, allowed_by
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView
from turnstile.jobs.ancestors import MAX_DEPTH, Ancestor
from turnstile.jobs.integration import Claim, Integration
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.registry import Registry
from turnstile.jobs.workload import is_imported
from turnstile.kube import raws
from turnstile.kube.store import Store

CHILDREN: Final = "owner"
"""Index of jobs by the uid of the controller owner, and by that uid with the pod set that the pods name
(`uid/workers`)."""


def index_children(store: Store[Any], integration: Integration[Any], registry: Registry) -> None:
    """Declare the index by which the children of an owner are counted."""

    def owned(job: Kind) -> list[str]:
        owner = job.metadata.controller
        if owner is None or not registry.made(job):
            return []
        found = [owner.uid]
        if not raws.stripped(job):
            with suppress(PermanentError):
                found += [f"{owner.uid}/{each.pod_set}" for each in integration.claims(job) if each.pod_set]
        return found

    if not integration.handling.top_level:
        store.add_index(CHILDREN, owned)


def children_of(workload: Workload, cluster: ClusterView) -> Iterator[str]:
    """Keys of the jobs whose pods a Workload is charged for: children of its owner, and their children. The label with
    the uid of the owner stays when the garbage collector orphans the Workload."""
    pod_sets = [each.name for each in workload.spec.pod_sets]
    owners = [each.uid for each in workload.metadata.owner_references]
    uid = workload.metadata.labels.get(names.JOB_UID_LABEL)
    if uid and uid not in owners:
        owners.append(uid)
    seen, imported = set(owners), is_imported(workload)
    while owners:
        uid = owners.pop()
        values = [uid] if imported else [f"{uid}/{name}" for name in pod_sets]
        for store in _stores(cluster).values():
            for child in (each for value in values for each in store.by_index(CHILDREN, value)):
                if child.metadata.uid not in seen:
                    seen.add(child.metadata.uid)
                    owners.append(child.metadata.uid)
                    yield cluster.registry.key_of(child)


def runs_still(child: Kind, cluster: ClusterView) -> bool:
    """Whether a child has pods, or may get pods."""
    integration = cluster.registry.of(child)
    return integration.finished(child) is None and (not integration.suspended(child) or integration.active(child))


def stop_is_acknowledged(workload: Workload, cluster: ClusterView) -> bool:
    """Whether the controllers of the jobs below a stopped job have said since its admission that these are suspended.
    It is not waited for longer than for that of the job itself."""
    admitted = find_condition(workload.status.conditions, ADMITTED)
    since = instant(admitted.last_transition_time) if admitted is not None else None
    if since is None:
        return True
    for key in children_of(workload, cluster):
        framework, name = split_job_key(key)
        integration = cluster.registry.known[framework]
        if (acknowledgement := integration.acknowledgement) is None:
            continue
        child = cluster.jobs[integration.kind].get(name)
        waits = child is not None and integration.finished(child) is None and integration.suspended(child)
        if child is not None and waits and not acknowledgement.acknowledged_since(child, since):
            return False
    return True


def outlived(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a child of a Workload's owner, which is gone, can still make pods that the Workload is charged for, or
    may exist, because its kind is not read yet. The garbage collector deletes such a child. Until then its controller
    makes pods, also of a suspended child, if an operator that has not heard of its owner's end resumes the child."""
    for owner in workload.metadata.owner_references:
        integration = cluster.registry.by_owner(owner)
        if integration is not None and not all(store.complete for store in _made_by(integration, cluster).values()):
            return True
    family = Family(cluster)
    return any(
        may_make_pods(child, cluster) and not family.own_workload(child)
        for owner in workload.metadata.owner_references
        for store in _stores(cluster).values()
        for child in store.by_index(CHILDREN, owner.uid)
    )


def unheard(workload: Workload, cluster: ClusterView) -> bool:
    """Whether pods of a Workload, or jobs that its owner's controller makes, may have been made since their watch
    failed."""
    owners = (cluster.registry.by_owner(owner) for owner in workload.metadata.owner_references)
    made = (store for owner in owners if owner is not None for store in _made_by(owner, cluster).values())
    return not (cluster.pods.followed and all(store.followed for store in made))


def below(job: Kind, cluster: ClusterView) -> Iterator[tuple[Kind, Kind]]:
    """The jobs that a job's controller has made, and those below them, each after the one whose controller made it."""
    for store in _made_by(cluster.registry.of(job), cluster).values():
        for child in store.by_index(CHILDREN, job.metadata.uid):
            yield job, child
            yield from below(child, cluster)


def unmarked_pods(job: Kind, child: Kind, cluster: ClusterView) -> Iterator[tuple[str, Pod]]:
    """The pods that may run of an imported job's child, and that name no Workload, each with its pod set: they, or the
    templates from which they are made, are of the time before the import."""
    marks = cluster.registry.of(job).importing
    for pod in cluster.pods.by_index(PODS_BY_CHARGE, child.metadata.uid):
        if names.WORKLOAD not in pod.metadata.annotations:
            yield marks.pod_set_of(pod, child), pod


def imported_above(pod: Pod, cluster: ClusterView) -> Iterator[str]:
    """The key of the imported job below which the controller of a pod was made."""
    current: Kind = pod
    for step in range(MAX_DEPTH):
        owner = current.metadata.controller
        integration = cluster.registry.known_owner(owner) if owner is not None else None
        store = cluster.jobs.get(integration.kind) if integration is not None else None
        found = store.get(f"{pod.metadata.namespace}/{owner.name}") if owner is not None and store is not None else None
        if found is None or owner is None or found.metadata.uid != owner.uid:
            return
        key = cluster.registry.key_of(found)
        if step and any(is_imported(each) for each in cluster.workloads.by_index(WORKLOADS_BY_JOB, key)):
            yield key
            return
        current = found


def may_make_pods(child: Kind, cluster: ClusterView) -> bool:
    """Whether a child can have pods made, now or when it is resumed."""
    integration = cluster.registry.of(child)
    if child.metadata.deletion_timestamp:
        return integration.exceptions.winds_down(child)
    return integration.finished(child) is None


def _stores(cluster: ClusterView) -> dict[type[Kind], Store[Kind]]:
    """The stores of jobs that may follow an owner."""
    return {kind: cluster.jobs[kind] for kind in cluster.registry.may_follow if kind in cluster.jobs}


def _made_by(integration: Integration[Any], cluster: ClusterView) -> dict[type[Kind], Store[Kind]]:
    """The stores of jobs that the controller of a kind makes."""
    return {kind: store for kind, store in _stores(cluster).items() if (kind.GROUP, kind.KIND) in integration.makes}


@dataclass(frozen=True, slots=True)
class _Parent:
    """A job whose controller makes others, with the pods that its Workload charges for. `imported`: whether these were
    made before a Workload was."""

    job: Kind
    allowance: Allowance
    imported: bool

    @property
    def title(self) -> str:
        """Kind and name."""
        return f"{self.job.KIND} {self.job.metadata.name}"


class Family:
    """The children of managed jobs, as the stores have them."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def uncharged(self, job: Kind, ancestor: Ancestor, workload: Workload) -> str:
        """Why the Workload of a job's ancestor does not charge for the job; empty if it does.

        The owners between the two are checked first, each against the owner above it.
        """
        assert ancestor.job is not None
        parent = _Parent(ancestor.job, allowed_by(workload), is_imported(workload))
        for child in (*reversed(ancestor.between), job):
            if problem := self._problem(child, parent):
                return problem
            allowance = Allowance()
            for claim in self._claims(child, parent):
                allowance.add(claim.pod_set, claim.count, claim.spec)
            parent = replace(parent, job=child, allowance=allowance)
        return ""

    def beyond(self, job: Kind, ancestor: Ancestor, workload: Workload) -> Iterator[Kind]:
        """Running siblings of a job for whose pods the Workload does not charge, because older siblings use it up."""
        if ancestor.between or ancestor.job is None:  # the counts of an owner in between are its own
            return
        parent = _Parent(ancestor.job, allowed_by(workload), is_imported(workload))
        found: set[str] = set()
        for claim in self._claims(job, parent):
            pods = 0
            for sibling in self._siblings(parent, claim.pod_set):
                integration = self._cluster.registry.of(sibling)
                pods += self._claimed(sibling, parent, claim.pod_set)
                over = pods > parent.allowance.counts.get(claim.pod_set, 0) and not self._gates_growth(sibling)
                uid = sibling.metadata.uid
                if over and sibling is not job and uid not in found and not integration.suspended(sibling):
                    found.add(uid)
                    yield sibling

    def _claims(self, child: Kind, parent: _Parent) -> Sequence[Claim]:
        """The claims of a child on its owner's Workload. Raises PermanentError."""
        claims = self._cluster.registry.of(child).claims(child)
        if not parent.imported or all(each.pod_set for each in claims):
            return claims
        named = self._cluster.registry.of(parent.job).importing.pod_sets_of(child)
        if len(named) != len(claims):
            return claims
        return [each if each.pod_set else replace(each, pod_set=name) for each, name in zip(claims, named, strict=True)]

    def _claimed(self, child: Kind, parent: _Parent, pod_set: str) -> int:
        """The number of pods of a child that its owner's Workload charges to a pod set. Raises PermanentError."""
        if not parent.imported:
            return self._cluster.registry.of(child).claimed(child, pod_set)
        return sum(each.count for each in self._claims(child, parent) if each.pod_set == pod_set)

    def _problem(self, job: Kind, parent: _Parent) -> str:
        """Why an owner's allowance does not include the pods of one of its children."""
        owner, allowance = f"the Workload of {parent.title}", parent.allowance
        try:
            claims = self._claims(job, parent)
        except PermanentError as error:
            return str(error)
        charge = Charge(allowance, job.metadata.namespace, self._cluster)
        for claim in claims:
            if claim.count == 0:
                continue
            if claim.pod_set not in allowance.counts:
                named = f"pod set '{claim.pod_set}'" if claim.pod_set else f"no pod set (label {names.PODSET_LABEL})"
                return f"its pods name {named} of {owner}, which therefore does not charge for them"
            if more := charge.exceeded_by(claim.pod_set, claim.spec):
                return f"its pods request more {more} than {owner} charges for a pod of pod set '{claim.pod_set}'"
            if self._gates_growth(job):
                continue
            pods = 0
            for sibling in self._siblings(parent, claim.pod_set):
                pods += self._claimed(sibling, parent, claim.pod_set)
                if sibling.metadata.uid == job.metadata.uid:
                    break
            if pods > (charged := allowance.counts[claim.pod_set]):
                return (
                    f"with older children of {parent.title} it has {pods} pods of pod set '{claim.pod_set}', and "
                    f"{owner} charges for {charged}"
                )
        return ""

    def _siblings(self, parent: _Parent, pod_set: str) -> list[Kind]:
        """The children of an owner that may run pods of a pod set, the oldest first; unsorted if there are enough pods
        for all of them. Jobs with a Workload of their own do not count."""
        self._cluster.require(_made_by(self._cluster.registry.of(parent.job), self._cluster))
        found: list[Kind] = []
        pods, uid = 0, parent.job.metadata.uid
        for kind, store in _stores(self._cluster).items():
            integration = self._cluster.registry.of(kind())
            for child in store.by_index(CHILDREN, uid if parent.imported else f"{uid}/{pod_set}"):
                gone = child.metadata.deletion_timestamp and not integration.active(child)
                if integration.finished(child) is not None or gone or self.left_over(child, parent.job):
                    continue
                if parent.imported and not self._is_of(child, parent, pod_set):
                    continue
                found.append(child)
                pods += self._claimed(child, parent, pod_set)
        if pods <= parent.allowance.counts.get(pod_set, 0):
            return found
        found = [child for child in found if not self.own_workload(child)]
        return sorted(found, key=lambda child: (child.metadata.creation_timestamp or "", child.metadata.name))

    def _is_of(self, child: Kind, parent: _Parent, pod_set: str) -> bool:
        """Whether a child of an imported job has pods of a pod set."""
        try:
            return not raws.stripped(child) and self._claimed(child, parent, pod_set) > 0
        except PermanentError:
            return False

    def _gates_growth(self, child: Kind) -> bool:
        """Whether gates hold the pods of a child, however many it asks for, until its ancestor's Workload charges for
        them: a RayCluster that scales itself grows before its owner's Workload does."""
        elasticity = self._cluster.registry.of(child).elasticity
        return elasticity is not None and elasticity.grows and elasticity.is_growth_gated(child)

    def left_over(self, child: Kind, parent: Kind) -> bool:
        """Whether a child has no pods, and its owner's controller may have made another one instead."""
        children = self._cluster.registry.of(parent).children
        return children is not None and children.stops_children and not runs_still(child, self._cluster)

    def own_workload(self, job: Kind) -> bool:
        """Whether a job has an unfinished Workload itself."""
        key = self._cluster.registry.key_of(job)
        return any(
            not each.finished and (owner := each.metadata.controller) is not None and owner.uid == job.metadata.uid
            for each in self._cluster.workloads.by_index(WORKLOADS_BY_JOB, key)
        )


def running_children(integration: Integration[Any], job: Kind, cluster: ClusterView) -> list[Kind]:
    """The children of a job that have pods, or may get pods, where the job's kind waits for these."""
    if integration.children is None:
        return []
    family, made = Family(cluster), _made_by(integration, cluster)
    cluster.require(made)
    return [
        child
        for store in made.values()
        for child in store.by_index(CHILDREN, job.metadata.uid)
        if runs_still(child, cluster) and not family.own_workload(child)
    ]
