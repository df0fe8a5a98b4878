"""`integrations.customKinds`: job kinds that the file itself describes. Turnstile's own extension of Kueue's file.

An entry says where an object of the kind has its suspend field and its pod templates, and which fields of its status
show that pods run or that the job has ended. A path is names between dots, from the root of the object, such as
`spec.template`. Must never know what is done with an entry: that is `turnstile.jobs.bases.configured`.
"""

import re
from collections.abc import Iterator
from typing import Final

from turnstile.api.config.section import Section
from turnstile.api.validation.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from turnstile.api.validation.labels import dns_1035_label_faults, dns_label_faults, subdomain_faults

Path = tuple[str, ...]

MAX_POD_SETS: Final = 18
"""As many as a Workload may have."""

DEFAULT_CHILDREN: Final = ("Pod", "Job.batch")
"""Objects that a kind makes if its entry names none."""

_FRAMEWORK: Final = re.compile(r"[a-z0-9]([a-z0-9./-]{0,61}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_STATUSES: Final = ("True", "False", "Unknown")
_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_READ: Final = ("spec", "status")
_WRITTEN: Final = ("spec",)


class Factor(Section):
    """A number in the object: `default` where it is absent, and never above the number at `at_most`."""

    path: str = ""
    default: int | None = None
    at_most: str | None = None


class PodSetEntry(Section):
    """The pods made from one template, or with `each` from the template of each item of a list.

    With `each`, the other paths start at the item.
    """

    name: str | None = None
    name_from: str | None = None
    each: str | None = None
    template: str = ""
    count: list[Factor] | None = None
    optional: bool | None = None
    reclaimable: str | None = None


class Fact(Section):
    """A fact about an object: a condition has a status, or a field has one of some values."""

    condition: str | None = None
    status: str | None = None
    reasons: list[str] | None = None
    field: str | None = None
    values: list[str] | None = None


class Finished(Section):
    """How the end of a job is known. `message` is the text of an end that is known by a field."""

    success: Fact | None = None
    failure: Fact | None = None
    message: str | None = None


class Active(Section):
    """How it is known that pods run: a number above 0, a fact, or a status that is older than the spec."""

    counts: list[str] | None = None
    when: list[Fact] | None = None
    observed_generation: str | None = None


class Ready(Section):
    """How it is known that all pods are ready: numbers that add up to all pods, or a fact."""

    counts: list[str] | None = None
    when: list[Fact] | None = None


class ExtraRight(Section):
    """Verbs on a resource of the kind's group, or of another one."""

    group: str | None = None
    resource: str = ""
    verbs: list[str] | None = None


class CustomKind(Section):
    """A job kind."""

    framework: str = ""
    group: str = ""
    version: str = ""
    kind: str = ""
    plural: str = ""
    suspend: str | None = None
    pod_sets: list[PodSetEntry] | None = None
    finished: Finished | None = None
    active: Active | None = None
    ready: Ready | None = None
    managed_by: str | None = None
    priority_class: str | None = None
    makes: list[str] | None = None
    rights: list[ExtraRight] | None = None

    @property
    def gvk(self) -> str:
        """As `externalFrameworks` would name it: `Kind.version.group`."""
        return f"{self.kind}.{self.version}.{self.group}"

    @property
    def route(self) -> str:
        """The key that no two kinds may share: group and kind as they stand in the paths of the webhooks."""
        return f"{self.group.replace('.', '-')}/{self.kind.lower()}"


def group_kind(text: str) -> tuple[str, str]:
    """Group and kind of `Job.batch`; the group of `Pod` is empty."""
    kind, _, group = text.partition(".")
    return group, kind


def parts(path: str) -> Path:
    """The names of a path."""
    return tuple(path.split("."))


def custom_kind_errors(kinds: list[CustomKind] | None, at: str) -> Iterator[FieldError]:
    """All faults of `integrations.customKinds`, which stands at the path `at`."""
    frameworks: set[str] = set()
    routes: set[str] = set()
    for index, kind in enumerate(kinds or ()):
        here = f"{at}[{index}]"
        yield from _identity_errors(here, kind)
        if kind.framework in frameworks:
            yield duplicate(f"{here}.framework", kind.framework)
        frameworks.add(kind.framework)
        if kind.route in routes:
            yield duplicate(f"{here}.kind", kind.kind, "another entry has the same group and kind")
        routes.add(kind.route)
        yield from _path_errors(f"{here}.suspend", kind.suspend or "spec.suspend", roots=_WRITTEN)
        yield from _pod_set_list_errors(f"{here}.podSets", kind.pod_sets)
        yield from _finished_errors(f"{here}.finished", kind.finished)
        yield from _active_errors(f"{here}.active", kind.active)
        if kind.ready is not None:
            yield from _numbers_or_facts_errors(f"{here}.ready", kind.ready)
        for name, path in (("managedBy", kind.managed_by), ("priorityClass", kind.priority_class)):
            if path is not None:
                yield from _path_errors(f"{here}.{name}", path, roots=_WRITTEN)
        for number, made in enumerate(kind.makes or ()):
            yield from _made_errors(f"{here}.makes[{number}]", made)
        for number, right in enumerate(kind.rights or ()):
            yield from _right_errors(f"{here}.rights[{number}]", right)


def _identity_errors(at: str, kind: CustomKind) -> Iterator[FieldError]:
    if not _FRAMEWORK.fullmatch(kind.framework):
        detail = "must be at most 63 lower-case letters, digits, '-', '.' and '/', for example example.com/simulation"
        yield _wrong(f"{at}.framework", kind.framework, detail)
    if faults := subdomain_faults(kind.group):
        yield _wrong(f"{at}.group", kind.group, "; ".join(faults))
    elif "." not in kind.group:
        yield _wrong(f"{at}.group", kind.group, "must be the group of a custom resource, for example example.com")
    elif kind.group == "kueue.x-k8s.io":
        yield _wrong(f"{at}.group", kind.group, "must not be Kueue's own group")
    if faults := dns_1035_label_faults(kind.version):
        yield _wrong(f"{at}.version", kind.version, "; ".join(faults))
    if not _KIND.fullmatch(kind.kind):
        yield _wrong(f"{at}.kind", kind.kind, "must be the kind as in a manifest, for example Simulation")
    if faults := dns_1035_label_faults(kind.plural):
        yield _wrong(f"{at}.plural", kind.plural, "; ".join(faults))


def _pod_set_list_errors(at: str, pod_sets: list[PodSetEntry] | None) -> Iterator[FieldError]:
    if not pod_sets:
        yield required(at, "name the template of each pod set, for example {name: main, template: spec.template}")
        return
    if len(pod_sets) > MAX_POD_SETS:
        yield invalid(at, len(pod_sets), f"a Workload has at most {MAX_POD_SETS} pod sets")
    names: set[str] = set()
    for index, pod_set in enumerate(pod_sets):
        here = f"{at}[{index}]"
        yield from _pod_set_errors(here, pod_set)
        if pod_set.name is not None and pod_set.name in names:
            yield duplicate(f"{here}.name", pod_set.name)
        names.add(pod_set.name or "")


def _pod_set_errors(at: str, pod_set: PodSetEntry) -> Iterator[FieldError]:
    listed = pod_set.each is not None
    if pod_set.each is not None:
        yield from _path_errors(f"{at}.each", pod_set.each, roots=_WRITTEN)
    roots = () if listed else _WRITTEN
    yield from _path_errors(f"{at}.template", pod_set.template, roots=roots)
    if pod_set.name is None and pod_set.name_from is None:
        yield required(f"{at}.name", "give name, or nameFrom with the path of a field that holds it")
    elif pod_set.name is not None and pod_set.name_from is not None:
        yield forbidden(f"{at}.nameFrom", "may not be set beside name: keep one")
    if pod_set.name is not None:
        if listed:
            yield forbidden(f"{at}.name", "each item needs a name of its own: give nameFrom")
        elif faults := dns_label_faults(pod_set.name):
            yield _wrong(f"{at}.name", pod_set.name, "; ".join(faults))
    if pod_set.name_from is not None:
        yield from _path_errors(f"{at}.nameFrom", pod_set.name_from, roots=roots)
    for index, factor in enumerate(pod_set.count or ()):
        here = f"{at}.count[{index}]"
        yield from _path_errors(f"{here}.path", factor.path, roots=roots)
        if factor.default is not None and factor.default < 0:
            yield invalid(f"{here}.default", factor.default, "must be 0 or more")
        if factor.at_most is not None:
            yield from _path_errors(f"{here}.atMost", factor.at_most, roots=roots)
    if pod_set.reclaimable is not None:
        if listed:
            yield forbidden(f"{at}.reclaimable", "may not be set beside each: leave it out")
        yield from _path_errors(f"{at}.reclaimable", pod_set.reclaimable, roots=("status",))


def _finished_errors(at: str, finished: Finished | None) -> Iterator[FieldError]:
    if finished is None or finished.success is None:
        yield required(f"{at}.success", "say how a good end is known, for example {condition: Complete}")
    if finished is None:
        return
    for name, fact in (("success", finished.success), ("failure", finished.failure)):
        if fact is not None:
            yield from _fact_errors(f"{at}.{name}", fact)
    if finished.message is not None:
        yield from _path_errors(f"{at}.message", finished.message, roots=_READ)


def _active_errors(at: str, active: Active | None) -> Iterator[FieldError]:
    if active is None:
        yield required(at, "say how it is known that pods run, for example {counts: [status.active]}")
        return
    yield from _numbers_or_facts_errors(at, active)
    if active.observed_generation is not None:
        yield from _path_errors(f"{at}.observedGeneration", active.observed_generation, roots=("status",))


def _numbers_or_facts_errors(at: str, rule: Active | Ready) -> Iterator[FieldError]:
    if not rule.counts and not rule.when:
        yield required(f"{at}.counts", "give counts, paths of numbers of the status, or when, a list of facts")
    for index, path in enumerate(rule.counts or ()):
        yield from _path_errors(f"{at}.counts[{index}]", path, roots=("status",))
    for index, fact in enumerate(rule.when or ()):
        yield from _fact_errors(f"{at}.when[{index}]", fact)


def _fact_errors(at: str, fact: Fact) -> Iterator[FieldError]:
    if (fact.condition is None) == (fact.field is None):
        yield required(at, "give either condition, the type of a condition, or field with values")
        return
    if fact.condition is not None:
        if not fact.condition:
            yield _wrong(f"{at}.condition", fact.condition, "must be the type of a condition")
        if fact.status not in (None, *_STATUSES):
            yield not_supported(f"{at}.status", fact.status, _STATUSES)
        if fact.values is not None:
            yield forbidden(f"{at}.values", "goes with field, not with condition: leave it out")
        return
    for name, value in (("status", fact.status), ("reasons", fact.reasons)):
        if value is not None:
            yield forbidden(f"{at}.{name}", "goes with condition, not with field: leave it out")
    yield from _path_errors(f"{at}.field", fact.field or "", roots=_READ)
    if not fact.values:
        yield required(f"{at}.values", "list the values that count, for example [Succeeded]")


def _made_errors(at: str, made: str) -> Iterator[FieldError]:
    group, kind = group_kind(made)
    if not _KIND.fullmatch(kind) or (group and subdomain_faults(group)) or made.endswith("."):
        yield _wrong(at, made, "must be a kind and its group, for example Job.batch, or Pod")


def _right_errors(at: str, right: ExtraRight) -> Iterator[FieldError]:
    if right.group is not None and right.group and (faults := subdomain_faults(right.group)):
        yield _wrong(f"{at}.group", right.group, "; ".join(faults))
    if not right.resource or "*" in right.resource:
        yield _wrong(f"{at}.resource", right.resource, "must be one resource, for example simulations/scale")
    if not right.verbs:
        yield required(f"{at}.verbs", f"list some of {', '.join(_VERBS)}")
    for index, verb in enumerate(right.verbs or ()):
        if verb not in _VERBS:
            yield not_supported(f"{at}.verbs[{index}]", verb, _VERBS)


def _path_errors(at: str, path: str, *, roots: tuple[str, ...]) -> Iterator[FieldError]:
    """`roots`: the names that a path may start with; none for a path within an item of a list."""
    names = parts(path)
    example = f"for example {roots[0]}.template" if roots else "for example template"
    if not all(_PART.fullmatch(name) for name in names):
        yield _wrong(at, path, f"must be names with dots between them, {example}")
    elif roots and (names[0] not in roots or len(names) < 2):
        yield _wrong(at, path, f"must be a path below {' or '.join(roots)}, {example}")


def _wrong(at: str, value: str, detail: str) -> FieldError:
    """A text that is absent is required; another one is invalid."""
    return invalid(at, value, detail) if value else required(at, detail)
