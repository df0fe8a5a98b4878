"""Objects with one thing changed: what a remedy supposes. Pure: the given object stays as it is."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.effectivequota import with_groups
from turnstile.api.pods import Container, PodSpec, Toleration
from turnstile.api.quantity import to_int
from turnstile.api.quota import FlavorQuotas, ResourceGroup, ResourceQuota
from turnstile.api.workload import PodSet, Workload
from turnstile.engine.quota.amounts import quantity

EVERY_TAINT: Final = Toleration(operator="Exists")
_Change = Callable[[PodSet], PodSet]


def in_queue(workload: Workload, local_queue: str) -> Workload:
    """The Workload in another LocalQueue of its namespace."""
    return replace(workload, spec=replace(workload.spec, queue_name=local_queue))


def activated(workload: Workload) -> Workload:
    """The Workload with `spec.active: true`."""
    return replace(workload, spec=replace(workload.spec, active=True))


def with_priority(workload: Workload, priority: int) -> Workload:
    """The Workload with another priority."""
    return replace(workload, spec=replace(workload.spec, priority=priority))


def with_count(workload: Workload, pod_set: str, count: int) -> Workload:
    """The Workload with so many pods in a pod set, whose minimum follows if it is larger."""
    return _each_pod_set(workload, {pod_set: lambda item: replace(item, count=count, min_count=_least(item, count))})


def with_request(workload: Workload, pod_set: str, resource: str, part: tuple[int, int]) -> Workload:
    """The Workload whose pods ask for `part` (a numerator and a denominator) of what they ask for of a resource now, in
    each container; amounts are rounded down to milli for cpu, to whole units otherwise."""
    return _each_pod_set(workload, {pod_set: lambda item: _of_spec(item, _asking(item.template.spec, resource, part))})


def anywhere(workload: Workload) -> Workload:
    """The Workload whose pods tolerate all taints and name no node labels."""

    def free(item: PodSet) -> PodSet:
        spec = item.template.spec
        return _of_spec(item, replace(spec, node_selector={}, affinity=None, tolerations=[EVERY_TAINT]))

    return _each_pod_set(workload, {item.name: free for item in workload.spec.pod_sets})


def with_quota(queue: ClusterQueue, more: Mapping[tuple[str, str], int]) -> ClusterQueue:
    """The ClusterQueue with so much more nominal quota, by flavor and resource, in the engine's units. A resource that
    the group of a flavor does not cover yet is added to all flavors of the group."""
    return with_groups(queue, [_raised_group(group, more) for group in queue.spec.resource_groups])


def _raised_group(group: ResourceGroup, more: Mapping[tuple[str, str], int]) -> ResourceGroup:
    flavors = {item.name for item in group.flavors}
    covered = [*group.covered_resources]
    covered += sorted({resource for flavor, resource in more if flavor in flavors} - {*covered})
    return replace(
        group, covered_resources=covered, flavors=[_raised_flavor(item, covered, more) for item in group.flavors]
    )


def _raised_flavor(item: FlavorQuotas, covered: list[str], more: Mapping[tuple[str, str], int]) -> FlavorQuotas:
    held = {each.name: each for each in item.resources}
    resources = []
    for name in covered:
        given = held.get(name) or ResourceQuota(name=name, nominal_quota=0)
        added = more.get((item.name, name), 0)
        if added:
            total = to_int(name, given.nominal_quota) + added
            given = replace(given, nominal_quota=quantity(name, total))
        resources.append(given)
    return replace(item, resources=resources)


def _each_pod_set(workload: Workload, change: Mapping[str, _Change]) -> Workload:
    pod_sets = [change[item.name](item) if item.name in change else item for item in workload.spec.pod_sets]
    return replace(workload, spec=replace(workload.spec, pod_sets=pod_sets))


def _least(item: PodSet, count: int) -> int | None:
    return item.min_count if item.min_count is None or item.min_count <= count else max(1, count)


def _of_spec(item: PodSet, spec: PodSpec) -> PodSet:
    return replace(item, template=replace(item.template, spec=spec))


def _asking(spec: PodSpec, resource: str, part: tuple[int, int]) -> PodSpec:
    resources = spec.resources
    if resources is not None:
        resources = replace(resources, requests=_less(resources.requests, resource, part), limits={})
    return replace(
        spec,
        containers=[_container(each, resource, part) for each in spec.containers],
        init_containers=[_container(each, resource, part) for each in spec.init_containers],
        resources=resources,
    )


def _container(container: Container, resource: str, part: tuple[int, int]) -> Container:
    given = container.resources
    if given is None:
        return container
    asked = {**given.limits, **given.requests}  # a limit is what is asked for where no request is
    return replace(container, resources=replace(given, requests=_less(asked, resource, part), limits={}))


def _less(asked: Mapping[str, str | int | float], resource: str, part: tuple[int, int]) -> dict[str, str | int | float]:
    if resource not in asked:
        return dict(asked)
    numerator, denominator = part
    return {**asked, resource: quantity(resource, to_int(resource, asked[resource]) * numerator // denominator)}
