"""The configuration's `deviceClassMappings`: as which quota resource the devices of a DeviceClass count.

Must never know an object of the cluster.
"""

from collections.abc import Iterable

from turnstile.engine.options import DeviceMapping, DeviceSource


class Mappings:
    """DeviceClasses by name."""

    __slots__ = ("_resources", "_sources", "resources")

    def __init__(self, mappings: Iterable[DeviceMapping]) -> None:
        self._resources: dict[str, str] = {}
        self.resources: set[str] = set()
        """All quota resources as which devices count."""
        self._sources: dict[str, list[tuple[str, DeviceSource]]] = {}
        for mapping in mappings:
            self.resources.add(mapping.resource)
            for name in mapping.classes:
                self._resources[name] = mapping.resource
                self._sources.setdefault(name, []).extend((mapping.resource, source) for source in mapping.sources)

    def resource(self, device_class: str) -> str | None:
        """The quota resource of a DeviceClass; None if no mapping has it."""
        return self._resources.get(device_class)

    def sources(self, device_class: str, kind: str) -> list[tuple[str, DeviceSource]]:
        """Counters, or capacities, by which the devices of a DeviceClass count, each with its quota resource."""
        return [(name, source) for name, source in self._sources.get(device_class, ()) if source.kind == kind]

    def in_parts(self, device_class: str) -> str:
        """How the devices of a DeviceClass are counted instead of whole, as a sentence goes on about it; empty if they
        are counted whole."""
        if self.sources(device_class, "counter"):
            return "with counters configured; use ResourceClaimTemplates with CEL selectors for counter-based quota"
        if self.sources(device_class, "capacity"):
            return (
                "with capacity sources configured; "
                "use ResourceClaimTemplates with capacity.requests for capacity-based quota"
            )
        return ""
