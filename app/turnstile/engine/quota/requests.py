"""Requests of a workload's pods: from pod templates to whole-number totals by pod set.

Follows the API server where it completes a pod (`effective_pod`, its only place), Kubernetes where it adds up a pod
(sidecars, init containers, pod-level resources, overhead), and Kueue where it counts one resource as another
(transformations). Kueue completes a pod in another order, and so charges for less than pods request. Sums are exact, in
billionths, and rounded up once. Must never change an API object.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final

from turnstile.api.core import LimitRange, LimitRangeItem
from turnstile.api.pods import Container, PodSpec, Quantity
from turnstile.api.quantity import MAX_INT64, NANOS, is_short, parse
from turnstile.engine.options import Transformation

Exact = dict[str, int]
"""Resource to billionths of its base unit."""

_MILLI: Final = NANOS // 1000
_OVERCOMMITTED: Final = ("cpu", "memory")
"""Resources that a pod as a whole may request, and of which its limit may be larger; a huge page is another one."""
_HUGE_PAGES: Final = "hugepages-"
_REQUESTS: Final = attrgetter("requests")
_LIMITS: Final = attrgetter("limits")


def nanos(value: Quantity) -> int:
    """Billionths. Raises InvalidValue."""
    return _known(value) if is_short(value) else _worked_out(value)


@lru_cache(maxsize=1 << 14, typed=True)
def _known(value: Quantity) -> int:
    return _worked_out(value)


def _worked_out(value: Quantity) -> int:
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
    """The LimitRanges of a namespace as one: per item type (`Container`, `Pod`) the default limits and requests, the
    smallest max and ratio, the largest min of each resource.

    Several LimitRanges may have a default for one resource, and the API server then takes any of them: the first limit,
    and the largest request, so that no pod requests more than is charged. Kueue (util/limitrange) takes the first.
    """

    __slots__ = ("default", "default_request", "max", "max_limit_request_ratio", "min")

    def __init__(self) -> None:
        self.default: Exact = {}
        self.default_request: Exact = {}
        self.max: Exact = {}
        self.max_limit_request_ratio: Exact = {}
        self.min: Exact = {}

    def add(self, item: LimitRangeItem) -> None:
        """Take in an item of a LimitRange."""
        largest, smallest, default = exact(item.max), exact(item.min), exact(item.default)
        requests = exact(item.default_request)
        if item.type == "Container":  # as the API server stores it: SetDefaults_LimitRangeItem
            requests = {**smallest, **largest, **default, **requests}
        self.default = {**default, **self.default}
        _raise(self.default_request, requests)
        _raise(self.min, smallest)
        _lower(self.max, largest)
        _lower(self.max_limit_request_ratio, exact(item.max_limit_request_ratio))


def summarize(ranges: Iterable[LimitRange]) -> dict[str, LimitSummary]:
    """Summary by item type, in the order given."""
    found: dict[str, LimitSummary] = {}
    for limit_range in ranges:
        for item in limit_range.spec.limits:
            found.setdefault(item.type, LimitSummary()).add(item)
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
    def bounded(self) -> bool:
        """Whether anything in it bounds its requests: a limit, or resources of the pod as a whole."""
        return self.resources is not None or any(item.limits for item in (*self.containers, *self.init_containers))


def effective_pod(
    spec: PodSpec,
    *,
    overheads: Mapping[str, Mapping[str, Quantity]] = {},
    limits: Mapping[str, LimitSummary] = {},
) -> EffectivePod:
    """The pod that the API server makes of a spec. A created pod, which is complete, stays as it is, if it is given
    without RuntimeClasses and LimitRanges: they may have changed since.

    In the order of the API server: the pod is defaulted when it is decoded (SetDefaults_Pod: limits as requests, then
    the pod level), and only then do admission plugins add the defaults of LimitRanges to containers (LimitRanger) and
    the overhead of the RuntimeClass. A pod that a webhook changes is defaulted again, which changes no sum: a
    LimitRange that has a default limit has a default request. Raises InvalidValue.
    """
    overhead: Mapping[str, Quantity] = spec.overhead
    if not overhead and spec.runtime_class_name:
        overhead = overheads.get(spec.runtime_class_name, {})
    whole = spec.resources
    pod = EffectivePod(
        [_container(container) for container in spec.containers],
        [_container(container) for container in spec.init_containers],
        exact(overhead) if overhead else {},
        EffectiveContainer(exact(whole.requests), exact(whole.limits), sidecar=False) if whole is not None else None,
    )
    if pod.resources is not None:
        _complete_pod_level(pod, pod.resources)
    if limits and (summary := limits.get("Container")) is not None:
        for item in (*pod.containers, *pod.init_containers):
            item.limits = {**summary.default, **item.limits}
            item.requests = {**summary.default_request, **item.requests}
    return pod


def _container(container: Container) -> EffectiveContainer:
    """A container with its limits as requests of what it does not request."""
    resources, sidecar = container.resources, container.restart_policy == "Always"
    if resources is None:
        return EffectiveContainer({}, {}, sidecar=sidecar)
    limits = exact(resources.limits)
    return EffectiveContainer({**limits, **exact(resources.requests)}, limits, sidecar=sidecar)


def _complete_pod_level(pod: EffectivePod, whole: EffectiveContainer) -> None:
    """Limits of huge pages are those of the containers. Where the pod has a limit, its requests are those of the
    containers; for a resource that no container requests, its limit."""
    if whole.limits or whole.requests:
        for name, value in _of_containers(pod, _LIMITS).items():
            if name.startswith(_HUGE_PAGES) and name not in whole.requests:
                whole.limits.setdefault(name, value)
    if whole.limits:
        for name, value in _of_containers(pod, _REQUESTS).items():
            if name in _OVERCOMMITTED:
                whole.requests.setdefault(name, value)
        whole.requests = {**_at_pod_level(whole.limits), **whole.requests}


def _at_pod_level(resources: Exact) -> Exact:
    """Resources that a pod as a whole may have; of others what the whole pod states does not count."""
    return {name: value for name, value in resources.items() if name in _OVERCOMMITTED or name.startswith(_HUGE_PAGES)}


def pod_requests(pod: EffectivePod) -> Exact:
    """Requests that the kubelet's node must hold for one pod (Kubernetes: PodRequests).

    Containers and sidecars run together; an ordinary init container runs with the sidecars before it. Pod-level cpu,
    memory and huge pages replace the sum; overhead comes on top.
    """
    total = _together(pod, _REQUESTS)
    _add(total, pod.overhead)
    return total


def by_container(pod: EffectivePod, path: str) -> list[tuple[str, Exact]]:
    """The path of each container and what it requests, containers first."""
    return [
        (f"{path}.{group}[{index}]", item.requests)
        for group, items in (("containers", pod.containers), ("initContainers", pod.init_containers))
        for index, item in enumerate(items)
    ]


def _together(pod: EffectivePod, part: Callable[[EffectiveContainer], Exact]) -> Exact:
    """Requests, or limits, of one pod without overhead; a container without a limit adds nothing to the limits."""
    total = _of_containers(pod, part)
    if pod.resources is not None:
        total |= _at_pod_level(part(pod.resources))
    return total


def _of_containers(pod: EffectivePod, part: Callable[[EffectiveContainer], Exact]) -> Exact:
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
    return total


def _add(total: Exact, more: Exact) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Exact, floor: Exact) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0) or name not in total:
            total[name] = value


def _lower(total: Exact, ceiling: Exact) -> None:
    for name, value in ceiling.items():
        total[name] = min(value, total.get(name, value))


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
    """Requests above their limits; containers above what the whole pod states."""
    found: list[Violation] = []
    for group, items in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, item in enumerate(items):
            if item.limits:
                _above(found, item, f"{path}.{group}[{index}]")
    if (whole := pod.resources) is not None:
        _above(found, whole, f"{path}.resources")
        if names := greater(_of_containers(pod, _REQUESTS), whole.requests):
            detail = "requests must not be below those of the containers together"
            found.append(Violation(f"{path}.resources", names, detail))
        for index, item in enumerate(pod.containers):
            if names := greater(item.limits, whole.limits):
                detail = "limits must not exceed the limits of the pod"
                found.append(Violation(f"{path}.containers[{index}]", names, detail))
    return found


def _above(found: list[Violation], item: EffectiveContainer, field: str) -> None:
    if names := greater(item.requests, item.limits):
        found.append(Violation(field, names, "requests must not exceed its limits"))


def range_violations(pod: EffectivePod, path: str, limits: Mapping[str, LimitSummary]) -> list[Violation]:
    """Containers and pods outside the min, max and limit-to-request ratio of the namespace's LimitRanges. A pod needs
    the requests and limits that are held against these, as Kubernetes asks for (plugin limitranger); containers have
    them by default."""
    found: list[Violation] = []
    container_range = limits.get("Container")
    if container_range is not None:
        for group, items in (("initContainers", pod.init_containers), ("containers", pod.containers)):
            for index, item in enumerate(items):
                field = f"{path}.{group}[{index}]"
                _outside(found, field, item.requests, item.limits, container_range)
                _stretched(found, field, item.requests, item.limits, container_range)
    pod_range = limits.get("Pod")
    if pod_range is not None:
        requests, most = _together(pod, _REQUESTS), _together(pod, _LIMITS)
        _outside(found, path, requests, most, pod_range)
        _unset(found, path, requests, most, pod_range)
        _stretched(found, path, requests, most, pod_range)
    return found


def _outside(found: list[Violation], field: str, requests: Exact, limits: Exact, bounds: LimitSummary) -> None:
    low, high = dict(requests), dict(requests)
    _lower(low, limits)
    _raise(high, limits)
    if names := greater(high, bounds.max):
        found.append(Violation(field, names, "requests must not be above the limitRange max"))
    if names := greater(bounds.min, low):
        found.append(Violation(field, names, "requests must not be below the limitRange min"))


def _unset(found: list[Violation], field: str, requests: Exact, limits: Exact, bounds: LimitSummary) -> None:
    """Pods without a limit that a max, or a request that a min could be held against; none that is at fault already."""
    if names := sorted(name for name in bounds.max if name not in limits and requests.get(name, 0) <= bounds.max[name]):
        found.append(Violation(field, names, "limits must be set, as the limitRange has a max"))
    if names := sorted(name for name in bounds.min if name not in requests):
        found.append(Violation(field, names, "requests must be set, as the limitRange has a min"))


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
