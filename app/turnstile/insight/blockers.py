"""The shortage of a pending Workload: every resource that it lacks in a flavor that suits it, and who holds it.

A search for flavors ends at the first resource that is short in a flavor; the others are added here. Must never decide.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from turnstile.api.workload import Workload
from turnstile.engine import Decision, State
from turnstile.engine.naming import OTHERS
from turnstile.engine.quota.amounts import text
from turnstile.engine.quota.tree import available, potential, standing
from turnstile.engine.reasons import Figure
from turnstile.insight.snapshot import Sees, names_of
from turnstile.wording.shortage import Short, in_order, of_figures
from turnstile.wording.workloads import called, written

LISTED: Final = 10
"""ClusterQueues that are told at most to hold a resource."""
NAMED: Final = 3
"""Workloads of these that are named at most."""


class Holder(msgspec.Struct, frozen=True):
    """A ClusterQueue that holds a resource of a flavor, and how much."""

    cluster_queue: str
    amount: str
    hidden: bool = False
    """Whether these are ClusterQueues whose names the asker may not see, all together."""


class Blocker(msgspec.Struct, frozen=True):
    """One resource of one flavor that a Workload cannot have now. Amounts are quantities, as people write them."""

    flavor: str
    resource: str
    requested: str
    available: str
    nominal: str
    used: str
    borrowing_limit: str
    """Empty if borrowing is not limited, or not possible."""
    most: str
    """The amounts that would be available if nothing were in use."""
    holders: tuple[Holder, ...]
    """Who holds it in the ClusterQueue's tree of cohorts, the largest amount first."""
    workloads: tuple[str, ...] = ()
    """The Workloads that hold it, by the names of their jobs; the largest first."""


def figures_of(decision: Decision | None, state: State) -> tuple[Figure, ...]:
    """The amounts that keep a Workload from the flavors that suit it: those of the decision, and those of resources
    that the search did not come to."""
    if decision is None or decision.assignment is None:
        return ()
    return tuple(dict.fromkeys((*decision.figures, *_more(decision, state))))


def _more(decision: Decision, state: State) -> Iterator[Figure]:
    queue = state.cluster_queues.get(decision.cluster_queue)
    if queue is None or decision.assignment is None or state.ledger.cyclic(queue.node):
        return
    state.ledger.settle()
    assumed: dict[tuple[str, str], int] = {}
    for pod_set in decision.assignment.pod_sets:
        for attempt in (each for group in pod_set.attempts for each in group if each.figures):
            known = {figure.resource for figure in attempt.figures}
            groups = [group for group in queue.groups if attempt.flavor in group.flavors]
            for resource, asked in pod_set.requests.items():
                if resource in known or not any(resource in group.covered for group in groups):
                    continue
                node, pair = queue.node, state.surroundings.catalog.pair(attempt.flavor, resource)
                free, already = max(0, available(node, pair)), assumed.get((attempt.flavor, resource), 0)
                if asked + already > free:
                    most, (nominal, used, limit) = potential(node, pair), standing(node, pair)
                    yield Figure(attempt.flavor, resource, asked, already, free, most, nominal, used, limit)
        for resource, flavor in pod_set.flavor_names.items():
            assumed[flavor, resource] = assumed.get((flavor, resource), 0) + pod_set.requests.get(resource, 0)


def shorts_of(
    figures: Sequence[Figure], state: State, workload: Workload, cluster_queue: str, sees: Sees
) -> list[Short]:
    """The shortage in the order in which it matters, with who holds it."""
    as_written = written(workload)
    return [
        each._replace(
            like=as_written.get(each.resource, ""),
            holders=_workloads(state, each, workload.metadata.key, cluster_queue, sees),
        )
        for each in in_order(of_figures(figures))
    ]


def blockers(
    figures: Sequence[Figure], shorts: Sequence[Short], state: State, cluster_queue: str, *, queues: bool = True
) -> tuple[Blocker, ...]:
    """The same as rows of a table. `queues`: whether the asker may see the names of ClusterQueues of others."""
    found = {(each.flavor, each.resource): each for each in reversed(figures)}
    return tuple(
        _blocker(found[each.flavor, each.resource], each, state, cluster_queue, queues=queues) for each in shorts
    )


def _blocker(figure: Figure, short: Short, state: State, cluster_queue: str, *, queues: bool) -> Blocker:
    resource = figure.resource
    limit = figure.borrowing_limit
    held = state.questions.holders(figure.flavor, resource, cluster_queue)
    holders = [Holder(name, text(resource, amount)) for name, amount in held if queues or name == cluster_queue]
    if others := sum(amount for name, amount in held if not (queues or name == cluster_queue)):
        holders.append(Holder("other ClusterQueues", text(resource, others), hidden=True))
    return Blocker(
        flavor=figure.flavor,
        resource=resource,
        requested=text(resource, short.asked or 0),
        available=text(resource, short.free),
        nominal=text(resource, figure.nominal),
        used=text(resource, figure.used),
        borrowing_limit=text(resource, limit) if limit is not None else "",
        most=text(resource, figure.maximum),
        holders=tuple(holders[:LISTED]),
        workloads=short.holders,
    )


def _workloads(state: State, short: Short, own: str, cluster_queue: str, sees: Sees) -> tuple[str, ...]:
    """The Workloads that hold a resource of a flavor in the tree of a ClusterQueue."""
    queue = state.cluster_queues.get(cluster_queue)
    if queue is None or state.ledger.cyclic(queue.node):
        return ()
    pair = state.surroundings.catalog.pair(short.flavor, short.resource)
    held = [
        (-amount, key, info)
        for node in queue.node.root.walk_queues()
        for key, info in state.cluster_queues[node.name].workloads.items()
        if (amount := info.usage.of(pair)) > 0 and key != own
    ]
    ordered = sorted(held, key=lambda each: each[:2])
    if any(not info.namespace for _, _, info in ordered):  # they stand for others that cannot be read
        seen = [called(info.workload) for _, _, info in ordered if info.namespace and sees(info.namespace)]
        return (*seen[:NAMED], OTHERS)
    jobs = {key: called(info.workload) for _, key, info in ordered}
    return tuple(jobs.get(each, each) for each in names_of([*jobs], sees, most=NAMED))
