"""Rules about ClusterQueues, LocalQueues and ResourceFlavors. Must never look at jobs."""

from collections.abc import Iterator

from turnstile.api import waitforroom
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Namespace
from turnstile.api.effectivequota import set_by
from turnstile.api.localqueue import LocalQueue
from turnstile.api.quantity import parse
from turnstile.api.quota import ResourceGroup, ResourceQuota
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.timeannotations import MINIMUM_RUN_TIME, NAMES, above_limit, fault, path
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.causes import Inactive
from turnstile.engine.flavors.together import lonely
from turnstile.insight.lint.findings import Found
from turnstile.insight.lint.world import World, place
from turnstile.wording import quotas as quota_words
from turnstile.wording import standing as words
from turnstile.wording.amounts import amount, figure, many, nodes
from turnstile.wording.causes import waiting
from turnstile.wording.grammar import clause
from turnstile.wording.inactivity import admits_nothing


def quotas(groups: list[ResourceGroup]) -> Iterator[tuple[str, ResourceQuota]]:
    """Each flavor with each of its quotas."""
    for group in groups:
        for flavor in group.flavors:
            for resource in flavor.resources:
                yield flavor.name, resource


def unreadable(world: World) -> Found:
    """Amounts that are no quantities."""
    for about, error in world.unreadable:
        yield about, f"{error.field} {error.value}: {error.cure}"


def durations(world: World) -> Found:
    """Annotations whose duration cannot be read, or is longer than the configuration allows."""
    longest = world.offer.state.options.longest_minimum_run_time
    for each in (*world.snapshot.of(ClusterQueue), *world.snapshot.of(WorkloadPriorityClass)):
        for name in NAMES:
            long = above_limit(each.metadata, longest) if name == MINIMUM_RUN_TIME else ""
            if why := fault(each.metadata, name) or long:
                yield place(each), f"{path(name)} is {each.metadata.annotations[name]!r}: {why}"


def switches(world: World) -> Found:
    """Annotations that ask for room on nodes, and say neither yes nor no."""
    for each in world.snapshot.of(ClusterQueue):
        if why := waitforroom.fault(each.metadata):
            text = each.metadata.annotations[waitforroom.WAIT_FOR_ROOM]
            yield place(each), f"{path(waitforroom.WAIT_FOR_ROOM)} is {text!r}: {why}"


def durations_of_tenants(world: World) -> Found:
    """The same annotations on Workloads, where they mean nothing."""
    for each in world.snapshot.of(Workload):
        for name in (*NAMES, waitforroom.WAIT_FOR_ROOM):
            if name in each.metadata.annotations:
                yield place(each), f"it has {path(name)}, which an administrator writes on its ClusterQueue"


def missing_cluster_queue(world: World) -> Found:
    """LocalQueues that lead nowhere."""
    if not world.complete(ClusterQueue):
        return
    for local in world.snapshot.of(LocalQueue):
        name = local.spec.cluster_queue or ""
        if world.snapshot.get(ClusterQueue, name) is None:
            yield place(local), f"its {words.missing_cluster_queue(name or '(none)')}"


def missing_flavor(world: World) -> Found:
    """Flavors of ClusterQueues that do not exist."""
    if not world.complete(ResourceFlavor):
        return
    for queue in world.snapshot.of(ClusterQueue):
        names = dict.fromkeys(flavor for flavor, _ in quotas(queue.spec.resource_groups))
        missing = [each for each in names if world.snapshot.get(ResourceFlavor, each) is None]
        if missing:
            yield place(queue), f"it {admits_nothing(Inactive.FLAVORS_MISSING.says(missing=','.join(missing)))}"


def no_local_queue(world: World) -> Found:
    """ClusterQueues that no job can name, and that lend nothing."""
    if not world.complete(LocalQueue):
        return
    used = {each.spec.cluster_queue for each in world.snapshot.of(LocalQueue)}
    for queue in world.snapshot.of(ClusterQueue):
        lends = bool(queue.spec.cohort_name) and any(
            parse(each.nominal_quota) and (each.lending_limit is None or parse(each.lending_limit))
            for _, each in quotas(queue.spec.resource_groups)
        )
        if queue.metadata.name not in used and not lends:
            yield place(queue), "no LocalQueue leads to it and it lends nothing, so that nobody can use its quota"


def no_namespace(world: World) -> Found:
    """Selectors that match no namespace."""
    for api, queue in world.queues():
        if api.spec.namespace_selector is None:
            yield place(api), "it has no namespaceSelector, so that it admits jobs of no namespace"
        elif world.complete(Namespace) and not any(
            queue.selects(each.metadata.labels) for each in world.snapshot.of(Namespace)
        ):
            yield place(api), "its namespaceSelector matches no namespace"


def nothing_to_give(world: World) -> Found:
    """Quotas of which nothing can ever be used."""
    if not world.complete(ClusterQueue):
        return
    for api, queue in world.queues():
        for flavor, each in quotas(api.spec.resource_groups):
            if not world.offer.most(queue, flavor, each.name):
                limited = f"any {many(each.name)} on {nodes(flavor)}"
                yield place(api), f"it can never be given {limited}, not even by borrowing"


def limit_out_of_reach(world: World) -> Found:
    """Borrowing limits above what there is to borrow."""
    if not world.complete(ClusterQueue):
        return
    pair = world.offer.state.surroundings.catalog.pair
    for api, queue in world.queues():
        for flavor, each in quotas(api.spec.resource_groups):
            limit = queue.node.borrowing_limit.get(pair(flavor, each.name))
            if limit is None or not api.spec.cohort_name:
                continue
            nominal = queue.node.nominal.get(pair(flavor, each.name), 0)
            most = world.offer.most(queue, flavor, each.name) - nominal
            if limit > most:
                limited = f"{amount(each.name, limit)} on {nodes(flavor)}"
                yield (
                    place(api),
                    f"its borrowingLimit is {limited}, and its cohort can lend it {figure(each.name, most)} at most",
                )


def borrows_without_cohort(world: World) -> Found:
    """Limits and policies of cohorts, where there is none."""
    for queue in world.snapshot.of(ClusterQueue):
        if queue.spec.cohort_name:
            continue
        for field, value in (("borrowingLimit", "borrowing_limit"), ("lendingLimit", "lending_limit")):
            if any(getattr(each, value) is not None for _, each in quotas(queue.spec.resource_groups)):
                yield place(queue), f"it has a {field} and no cohort: it neither borrows nor lends"
        policy = queue.spec.preemption
        if policy is not None and policy.reclaim_within_cohort != "Never":
            yield (
                place(queue),
                f"preemption.reclaimWithinCohort is {policy.reclaim_within_cohort}, and it has no cohort",
            )


def no_nodes(world: World) -> Found:
    """Flavors whose labels no node has."""
    if world.nodes is None:
        return
    for flavor in world.snapshot.of(ResourceFlavor):
        wanted = flavor.spec.node_labels.items()
        if wanted and not any(wanted <= labels.items() for labels in world.nodes):
            labels = ", ".join(f"{key}={value}" for key, value in sorted(wanted))
            yield place(flavor), f"no node has its labels ({labels}): pods that get this flavor find no node"


def contradicting_flavors(world: World) -> Found:
    """Flavors that fit together with no flavor of another resource group of their ClusterQueue."""
    for queue in world.snapshot.of(ClusterQueue):
        groups = [
            [found for each in group.flavors if (found := world.snapshot.get(ResourceFlavor, each.name)) is not None]
            for group in queue.spec.resource_groups
        ]
        for conflict in lonely(groups):
            yield place(queue), f"{clause(waiting(conflict))}: no pod can ask for resources of both"


def unused_flavor(world: World) -> Found:
    """Flavors without quota."""
    if not world.complete(ClusterQueue):
        return
    groups = [each.spec.resource_groups for each in world.snapshot.of(ClusterQueue)]
    groups += [each.spec.resource_groups for each in world.snapshot.of(Cohort)]
    used = {flavor for each in groups for flavor, _ in quotas(each)}
    for flavor in world.snapshot.of(ResourceFlavor):
        if flavor.metadata.name not in used:
            yield place(flavor), "no ClusterQueue and no Cohort has quota of it"


def unasked_resource(world: World) -> Found:
    """Resources of quotas that no Workload asks for."""
    workloads = list(world.snapshot.of(Workload))
    if not workloads or not world.complete(Workload):
        return
    asked = {"pods"}
    for workload in workloads:
        for pod_set in workload.spec.pod_sets:
            for container in (*pod_set.template.spec.containers, *pod_set.template.spec.init_containers):
                if container.resources is not None:
                    asked |= {*container.resources.requests, *container.resources.limits}
    asked |= {output for each in world.offer.state.options.transformations for output in each.outputs}
    for queue in world.snapshot.of(ClusterQueue):
        unasked = dict.fromkeys(each.name for _, each in quotas(queue.spec.resource_groups) if each.name not in asked)
        if unasked:
            yield place(queue), f"it has quota of {', '.join(unasked)}, for which no Workload of the cluster asks"


def set_elsewhere(world: World) -> Found:
    """Quotas that are not those of the spec, by which all other rules judge."""
    owners: list[ClusterQueue | Cohort] = [*world.snapshot.of(ClusterQueue), *world.snapshot.of(Cohort)]
    for each in owners:
        if by := set_by(each):
            yield place(each), quota_words.set_elsewhere(each.KIND, each.metadata.name, by)
