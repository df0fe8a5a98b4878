"""Compares the pods that run with quotas and admissions, and reports what does not agree.

Independent of the ledger and of the decisions: usage is counted from pods, quota is read from ClusterQueues and
Cohorts. A pod may be charged to any ClusterQueue of its namespace's LocalQueues, in any flavor that its node selector
fits; that it names a Workload decides nothing about whether the quota is kept. Every finding is true of the objects
that were read; a finding that lasts only while watches catch up is the caller's to leave out. Must never decide what to
do about a finding.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nsmallest
from typing import Final, NamedTuple

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.errors import InvalidValue
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import to_int
from turnstile.api.workload import Workload
from turnstile.engine.pace import STRETCH, Pace
from turnstile.engine.queue.admissible import is_parent, is_variant
from turnstile.engine.quota.amounts import Catalog
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.ledger import Ledger
from turnstile.insight.capacity import Excess, Places, excesses
from turnstile.insight.evidence import (
    Chain,
    Evidence,
    Holding,
    Owners,
    Requests,
    holding_of,
    marked,
    places_of,
    running_since,
    spec_of,
)
from turnstile.jobs import pods
from turnstile.jobs.labels import queue_name
from turnstile.wording.amounts import amount as in_words
from turnstile.wording.amounts import figure, many, nodes, rank
from turnstile.wording.grammar import listed

Audit = Generator[None, None, list["Finding"]]
"""An audit in slices; its value is the result."""

_NAMED: Final = 5
"""Objects that a message names at most."""


class Problem(StrEnum):
    """Kinds of problems."""

    OVER_QUOTA = "OverQuota"
    """Pods request more than quotas and borrowing limits allow, and more than the Workloads that hold quota explain."""
    OVER_RESERVED = "OverReserved"
    """Workloads hold more than quotas and borrowing limits allow: mostly because a quota was lowered since."""
    NOT_ADMITTED = "NotAdmitted"
    """A pod that must be queued runs, and no admitted Workload is charged for it."""
    MORE_THAN_ADMITTED = "MoreThanAdmitted"
    """The pods that a Workload is charged for request more than it holds."""
    MORE_THAN_CHARGED = "MoreThanCharged"
    """A pod requests more than its Workload is charged for one pod, though all of them do not yet."""
    HELD_UNUSED = "HeldUnused"
    """A Workload holds quota, and no pod or job can use it."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One disagreement. `about` is kind and key of the object that an event belongs to; `resource` is empty if the
    finding is about no single resource. Two findings are the same if all but their messages are equal."""

    problem: Problem
    about: tuple[str, str]
    resource: str
    cluster_queues: tuple[str, ...] = field(compare=False)
    """ClusterQueues in question; empty if none is known."""
    message: str = field(compare=False)
    note: str = field(compare=False, default="")
    """Text of the event, if the message names objects of namespaces that the readers of the event may not read."""


def audit(evidence: Evidence) -> Audit:
    """All findings, sorted."""
    return (yield from _Audit(evidence).run())


class _Group(NamedTuple):
    """Properties that pods on nodes share: where they may be charged by namespace and by labels of flavors in their
    node selector, what each of them requests, the Workloads that are charged for them, and the resources for which
    these need not be."""

    namespace: str
    selector: tuple[tuple[str, str], ...]
    requests: tuple[tuple[str, int], ...]
    charged: tuple[str, ...]
    added: frozenset[str]


class _Audit:
    """One audit, from the first step to the findings."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.owners = Owners(evidence)
        self.requests = Requests(evidence.options)
        self.pods_are_queued = evidence.registry.queues_pods
        self.ledger = Ledger(Catalog(), ClusterQueue)
        self.queues = {each.metadata.name: each for each in evidence.cluster_queues}
        self.flavors = {each.metadata.name: each.spec.node_labels for each in evidence.flavors}
        self.labels = {label for labels in self.flavors.values() for label in labels}
        self.by_namespace: dict[str, set[str]] = defaultdict(set)
        self.holdings: dict[str, Holding] = {}
        self.holders: dict[str, list[str]] = defaultdict(list)
        """Keys of Workloads that hold quota, by the uid of each owner."""
        self.used: set[str] = set()
        self.running: dict[_Group, list[str]] = defaultdict(list)
        """Keys of the pods on nodes."""
        self.larger: dict[tuple[str, str], list[str]] = defaultdict(list)
        """Keys of the pods, gated ones too, that request more than is charged for a pod, by Workload and resource."""
        self.findings: list[Finding] = []

    def run(self) -> Audit:
        """Read everything, then compare."""
        yield from self._read_quotas()
        yield from self._read_workloads()
        yield from self._read_pods()
        yield from self._compare_quotas()
        yield from self._compare_admissions()
        yield from self._find_unused()
        yield from self._forget()
        return sorted(self.findings)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_quotas(self) -> Generator[None, None, None]:
        for cohort in self.evidence.cohorts:
            with suppress(InvalidValue):
                self.ledger.put_cohort(cohort)
            yield
        for queue in self.queues.values():
            with suppress(InvalidValue):
                self.ledger.put_cluster_queue(queue)
            yield
        yield from self.ledger.settling(Pace(STRETCH))
        for local in self.evidence.local_queues:
            if local.spec.cluster_queue in self.queues:
                self.by_namespace[local.metadata.namespace].add(local.spec.cluster_queue)
            yield

    def _read_workloads(self) -> Generator[None, None, None]:
        """The Workloads that hold quota. A parent stands for its variant that is admitted: both have the admission."""
        parents = set[str]()
        for workload in self.evidence.workloads:
            yield
            if is_parent(workload) and workload.quota_reserved:
                parents.add(workload.metadata.uid)
        for workload in self.evidence.workloads:
            yield
            owner = workload.metadata.controller
            if is_variant(workload) and workload.admitted and owner is not None and owner.uid in parents:
                continue
            try:
                holding = holding_of(workload, self.evidence.options)
            except InvalidValue:
                continue
            if holding is None:
                continue
            meta = workload.metadata
            self.holdings[meta.key] = holding
            uids = [owner.uid for owner in meta.owner_references]
            for uid in {*uids, meta.labels.get(names.JOB_UID_LABEL, "")} - {""}:
                self.holders[uid].append(meta.key)

    def _read_pods(self) -> Generator[None, None, None]:
        for pod in self.evidence.pods:
            yield
            if pods.is_over(pod) or (spec := spec_of(pod)) is None:
                continue
            chain = self.owners.above(pod)
            charged = self._charged(pod, chain)
            if not any(gate.name == names.ADMISSION_GATE for gate in spec.scheduling_gates):
                self.used.update(charged)
            added = self._added(pod, spec, charged)
            self._compare_with_charge(pod, spec, charged, added)
            if spec.node_name and (charged or self._queued(pod, chain)):
                self._take(pod, spec, charged, added)

    def _charged(self, pod: Pod, chain: Chain) -> tuple[str, ...]:
        """The Workloads that are charged for a pod: those of its owners or of itself, else the one that it names."""
        meta = pod.metadata
        found = {key for uid in (meta.uid, *chain.uids) for key in self.holders.get(uid, ())}
        if not found and (named := meta.annotations.get(names.WORKLOAD)):
            found = {f"{meta.namespace}/{named}"} & self.holdings.keys()
        return tuple(sorted(key for key in found if key.startswith(f"{meta.namespace}/")))

    def _added(self, pod: Pod, spec: PodSpec, charged: tuple[str, ...]) -> frozenset[str]:
        """The resources that a pod requests only because its operator adds to it, and for which its Workload is not
        charged."""
        owner = pod.metadata.controller
        kind = self.evidence.registry.known_owner(owner) if owner is not None else None
        if kind is None or not kind.added or len(charged) != 1:
            return frozenset()
        pod_set = pod.metadata.labels.get(names.PODSET_LABEL, "")
        free = self.holdings[charged[0]].without_flavor(pod_set, kind.added)
        with suppress(InvalidValue):
            requests = dict(self.requests.of(spec)) if free else {}
            return frozenset(name for name in free if requests.get(name, 0) <= to_int(name, kind.added[name]))
        return frozenset()

    def _compare_with_charge(self, pod: Pod, spec: PodSpec, charged: tuple[str, ...], added: frozenset[str]) -> None:
        """Note the resources of which a pod requests more than is charged for a pod of its pod set."""
        if len(charged) != 1:
            return  # the pods of jobs that grow are charged to several Workloads
        holding = self.holdings[charged[0]]
        queue = self.queues.get(holding.cluster_queue)
        if queue is None:
            return
        with suppress(InvalidValue):
            single = holding.single(pod.metadata.labels.get(names.PODSET_LABEL, ""))
            for resource, amount in self.requests.of(spec) if single is not None else ():
                if single is None or resource in added:
                    continue
                if amount > single.get(resource, 0) and places_of(queue, resource) is not None:
                    self.larger[charged[0], resource].append(pod.metadata.key)

    def _queued(self, pod: Pod, chain: Chain) -> bool:
        """Whether a pod must not run without quota."""
        evidence = self.evidence
        if chain.elsewhere or not evidence.managed(pod.metadata.namespace):
            return False
        if marked(pod) or chain.names_queue:
            return True
        if self.pods_are_queued and queue_name(pod):
            return True
        return evidence.manage_jobs_without_queue_name and (chain.enabled or self.pods_are_queued)

    def _take(self, pod: Pod, spec: PodSpec, charged: tuple[str, ...], added: frozenset[str]) -> None:
        meta = pod.metadata
        try:
            requests = self.requests.of(spec)
        except InvalidValue:
            return
        selector = [item for item in spec.node_selector.items() if item[0] in self.labels]
        group = _Group(meta.namespace, tuple(sorted(selector)), requests, charged, added)
        self.running[group].append(meta.key)
        workloads = [self.holdings[key].workload for key in charged]
        if not any(each.admitted or each.evicted for each in workloads):
            queues = tuple(sorted(self.by_namespace.get(meta.namespace, ())))
            why = "no admitted Workload is charged for it"
            if charged:
                why = f"Workload {charged[0]}, which is charged for it, is not admitted"
            message = f"Pod {meta.key} runs on node {spec.node_name}, but {why}"
            self.findings.append(
                Finding(Problem.NOT_ADMITTED, ("Pod", meta.key), "", queues if len(queues) == 1 else (), message)
            )

    # --- comparing ----------------------------------------------------------------------------------------------------

    def _compare_quotas(self) -> Generator[None, None, None]:
        """Requests of pods, and holdings of Workloads, against the quotas."""
        held: dict[str, _Demands] = defaultdict(_Demands)
        shared: set[tuple[str, tuple[str, str, str], int]] = set()
        for key, holding in self.holdings.items():
            amounts = dict(holding.amounts)
            for place, amount in holding.devices.items():
                if (holding.cluster_queue, place, amount) in shared:  # another Workload holds it for the same claim
                    amounts[place[1:]] -= amount
                shared.add((holding.cluster_queue, place, amount))
            for (flavor, resource), amount in amounts.items():
                held[resource].add(frozenset(((holding.cluster_queue, flavor),)), amount, [key])
            yield
        requested: dict[str, _Demands] = defaultdict(_Demands)
        for group, keys in self.running.items():
            for resource, amount in group.requests:
                requested[resource].add(self._places(group, resource), amount * len(keys), keys)
            yield
        for resource in sorted({*held, *requested}):
            lowered = yield from excesses(self.ledger, resource, held[resource].amounts)
            for each in lowered:
                self._over(Problem.OVER_RESERVED, each, held[resource], "Workloads hold")
            for each in (yield from excesses(self.ledger, resource, requested[resource].amounts)):
                explained = sum(other.excess for other in lowered if not other.roots.isdisjoint(each.roots))
                if each.excess > explained:
                    self._over(Problem.OVER_QUOTA, each, requested[resource], "running pods request")

    def _over(self, problem: Problem, excess: Excess, demands: "_Demands", what: str) -> None:
        resource, used = excess.resource, excess.used
        queues = tuple(sorted({queue for queue, _ in excess.places}))
        flavors = sorted({flavor for _, flavor in excess.places})
        who = [key for places, keys in demands.keys.items() if places and places <= excess.places for key in keys]
        note = (
            f"{what} {in_words(resource, used)} on {_listed(map(nodes, flavors))} of ClusterQueue "
            f"{_listed(queues)}, where quotas and borrowing limits allow {figure(resource, used - excess.excess)}"
        )
        message = f"{note}: {_listed(who)}"
        note += "; the log of Turnstile names them"
        self.findings.append(Finding(problem, ("ClusterQueue", queues[0]), resource, queues, message, note))

    def _places(self, group: _Group, resource: str) -> Places:
        """Where a resource of pods may be charged; none if it may be used without being charged.

        Besides what their namespace and their node selector allow, where their Workloads hold quota: a LocalQueue may
        have been deleted since, or a flavor changed.
        """
        selector = dict(group.selector)
        held = {
            (holding.cluster_queue, flavor)
            for holding in (self.holdings[key] for key in group.charged)
            for flavor, name in holding.amounts
            if name == resource and holding.cluster_queue in self.queues
        }
        chosen: set[tuple[str, str]] = set()
        possible: set[tuple[str, str]] = set()
        for name in {*self.by_namespace.get(group.namespace, ()), *(queue for queue, _ in held)}:
            flavors = places_of(self.queues[name], resource)
            if flavors is None:
                if self.evidence.options.quota_check_strategy == "IgnoreUndeclared":
                    return frozenset()
                continue
            for flavor in flavors:
                labels = self.flavors.get(flavor, {})
                if all(selector.get(label) == value for label, value in labels.items()):
                    chosen.add((name, flavor))
                if all(selector.get(label, value) == value for label, value in labels.items()):
                    possible.add((name, flavor))
        return frozenset((chosen or possible) | held)

    def _compare_admissions(self) -> Generator[None, None, None]:
        """Requests of the pods that a Workload is charged for, against the quota that it holds."""
        charged: dict[tuple[str, ...], list[_Group]] = defaultdict(list)
        for group in self.running:
            if group.charged:
                charged[group.charged].append(group)
            yield
        while charged:  # taken apart, not freed all at once
            yield
            keys, groups = charged.popitem()
            held: dict[str, int] = defaultdict(int)
            for key in keys:
                for resource, amount in self.holdings[key].totals.items():
                    held[resource] += amount
            requested: dict[str, int] = defaultdict(int)
            for group in groups:
                for resource, amount in group.requests:
                    if resource not in group.added:
                        requested[resource] += amount * len(self.running[group])
            for resource in sorted(requested):
                if requested[resource] > held[resource]:
                    self._more(keys, groups, resource, in_words(resource, requested[resource]), held[resource])

        found = {(each.about[1], each.resource) for each in self.findings if each.problem == Problem.MORE_THAN_ADMITTED}
        for (key, resource), larger in self.larger.items():
            yield
            if (key, resource) not in found:
                message = (
                    f"a pod of Workload {key} requests more {many(resource)} than its admission holds for one pod: "
                    f"{_listed(larger)}"
                )
                queues = (self.holdings[key].cluster_queue,)
                self.findings.append(Finding(Problem.MORE_THAN_CHARGED, ("Workload", key), resource, queues, message))

    def _more(self, keys: tuple[str, ...], groups: list[_Group], resource: str, requested: str, held: int) -> None:
        name = self.holdings[keys[0]].cluster_queue
        queue = self.queues.get(name)
        if queue is None or places_of(queue, resource) is None:
            return
        running = _listed(key for group in groups for key in self.running[group])
        message = (
            f"pods of Workload {_listed(keys)} request {requested}, but its admission holds {figure(resource, held)}: "
            f"{running}"
        )
        self.findings.append(Finding(Problem.MORE_THAN_ADMITTED, ("Workload", keys[0]), resource, (name,), message))

    def _find_unused(self) -> Generator[None, None, None]:
        """Workloads that hold quota, and nothing to use it."""
        for key, holding in self.holdings.items():
            yield
            workload = holding.workload
            since = running_since(workload)
            if key in self.used or since is None:
                continue
            if (self.evidence.now - since).total_seconds() <= self.evidence.grace_seconds:
                continue
            if not self._may_be_used(workload):
                amounts = [in_words(name, holding.totals[name]) for name in sorted(holding.totals, key=rank)]
                message = (
                    f"Workload {key} holds {listed(amounts)} in ClusterQueue {holding.cluster_queue}, "
                    "but there is no pod or job that could use it"
                )
                self.findings.append(
                    Finding(Problem.HELD_UNUSED, ("Workload", key), "", (holding.cluster_queue,), message)
                )

    def _may_be_used(self, workload: Workload) -> bool:
        meta = workload.metadata
        return any(self.owners.may_use(owner, meta.namespace) for owner in meta.owner_references)

    def _forget(self) -> Generator[None, None, None]:
        """Free what was read step by step: all of it at once would hold the event loop."""
        while self.used:
            self.used.pop()
            yield
        for mapping in (self.running, self.larger, self.holdings, self.holders, self.owners.known):
            while mapping:
                mapping.popitem()
                yield


class _Demands:
    """Demands for one resource by where they may be charged, and the objects that make them."""

    def __init__(self) -> None:
        self.amounts: dict[Places, int] = defaultdict(int)
        self.keys: dict[Places, list[str]] = defaultdict(list)

    def add(self, places: Places, amount: int, keys: Iterable[str]) -> None:
        """A demand of some objects together."""
        self.amounts[places] += amount
        self.keys[places].extend(keys)


def _listed(words: Iterable[str]) -> str:
    """The first words of the alphabet, and how many more there are."""
    found = list(words)
    shown = ", ".join(nsmallest(_NAMED, found))
    return f"{shown} and {len(found) - _NAMED} more" if len(found) > _NAMED else shown
