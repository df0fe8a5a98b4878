"""The pods of serving sets: the index by which a set finds its pods, and the watch by which they wake it.

A pod says itself to which set it belongs; must never take that for true, which `servingsets` finds out.
"""

from collections.abc import Iterable
from typing import Any, Final

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.controllers.charging import charges
from turnstile.controllers.runtime.controller import Watch
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.wakes import metadata_of
from turnstile.jobs.labels import identifier
from turnstile.jobs.naming import job_key
from turnstile.jobs.registry import Registry
from turnstile.jobs.servingset import ServingSet
from turnstile.kube.store import Store

PODS_BY_SET: Final = "set"
"""Index of pods by the key of the serving set that they say they belong to, and by that key with the group's name."""


def index_sets(pods_: Store[Any], registry: Registry) -> None:
    """Declare the index by which a set finds its pods."""
    kinds = _kinds(registry)

    def places(pod: Pod) -> list[str]:
        sets = list(_sets_of(pod, kinds))
        group = identifier(pod.metadata, names.POD_GROUP_NAME)[0] if sets else ""
        return [*sets, *(gang_key(key, group) for key in sets if group)]

    pods_.add_index(PODS_BY_SET, places)


def gang_key(key: str, workload: str) -> str:
    """The key of the pods of a set that are members of the group with that name, which its Workload has too."""
    return f"{key}/{workload}"


def watch_of_pods(cluster: ClusterView, integration: ServingSet[Any]) -> Watch[Pod, str]:
    """A set is reconciled when one of its pods is created, changes its metadata, or has ended."""

    def changed(_: str, old: Pod | None, new: Pod | None) -> Iterable[str]:
        sets = dict.fromkeys(key for pod in (old, new) if pod is not None for key in _sets_of(pod, (integration,)))
        if sets and old is not None and new is not None:
            ended = charges.may_run(old) != charges.may_run(new)
            if not ended and metadata_of(old.metadata) == metadata_of(new.metadata):
                return ()
        return sets

    return Watch(cluster.pods, changed)


def _kinds(registry: Registry) -> tuple[ServingSet[Any], ...]:
    return tuple(each.as_set for each in registry.followed if each.as_set is not None)


def _sets_of(pod: Pod, kinds: Iterable[ServingSet[Any]]) -> Iterable[str]:
    for integration in kinds:
        if name := integration.set_of(pod):
            yield job_key(integration.framework, pod.metadata.namespace, name)
