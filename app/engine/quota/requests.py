"""What the pods of a workload ask for: from pod templates to whole-number totals by pod set.

Follows Kubernetes where it adds up a pod (sidecars, init containers, pod-level resources, overhead) and Kueue where it
fills in what is missing (RuntimeClass overhead, LimitRange defaults, limits as requests) and counts one resource as
another (transformations). Sums are exact, in billionths, and rounded up once. Must never change an API object.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final

from app.api.core import LimitRange
from app.api.pods import Container, PodSpec, Quantity, ResourceRequirements
from app.api.quantity import MAX_INT64, NANOS, parse
from app.engine.options import Transformation

Exact = dict[str, int]
"""Resource to billionths of its base unit."""

_MILLI: Final = NANOS // 1000
_POD_LEVEL: Final = ("cpu", "memory")
_REQUESTS: Final = attrgetter("requests")
_LIMITS: Final = attrgetter("limits")


@lru_cache(maxsize=1 << 14, typed=True)
def nanos(value: Quantity) -> int:
    """Billionths. Raises InvalidValue."""
    exact = parse(value) * NANOS
    return exact.numerator // exact.denominator


def exact(resources: Mapping[str, Quantity]) -> Exact:
    """A resource list in billionths."""
    return {name: nanos(value) for name, value in resources.items()}


def amount(resource: str, value: int) -> int:
    """Billionths to the engine's unit (milli for cpu), rounded up, within int64, never negative."""
    whole = -(-value // (_MILLI if resource == "cpu" else NANOS))
    return 0 if whole < 0 else min(whole, MAX_INT64)


class LimitSummary:
    """The LimitRanges of a namespace as one: per item type (`Container`, `Pod`) the first default and default request,
    the smallest max and ratio, the largest min of each resource. Kueue: util/limitrange."""

    __slots__ = ("default", "default_request", "max", "max_limit_request_ratio", "min")

    def __init__(self) -> None:
        self.default: Exact = {}
        self.default_request: Exact = {}
        self.max: Exact = {}
        self.max_limit_request_ratio: Exact = {}
        self.min: Exact = {}


def summarize(ranges: Iterable[LimitRange]) -> dict[str, LimitSummary]:
    """Summary by item type, in the order given."""
    found: dict[str, LimitSummary] = {}
    for limit_range in ranges:
        for item in limit_range.spec.limits:
            summary = found.setdefault(item.type, LimitSummary())
            for name, value in exact(item.default).items():
                summary.default.setdefault(name, value)
            for name, value in exact(item.default_request).items():
                summary.default_request.setdefault(name, value)
            for name, value in exact(item.max).items():
                summary.max[name] = min(value, summary.max.get(name, value))
            for name, value in exact(item.min).items():
                summary.min[name] = max(value, summary.min.get(name, value))
            ratios = summary.max_limit_request_ratio
            for name, value in exact(item.max_limit_request_ratio).items():
                ratios[name] = min(value, ratios.get(name, value))
    return found


class EffectiveContainer:
    """Requests and limits after defaults, in billionths."""

    __slots__ = ("limits", "requests", "sidecar")

    def __init__(self, requests: Exact, limits: Exact, *, sidecar: bool) -> None:
        self.requests = requests
        self.limits = limits
        self.sidecar = sidecar


class EffectivePod:
    """A pod spec after defaults. `resources` is the pod-level block, if there is one."""

    __slots__ = ("containers", "init_containers", "overhead", "resources")

    def __init__(
        self,
        containers: list[EffectiveContainer],
        init_containers: list[EffectiveContainer],
        overhead: Exact,
        resources: EffectiveContainer | None,
    ) -> None:
        self.containers = containers
        self.init_containers = init_containers
        self.overhead = overhead
        self.resources = resources

    @property
    def limited(self) -> bool:
        """Whether any part of it has a limit that its requests could be above."""
        items = [*self.containers, *self.init_containers]
        return any(item.limits for item in items) or (self.resources is not None and bool(self.resources.limits))


def effective_pod(
    spec: PodSpec,
    *,
    overheads: Mapping[str, Mapping[str, Quantity]] = {},
    limits: Mapping[str, LimitSummary] = {},
) -> EffectivePod:
    """The pod as it will be counted: overhead of its RuntimeClass if it names none, LimitRange defaults, then limits as
    requests (in this order, so a default request wins over an explicit limit). Raises InvalidValue."""
    overhead: Mapping[str, Quantity] = spec.overhead
    if not overhead and spec.runtime_class_name:
        overhead = overheads.get(spec.runtime_class_name, {})
    container_limits = limits.get("Container") if limits else None
    resources = None
    if spec.resources is not None:
        resources = _effective(spec.resources, limits.get("Pod") if limits else None, sidecar=False)
    return EffectivePod(
        [_container(container, container_limits) for container in spec.containers],
        [_container(container, container_limits) for container in spec.init_containers],
        exact(overhead) if overhead else {},
        resources,
    )


def _container(container: Container, summary: LimitSummary | None) -> EffectiveContainer:
    return _effective(container.resources, summary, sidecar=container.restart_policy == "Always")


def _effective(
    resources: ResourceRequirements | None, summary: LimitSummary | None, *, sidecar: bool
) -> EffectiveContainer:
    requests = exact(resources.requests) if resources is not None else {}
    limits = exact(resources.limits) if resources is not None else {}
    if summary is not None:
        limits = {**summary.default, **limits}
        requests = {**summary.default_request, **requests}
    if limits:
        requests = {**limits, **requests}
    return EffectiveContainer(requests, limits, sidecar=sidecar)


def pod_requests(pod: EffectivePod) -> Exact:
    """What the kubelet's node must hold for one pod (Kubernetes: PodRequests).

    Containers and sidecars run together; an ordinary init container runs with the sidecars before it. Pod-level cpu,
    memory and huge pages replace the sum; overhead comes on top.
    """
    total = _together(pod, _REQUESTS)
    _add(total, pod.overhead)
    return total


def _together(pod: EffectivePod, part: Callable[[EffectiveContainer], Exact]) -> Exact:
    """Requests, or limits, of one pod without overhead; a container without a limit adds nothing to the limits."""
    total: Exact = {}
    for container in pod.containers:
        _add(total, part(container))
    if pod.init_containers:
        sidecars: Exact = {}
        peak: Exact = {}
        for container in pod.init_containers:
            if container.sidecar:
                _add(total, part(container))
                _add(sidecars, part(container))
                running = sidecars
            else:
                running = dict(part(container))
                _add(running, sidecars)
            _raise(peak, running)
        _raise(total, peak)
    if pod.resources is not None:
        for name, value in part(pod.resources).items():
            if name in _POD_LEVEL or name.startswith("hugepages-"):
                total[name] = value
    return total


def _add(total: Exact, more: Exact) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Exact, floor: Exact) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0) or name not in total:
            total[name] = value


def counted(
    requests: Exact, *, transformations: Sequence[Transformation] = (), exclude_prefixes: tuple[str, ...] = ()
) -> Exact:
    """Requests of one pod as quota counts them: excluded prefixes dropped, transformations applied."""
    if exclude_prefixes:
        requests = {name: value for name, value in requests.items() if not name.startswith(exclude_prefixes)}
    if not transformations:
        return requests
    rules = {rule.input: rule for rule in transformations}
    if not any(name in rules for name in requests):
        return requests
    retained: Exact = {}
    generated: Exact = {}
    for name, value in requests.items():
        rule = rules.get(name)
        if rule is None:
            retained[name] = value
            continue
        base = value
        if rule.multiply_by is not None and rule.multiply_by in requests:
            base = value * requests[rule.multiply_by] // NANOS
        for output, factor in rule.outputs.items():
            product = base * factor
            generated[output] = generated.get(output, 0) + -(-product.numerator // product.denominator)
        if rule.strategy == "Retain":
            retained[name] = value
    for name, value in generated.items():
        retained[name] = retained.get(name, 0) + max(0, value)
    return retained


def amounts(requests: Exact) -> dict[str, int]:
    """Requests of one pod in the engine's units."""
    return {name: amount(name, value) for name, value in requests.items()}


def greater(left: Exact, right: Exact) -> list[str]:
    """Names in both whose left value is the larger."""
    return sorted(name for name, value in left.items() if name in right and value > right[name])


class Violation:
    """A pod template that the cluster would refuse: field, resources, and what is wrong with them."""

    __slots__ = ("detail", "field", "resources")

    def __init__(self, field: str, resources: list[str], detail: str) -> None:
        self.field = field
        self.resources = resources
        self.detail = detail

    def __str__(self) -> str:
        values = json.dumps(self.resources, separators=(",", ":"))
        return f"{self.field}: Invalid value: {values}: {self.detail}"


def limit_violations(pod: EffectivePod, path: str) -> list[Violation]:
    """Requests above their limits."""
    found: list[Violation] = []
    for group, items in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, item in enumerate(items):
            if item.limits:
                _above(found, item, f"{path}.{group}[{index}]")
    if pod.resources is not None:
        _above(found, pod.resources, f"{path}.resources")
    return found


def _above(found: list[Violation], item: EffectiveContainer, field: str) -> None:
    if names := greater(item.requests, item.limits):
        found.append(Violation(field, names, "requests must not exceed its limits"))


def range_violations(pod: EffectivePod, path: str, limits: Mapping[str, LimitSummary]) -> list[Violation]:
    """Containers and pods outside the min, max and limit-to-request ratio of the namespace's LimitRanges. What is held
    against a ratio needs both a request and a limit, as Kubernetes asks for (plugin limitranger)."""
    found: list[Violation] = []
    container_range = limits.get("Container")
    if container_range is not None:
        for group, items in (("initContainers", pod.init_containers), ("containers", pod.containers)):
            for index, item in enumerate(items):
                low, high = _merge(item, largest=False), _merge(item, largest=True)
                field = f"{path}.{group}[{index}]"
                _outside(found, field, low, high, container_range)
                _stretched(found, field, item.requests, item.limits, container_range)
    pod_range = limits.get("Pod")
    if pod_range is not None:
        total = pod_requests(pod)
        _outside(found, path, total, total, pod_range)
        _stretched(found, path, _together(pod, _REQUESTS), _together(pod, _LIMITS), pod_range)
    return found


def _merge(item: EffectiveContainer, *, largest: bool) -> Exact:
    merged = dict(item.requests)
    for name, value in item.limits.items():
        old = merged.get(name, value)
        merged[name] = max(old, value) if largest else min(old, value)
    return merged


def _outside(found: list[Violation], field: str, low: Exact, high: Exact, bounds: LimitSummary) -> None:
    if names := greater(high, bounds.max):
        found.append(Violation(field, names, "requests must not be above the limitRange max"))
    if names := greater(bounds.min, low):
        found.append(Violation(field, names, "requests must not be below the limitRange min"))


def _stretched(found: list[Violation], field: str, requests: Exact, limits: Exact, bounds: LimitSummary) -> None:
    names = sorted(
        name
        for name, ratio in bounds.max_limit_request_ratio.items()
        if not requests.get(name) or not limits.get(name) or limits[name] * NANOS > requests[name] * ratio
    )
    if names:
        detail = "limits must not be above requests times the limitRange maxLimitRequestRatio, and both must be set"
        found.append(Violation(field, names, detail))


def aggregate(violations: Sequence[Violation]) -> str:
    """Several errors as Kubernetes prints them: one as it is, more in brackets, each once."""
    texts = list(dict.fromkeys(str(violation) for violation in violations))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
