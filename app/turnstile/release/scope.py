"""Which jobs a release manages, read from its objects: kinds, namespaces, and whether jobs without a queue name too.

The same reading of rendered objects and of those in a cluster gives what an upgrade changes. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import yaml

from turnstile.api import names
from turnstile.api.config import built, features
from turnstile.api.selectors import LabelSelector, LabelSelectorRequirement
from turnstile.release.findings import Change, Check, Finding, danger, listed
from turnstile.release.manifests import Plain, configuration, release_name

_ALL_JOBS: Final = "--manage-jobs-without-queue-name"
_GATES: Final = "--feature-gates"
Resource = str
"""As kubectl names it: `jobs.batch`, `pods`."""


def resource_name(group: str, plural: str) -> Resource:
    """`jobs.batch`; the plural alone in the core group."""
    return f"{plural}.{group}" if group else plural


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespaces of each managed kind; empty for a release that does not exist."""

    selectors: Mapping[Resource, LabelSelector] = field(default_factory=dict)
    without_queue_name: bool = False
    policies: frozenset[str] = frozenset()
    """Admission policies, without the name of the release."""
    gates: frozenset[str] = frozenset()
    """Feature gates that are on, of those that Turnstile can switch."""

    @classmethod
    def of(cls, objects: Iterable[Plain]) -> "Scope":
        """The scope of a release with these objects: what the API server asks its webhook about."""
        known = tuple(objects)
        selectors = {
            resource_name(group, plural): msgspec.convert(entry.get("namespaceSelector") or {}, LabelSelector)
            for each in known
            if each["kind"] == "MutatingWebhookConfiguration"
            for entry in each.get("webhooks") or ()
            for group, plural in _resources(entry)
            if group != names.GROUP
        }
        prefix = next((release_name(each) for each in known if each["kind"] == "MutatingWebhookConfiguration"), "")
        policies = (
            each["metadata"]["name"].removeprefix(f"{prefix}-")
            for each in known
            if each["kind"] == "ValidatingAdmissionPolicy"
        )
        return cls(selectors, _without_queue_name(known), frozenset(policies), _gates(known) if known else frozenset())

    def manages(self, labels: Mapping[str, str]) -> frozenset[Resource]:
        """The kinds whose jobs are managed in a namespace with these labels."""
        return frozenset(resource for resource, selector in self.selectors.items() if selector.matches(labels))


def _resources(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for rule in entry.get("rules") or ():
        for group in rule.get("apiGroups") or ():
            for plural in rule.get("resources") or ():
                yield group, plural


def _without_queue_name(objects: Iterable[Plain]) -> bool:
    known = tuple(objects)
    return bool(_file(known).get("manageJobsWithoutQueueName")) or any(_ALL_JOBS in each for each in _arguments(known))


def _gates(objects: Iterable[Plain]) -> frozenset[str]:
    known = tuple(objects)
    given = _file(known).get(features.PATH)
    settings = {name: on for name, on in given.items() if isinstance(on, bool)} if isinstance(given, dict) else {}
    for each in _arguments(known):
        if _GATES in each[:-1]:
            with suppress(ValueError):
                settings |= features.parse_flag(each[each.index(_GATES) + 1])
    return features.enabled(settings) & built.HEEDED


def _file(objects: Iterable[Plain]) -> Mapping[str, Any]:
    plain = yaml.safe_load(configuration(iter(objects)) or "{}")
    return plain if isinstance(plain, dict) else {}


def _arguments(objects: Iterable[Plain]) -> Iterator[list[str]]:
    """The arguments of each container."""
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                yield container.get("args") or []


def widens(before: LabelSelector, after: LabelSelector) -> bool:
    """Whether some namespace may be selected that was not: a requirement is missing that no other one implies."""
    return any(not _implied(each, after) for each in _requirements(before))


def _requirements(selector: LabelSelector) -> Iterator[LabelSelectorRequirement]:
    for key, value in selector.match_labels.items():
        yield LabelSelectorRequirement(key=key, operator="In", values=[value])
    yield from selector.match_expressions


def _implied(wanted: LabelSelectorRequirement, selector: LabelSelector) -> bool:
    return any(each.key == wanted.key and _at_least_as_strict(each, wanted) for each in _requirements(selector))


def _at_least_as_strict(found: LabelSelectorRequirement, wanted: LabelSelectorRequirement) -> bool:
    if wanted.operator == "Exists":
        return found.operator in ("In", "Exists")
    if wanted.operator == "NotIn":
        values, forbidden = set(found.values), set(wanted.values)
        by_choice = found.operator == "In" and not values & forbidden
        return found.operator == "DoesNotExist" or by_choice or (found.operator == "NotIn" and values >= forbidden)
    if wanted.operator == "In":
        return found.operator == "In" and set(found.values) <= set(wanted.values)
    return found.operator == wanted.operator


def shown(selector: LabelSelector) -> str:
    """A selector as `kubectl --selector` takes it; `all` for the empty one."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for each in selector.match_expressions:
        match each.operator:
            case "Exists":
                parts.append(each.key)
            case "DoesNotExist":
                parts.append(f"!{each.key}")
            case _:
                parts.append(f"{each.key} {each.operator.lower()} ({','.join(each.values)})")
    return ",".join(parts) or "all"


def changes(before: Scope, after: Scope) -> Iterator[Change]:
    """The differences: kinds, the namespaces of a kind, and whether jobs without a queue name are managed."""
    differing: dict[tuple[str, str], list[Resource]] = {}
    for resource in sorted({*before.selectors, *after.selectors}):
        old, new = before.selectors.get(resource), after.selectors.get(resource)
        if old != new:
            texts = shown(old) if old is not None else "", shown(new) if new is not None else ""
            differing.setdefault(texts, []).append(resource)
    for (was, becomes), resources in differing.items():
        yield Change(f"namespaces of {', '.join(resources)}", was, becomes)
    if before.without_queue_name != after.without_queue_name:
        yield Change(
            "jobs without a queue name",
            "managed" if before.without_queue_name else "left alone",
            "managed" if after.without_queue_name else "left alone",
        )


def widening(before: Scope, after: Scope, added: Iterable[str]) -> Iterator[Finding]:
    """The dangers of an upgrade by which more is managed than before. `added` are the namespaces that exist, and are
    managed afterwards only."""
    kinds = after.selectors.keys() - before.selectors.keys()
    if kinds:
        yield danger(Check.SCOPE, f"kinds that are managed from now on: {listed(kinds)}", INTENDED)
    wider = {
        resource
        for resource, selector in before.selectors.items()
        if resource in after.selectors and widens(selector, after.selectors[resource])
    }
    namespaces = listed(added)
    if namespaces:
        yield danger(Check.SCOPE, f"namespaces that are managed from now on: {namespaces}", INTENDED)
    elif wider:
        says = f"namespaces may be managed that were not (there are none now), for {listed(wider)}"
        yield danger(Check.SCOPE, says, INTENDED)
    if after.without_queue_name and not before.without_queue_name:
        yield danger(Check.SCOPE, "jobs without a queue name are managed from now on", INTENDED)


INTENDED: Final = (
    "give the upgrade the values of the release (helm get values RELEASE -o yaml); if it is intended, --accept scope"
)
