"""The page *What if*: a new job, a waiting one made otherwise, another quota, drained nodes; and what is decided then.

The scheduler's own code decides, on a copy. The effect of a change is the difference from the decisions without it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.api.pods import Container, PodSpec, PodTemplate, ResourceRequirements
from turnstile.api.quantity import to_int
from turnstile.api.quota import ResourceQuota
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import PodSet, Workload, WorkloadSpec
from turnstile.engine.quota import amounts
from turnstile.insight import changes
from turnstile.insight.drain import Drained, DrainedFlavor, drained, selector
from turnstile.insight.proposals import Otherwise, Setting
from turnstile.insight.running import Running, running
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import Fate, Outlook, WhatIf
from turnstile.web.explanations import Beside
from turnstile.web.sight import EVERYTHING, TREE, Sight
from turnstile.web.world import World
from turnstile.wording.workloads import job_of

NAME: Final = "what-if"
"""The name of the Workload that does not exist."""
LISTED: Final = 10_000
"""Fates that are compared at most."""
SHOWN: Final = 50
LACKS: Final = "you may not list: ask an administrator for the ClusterRoles that view them"
FIELDS: Final = (
    "workload", "queue", "pods", "requests", "priority", "clusterqueue", "flavor", "resource", "nominal", "drain",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The differences that the change makes."""

    job: Fate | None
    """The fate of the job that was asked about."""
    admitted: tuple[Fate, ...]
    """Workloads that would be admitted, and are not without the change."""
    preempted: tuple[Fate, ...]
    """Workloads that would be preempted, and are not without it."""
    waiting: tuple[Fate, ...]
    """Workloads that would wait, and are admitted without it."""
    hidden: int
    """Workloads for which something changes and that the reader may not see."""
    before: Outlook
    after: Outlook
    lost: Mapping[str, Running] = field(default_factory=dict)
    """The runs of Workloads that would be preempted, by key."""
    drained: tuple[DrainedFlavor, ...] = ()
    """Flavors whose nodes would go, and their quotas with them."""


QUESTIONS: Final = {
    "job": "Try a new job",
    "change": "Change a waiting job",
    "quota": "Change a quota",
    "drain": "Drain nodes",
}
CHOICES: Final = 500
"""Entries of a list to choose from; where there are more, the reader writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Lists to choose from, of what the reader may see; each is empty where there is nothing, or too much."""

    queues: tuple[str, ...]
    """LocalQueues, as NAMESPACE/NAME."""
    waiting: tuple[tuple[str, str], ...]
    """Keys of Workloads that wait, and what they are called."""
    quotas: tuple[tuple[str, str], ...]
    """ClusterQueue, flavor and resource, and the same for people, with the nominal quota."""
    drains: tuple[str, ...]
    """Labels of nodes that flavors have."""


def choices(world: World, sight: Sight = EVERYTHING) -> Choices:
    """The lists of the forms."""
    local_queues = world.state.queues.local_queues.items()
    queues = [key for key, each in local_queues if each.api is not None and sight.shows(key)]
    keys, count = world.listing.page((), states=("pending",), namespaces=sight.namespaces, offset=0, limit=CHOICES)
    called = [(key, world.of(Workload).get(key)) for key in keys]
    waiting = [(key, f"{key.partition('/')[0]}/{job_of(each)[1]}") for key, each in called if each is not None]
    quotas: list[tuple[str, str]] = []
    for name in sorted(world.state.cluster_queues) if sight.tree else ():
        if len(quotas) > CHOICES:
            break
        for flavor, quota in _quotas_of(world.state.cluster_queues[name].api):
            said = f"{name}: {quota.name} of {flavor}, {quota.nominal_quota} now"
            quotas.append((f"{name} {flavor} {quota.name}", said))
    drains: dict[str, None] = {}
    for each in world.of(ResourceFlavor).values() if sight.tree else ():
        drains |= dict.fromkeys(f"{key}={value}" for key, value in each.spec.node_labels.items())
        if len(drains) > CHOICES:
            break
    return Choices(
        queues=tuple(sorted(queues)) if len(queues) <= CHOICES else (),
        waiting=tuple(waiting) if count <= CHOICES else (),
        quotas=tuple(quotas) if len(quotas) <= CHOICES else (),
        drains=tuple(sorted(drains)) if len(drains) <= CHOICES else (),
    )


def _quotas_of(queue: ClusterQueue) -> Iterator[tuple[str, ResourceQuota]]:
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                yield flavor.name, quota


def question_of(form: Mapping[str, str]) -> str:
    """The question that a form is about, by its fields."""
    for name, field_ in (("drain", "drain"), ("quota", "clusterqueue"), ("change", "workload")):
        if form[field_]:
            return name
    return "job"


def faults(world: World, form: Mapping[str, str]) -> dict[str, str]:
    """All that is wrong with the fields of a job, each by itself."""
    found: dict[str, str] = {}
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("queue", lambda: _local(world, form)),
        ("requests", lambda: _requests(form)),
        ("pods", lambda: _whole("pods", form["pods"], least=1)),
        ("priority", lambda: _whole("priority", form["priority"])),
    )
    for name, check in checks:
        if form[name]:
            try:
                check()
            except InvalidValue as error:
                found[name] = f"{error.value}: {error.cure}"
    return found


async def answer(world: World, beside: Beside, form: Mapping[str, str], sight: Sight = EVERYTHING) -> Answer | None:
    """The question of a filled form; None for an empty one. Raises InvalidValue, naming the field, and Unanswered."""
    given = {name: form.get(name, "").strip() for name in FIELDS}
    for name in ("clusterqueue", "drain"):
        if given[name] and not sight.tree:
            raise InvalidValue(
                name, given[name], f"it changes {' and '.join(each.PLURAL for each in TREE)}, which {LACKS}"
            )
    for name, kind in (("queue", "LocalQueue"), ("workload", "Workload")):
        if given[name] and not sight.shows(given[name]):
            raise InvalidValue(name, given[name], f"there is no such {kind}")
    put = tuple(_supposed(world, given))
    flavors: tuple[DrainedFlavor, ...] = ()
    if given["drain"]:
        if given["clusterqueue"]:
            raise InvalidValue("drain", given["drain"], "changes quotas too: ask about one at a time")
        drain = await _drained(world, beside, given["drain"], sight)
        put, flavors = (*put, *drain.quotas.put), drain.flavors
    if not put:
        return None
    without, before = await _answer(world, beside, ())
    fates, after = await _answer(world, beside, put)
    jobs = {each.metadata.key for each in put if isinstance(each, Workload)}

    hidden = 0

    def news(now: Mapping[str, Fate], then: Mapping[str, Fate]) -> tuple[Fate, ...]:
        nonlocal hidden
        found = [fate for key, fate in now.items() if key not in then and key not in jobs]
        seen = [fate for fate in found if sight.shows(fate.key)]
        hidden += len(found) - len(seen)
        return tuple(seen[:SHOWN])

    preempted = news(fates.preempted, without.preempted)
    return Answer(
        job=next((found for key in jobs for found in (fates.admitted.get(key), fates.pending.get(key)) if found), None),
        admitted=news(fates.admitted, without.admitted),
        preempted=preempted,
        lost={each.key: run for each in preempted if (run := _run(world, each.key)) is not None},
        waiting=news({key: fate for key, fate in fates.pending.items() if key in without.admitted}, without.pending),
        hidden=hidden,
        before=before,
        after=after,
        drained=flavors,
    )


def _run(world: World, key: str) -> Running | None:
    workload = world.of(Workload).get(key)
    return None if workload is None else running(workload, world.now.timestamp())


async def _drained(world: World, beside: Beside, labels: str, sight: Sight) -> Drained:
    """The flavors that would go with the nodes that have these labels; which nodes there are is not read."""

    def work() -> Iterator[Drained]:
        yield drained(world.snapshot(), selector(labels), world.options, world.now.timestamp(), sees=sight.sees)

    try:
        async with aclosing(beside.answers(work)) as answers:
            (found,) = [part async for part in answers]
    except InvalidValue as error:
        raise InvalidValue("drain", labels, error.cure) from None
    return found


@dataclass(slots=True)
class _Fates:
    """The fates of Workloads, by key: how it ends, and who was preempted on the way."""

    admitted: dict[str, Fate] = field(default_factory=dict)
    preempted: dict[str, Fate] = field(default_factory=dict)
    pending: dict[str, Fate] = field(default_factory=dict)

    def put(self, fate: Fate) -> None:
        """A later entry wins."""
        self.admitted.pop(fate.key, None)
        if fate.outcome == "preempted":
            self.preempted[fate.key] = fate
        elif fate.outcome == "pending":
            self.pending[fate.key] = fate
        else:
            self.admitted[fate.key] = fate


async def _answer(world: World, beside: Beside, put: tuple[Kind, ...]) -> tuple[_Fates, Outlook]:
    question = WhatIf(now=world.now.timestamp(), put=put, listed=LISTED)

    def work() -> Iterator[Fate | Outlook]:
        return question.answer(world.state)  # the fork's own

    fates, outlook = _Fates(), Outlook(0, 0, 0, 0, settled=True)
    async with aclosing(beside.answers(work)) as answers:
        async for part in answers:
            if isinstance(part, Outlook):
                outlook = part
            else:
                fates.put(part)
    return fates, outlook


def _supposed(world: World, form: Mapping[str, str]) -> Iterator[Kind]:
    if form["workload"]:
        yield _otherwise(world, form)
    elif form["queue"] or form["requests"]:
        yield _job(world, form)
    if form["clusterqueue"] or form["nominal"]:
        yield _quota(world, form)


def _local(world: World, form: Mapping[str, str]) -> LocalQueue:
    local = world.of(LocalQueue).get(form["queue"])
    if local is None:
        raise InvalidValue("queue", form["queue"], "no such LocalQueue: give NAMESPACE/NAME")
    return local


def _requests(form: Mapping[str, str]) -> dict[str, str]:
    requests = {}
    for part in form["requests"].split():
        resource, equals, amount = part.partition("=")
        if not (resource and equals):
            raise InvalidValue("requests", part, "write what a pod asks for as cpu=4 memory=8Gi")
        _amount("requests", resource, amount)
        requests[resource] = amount
    return requests


def _otherwise(world: World, form: Mapping[str, str]) -> Workload:
    """A Workload that waits, with what the form says of it."""
    key = form["workload"]
    found = world.of(Workload).get(key)
    if found is None:
        raise InvalidValue("workload", key, "no such Workload: give NAMESPACE/NAME")
    if found.finished or found.quota_reserved:
        raise InvalidValue("workload", key, "it does not wait: ask about one that does, or about a new job")
    if form["queue"]:
        local = _local(world, form).metadata
        if local.namespace != found.metadata.namespace:
            raise InvalidValue("queue", form["queue"], f"give a LocalQueue of namespace {found.metadata.namespace}")
        found = changes.in_queue(found, local.name)
    settings = [Setting("", resource, amount) for resource, amount in _requests(form).items()]
    if form["pods"]:
        settings.append(Setting("", "count", str(_whole("pods", form["pods"], least=1))))
    try:
        found = Otherwise(settings=settings).of(found, Snapshot())
    except InvalidValue as error:
        raise InvalidValue("requests", error.value, error.cure) from None
    return changes.with_priority(found, _whole("priority", form["priority"])) if form["priority"] else found


def _job(world: World, form: Mapping[str, str]) -> Workload:
    local, requests = _local(world, form), _requests(form)
    if not requests:
        raise InvalidValue("requests", "", "say what a pod asks for, as cpu=4 memory=8Gi")
    template = PodTemplate(
        spec=PodSpec(containers=[Container(resources=ResourceRequirements(requests=dict(requests)))])
    )
    return Workload(
        metadata=ObjectMeta(name=NAME, namespace=local.metadata.namespace, uid=NAME),
        spec=WorkloadSpec(
            pod_sets=[PodSet(count=_whole("pods", form["pods"] or "1", least=1), template=template)],
            queue_name=local.metadata.name,
            priority=_whole("priority", form["priority"] or "0"),
        ),
    )


def _quota(world: World, form: Mapping[str, str]) -> ClusterQueue:
    held = world.state.cluster_queues.get(form["clusterqueue"])
    if held is None:
        raise InvalidValue("clusterqueue", form["clusterqueue"], "no such ClusterQueue")
    queue = held.api  # with the quota that holds
    flavor, resource = form["flavor"], form["resource"]
    found = [quota for name, quota in _quotas_of(queue) if (name, quota.name) == (flavor, resource)]
    if not found:
        known = [f"{name} {quota.name}" for name, quota in _quotas_of(queue)]
        raise InvalidValue("resource", f"{flavor} {resource}", f"the ClusterQueue has quota for {', '.join(known)}")
    more = _amount("nominal", resource, form["nominal"]) - to_int(resource, found[0].nominal_quota)
    return changes.with_quota(queue, {(flavor, resource): more})


def _amount(field: str, resource: str, value: str) -> int:
    try:
        found = amounts.quota(resource, value)
    except InvalidValue as error:
        raise InvalidValue(field, value, error.cure) from None
    if found < 0:
        raise InvalidValue(field, value, "an amount is not negative")
    return found


def _whole(field: str, value: str, *, least: int | None = None) -> int:
    try:
        found = int(value)
    except ValueError:
        raise InvalidValue(field, value, "give a whole number") from None
    if least is not None and found < least:
        raise InvalidValue(field, value, f"give at least {least}")
    return found
