"""Requests of an extended resource that a DeviceClass backs, which Kubernetes fulfils with devices.

Such a request counts as the configuration maps the class, or else as the resource that it names. Must never know a
claim.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from turnstile.api import quantity
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.quantity import MAX_INT64, NANOS
from turnstile.api.validation.errors import invalid
from turnstile.engine.devices.charges import Counts, Faults, add
from turnstile.engine.devices.mappings import Mappings

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Beginning of the extended resource that each DeviceClass backs, before the name of the class."""

Requests = Mapping[str, int]
"""Billionths by resource."""


def is_extended(resource: str) -> bool:
    """Whether this is the name of an extended resource."""
    domain, slash, _ = resource.partition("/")
    return bool(slash and domain) and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def selected(classes: Iterable[DeviceClass]) -> DeviceClass:
    """The class that Kubernetes takes devices from if several back one resource: the latest, then the first by name."""
    ordered = sorted(classes, key=lambda each: each.metadata.name)
    return max(ordered, key=lambda each: each.metadata.creation_timestamp or "")


class Backing:
    """Which DeviceClass backs which extended resource."""

    __slots__ = ("_by_name", "_by_resource")

    def __init__(self) -> None:
        self._by_name: dict[str, DeviceClass] = {}
        self._by_resource: dict[str, str] = {}

    @property
    def resources(self) -> Iterable[str]:
        """The resources that classes name."""
        return self._by_resource.keys()

    def of(self, resource: str) -> str | None:
        """The DeviceClass behind a resource; None if there is none."""
        if resource.startswith(IMPLICIT):
            return resource.removeprefix(IMPLICIT)
        return self._by_resource.get(resource)

    def put(self, given: DeviceClass | None, name: str) -> None:
        """A class exists as it is given, or does not."""
        self._by_name.pop(name, None)
        if given is not None and is_extended(given.spec.extended_resource_name or ""):
            self._by_name[name] = given
        by_resource: dict[str, list[DeviceClass]] = {}
        for each in self._by_name.values():
            by_resource.setdefault(each.spec.extended_resource_name or "", []).append(each)
        self._by_resource = {
            resource: selected(classes).metadata.name for resource, classes in by_resource.items() if resource
        }


def devices_for(
    total: Requests, containers: Sequence[tuple[str, Requests]], backing: Backing, mappings: Mappings
) -> tuple[Counts, frozenset[str]]:
    """The devices of one pod by quota resource, and the resources that they are charged in place of. `total` is what
    the pod requests, `containers` are the paths of its containers and what each requests. Raises Faults."""
    counts: Counts = {}
    replaced = []
    for resource, wanted in sorted(total.items()):
        name = backing.of(resource)
        if name is None or wanted <= 0:
            continue
        at = [(path, asked[resource]) for path, asked in containers if asked.get(resource)]
        first = at[0][0] if at else ""
        key = mappings.resource(name)
        if key is not None and (parts := mappings.in_parts(name)):
            raise Faults(
                invalid(first, resource, f"extended resource {resource} resolves to DeviceClass {name} {parts}")
            )
        faults = [
            invalid(
                f"{path}.resources.requests.{resource}",
                quantity.canonical(f"{asked}n"),
                "extended resource quantity must be an integer",
            )
            for path, asked in at
            if asked % NANOS or asked > MAX_INT64 * NANOS
        ]
        if not faults and wanted > MAX_INT64 * NANOS:
            detail = "total extended resource quantity overflows int64"
            shown = quantity.canonical(f"{wanted // NANOS}e0")
            faults = [invalid(f"{first}.resources.requests.{resource}", shown, detail)]
        if faults:
            raise Faults(*faults)
        replaced.append(resource)
        add(counts, key or resource, -(-wanted // NANOS))
    return counts, frozenset(replaced)
