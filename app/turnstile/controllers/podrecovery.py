"""Ends pods that cannot end by themselves because their node is unreachable, where their owner says that this is safe.

Such a pod keeps its deletion timestamp for as long as the node is away, and its job makes no other one meanwhile. A pod
with the annotation is failed and deleted at once when it should have ended a minute ago. Must never look at a pod
without the annotation: the pod may still run on its node. Source: Kueue's gate FailureRecoveryPolicy (KEP 6757).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from turnstile.api import names
from turnstile.api.conditions import instant, timestamp
from turnstile.api.core import Node, Pod
from turnstile.api.durations import SECOND, render
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.runtime.actions import Delete, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs.integration import Change
from turnstile.jobs.pods import is_over, node_name
from turnstile.kube.store import Store

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
FORCEFULLY_DELETED: Final = "KueueForcefullyDeleted"
PATIENCE_SECONDS: Final = 60
"""Seconds after the end of its grace period in which the kubelet may still end a pod."""
STUCK_BY_NODE: Final = "stuck pods by node"


def decide(key: str, cluster: ClusterView) -> ReconcileResult:
    """The writes that end one pod."""
    pod = cluster.pods.get(key)
    if pod is None or not _may_be_ended(pod):
        return ReconcileResult(why="there is nothing to end")
    if left := cluster.left(instant(pod.metadata.deletion_timestamp), PATIENCE_SECONDS):
        return ReconcileResult([RequeueAfter(left)], why="its node may still end it")
    node = cluster.nodes.get(node_name(pod))
    if node is None or not _unreachable(node):
        return ReconcileResult(why="its node is not unreachable")
    meta = pod.metadata
    waited = render((PATIENCE_SECONDS + (meta.deletion_grace_period_seconds or 0)) * SECOND)
    message = (
        f"Pod forcefully terminated after {waited} grace period due to unreachable node `{node.metadata.name}`"
        f" (triggered by `{names.SAFE_TO_FORCEFULLY_DELETE}` annotation)"
    )
    condition = {
        "type": "KueueFailureRecovery",
        "status": "True",
        "reason": FORCEFULLY_DELETED,
        "message": message,
        "lastTransitionTime": timestamp(cluster.now),
    }
    status: dict[str, Any] = {"conditions": [condition]} | ({} if is_over(pod) else {"phase": "Failed"})
    body = {"metadata": {"uid": meta.uid}, "status": status}
    return ReconcileResult(
        [
            job_patch(Pod, pod, Change(body, subresource="status", strategic=True, target=pod)),
            Delete(Pod, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0),
            Emit(pod, "Warning", FORCEFULLY_DELETED, message),
        ],
        why=message,
    )


def _may_be_ended(pod: Pod) -> bool:
    """Whether a pod is being deleted and has the annotation. One that was ended already may have finalizers still."""
    meta = pod.metadata
    ended = is_over(pod) and meta.deletion_grace_period_seconds == 0
    return (
        meta.deletion_timestamp is not None
        and meta.annotations.get(names.SAFE_TO_FORCEFULLY_DELETE) == "true"
        and not ended
    )


def _unreachable(node: Node) -> bool:
    return any(taint.key == UNREACHABLE for taint in node.spec.taints)


def index_stuck(pods: Store[Pod]) -> None:
    """Index the pods that may be ended by their node; once for a store."""
    pods.add_index(STUCK_BY_NODE, lambda pod: [node_name(pod)] if _may_be_ended(pod) else [])


def pod_changed(key: str, old: Pod | None, new: Pod | None) -> tuple[str, ...]:
    """The pod, if it began to be one that may be ended."""
    return (key,) if new is not None and _may_be_ended(new) and not (old is not None and _may_be_ended(old)) else ()


def node_changed(_: str, old: Node | None, new: Node | None, cluster: ClusterView) -> Iterator[str]:
    """The pods of a node that became unreachable."""
    if new is not None and _unreachable(new) and not (old is not None and _unreachable(old)):
        yield from cluster.pods.keys_by_index(STUCK_BY_NODE, new.metadata.name)


def controller(cluster: ClusterView) -> Controller:
    """The controller that reconciles pods which are being deleted on nodes that are away."""

    def stuck() -> Iterator[str]:
        for node in cluster.nodes.values():
            yield from cluster.pods.keys_by_index(STUCK_BY_NODE, node.metadata.name)

    return Controller(
        name="failure-recovery",
        kind=Pod,
        decide=partial(decide, cluster=cluster),
        watches=[Watch(cluster.pods, pod_changed), Watch(cluster.nodes, partial(node_changed, cluster=cluster))],
        initial=stuck,
    )
