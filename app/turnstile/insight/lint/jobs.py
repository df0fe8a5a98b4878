"""The rules about jobs: what a user is told at submission, each a rule of its own."""

from collections.abc import Callable
from typing import Final

from turnstile.advice.submission import Asked, Part, notices
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace, PriorityClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.submission import About
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.insight.lint.findings import Found, Rule, Severity
from turnstile.insight.lint.world import Place, World, place

_QUOTA: Final = (ClusterQueue, ResourceFlavor)
_NEEDED: Final[dict[About, tuple[type[Kind], ...]]] = {
    About.LOCAL_QUEUE_NOT_FOUND: (LocalQueue,),
    About.CLUSTER_QUEUE_NOT_FOUND: (ClusterQueue,),
    About.CLUSTER_QUEUE_INACTIVE: _QUOTA,
    About.RESOURCE_NOT_COVERED: _QUOTA,
    About.NO_MATCHING_FLAVOR: _QUOTA,
    About.NEVER_FITS: _QUOTA,
    About.NAMESPACE_NOT_SELECTED: (Namespace,),
}
"""Kinds of which all objects must be known before a rule may tell anything."""


def _asked(world: World) -> list[tuple[Place, Asked]]:
    """The jobs, and the Workloads that wait."""
    found = list(world.jobs)
    for workload in world.snapshot.of(Workload):
        if workload.quota_reserved or workload.finished or not workload.spec.active:
            continue
        parts = tuple(
            Part(each.name, each.count if each.min_count is None else each.min_count, each.template.spec)
            for each in workload.spec.pod_sets
        )
        found.append((place(workload), Asked(workload.metadata.namespace, workload.spec.queue_name or "", parts)))
    return found


def _about(about: About) -> Callable[[World], Found]:
    def find(world: World) -> Found:
        if not world.complete(*_NEEDED.get(about, ())):
            return
        for where, asked in _asked(world):
            if about is About.PRIORITY_CLASS_NOT_FOUND and not _known(world, asked):
                continue
            for notice in notices(world.offer, asked):
                if notice.about is about:
                    yield where, notice.sentence

    return find


def _known(world: World, asked: Asked) -> bool:
    """Whether all classes of the kind that the job names are known; of PriorityClasses, which are seldom in files, only
    those of a cluster are."""
    kind = asked.priority_class[0] if asked.priority_class is not None else WorkloadPriorityClass
    return world.complete(kind) and (kind is not PriorityClass or world.whole)


_SAYS: Final[dict[About, tuple[Severity, str, str]]] = {
    About.LOCAL_QUEUE_NOT_FOUND: (
        Severity.ERROR,
        "a job names a LocalQueue that does not exist",
        "correct the label kueue.x-k8s.io/queue-name, or make the LocalQueue",
    ),
    About.LOCAL_QUEUE_STOPPED: (
        Severity.WARNING,
        "a job names a LocalQueue that is stopped",
        "set its stopPolicy to None",
    ),
    About.CLUSTER_QUEUE_NOT_FOUND: (
        Severity.ERROR,
        "the LocalQueue of a job leads to no ClusterQueue",
        "correct spec.clusterQueue of the LocalQueue, or make the ClusterQueue",
    ),
    About.CLUSTER_QUEUE_STOPPED: (
        Severity.WARNING,
        "the ClusterQueue of a job is stopped",
        "set its stopPolicy to None",
    ),
    About.CLUSTER_QUEUE_INACTIVE: (
        Severity.ERROR,
        "the ClusterQueue of a job admits nothing",
        "make the ResourceFlavor, or end the cycle of cohorts",
    ),
    About.NAMESPACE_NOT_SELECTED: (
        Severity.ERROR,
        "the ClusterQueue of a job is not for its namespace",
        "label the namespace, or change the namespaceSelector",
    ),
    About.PRIORITY_CLASS_NOT_FOUND: (
        Severity.ERROR,
        "a job names a priority class that does not exist",
        "correct the name, or make the class",
    ),
    About.RESOURCE_NOT_COVERED: (
        Severity.ERROR,
        "a job asks for a resource that its ClusterQueue has no quota of",
        "have the ClusterQueue cover the resource, or do not ask for it",
    ),
    About.NO_MATCHING_FLAVOR: (
        Severity.ERROR,
        "no flavor suits the pods of a job",
        "add the toleration, or correct the node selector or affinity",
    ),
    About.NEVER_FITS: (
        Severity.ERROR,
        "a job asks for more than its ClusterQueue can ever be given",
        "ask for less, or raise the quota",
    ),
    About.LARGE_TEMPLATE: (
        Severity.WARNING,
        "a job has large pod templates",
        "move environment and scripts to a ConfigMap or a volume",
    ),
    About.DEVICES_NOT_COUNTED: (
        Severity.ERROR,
        "a job asks for devices that no quota counts",
        "keep the gate KueueDRAIntegration on",
    ),
}

RULES: Final = tuple(Rule(about, *_SAYS[about], _about(about)) for about in About)
