"""Pod sets of a job: what the job asks for, what admission adds to its pod templates, and how a stop reverts that.

Admission changes only what Kubernetes calls the scheduling directives of a pod template (labels, annotations, node
selector, tolerations, scheduling gates). `merge` adds, `changes` returns the patch to write, and a stop uses `changes`
with the directives of the Workload's pod set. Must never change containers, affinity or volumes. Rules: Kueue's
pkg/podset and pkg/util/equality (merge conflicts are permanent; tolerations and gates are added once).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec
import orjson

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import to_plain
from turnstile.api.patch import JsonPatch, apply_merge_patch
from turnstile.api.pods import PodSpec, PodTemplate, Quantity, Toleration
from turnstile.api.podshape import each_variable_once, held_digest, is_reduced
from turnstile.api.quantity import compare
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import PodSet, PodSetAssignment, PodSetUpdate, Workload
from turnstile.jobs.labels import is_elastic, slice_name
from turnstile.jobs.topologyrequest import UNCONSTRAINED, PodIndex, topology_request

_T = TypeVar("_T")
_decode_template: Final[Callable[[bytes | msgspec.Raw], PodTemplate]] = msgspec.json.Decoder(PodTemplate).decode


@dataclass(frozen=True, slots=True)
class JobPodSet:
    """A pod set of a job; `template` is the JSON of a PodTemplateSpec. `min_count` allows partial admission. `index`
    says how the pods are numbered, and `annotations` are those of the pods where the template does not have them."""

    name: str
    count: int
    template: bytes
    min_count: int | None = None
    index: PodIndex | None = None
    annotations: Mapping[str, str] | None = None

    @property
    def view(self) -> PodTemplate:
        """The part of the template that matters for placement and quota."""
        return _decode_template(self.template)

    @property
    def reduced(self) -> bool:
        """Whether the template lacks what no decision reads, so that no Workload can be made of it."""
        return is_reduced(self.template)

    def body(self, *, topologies: bool) -> dict[str, Any]:
        """The pod set as an entry of a Workload's `spec.podSets`, with its topology request if there are `topologies`.
        The template must be whole. Raises PermanentError if the request cannot be read."""
        assert not self.reduced, "a template that is held reduced must not be written"
        template = each_variable_once(orjson.loads(self.template))
        body = {"name": self.name, "count": self.count, "template": template}
        if self.min_count is not None:
            body["minCount"] = self.min_count
        if topologies and (request := topology_request(self._annotations(), self.index)):
            body["topologyRequest"] = request
        return body

    def _annotations(self) -> Mapping[str, str]:
        if self.annotations is not None:
            return self.annotations
        metadata = self.view.metadata
        return metadata.annotations if metadata is not None else {}


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """The additions of an admission to the pods of one pod set."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Directives:
    """The scheduling directives of a pod template."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[str, ...] = ()

    @classmethod
    def of(cls, template: PodTemplate) -> "Directives":
        """The directives of a template."""
        metadata, spec = template.metadata, template.spec
        return cls(
            labels=metadata.labels if metadata else {},
            annotations=metadata.annotations if metadata else {},
            node_selector=spec.node_selector,
            tolerations=tuple(spec.tolerations),
            scheduling_gates=tuple(gate.name for gate in spec.scheduling_gates),
        )


def merge(directives: Directives, info: PodSetInfo) -> Directives:
    """The directives of a template after admission.

    The annotation that names the Workload is replaced. Raises PermanentError, naming key and both values, if the
    template already has another key with another value.
    """
    return Directives(
        labels=_union("labels", directives.labels, info.labels),
        annotations=_union("annotations", _without_charge(directives.annotations, info), info.annotations),
        node_selector=_union("nodeSelector", directives.node_selector, info.node_selector),
        tolerations=_append(directives.tolerations, info.tolerations),
        scheduling_gates=_append(directives.scheduling_gates, info.scheduling_gates),
    )


def changes(current: Directives, wanted: Directives) -> dict[str, Any]:
    """The JSON merge patch that changes a pod template from `current` to `wanted`; empty if nothing differs.

    A list is replaced as a whole, as merge patches do.
    """
    metadata = {
        name: part
        for name, part in (
            ("labels", _map_changes(current.labels, wanted.labels)),
            ("annotations", _map_changes(current.annotations, wanted.annotations)),
        )
        if part
    }
    spec: dict[str, Any] = {}
    selector = _map_changes(current.node_selector, wanted.node_selector)
    if selector:
        spec["nodeSelector"] = selector
    if current.tolerations != wanted.tolerations:
        spec["tolerations"] = [to_plain(toleration) for toleration in wanted.tolerations] or None
    if current.scheduling_gates != wanted.scheduling_gates:
        spec["schedulingGates"] = [{"name": gate} for gate in wanted.scheduling_gates] or None
    return {name: part for name, part in (("metadata", metadata), ("spec", spec)) if part}


def with_directives(template: dict[str, Any], wanted: PodTemplate) -> dict[str, Any]:
    """A pod template (plain JSON) with the scheduling directives of another one, without what an admission added."""
    current = Directives.of(_decode_template(orjson.dumps(template)))
    made: dict[str, Any] = apply_merge_patch(template, changes(current, Directives.of(wanted)))
    for part in (made.get("metadata") or {}, made["spec"]):
        for emptied in [key for key, value in part.items() if value == {} and key in _MAPS]:
            del part[emptied]
    return made


_MAPS: Final = frozenset(("labels", "annotations", "nodeSelector"))


def rewrite(
    patch: JsonPatch,
    template: bytes | msgspec.Raw,
    path: tuple[str | int, ...],
    wanted: Directives,
    *,
    without_metadata: bool = False,
) -> None:
    """Add to `patch` the operations that give the template at `path` the directives `wanted`; none if it has them.

    `template` is the JSON of the template as it is now. `without_metadata`: metadata that would be empty is removed.
    """
    current, target = _placed(Directives.of(_decode_template(template))), _placed(wanted)
    if current == target:
        return
    plain = orjson.loads(bytes(template))
    kept = {name for (parent, name), value in target.items() if parent == "metadata" and value}
    if without_metadata and not kept and (plain.get("metadata") or {}).keys() <= {"labels", "annotations"}:
        if "metadata" in plain:
            patch.remove(*path, "metadata")
        current |= {("metadata", "labels"): {}, ("metadata", "annotations"): {}}
    for (parent, key), value in target.items():
        if value == current[parent, key]:
            continue
        if plain.get(parent) is None:
            patch.add(*path, parent, value={})
            plain[parent] = {}
        if value:
            patch.add(*path, parent, key, value=value)
        elif key in plain[parent]:
            patch.remove(*path, parent, key)


def _placed(directives: Directives) -> dict[tuple[str, str], Any]:
    """Each directive as plain JSON, by its place in a template."""
    return {
        ("metadata", "labels"): dict(directives.labels),
        ("metadata", "annotations"): dict(directives.annotations),
        ("spec", "nodeSelector"): dict(directives.node_selector),
        ("spec", "tolerations"): [to_plain(each) for each in directives.tolerations],
        ("spec", "schedulingGates"): [{"name": gate} for gate in directives.scheduling_gates],
    }


def info_of(
    pod_set: PodSet,
    assignment: PodSetAssignment,
    *,
    workload: Workload,
    flavors: Callable[[str], ResourceFlavor | None],
    queue_labels: bool = True,
    topologies: bool = True,
) -> PodSetInfo:
    """The additions of an admission to the pods of one pod set (Kueue's FromAssignment, then each admission check's
    updates); with `queue_labels` the names of both queues, with `topologies` the gate of pods that have a place in a
    topology.

    Raises LookupError if the cache does not have a flavor, PermanentError if two sources set different values.
    """
    selector, tolerations = flavor_directives(assignment, flavors)
    gates: tuple[str, ...] = ()
    annotations = {names.WORKLOAD: workload.metadata.name}
    if topologies and assignment.topology_assignment is not None:
        gates = (names.TOPOLOGY_GATE,)
        if pod_set.topology_request is None or not pod_set.topology_request.is_explicit:
            annotations[UNCONSTRAINED] = "true"
    if is_elastic(workload.metadata):
        gates = (*gates, names.ELASTIC_GATE)
        annotations[names.SLICE_NAME] = slice_name(workload)
    info = PodSetInfo(
        name=pod_set.name,
        count=pod_set.count if assignment.count is None else assignment.count,
        labels=_pod_labels(pod_set.name, workload if queue_labels else None),
        annotations=annotations,
        node_selector=selector,
        tolerations=tolerations,
        scheduling_gates=gates,
    )
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if update.name == pod_set.name:
                info = _updated(info, update, check.name)
    return info


def flavor_directives(
    assignment: PodSetAssignment, flavors: Callable[[str], ResourceFlavor | None]
) -> tuple[dict[str, str], tuple[Toleration, ...]]:
    """The node selector and the tolerations that the flavors of a pod set add to its pods.

    Raises LookupError if the cache does not have a flavor.
    """
    selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    for name in sorted(set(assignment.flavors.values())):
        flavor = flavors(name)
        if flavor is None:
            raise LookupError(f"ResourceFlavor {name} doesn't exist")
        selector.update(flavor.spec.node_labels)
        tolerations = _append(tolerations, tuple(flavor.spec.tolerations))
    return selector, tolerations


def infos_of(
    workload: Workload,
    flavors: Callable[[str], ResourceFlavor | None],
    *,
    queue_labels: bool = True,
    topologies: bool = True,
) -> list[PodSetInfo]:
    """The additions of an admission to each pod set, in the order of `spec.podSets`.

    Raises like `info_of`, and PermanentError if admission and spec do not have the same pod sets.
    """
    admission = workload.status.admission
    assignments = {item.name: item for item in admission.pod_set_assignments} if admission else {}
    pod_sets = workload.spec.pod_sets
    missing = [pod_set.name for pod_set in pod_sets if pod_set.name not in assignments]
    if missing or len(assignments) != len(pod_sets):
        raise PermanentError(
            f"status.admission.podSetAssignments: {sorted(assignments)} does not have the pod sets of the spec, "
            f"{sorted(pod_set.name for pod_set in pod_sets)}: one assignment a pod set is needed"
        )
    return [
        info_of(
            each,
            assignments[each.name],
            workload=workload,
            flavors=flavors,
            queue_labels=queue_labels,
            topologies=topologies,
        )
        for each in pod_sets
    ]


def differ_in_counts(before: Sequence[JobPodSet], after: Sequence[JobPodSet]) -> bool:
    """Whether pod sets are the same but for the numbers of pods: gates hold those of an elastic job that are new."""
    return [replace(each, count=0) for each in before] == [replace(each, count=0) for each in after]


def equivalent(
    job: Sequence[JobPodSet], workload: Workload, infos: Sequence[PodSetInfo] | None, *, counts: bool = True
) -> bool:
    """Whether a job's pod sets still match its Workload (Kueue's EquivalentToWorkload); without `counts`, except for
    the numbers of pods, which those of an elastic job may change.

    Compares, in order: count, minimum count, tolerations (only until admitted), what besides containers decides how
    much a pod requests (RuntimeClass, pod-level resources, overhead; Kueue does not compare them), and containers.
    `infos` is what admission may have added to the job; None compares with the Workload's spec alone.
    """
    if len(job) != len(workload.spec.pod_sets):
        return False
    given: Sequence[PodSetInfo | None] = [None] * len(job) if infos is None else infos
    return all(
        _same(mine, theirs, info, tolerations=not workload.admitted, counts=counts)
        for mine, theirs, info in zip(job, workload.spec.pod_sets, given, strict=True)
    )


def _same(mine: JobPodSet, theirs: PodSet, info: PodSetInfo | None, *, tolerations: bool, counts: bool) -> bool:
    count, min_count = theirs.count, theirs.min_count
    if info is not None and min_count is not None:
        count = info.count
    if counts and (mine.count != count or mine.min_count != min_count):
        return False
    if not counts and mine.name != theirs.name:
        return False
    view = mine.view
    if tolerations:
        wanted = tuple(theirs.template.spec.tolerations)
        if info is not None:
            wanted = _append(wanted, info.tolerations)
        if [_spelled_out(each) for each in view.spec.tolerations] != [_spelled_out(each) for each in wanted]:
            return False
    if _requested_by_pod(view.spec) != _requested_by_pod(theirs.template.spec):
        return False
    if _differ(view.spec.overhead, theirs.template.spec.overhead):
        return False
    if theirs.containers_digest:
        return theirs.containers_digest == held_digest(mine.template)
    their_spec = theirs.template.spec
    return (view.spec.containers, view.spec.init_containers) == (their_spec.containers, their_spec.init_containers)


def _requested_by_pod(spec: PodSpec) -> tuple[object, ...]:
    return spec.runtime_class_name or "", spec.resources


def _differ(mine: Mapping[str, Quantity], theirs: Mapping[str, Quantity]) -> bool:
    """Whether both state an overhead of a resource, and not the same. Kueue states none for what it does not charge,
    and that of a RuntimeClass where the job states none; an earlier version of Turnstile may have charged a worker of
    Ray for fewer resources."""
    return any(compare(mine[key], theirs[key]) for key in mine.keys() & theirs.keys())


def _pod_labels(pod_set: str, workload: Workload | None) -> dict[str, str]:
    """Labels that name a pod's pod set, and the queues of `workload`; the ClusterQueue only if its name is a valid
    label value."""
    labels = {names.PODSET_LABEL: pod_set}
    if workload is None:
        return labels
    if workload.spec.queue_name:
        labels[names.LOCAL_QUEUE_LABEL] = workload.spec.queue_name
    admission = workload.status.admission
    if admission is not None and len(admission.cluster_queue) <= 63 and "." not in admission.cluster_queue:
        labels[names.CLUSTER_QUEUE_LABEL] = admission.cluster_queue
    return labels


def _without_charge(present: Mapping[str, str], info: PodSetInfo) -> Mapping[str, str]:
    """The annotations of a template without the Workload and the chain of slices that it names, where the admission
    names others."""
    named = {names.WORKLOAD, names.SLICE_NAME}.intersection(info.annotations)
    return {key: value for key, value in present.items() if key not in named} if named else present


def _updated(info: PodSetInfo, update: PodSetUpdate, check: str) -> PodSetInfo:
    try:
        return replace(
            info,
            labels=_union("labels", info.labels, update.labels),
            annotations=_union("annotations", info.annotations, update.annotations),
            node_selector=_union("nodeSelector", info.node_selector, update.node_selector),
            tolerations=_append(info.tolerations, tuple(update.tolerations)),
        )
    except PermanentError as error:
        raise PermanentError(f'in admission check "{check}": {error}') from error


def _union(field_name: str, present: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    for key in sorted(added):
        if key in present and present[key] != added[key]:
            raise PermanentError(
                f"invalid admission check PodSetUpdate: conflict for {field_name}: "
                f"conflict for key={key}, value1={present[key]}, value2={added[key]}"
            )
    return {**present, **added}


def _append(present: tuple[_T, ...], added: tuple[_T, ...]) -> tuple[_T, ...]:
    result = list(present)
    known = [_spelled_out(item) for item in present]
    for item in added:
        if (same := _spelled_out(item)) not in known:
            result.append(item)
            known.append(same)
    return tuple(result)


def _spelled_out(item: _T) -> _T:
    """A toleration with its operator filled in, Equal by default; any other item unchanged."""
    if isinstance(item, Toleration) and not item.operator:
        return msgspec.structs.replace(item, operator="Equal")
    return item


def _map_changes(current: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    changed: dict[str, str | None] = {key: wanted[key] for key in sorted(wanted) if current.get(key) != wanted[key]}
    changed.update({key: None for key in sorted(current) if key not in wanted})
    return changed
