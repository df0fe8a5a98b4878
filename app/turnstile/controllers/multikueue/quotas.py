"""Sets the quota of ClusterQueues that send Workloads away to the sum of what the workers have (gate
MultiKueueManagerQuotaAutomation).

Only where the MultiKueueConfig asks for it, and the ClusterQueue has one flavor. Counted are the ClusterQueues of
connected workers to which a LocalQueue leads that has the same namespace and name as one of the manager's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.conditions import set_condition
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import ConditionStatus, find_condition
from turnstile.api.multikueue import MultiKueueConfig
from turnstile.api.patch import JsonPatch
from turnstile.api.quantity import from_int, to_int
from turnstile.controllers.multikueue.clusters import Clusters
from turnstile.controllers.multikueue.situation import WorkerQueues
from turnstile.controllers.runtime.actions import Action, Patch, ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Watch, every
from turnstile.controllers.runtime.writes import fresh_operations, fresh_patch
from turnstile.controllers.status.draft import condition_body
from turnstile.controllers.view.clusterview import (
    CLUSTER_QUEUES_BY_CHECK,
    LOCAL_QUEUES_BY_CLUSTER_QUEUE,
    ClusterView,
    checks_in,
)
from turnstile.controllers.view.multikueue import (
    CHECKS_BY_MULTIKUEUE_CONFIG,
    CONFIGS_BY_CLUSTER,
    configs_in,
    is_multikueue,
)

CONTROLLER: Final = "MultiKueueQuota"
CONDITION: Final = "MultiKueueManagerQuotaAutomation"
_UNSUPPORTED: Final = "UnsupportedConfiguration"


@dataclass(frozen=True, slots=True)
class Answer:
    """The condition of a ClusterQueue, and the quotas of its resources if they follow the workers."""

    status: ConditionStatus
    reason: str
    message: str
    quotas: dict[str, str] | None = None


def answer(
    queue: ClusterQueue, keys: Iterable[str], config: MultiKueueConfig | None, workers: Iterable[WorkerQueues]
) -> Answer:
    """The answer for a ClusterQueue with the LocalQueues of these keys."""
    if config is None or config.spec is None:
        return Answer("False", _UNSUPPORTED, "The referenced MultiKueueConfig was not found.")
    if config.spec.quota_management != "Automated":
        return Answer("False", "NotRequested", "MultiKueue manager quota automation has not been requested.")
    groups = queue.spec.resource_groups
    if len(groups) != 1 or len(groups[0].flavors) != 1:
        message = "Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor"
        return Answer("False", _UNSUPPORTED, message)
    total, covered = _total(frozenset(keys), workers), groups[0].covered_resources
    if missing := sorted(set(total) - set(covered)):
        says = f"manager-side coveredResources is missing resources configured on workers: [{' '.join(missing)}]"
        return Answer("False", _UNSUPPORTED, says)
    quotas = {name: from_int(name, total[name]) for name in covered}
    message = "ClusterQueue quota is automatically managed based on MultiKueue workers."
    return Answer("True", "QuotaAutomated", message, quotas)


def _total(keys: frozenset[str], workers: Iterable[WorkerQueues]) -> Counter[str]:
    total = Counter[str]()
    for worker in workers:
        named = {each.spec.cluster_queue for each in worker.local_queues if each.metadata.key in keys}
        for queue in worker.cluster_queues:
            if queue.metadata.name in named:
                for group in queue.spec.resource_groups:
                    for flavor in group.flavors:
                        for each in flavor.resources:
                            total[each.name] += to_int(each.name, each.nominal_quota)
    return total


def decide(name: str, cluster: ClusterView, clusters: Clusters) -> ReconcileResult:
    """Quotas and condition of one ClusterQueue."""
    queue = cluster.cluster_queues.get(name)
    if queue is None or queue.metadata.deletion_timestamp:
        return ReconcileResult(why="gone")
    checks = [check for each in checks_in(queue) if is_multikueue(check := cluster.admission_checks.get(each))]
    if not checks or checks[0] is None:
        return ReconcileResult(_withdrawn(queue), why="sends nothing away")
    config = next((cluster.multikueue.configs.get(each) for each in configs_in(checks[0])), None)
    keys = cluster.local_queues.keys_by_index(LOCAL_QUEUES_BY_CLUSTER_QUEUE, name)
    found = answer(queue, keys, config, clusters.queues_of(config))
    return ReconcileResult([*_quotas(queue, found), *_condition(queue, found, cluster)], why=found.message)


def _quotas(queue: ClusterQueue, found: Answer) -> Iterator[Action]:
    if found.quotas is None:
        return
    resources = queue.spec.resource_groups[0].flavors[0].resources
    limits = any(each.borrowing_limit is not None or each.lending_limit is not None for each in resources)
    have = {each.name: to_int(each.name, each.nominal_quota) for each in resources}
    if not limits and have == {name: to_int(name, amount) for name, amount in found.quotas.items()}:
        return
    value = [{"name": name, "nominalQuota": amount} for name, amount in found.quotas.items()]
    patch = JsonPatch().replace("spec", "resourceGroups", 0, "flavors", 0, "resources", value=value)
    body = fresh_operations(queue.metadata, patch).encode()
    yield Patch(ClusterQueue, "", queue.metadata.name, body, type="json")


def _condition(queue: ClusterQueue, found: Answer, cluster: ClusterView) -> Iterator[Action]:
    before = queue.status.conditions
    after = set_condition(
        before,
        type=CONDITION,
        status=found.status,
        reason=found.reason,
        message=found.message,
        now=cluster.now,
        observed_generation=queue.metadata.generation or None,
    )
    old = find_condition(before, CONDITION)
    if old is None or (old.status, old.reason, old.message) != (found.status, found.reason, found.message):
        body: dict[str, Any] = {"conditions": [condition_body(each) for each in after]}
        yield fresh_patch(queue, {"status": body}, subresource="status")


def _withdrawn(queue: ClusterQueue) -> list[Action]:
    """Take the condition back."""
    if find_condition(queue.status.conditions, CONDITION) is None:
        return []
    kept = [condition_body(each) for each in queue.status.conditions if each.type != CONDITION]
    return [fresh_patch(queue, {"status": {"conditions": kept}}, subresource="status")]


def controller(cluster: ClusterView, clusters: Clusters) -> Controller:
    """The controller of the ClusterQueues that send Workloads away."""
    queues = cluster.cluster_queues

    def queue_changed(name: str, old: ClusterQueue | None, new: ClusterQueue | None) -> tuple[str, ...]:
        parts = [(each.spec, find_condition(each.status.conditions, CONDITION)) for each in (old, new) if each]
        return () if len(parts) == 2 and parts[0] == parts[1] else (name,)

    def local_queue_changed(_: str, old: LocalQueue | None, new: LocalQueue | None) -> list[str]:
        return [name for each in (old, new) if each is not None and (name := each.spec.cluster_queue)]

    def check_changed(name: str, _: AdmissionCheck | None, __: AdmissionCheck | None) -> list[str]:
        return queues.keys_by_index(CLUSTER_QUEUES_BY_CHECK, name)

    def config_changed(name: str, _: object, __: object) -> Iterator[str]:
        for check in cluster.admission_checks.keys_by_index(CHECKS_BY_MULTIKUEUE_CONFIG, name):
            yield from queues.keys_by_index(CLUSTER_QUEUES_BY_CHECK, check)

    return Controller(
        name=CONTROLLER,
        kind=ClusterQueue,
        decide=lambda name: decide(name, cluster, clusters),
        watches=[
            Watch(queues, queue_changed),
            Watch(cluster.local_queues, local_queue_changed),
            Watch(cluster.admission_checks, check_changed),
            Watch(cluster.multikueue.configs, config_changed),
        ],
        initial=lambda: every(queues),
    )


def concerned(worker: str, cluster: ClusterView) -> Iterator[str]:
    """The ClusterQueues whose Workloads may be sent to a worker."""
    for config in cluster.multikueue.configs.keys_by_index(CONFIGS_BY_CLUSTER, worker):
        for check in cluster.admission_checks.keys_by_index(CHECKS_BY_MULTIKUEUE_CONFIG, config):
            yield from cluster.cluster_queues.keys_by_index(CLUSTER_QUEUES_BY_CHECK, check)
