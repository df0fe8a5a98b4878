"""Reports in a Workload that kube-scheduler finds no node for its pods: the condition PodsScheduled.

A Workload that is admitted has quota, which says nothing about nodes. Why kube-scheduler refuses a pod is in the
condition PodScheduled of the pod; this module repeats that in the Workload, in the words of kube-scheduler, for the pod
that has waited longest. The condition is removed when no pod is refused any more. After an eviction it stays until the
next admission, because it may be the reason why the pods were not ready in time.

Kueue's condition of that name and reason (KEP-13502, not in the release that Turnstile follows) has no word of
kube-scheduler. Must never decide about a job: `waitForPodsReady` reads the pods of a job, not this condition.
"""

import re
from typing import Final

from turnstile.api import workload as wl
from turnstile.api.conditions import instant, truncate_note
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs import pods

PATIENCE_SECONDS: Final = 10.0
"""Seconds for which a pod must have been refused: pods often wait for a moment until others have terminated."""
AGAIN_SECONDS: Final = 60.0
"""Seconds after which what is written is compared with what kube-scheduler says now."""
WAIT_FOR_SCHEDULING: Final = "WaitForScheduling"

_NUMBERS: Final = re.compile(r"\d+")


def report(workload: Workload, cluster: ClusterView) -> tuple[Patch | None, float | None]:
    """The patch that writes or removes the condition, if one is needed, and the seconds until the Workload has to be
    looked at again because of its pods."""
    if not workload.admitted or workload.evicted or not cluster.pods.complete:
        return None, None
    reported = find_condition(workload.status.conditions, wl.PODS_SCHEDULED)
    since, message = _refused(workload, cluster)
    if not message:
        if reported is None:
            return None, None
        draft = cluster.draft(workload)
        draft.remove(wl.PODS_SCHEDULED)
        return draft.patch(), None
    if left := cluster.left(instant(since) or cluster.now, PATIENCE_SECONDS):
        return None, left
    if reported is not None and _wording(reported.message) == _wording(message):
        return None, AGAIN_SECONDS
    draft = cluster.draft(workload)
    draft.set(wl.PODS_SCHEDULED, "False", reason=WAIT_FOR_SCHEDULING, message=message)
    return draft.patch(), AGAIN_SECONDS


def _refused(workload: Workload, cluster: ClusterView) -> tuple[str, str]:
    """Since when the first pod is refused, and a message about all; empty texts if no pod is."""
    found = []
    for key in charges.unschedulable_pods(workload, cluster):
        pod = cluster.pods.get(key)
        said = pods.unschedulable(pod) if pod is not None else None
        if said is not None:
            found.append((said.last_transition_time or "", key, said.message))
    if not found:
        return "", ""
    since, _, message = min(found)
    return since, truncate_note(f"{len(found)} pod(s) cannot be scheduled: {message}")


def _wording(message: str) -> str:
    """A message without its numbers, which change with every node and pod: for them alone nothing is written."""
    return _NUMBERS.sub("", message)
