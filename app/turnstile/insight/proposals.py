"""A user's proposal, as a change of objects: manifests with other sizes or queues, Workloads that exist already.

A manifest of a job that is queued already stands for the same Workload. Must never write, and never decide.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind
from turnstile.api.numbers import clamped
from turnstile.api.pods import Container, PodSpec, ResourceRequirements
from turnstile.api.quantity import to_int
from turnstile.api.workload import PodSet, PriorityClassRef, Workload, WorkloadStatus
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import Options
from turnstile.insight import changes
from turnstile.insight.consequences import Change
from turnstile.insight.difference import Difference, difference
from turnstile.insight.documents import Documents
from turnstile.insight.manifests import Composer, Plain
from turnstile.insight.snapshot import Sees, Snapshot

_CURE = "give [POD_SET/]RESOURCE=AMOUNT for each pod, or [POD_SET/]count=NUMBER, such as cpu=4 or workers/count=3"


class Setting(NamedTuple):
    """One other size: of all pod sets, or of the one that is named."""

    pod_set: str
    what: str
    """A resource, or `count`."""
    value: str

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """`[POD_SET/]RESOURCE=AMOUNT` or `[POD_SET/]count=NUMBER`. Raises InvalidValue.

        The name of a resource may have a slash (`nvidia.com/gpu`), that of a pod set has no dot.
        """
        what, equals, value = text.partition("=")
        pod_set, slash, rest = what.partition("/")
        if not slash or "." in pod_set:
            pod_set, rest = "", what
        if not (equals and rest and value):
            raise InvalidValue("--set", text, _CURE)
        if rest == "count":
            if not (clamped(value) or 0):
                raise InvalidValue("--set", text, "the number of pods is a whole number from 1 on")
        elif to_int(rest, value) < 0:
            raise InvalidValue("--set", text, "an amount is not negative")
        return cls(pod_set, rest, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """How the Workloads that a question is about are to be, beside what their manifests say."""

    settings: Sequence[Setting] = ()
    queue: str = ""
    priority_class: str = ""

    def __bool__(self) -> bool:
        return bool(self.settings or self.queue or self.priority_class)

    def of(self, workload: Workload, snapshot: Snapshot) -> Workload:
        """The Workload with other sizes, in another queue, of another priority class. Raises InvalidValue."""
        for setting in self.settings:
            workload = _set(workload, setting)
        if self.queue:
            workload = changes.in_queue(workload, self.queue)
        if self.priority_class:
            found = snapshot.get(WorkloadPriorityClass, self.priority_class)
            if found is None:
                cure = "there is no such WorkloadPriorityClass: see `kubectl get workloadpriorityclasses`"
                raise InvalidValue("--priority-class", self.priority_class, cure)
            ref = PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name=self.priority_class)
            workload = changes.with_priority(workload, found.value)
            workload = replace(workload, spec=replace(workload.spec, priority_class_ref=ref))
        return workload


def what_if(
    composer: Composer,
    engine: Options,
    given: Documents,
    *,
    source: str,
    targets: Iterable[str] = (),
    drop: Iterable[tuple[type[Kind], str]] = (),
    otherwise: Otherwise | None = None,
    quotas: Iterable[Kind] = (),
    sees: Sees = lambda _: True,
) -> Difference:
    """Differences that the documents `given` would make; `quotas` are objects that change besides. The rest as for
    `proposed`."""
    change, notes = proposed(
        composer.snapshot,
        composer,
        put=given.snapshot.all(),
        manifests=given.others,
        source=source,
        targets=targets,
        drop=drop,
        otherwise=otherwise,
    )
    change = Change((*quotas, *change.put), change.drop)
    outcome = difference(composer.snapshot, engine, composer.now, change, sees=sees)
    return replace(outcome, notes=(*notes, *outcome.notes))


def proposed(
    snapshot: Snapshot,
    composer: Composer,
    *,
    put: Iterable[Kind] = (),
    manifests: Iterable[Plain] = (),
    source: str = "",
    targets: Iterable[str] = (),
    drop: Iterable[tuple[type[Kind], str]] = (),
    otherwise: Otherwise | None = None,
) -> tuple[Change, list[str]]:
    """The change, and notes on it. `targets` are keys of Workloads of the snapshot; `otherwise` is about these and
    those of `manifests`."""
    otherwise = otherwise or Otherwise()
    notes: list[str] = []
    objects = list(put)
    given = snapshot.changed(objects)
    composer = dataclasses.replace(composer, snapshot=given)
    every = list(manifests)
    jobs = [each for each in every if composer.reads(each)]
    notes += [f"{each['kind']} {each['metadata']['name']} is not counted with" for each in every if each not in jobs]
    alone = not (objects or jobs)
    for workload in composer.workloads(every if alone else jobs, source):
        same = _same(snapshot, workload)
        if same is not None:
            workload, note = _again(workload, same)
            notes.append(note)
        objects.append(otherwise.of(workload, given))
    for key in targets:
        found = snapshot.get(Workload, key)
        if found is None:
            raise InvalidValue("TARGET", key, "there is no such Workload: see `kubectl get workloads`")
        other = otherwise.of(found, given)
        if other != found and found.quota_reserved and not found.finished:
            other = _anew(other)
            notes.append(f"Workload {key} holds quota: the answer is for its job deleted and created anew")
        objects.append(other)
    return Change(tuple(objects), tuple(drop)), notes


def _same(snapshot: Snapshot, workload: Workload) -> Workload | None:
    """The unfinished Workload of the same job, if the job is queued already."""
    owners = {(each.kind, each.name) for each in workload.metadata.owner_references}
    for each in snapshot.of(Workload):
        meta = each.metadata
        if meta.namespace == workload.metadata.namespace and not each.finished:
            if meta.name == workload.metadata.name:
                return each
            if owners and owners == {(owner.kind, owner.name) for owner in meta.owner_references}:
                return each
    return None


def _again(workload: Workload, same: Workload) -> tuple[Workload, str]:
    """The Workload of a job that is queued already: it keeps its place in line if it waits."""
    other = replace(same, spec=replace(workload.spec, active=same.spec.active))
    if not same.quota_reserved:
        return other, f"Workload {same.metadata.key} of the same job waits already, and is supposed to be as given"
    note = f"Workload {same.metadata.key} of the same job holds quota: the answer is for the job created anew"
    return _anew(other), note


def _anew(workload: Workload) -> Workload:
    """The Workload of a job that was deleted and created again: it comes last, and has held nothing."""
    meta = replace(workload.metadata, uid=f"new-{workload.metadata.uid}", creation_timestamp=None)
    return replace(workload, metadata=meta, status=WorkloadStatus())


def _set(workload: Workload, setting: Setting) -> Workload:
    named = [each.name for each in workload.spec.pod_sets]
    if setting.pod_set and setting.pod_set not in named:
        raise InvalidValue("--set", setting.pod_set, f"the pod sets of {workload.metadata.key} are {', '.join(named)}")
    pod_sets = [
        _sized(each, setting) if setting.pod_set in ("", each.name) else each for each in workload.spec.pod_sets
    ]
    return replace(workload, spec=replace(workload.spec, pod_sets=pod_sets))


def _sized(pod_set: PodSet, setting: Setting) -> PodSet:
    if setting.what == "count":
        pods, least = clamped(setting.value) or 0, pod_set.min_count
        return replace(pod_set, count=pods, min_count=None if least is None else min(least, pods))
    spec = _asking(pod_set.template.spec, setting)
    return replace(pod_set, template=replace(pod_set.template, spec=spec))


def _asking(spec: PodSpec, setting: Setting) -> PodSpec:
    """A pod that asks for an amount of a resource: in the container that asks for it now, or in its only one."""
    asking = [each.name for each in spec.containers if _asks(each, setting.what)]
    every = [each.name for each in spec.containers]
    names = asking or every
    if len(names) != 1 or (spec.resources is not None and setting.what in spec.resources.requests):
        cure = f"several of the containers {', '.join(every)} may ask for it: change the manifest instead"
        raise InvalidValue("--set", f"{setting.what}={setting.value}", cure)
    return replace(
        spec, containers=[_container(each, setting) if each.name == names[0] else each for each in spec.containers]
    )


def _asks(container: Container, resource: str) -> bool:
    given = container.resources
    return given is not None and (resource in given.requests or resource in given.limits)


def _container(container: Container, setting: Setting) -> Container:
    given = container.resources or ResourceRequirements()
    requests = {**given.requests, setting.what: setting.value}
    limits = {name: amount for name, amount in given.limits.items() if name != setting.what}
    return replace(container, resources=replace(given, requests=requests, limits=limits))
