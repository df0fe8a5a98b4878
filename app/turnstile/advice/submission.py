"""Notices to the user who submits a job: the job can never be admitted, or not until its queue is mended.

Told of queues, quotas and flavors alone, so a notice holds whatever else runs or waits; what depends on that is for
`turnstile.insight.explain`. A notice that a job never fits is a promise: the engine would not admit the job even if
nothing else ran. Must never count what is in use, and never guess: what cannot be read is not told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec

from turnstile.advice.offer import Offer
from turnstile.api import names
from turnstile.api.core import PriorityClass
from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.meta import Kind
from turnstile.api.pods import PodSpec
from turnstile.api.submission import BY_QUEUE, REFUSE, About, listed
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.causes import Inactive
from turnstile.engine.flavors.eligibility import mismatch
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.quota.amounts import multiplied
from turnstile.engine.quota.clusterqueue import Group
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import prebuilt_name, queue_name
from turnstile.jobs.options import SubmissionOptions
from turnstile.jobs.podsets import JobPodSet
from turnstile.jobs.workload import reclaimable
from turnstile.wording import submission as words
from turnstile.wording.inactivity import admits_nothing
from turnstile.wording.shortage import Short

PODS: Final = "pods"
LARGE: Final = 256 << 10
"""Bytes of a job's pod templates, from which on they are large. Its Workload has a copy of them, so a job of a megabyte
is written and read twice at each change; what it says to its programs belongs into a ConfigMap or a volume."""
_STOPPED: Final = ("Hold", "HoldAndDrain")


class Notice(NamedTuple):
    """One thing to know about a job, as a sentence without a full stop."""

    about: About
    sentence: str
    cluster_queue: str = ""
    """The ClusterQueue that the job would be admitted to, if that is known."""


def refused_by(offer: Offer, options: SubmissionOptions, notice: Notice) -> bool:
    """Whether a job is refused for what a notice is about: by the configuration, or by its ClusterQueue."""
    if notice.about in options.refused:
        return True
    queue = offer.cluster_queue(notice.cluster_queue)
    if queue is None or notice.about not in BY_QUEUE:
        return False
    return notice.about in listed(queue.api.metadata.annotations.get(REFUSE, ""))


@dataclass(frozen=True, slots=True)
class Part:
    """A pod set: how many of its pods must be admitted at least, each of them as `spec` says."""

    name: str
    least: int
    spec: PodSpec


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests of a job. All `parts` are admitted together."""

    namespace: str
    queue: str
    parts: tuple[Part, ...] = ()
    priority_class: tuple[type[Kind], str] | None = None
    """Kind and name of the class that decides its priority."""
    size: int = 0
    """Bytes of its pod templates."""


def asked_of(integration: Integration[Any], job: Kind) -> Asked:
    """The requests of a job; without parts if these cannot be told now."""
    meta = job.metadata
    named = meta.labels.get(names.PRIORITY_CLASS_LABEL)
    asked = Asked(meta.namespace, queue_name(job), (), (WorkloadPriorityClass, named) if named else None)
    try:
        pod_sets = _pod_sets(integration, job)
        reclaimed = reclaimable(integration, job) if pod_sets else {}
        parts = tuple(_part(each, reclaimed) for each in pod_sets)
        of_pods = integration.priority_class_name(job) if parts and not named else None
    except (PermanentError, msgspec.MsgspecError, InvalidValue, LookupError, RecursionError):
        return asked  # the job is invalid, which others tell
    of_class = (PriorityClass, of_pods) if of_pods else asked.priority_class
    return replace(asked, parts=parts, priority_class=of_class, size=sum(len(each.template) for each in pod_sets))


def _pod_sets(integration: Integration[Any], job: Kind) -> Sequence[JobPodSet]:
    """The pod sets of the job's Workload; of a set that has several, those of the first."""
    if integration.rendering is not None or prebuilt_name(job):
        return ()
    if integration.as_set is not None:
        gangs = integration.as_set.components(job)
        return gangs.pod_sets if gangs.count > 0 else ()
    return integration.pod_sets(job)


def _part(pod_set: JobPodSet, reclaimed: Mapping[str, int]) -> Part:
    least = pod_set.count if pod_set.min_count is None else min(pod_set.min_count, pod_set.count)
    return Part(pod_set.name, least - reclaimed.get(pod_set.name, 0), pod_set.view.spec)


def notices(offer: Offer, asked: Asked) -> Iterator[Notice]:
    """All that is to be told of a job that names a queue. Nothing is reported about an amount that cannot be read."""
    if not asked.queue:
        return
    local = offer.local_queue(f"{asked.namespace}/{asked.queue}")
    name = (local.spec.cluster_queue or "") if local is not None else ""
    if asked.priority_class is not None and offer.named(*asked.priority_class) is None:
        kind, named = asked.priority_class
        yield Notice(About.PRIORITY_CLASS_NOT_FOUND, words.waits_for_class(kind.KIND, named), name)
    if asked.size > LARGE:
        size = f"{asked.size >> 10} KiB of pod templates, more than {LARGE >> 10}"
        yield Notice(About.LARGE_TEMPLATE, f"the job has {size}: move environment and scripts to a ConfigMap", name)
    device = next((part for part in asked.parts if _asks_for_uncounted(part.spec, offer)), None)
    if device is not None:
        sentence = f"pods of pod set {device.name} ask for devices that no quota counts: the job is not admitted"
        yield Notice(About.DEVICES_NOT_COUNTED, sentence, name)
    if local is None:
        yield Notice(About.LOCAL_QUEUE_NOT_FOUND, words.waits_for_local_queue(asked.queue, asked.namespace))
        return
    if local.spec.stop_policy in _STOPPED:
        sentence = words.waits_for_start("LocalQueue", asked.queue, local.spec.stop_policy)
        yield Notice(About.LOCAL_QUEUE_STOPPED, sentence, name)
    queue = offer.cluster_queue(name)
    if queue is None:
        yield Notice(About.CLUSTER_QUEUE_NOT_FOUND, words.waits_for_cluster_queue(name), name)
        return
    for about, sentence in _Judged(offer, queue, asked).notices():
        yield Notice(about, sentence, name)


def _asks_for_uncounted(spec: PodSpec, offer: Offer) -> bool:
    """Whether a pod is held for its claims, because devices are not counted."""
    gates = offer.state.options.gates
    uncounted = not gates.kueue_dra_integration and gates.kueue_dra_reject_workloads_when_dra_disabled
    return uncounted and bool(spec.resource_claims)


class _Judged:
    """One job in one ClusterQueue."""

    def __init__(self, offer: Offer, queue: ClusterQueue, asked: Asked) -> None:
        self.offer = offer
        self.queue = queue
        self.asked = asked
        self.options = offer.state.options

    def notices(self) -> Iterator[tuple[About, str]]:
        """All that is to be told."""
        queue = self.queue
        policy = queue.api.spec.stop_policy
        if policy in _STOPPED:
            yield About.CLUSTER_QUEUE_STOPPED, words.waits_for_start("ClusterQueue", queue.name, policy)
        if fault := self.offer.state.ledger.fault_above(queue.node):
            yield About.CLUSTER_QUEUE_INACTIVE, f"ClusterQueue {queue.name} {admits_nothing(fault)}"
            return
        missing = [each for each in queue.flavors() if each not in self.offer.state.activity.flavors]
        if missing:
            why = admits_nothing(Inactive.FLAVORS_MISSING.says(missing=",".join(missing)))
            yield About.CLUSTER_QUEUE_INACTIVE, f"ClusterQueue {queue.name} {why}"
            return
        labels = self.offer.namespace_labels(self.asked.namespace)
        if labels is not None and not queue.selects(labels):
            yield About.NAMESPACE_NOT_SELECTED, words.not_selected(queue.name, self.asked.namespace)
        try:
            yield from self._of_quota()
        except (InvalidValue, ValueError):
            return  # an amount or an affinity that others refuse

    def _of_quota(self) -> Iterator[tuple[About, str]]:
        """The notices about its quota. After the first pod set that never fits, the others are not reported."""
        totals: dict[str, int] = {}
        usable: dict[str, dict[str, None]] = {}
        for part in self.asked.parts:
            if part.least <= 0:
                continue
            one = self.offer.state.surroundings.counted(part.spec, self.asked.namespace).counts
            requests = {resource: multiplied(value, part.least) for resource, value in one.items()}
            if self.queue.covers_pods:
                requests[PODS] = part.least
            groups: dict[Group, list[str]] = {}
            for resource, amount in requests.items():
                group = self.queue.group_of.get(resource)
                if group is not None:
                    groups.setdefault(group, []).append(resource)
                elif amount and self._declared_only:
                    sentence = words.not_covered(self._pods(part), resource, amount, self.queue.name)
                    yield About.RESOURCE_NOT_COVERED, sentence
                    return
            for group, resources in groups.items():
                wanted = {resource: requests[resource] for resource in resources}
                flavors, unfit = self._eligible(part, group)
                if not flavors:
                    yield About.NO_MATCHING_FLAVOR, words.no_flavor(self.queue.name, self._pods(part), unfit)
                    return
                if not any(self._holds(flavor, wanted) for flavor in flavors):
                    yield About.NEVER_FITS, self._too_much(part, one, wanted, flavors)
                    return
                for resource, amount in wanted.items():
                    totals[resource] = totals.get(resource, 0) + amount
                    usable.setdefault(resource, {}).update(dict.fromkeys(flavors))
        for resource, amount in totals.items():
            most = sum(self.offer.most(self.queue, flavor, resource) for flavor in usable[resource])
            if amount > most:
                yield About.NEVER_FITS, words.never_fits_in_all(resource, amount, most, self.queue.name)
                return

    def _pods(self, part: Part) -> words.Pods:
        return words.Pods(part.least, part.name if len(self.asked.parts) > 1 else "")

    @property
    def _declared_only(self) -> bool:
        options = self.options
        return not (options.gates.quota_check_strategy and options.quota_check_strategy == "IgnoreUndeclared")

    def _eligible(self, part: Part, group: Group) -> tuple[list[str], str]:
        """The flavors on whose nodes the pods may run, and why not on the first of the others. Raises ValueError."""
        state = self.offer.state
        shape = state.surroundings.shapes.of(part.spec)
        found, unfit = [], ""
        for name in group.flavors:
            why = mismatch(shape, state.activity.flavors[name])
            if why is None:
                found.append(name)
            else:
                unfit = unfit or why
        return found, unfit

    def _holds(self, flavor: str, wanted: Mapping[str, int]) -> bool:
        return all(amount <= self.offer.most(self.queue, flavor, resource) for resource, amount in wanted.items())

    def _too_much(self, part: Part, one: Mapping[str, int], wanted: Mapping[str, int], flavors: Sequence[str]) -> str:
        for resource, amount in wanted.items():
            most, largest = max((self.offer.most(self.queue, flavor, resource), flavor) for flavor in flavors)
            if amount <= most:
                continue
            single = one.get(resource, 0)
            each = part.least == 1 or single > most
            asked = (single or amount) if each else amount
            short = Short(largest, resource, asked - most, asked, most=most)
            return words.never_fits(self._pods(part), short, self.queue.name, each=each)
        return words.never_fits_at_once(self._pods(part), wanted, self.queue.name)
