"""Job kinds that the configuration file describes (`integrations.customKinds`): templated jobs, read by paths.

The fields of such an object are not known before the file is read, so its spec and status stay JSON, and the entry's
paths are decoded on demand. The webhook refuses an invalid object (an absent template, a count that is not a number).
If one was created without the webhook, reading its pod sets raises PermanentError; it can still be suspended. Must
never read anything but the paths of an entry.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, ClassVar, Final, cast

import msgspec
import orjson

from turnstile.api.config.customkinds import DEFAULT_CHILDREN, CustomKind, Fact, Factor, PodSetEntry, group_kind, parts
from turnstile.api.config.document import dotted
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, tolerating_nulls, without_nulls
from turnstile.api.pods import PodTemplate
from turnstile.api.validation.errors import OMITTED, FieldError, format_errors, invalid, required
from turnstile.api.validation.labels import dns_label_faults
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import JobCondition, Template, TemplatedJob
from turnstile.jobs.capabilities import AcknowledgedStops, Reclaim
from turnstile.jobs.integration import Asked, Handling, Outcome, Right

Place = tuple[str | int, ...]
Lookup = Callable[[str], msgspec.Raw | None]
"""Returns the JSON at a path of the object, or of an item of one of its lists."""

_MAX_COUNT: Final = 2**31 - 1
_NULL: Final = msgspec.Raw(b"null")
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_template: Final = msgspec.json.Decoder(PodTemplate).decode
_decode_conditions: Final = tolerating_nulls(msgspec.json.Decoder(list[JobCondition]).decode)


class ConfiguredJob(Kind):
    """An object of a kind that the configuration file describes."""

    NAMESPACED: ClassVar = True

    spec: msgspec.Raw = _NULL
    status: msgspec.Raw = _NULL


class ConfiguredJobs(TemplatedJob[ConfiguredJob], AcknowledgedStops[ConfiguredJob], Reclaim[ConfiguredJob]):
    """The integration of one entry of `integrations.customKinds`."""

    handling = Handling(described=True)
    stays_active = True
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED})

    def __init__(self, entry: CustomKind) -> None:
        self.entry = entry
        self.kind = _struct_of(entry)
        self.framework = entry.framework
        self.summary = "described by the configuration file"
        self.suspend_path = parts(entry.suspend or "spec.suspend")
        self.makes = frozenset(group_kind(each) for each in (DEFAULT_CHILDREN if entry.makes is None else entry.makes))
        self.rights = tuple(
            Right(right.resource, tuple(right.verbs or ()), group=right.group) for right in entry.rights or ()
        )

    @property
    def acknowledgement(self) -> AcknowledgedStops[ConfiguredJob] | None:
        """The integration itself, if the entry says where the operator writes which generation it has read."""
        return self if self.entry.active is not None and self.entry.active.observed_generation is not None else None

    # --- reading the object

    def value(self, job: ConfiguredJob, path: tuple[str, ...]) -> Any:
        """The decoded value at a path; None if it is absent."""
        raw = _in_object(job, path)
        return None if raw is None else msgspec.json.decode(raw)

    def conditions(self, job: ConfiguredJob) -> Sequence[JobCondition]:
        """`status.conditions`; empty if they do not decode as Kubernetes conditions."""
        raw = _in_object(job, ("status", "conditions"))
        try:
            return _decode_conditions(raw) if raw is not None else []
        except msgspec.ValidationError:
            return []

    def suspended(self, job: ConfiguredJob) -> bool:
        """Whether the suspend field is exactly `true`."""
        return self.value(job, self.suspend_path) is True

    def templates(self, job: ConfiguredJob) -> list[Template]:
        """A template for each pod set of the entry that the object has."""
        templates, errors = self._read(job)
        if errors:
            raise PermanentError(format_errors(errors))
        return templates

    def readable_templates(self, job: ConfiguredJob) -> list[Template]:
        """The valid templates."""
        return self._read(job)[0]

    def _read(self, job: ConfiguredJob) -> tuple[list[Template], list[FieldError]]:
        """The valid templates, and the errors of the others."""
        templates: list[Template] = []
        errors: list[FieldError] = []
        for pod_set in self.entry.pod_sets or ():
            for place, lookup in _places(job, pod_set, errors):
                template = _template(pod_set, place, lookup, errors)
                if template is not None:
                    templates.append(template)
        if not templates and not errors:
            first = (self.entry.pod_sets or [PodSetEntry()])[0]
            errors.append(required(first.each or first.template, "at least one pod template is needed"))
        seen: set[str] = set()
        for template in templates:
            name = template.pod_set.lower()
            if name in seen:
                errors.append(invalid(template.field, template.pod_set, "another pod set has this name"))
            seen.add(name)
        return templates, errors

    # --- answers of the integration

    def create_errors(self, job: ConfiguredJob) -> list[FieldError]:
        """Errors of templates and counts; if there are none, those of each template's topology request."""
        return self._read(job)[1] or super().create_errors(job)

    def finished(self, job: ConfiguredJob) -> Outcome | None:
        """The outcome by the facts in the entry's `finished`."""
        finished = self.entry.finished
        if finished is None:
            return None
        for fact, success in ((finished.success, True), (finished.failure, False)):
            if fact is not None and (met := self._met(job, fact)) is not None:
                text = self.value(job, parts(finished.message)) if finished.message and not met else met
                return Outcome(success=success, message=text if isinstance(text, str) else "")
        return None

    def active(self, job: ConfiguredJob) -> bool:
        """Whether a count or fact of the entry's `active` reports pods, or the status is older than the spec."""
        active = self.entry.active
        if active is None:
            return False
        return (
            any(self._number(job, path) > 0 for path in active.counts or ())
            or any(self._met(job, fact) is not None for fact in active.when or ())
            or (active.observed_generation is not None and self._stale(job, active.observed_generation))
        )

    def _stale(self, job: ConfiguredJob, path: str) -> bool:
        """Whether the status is older than the spec, unless the object is new, suspended and never yet observed."""
        generation, observed = job.metadata.generation, self._number(job, path)
        return observed < generation and not (observed == 0 and generation <= 1 and self.suspended(job))

    def pods_ready(self, job: ConfiguredJob) -> bool:
        """Whether a fact of the entry's `ready` holds, or its counts add up to the number of pods."""
        ready = self.entry.ready
        if ready is None:
            return False
        if any(self._met(job, fact) is not None for fact in ready.when or ()):
            return True
        wanted = sum(template.count for template in self._read(job)[0])
        return bool(ready.counts) and sum(self._number(job, path) for path in ready.counts or ()) >= wanted

    def reclaimable(self, job: ConfiguredJob) -> dict[str, int]:
        """The `reclaimable` counts of the entry's pod sets."""
        found: dict[str, int] = {}
        for pod_set in self.entry.pod_sets or ():
            if pod_set.reclaimable is not None and (count := self._number(job, pod_set.reclaimable)) > 0:
                found[_name(pod_set, lambda path: _in_object(job, parts(path))).lower()] = count
        return found

    def significant(self, job: ConfiguredJob) -> tuple[object, ...]:
        """The spec, the outcome, whether pods are active, and the reclaimable pods."""
        return bytes(job.spec), self.finished(job), self.active(job), self.reclaimable(job)

    def priority_class_name(self, job: ConfiguredJob) -> str | None:
        """The value at the entry's `priorityClass` path, else the class of the first template that names one."""
        return self._text(job, self.entry.priority_class) or super().priority_class_name(job)

    def _text(self, job: ConfiguredJob, path: str | None) -> str | None:
        value = self.value(job, parts(path)) if path is not None else None
        return value if isinstance(value, str) and value else None

    def _number(self, job: ConfiguredJob, path: str) -> int:
        return _whole(_in_object(job, parts(path))) or 0

    def _met(self, job: ConfiguredJob, fact: Fact) -> str | None:
        """The message of a fact, which may be empty; None if the fact does not hold."""
        if fact.condition is not None:
            for condition in self.conditions(job):
                if condition.type == fact.condition and condition.status == (fact.status or "True"):
                    return condition.message if not fact.reasons or condition.reason in fact.reasons else None
            return None
        raw = _in_object(job, parts(fact.field or ""))
        return "" if raw is not None and _as_text(raw) in (fact.values or ()) else None


def _struct_of(entry: CustomKind) -> type[Kind]:
    names = {"GROUP": entry.group, "VERSION": entry.version, "KIND": entry.kind, "PLURAL": entry.plural}
    return cast(type[Kind], msgspec.defstruct(entry.kind, [], bases=(ConfiguredJob,), namespace=names))


def _in_object(job: ConfiguredJob, path: tuple[str, ...]) -> msgspec.Raw | None:
    root = {"spec": job.spec, "status": job.status}.get(path[0])
    return _below(root, path[1:]) if root is not None else None


def _below(raw: msgspec.Raw, path: tuple[str, ...]) -> msgspec.Raw | None:
    """The JSON at a path; None if it is absent, null, or below a value that is not an object."""
    for part in path:
        try:
            found = _fields(raw).get(part)
        except msgspec.ValidationError:
            return None
        if found is None:
            return None
        raw = found
    return None if bytes(raw) == b"null" else raw


def _places(job: ConfiguredJob, pod_set: PodSetEntry, errors: list[FieldError]) -> Iterator[tuple[Place, Lookup]]:
    """Each place of the object where a pod set's paths start, with a lookup relative to it."""
    if pod_set.each is None:
        yield (), lambda path: _in_object(job, parts(path))
        return
    raw = _in_object(job, parts(pod_set.each))
    if raw is None:
        return
    try:
        items = _items(raw)
    except msgspec.ValidationError:
        errors.append(invalid(pod_set.each, OMITTED, "must be a list"))
        return
    for index, item in enumerate(items):
        yield (*parts(pod_set.each), index), _lookup(item)


def _lookup(item: msgspec.Raw) -> Lookup:
    return lambda path: _below(item, parts(path))


def _template(pod_set: PodSetEntry, place: Place, lookup: Lookup, errors: list[FieldError]) -> Template | None:
    path = (*place, *parts(pod_set.template))
    raw = lookup(pod_set.template)
    if raw is None:
        if not pod_set.optional:
            errors.append(required(dotted(path), "a pod template is needed"))
        return None
    name = _name(pod_set, lookup)
    if faults := dns_label_faults(name.lower()):
        at = dotted((*place, *parts(pod_set.name_from or pod_set.template)))
        errors.extend(invalid(at, name, f"cannot name a pod set: {fault}") for fault in faults)
    count = prod(_factor(factor, place, lookup, errors) for factor in pod_set.count or ())
    if count > _MAX_COUNT:
        errors.append(invalid(dotted(path), count, f"has more pods than {_MAX_COUNT}"))
    try:
        return Template(name, count, _readable(raw), path)
    except msgspec.ValidationError as error:
        errors.append(invalid(dotted(path), OMITTED, f"is no pod template: {error}"))
        return None


def _name(pod_set: PodSetEntry, lookup: Lookup) -> str:
    if pod_set.name is not None:
        return pod_set.name
    raw = lookup(pod_set.name_from or "")
    return _as_text(raw) if raw is not None else ""


def _factor(factor: Factor, place: Place, lookup: Lookup, errors: list[FieldError]) -> int:
    """The value of one factor of a count; an invalid value is added to `errors` and counts as 0."""
    default = 1 if factor.default is None else factor.default
    counts = [default if (raw := lookup(factor.path)) is None else _count(raw, factor.path, place, errors)]
    if factor.at_most is not None and (raw := lookup(factor.at_most)) is not None:
        counts.append(_count(raw, factor.at_most, place, errors))
    return min(counts)


def _count(raw: msgspec.Raw, path: str, place: Place, errors: list[FieldError]) -> int:
    count = _whole(raw)
    if count is not None and 0 <= count <= _MAX_COUNT:
        return count
    errors.append(invalid(dotted((*place, *parts(path))), raw, f"must be a whole number from 0 to {_MAX_COUNT}"))
    return 0


def _whole(raw: msgspec.Raw | None) -> int | None:
    value = msgspec.json.decode(raw) if raw is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _as_text(raw: msgspec.Raw) -> str:
    """A string unquoted; any other value as JSON: `true`, `3`."""
    text = bytes(raw)
    return str(msgspec.json.decode(text)) if text.startswith(b'"') else text.decode()


def _readable(raw: msgspec.Raw) -> msgspec.Raw:
    """A template that decodes; nulls, which a CRD with unknown fields preserved may store, are dropped if needed."""
    try:
        _decode_template(raw)
    except msgspec.ValidationError:
        if b"null" not in bytes(raw):
            raise
        raw = msgspec.Raw(msgspec.json.encode(without_nulls(orjson.loads(bytes(raw)))))
        _decode_template(raw)
    return raw
