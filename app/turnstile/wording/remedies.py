"""Changes that would admit a Workload, as imperative sentences without a full stop. Must never find them."""

from collections.abc import Sequence
from typing import NamedTuple

from turnstile.wording.amounts import amount, figure, nodes, rank
from turnstile.wording.grammar import counted, listed, several


class Less(NamedTuple):
    """Less of a resource in each pod; `written` is the amount as the owner wrote it."""

    pod_set: str
    """Empty if there is one only."""
    resource: str
    amount: int
    asked: int
    written: str = ""


def activate() -> str:
    """For a Workload that was deactivated."""
    return "set spec.active of the Workload to true"


def wait_for_back_off(until: str) -> str:
    """For a Workload whose back-off has not ended."""
    return f"wait until {until}, when its back-off ends"


def resume(kind: str, name: str) -> str:
    """For a queue that is stopped."""
    return f"resume {kind} {name}: set its stopPolicy to None"


def create_flavor(name: str) -> str:
    """For a ClusterQueue that names a flavor that does not exist."""
    return f"create ResourceFlavor {name}"


def submit_to(queue: str) -> str:
    """For another LocalQueue that has room."""
    return f"submit it to LocalQueue {queue}"


def fewer_pods(number: int, count: int, pod_set: str) -> str:
    """For so many pods instead of more; `pod_set` is empty if there is one."""
    return f"run {counted(number, 'pod')} instead of {count}" + (f" in pod set {pod_set}" if pod_set else "")


def ask_for_less(less: Sequence[Less]) -> str:
    """For smaller pods."""
    pod_sets = dict.fromkeys(each.pod_set for each in less)
    parts = (_smaller(pod_set, [each for each in less if each.pod_set == pod_set]) for pod_set in pod_sets)
    return f"ask for {', and for '.join(parts)}"


def _smaller(pod_set: str, less: Sequence[Less]) -> str:
    listing = [
        f"{amount(each.resource, each.amount, like=each.written)}"
        f" instead of {figure(each.resource, each.asked, like=each.written)}"
        for each in sorted(less, key=lambda each: rank(each.resource))
    ]
    return f"{listed(listing)} in each pod" + (f" of pod set {pod_set}" if pod_set else "")


def run_on(flavors: Sequence[str]) -> str:
    """For pods that rule out nodes that have room."""
    places = listed([nodes(each) for each in flavors], joint="or")
    return f"let its pods run on {places}: change their node selector, affinity or tolerations"


def raise_quota(cluster_queue: str, flavor: str, more: Sequence[tuple[str, int]], *, set_by: str = "") -> str:
    """For a quota that is too small; `set_by` is the object whose controller has written it, if the spec's does not
    hold."""
    listing = [amount(resource, value) for resource, value in sorted(more, key=lambda each: rank(each[0]))]
    who = f"let {set_by} raise" if set_by else "raise"
    return f"{who} the nominal quota of ClusterQueue {cluster_queue} for {nodes(flavor)} by {listed(listing)}"


def raise_priority(priority: int, own: int) -> str:
    """For one that others come before."""
    return f"give it a priority of {priority} or more (it has {own})"


def wait_for(ends: Sequence[str]) -> str:
    """For the end of others, by the names that a reader may see."""
    return f"wait: it starts when {listed(ends)} {'have' if several(ends) else 'has'} ended"
