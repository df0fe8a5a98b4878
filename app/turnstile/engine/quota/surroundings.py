"""Everything besides a Workload itself that decides what it asks for: configuration, limits, devices, interning.

One value of the state, which all of its `Info`s share. Must never decide anything about a Workload.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from turnstile.api.pods import PodSpec, Quantity
from turnstile.api.quantity import MAX_INT64
from turnstile.api.shared import LONGEST, Shared
from turnstile.api.workload import Workload
from turnstile.engine.devices.charges import Charges
from turnstile.engine.devices.devices import Asked, Devices
from turnstile.engine.options import Options
from turnstile.engine.quota import requests
from turnstile.engine.quota.amounts import Catalog
from turnstile.engine.quota.podsets import Shapes
from turnstile.engine.quota.requests import EffectivePod, LimitSummary
from turnstile.engine.topology.nodes import Nodes

COUNTED_PODS: Final = 4096
"""Maximum number of pod specs for which the requests of one pod are remembered."""

_encode = msgspec.json.Encoder(order="sorted").encode


class CountedPod:
    """One pod of a spec: as it is after defaults, and what quota counts for it. Shared, so never modified."""

    __slots__ = ("_single", "counts", "pod")

    def __init__(self, pod: EffectivePod, counts: dict[str, int]) -> None:
        self.pod = pod
        self.counts = counts
        self._single: dict[str, int] | None = None

    @property
    def single(self) -> dict[str, int]:
        """Requests of one pod as a node counts them, whatever quota counts."""
        if self._single is None:
            self._single = requests.amounts(requests.pod_requests(self.pod))
        return self._single


class Surroundings:
    """Everything besides the Workload itself that decides its requests: configuration, RuntimeClasses, LimitRanges,
    devices, interning."""

    __slots__ = (
        "_counted",
        "catalog",
        "devices",
        "limits",
        "nodes",
        "options",
        "overheads",
        "shapes",
        "texts",
        "transformations",
    )

    def __init__(self, options: Options) -> None:
        self.options = options
        self.catalog = Catalog()
        self.nodes = Nodes(shared=options.gates.tas_handle_overlapping_flavors)
        self.shapes = Shapes()
        self.texts = Shared()
        self.devices = Devices(options)
        self.overheads: dict[str, Mapping[str, Quantity]] = {}
        self.limits: dict[str, dict[str, LimitSummary]] = {}
        self.transformations = options.transformations
        self._counted: dict[bytes, CountedPod] = {}

    def counted(self, spec: PodSpec, namespace: str) -> CountedPod:
        """One pod of a spec. Equal specs are counted once, unless a LimitRange or a RuntimeClass has a say, which may
        change. Raises InvalidValue."""
        limits = self.limits.get(namespace, {})
        if limits or spec.runtime_class_name:
            return self._count(spec, limits)
        key = _encode(spec)
        found = self._counted.get(key)
        if found is None:
            found = self._count(spec, limits)
            if len(key) <= LONGEST:
                if len(self._counted) >= COUNTED_PODS:
                    self._counted.clear()
                self._counted[key] = found
        return found

    def _count(self, spec: PodSpec, limits: Mapping[str, LimitSummary]) -> CountedPod:
        pod = requests.effective_pod(spec, overheads=self.overheads, limits=limits)
        return CountedPod(pod, self._counts(requests.pod_requests(pod)))

    def _counts(self, asked: requests.Exact) -> dict[str, int]:
        """Requests of one pod as quota counts them."""
        prefixes = self.options.exclude_resource_prefixes
        return requests.amounts(
            requests.counted(asked, transformations=self.transformations, exclude_prefixes=prefixes)
        )

    def charges(self, workload: Workload) -> Charges | None:
        """The charges of a Workload without quota for devices; None if no pod of it asks for devices. Raises
        InvalidValue."""
        specs = [each.template.spec for each in workload.spec.pod_sets]
        if not any(map(self.devices.concern, specs)):
            return None
        pods = [self.counted(spec, workload.metadata.namespace).pod for spec in specs]
        asked = [
            Asked(requests.pod_requests(pod), requests.by_container(pod, f"spec.podSets[{index}].template.spec"))
            for index, pod in enumerate(pods)
        ]
        return self.devices.charges(workload, asked)

    def with_devices(self, single: CountedPod, pod_set: str, charges: Charges) -> dict[str, int]:
        """The counts of one pod with devices of its own, which are charged in place of some of its requests."""
        counts = single.counts
        if instead := charges.replaced.get(pod_set):
            asked = requests.pod_requests(single.pod)
            counts = self._counts({name: value for name, value in asked.items() if name not in instead})
        devices = charges.counts.get(pod_set, {})
        return counts | {name: min(counts.get(name, 0) + value, MAX_INT64) for name, value in devices.items()}
