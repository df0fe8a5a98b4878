"""Decides about AdmissionChecks of MultiKueue, and about MultiKueueClusters: whether each can be used."""

from collections.abc import Iterator
from typing import Any, Final

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.conditions import set_condition
from turnstile.api.meta import ConditionStatus, is_true
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueConfig
from turnstile.controllers.multikueue.clusters import Clusters
from turnstile.controllers.runtime.actions import ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Watch, every, itself
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.status.draft import condition_body
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.multikueue import (
    CHECKS_BY_MULTIKUEUE_CONFIG,
    CONFIGS_BY_CLUSTER,
    clusters_in,
    configs_in,
    is_multikueue,
)

CHECK_CONTROLLER: Final = "MultiKueueAdmissionCheck"
CLUSTER_CONTROLLER: Final = MultiKueueCluster.KIND

Found = tuple[ConditionStatus, str, str]
"""Status, reason and message of the condition Active."""


def found_of(check: AdmissionCheck, cluster: ClusterView) -> Found:
    """The condition Active of a check."""
    config = next((cluster.multikueue.configs.get(name) for name in configs_in(check)), None)
    if config is None:
        return "False", "BadConfig", f"Cannot load the AdmissionChecks parameters: {_unread(check)}"
    wanted, clusters = clusters_in(config), cluster.multikueue.clusters
    there = [(name, clusters.get(name)) for name in wanted]
    missing = [name for name, found in there if found is None]
    inactive = [name for name, found in there if found is not None and not is_true(found.status.conditions, "Active")]
    parts = []
    if missing:
        parts.append(f"Missing clusters: [{' '.join(missing)}]")
    if inactive:
        parts.append(f"Inactive clusters: [{' '.join(inactive)}]")
    if not parts:
        return "True", "Active", "The admission check is active"
    usable = len(missing) + len(inactive) < len(wanted)
    return "True" if usable else "False", "SomeActiveClusters" if usable else "NoUsableClusters", ", ".join(parts)


def _unread(check: AdmissionCheck) -> str:
    names = configs_in(check)
    resource = f"{MultiKueueConfig.PLURAL}.{MultiKueueConfig.GROUP}"
    return f'{resource} "{names[0]}" not found' if names else f"they name no {MultiKueueConfig.KIND}"


def decide_check(name: str, cluster: ClusterView) -> ReconcileResult:
    """Set the condition Active of a check of this controller."""
    check = cluster.admission_checks.get(name)
    if check is None or not is_multikueue(check) or check.metadata.deletion_timestamp:
        return ReconcileResult(why="gone, or the check of another controller")
    return _set(check, found_of(check, cluster), cluster)


def decide_cluster(name: str, cluster: ClusterView, clusters: Clusters) -> ReconcileResult:
    """Set the condition Active of a worker cluster."""
    found, connection = cluster.multikueue.clusters.get(name), clusters.connections.get(name)
    if found is None or connection is None:
        return ReconcileResult(why="gone, or not connected to yet")
    standing = connection.standing
    return _set(found, ("True" if standing.active else "False", standing.reason, standing.message), cluster)


def _set(seen: AdmissionCheck | MultiKueueCluster, found: Found, cluster: ClusterView) -> ReconcileResult:
    status, reason, message = found
    conditions = set_condition(
        seen.status.conditions,
        type="Active",
        status=status,
        reason=reason,
        message=message,
        now=cluster.now,
        observed_generation=seen.metadata.generation or None,
    )
    if conditions == seen.status.conditions:
        return ReconcileResult(why=message)
    body: dict[str, Any] = {"conditions": [condition_body(each) for each in conditions]}
    return ReconcileResult([fresh_patch(seen, {"status": body}, subresource="status")], why=message)


def controllers(cluster: ClusterView, clusters: Clusters) -> list[Controller]:
    """The controllers of both kinds."""
    checks, view = cluster.admission_checks, cluster.multikueue

    def config_changed(name: str, _: object, __: object) -> list[str]:
        return checks.keys_by_index(CHECKS_BY_MULTIKUEUE_CONFIG, name)

    def cluster_changed(name: str, _: object, __: object) -> Iterator[str]:
        for config in view.configs.keys_by_index(CONFIGS_BY_CLUSTER, name):
            yield from checks.keys_by_index(CHECKS_BY_MULTIKUEUE_CONFIG, config)

    return [
        Controller(
            name=CHECK_CONTROLLER,
            kind=AdmissionCheck,
            decide=lambda name: decide_check(name, cluster),
            watches=[Watch(checks, itself), Watch(view.configs, config_changed), Watch(view.clusters, cluster_changed)],
            initial=lambda: every(checks),
        ),
        Controller(
            name=CLUSTER_CONTROLLER,
            kind=MultiKueueCluster,
            decide=lambda name: decide_cluster(name, cluster, clusters),
            watches=[Watch(view.clusters, itself)],
            initial=lambda: every(view.clusters),
        ),
    ]
