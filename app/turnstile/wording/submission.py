"""Sentences to the user who submits a job that can never start, or not until something else is mended.

They begin in small letters and have no full stop, so that a warning or a finding can end with one. Must never judge a
job.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from turnstile.wording.amounts import amount, figure, rank
from turnstile.wording.causes import waiting
from turnstile.wording.grammar import clause, listed
from turnstile.wording.shortage import NEVER, Short, too_much
from turnstile.wording.standing import missing_cluster_queue, missing_local_queue, stopped

_NEVER: Final = f"the job {clause(NEVER)}"


class Pods(NamedTuple):
    """So many pods of one pod set; `pod_set` is empty if there is one only."""

    number: int
    pod_set: str = ""

    def ask(self, *, each: bool) -> str:
        """`each of its pods asks`, `its 4 pods ask`, with the name of the pod set where there are several."""
        of_it = f" of pod set {self.pod_set}" if self.pod_set else ""
        if self.number == 1:
            return f"its pod{of_it} asks"
        return f"each of its pods{of_it} asks" if each else f"its {self.number} pods{of_it} ask"


# --- until it is mended -----------------------------------------------------------------------------------------------


def waits_for_class(kind: str, name: str) -> str:
    """The priority class is missing."""
    return f"{kind} {name} does not exist: the job waits until it does"


def waits_for_local_queue(name: str, namespace: str) -> str:
    """The LocalQueue is missing."""
    return f"{missing_local_queue(name, namespace)}: the job waits until it does"


def waits_for_cluster_queue(name: str) -> str:
    """The ClusterQueue of the LocalQueue is missing."""
    return f"{missing_cluster_queue(name)}: the job waits until it does"


def waits_for_start(kind: str, name: str, policy: str | None) -> str:
    """A queue is stopped."""
    return f"{stopped(kind, name, policy)}: the job waits until it is started again"


# --- never ------------------------------------------------------------------------------------------------------------


def not_selected(cluster_queue: str, namespace: str) -> str:
    """The ClusterQueue is for other namespaces."""
    return f"ClusterQueue {cluster_queue} is not for namespace {namespace}: its namespaceSelector does not match"


def not_covered(pods: Pods, resource: str, value: int, cluster_queue: str) -> str:
    """The ClusterQueue has no quota for a resource."""
    asks = f"{pods.ask(each=False)} for {amount(resource, value)}"
    return f"{_NEVER}: {asks}, and ClusterQueue {cluster_queue} has no quota for {resource}"


def no_flavor(cluster_queue: str, pods: Pods, message: str) -> str:
    """No flavor suits the pods; `message` is Kueue's sentence about one of them, or empty."""
    of_it = f" of pod set {pods.pod_set}" if pods.pod_set else ""
    why = f": {clause(waiting(message))}" if message else ""
    return f"no flavor of ClusterQueue {cluster_queue} suits its pods{of_it}{why}"


def never_fits(pods: Pods, short: Short, cluster_queue: str, *, each: bool) -> str:
    """More is asked for than the ClusterQueue can ever have; by `each` pod, or by all together."""
    return f"the job {clause(too_much(short, who=pods.ask(each=each), queue=f'ClusterQueue {cluster_queue}'))}"


def never_fits_at_once(pods: Pods, asked: Mapping[str, int], cluster_queue: str) -> str:
    """Each resource fits in a flavor, and all do not fit in one."""
    asks_for = listed([amount(each, asked[each]) for each in sorted(asked, key=rank)])
    asks = f"{pods.ask(each=False)} for {asks_for}"
    return f"{_NEVER}: {asks}, and no flavor of ClusterQueue {cluster_queue} has that together"


def never_fits_in_all(resource: str, value: int, most: int, cluster_queue: str) -> str:
    """Each pod set fits, and all together do not."""
    asks = f"its pod sets ask for {amount(resource, value)} together"
    return f"{_NEVER}: {asks}, and ClusterQueue {cluster_queue} can have {figure(resource, most)} at most"
