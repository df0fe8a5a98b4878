"""What a state of the engine looks like, and where two of them differ."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from turnstile.engine import State
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.localqueue import LocalQueue


def shape(state: State) -> Any:
    """Quota, usage, who holds it and who waits where: what does not depend on the way that led here."""
    nodes = {}
    for node in (*state.ledger.cohorts.values(), *(queue.node for queue in state.cluster_queues.values())):
        nodes[f"{node.is_queue}/{node.name}"] = (
            {str(pair): amount for pair, amount in sorted(node.usage.items(), key=str) if amount},
            {str(pair): amount for pair, amount in sorted(node.subtree.items(), key=str) if amount},
            {str(pair): amount for pair, amount in sorted(node.guaranteed.items(), key=str) if amount},
            {str(pair): amount for pair, amount in sorted(node.borrowing_limit.items(), key=str)},
            node.height,
            node.weight,
            node.parent.name if node.parent is not None else None,
        )
    lines = {}
    for name, queue in state.cluster_queues.items():
        infos = [*queue.pending.active_infos(), *queue.pending.inadmissible_infos()]
        lines[name] = (
            sorted((info.order, info.local_queue, info.hash) for info in infos),
            sorted(
                (key, str(sorted(info.usage.quota.items(), key=str)), info.admitted)
                for key, info in queue.workloads.items()
            ),
            sorted(
                (key, held.count, str(sorted(held.usage.items(), key=str)), held.admitted)
                for key, held in queue.holders.items()
            ),
            queue.active,
        )
        check_counts(queue)
    for local in state.queues.local_queues.values():
        assert local.requested == requested(local), local.key
    counts = {key: state.questions.local_queue_counts(key) for key in sorted(state.queues.local_queues)}
    return nodes, lines, sorted(state.queues.waiting), sorted(state.ledger.holders.items()), counts


def check_counts(queue: ClusterQueue) -> None:
    """The counts that are kept are those that counting finds."""
    pending = queue.pending
    found = len(pending.active_infos()) + len(pending.under_way), len(pending.inadmissible_infos())
    assert pending.counts() == found, queue.name
    members = Counter((info.hash, info.local_queue) for info in pending.active.values()) if pending.in_classes else {}
    assert pending.members == members, queue.name


def requested(local: LocalQueue) -> dict[str, int]:
    """What those that wait in a LocalQueue request together."""
    total: Counter[str] = Counter()
    for info in local.items.values():
        for item in info.totals:
            total.update(item.requests)
    return {resource: amount for resource, amount in total.items() if amount}


def dump(state: State) -> Any:
    """All that a copy of the state must have too."""
    places = {}
    for name, queue in state.cluster_queues.items():
        pending = queue.pending
        places[name] = (
            queue.generation,
            [info.key for info in pending.in_order()],
            sorted(pending.inadmissible),
            (pending.nomination, pending.pop_cycle, pending.retry_cycle),
            sorted(pending.bulk_moved.items()),
            sorted(pending.last_generation.items()),
            {key: list(heap) for key, heap in pending.classes.items()},
            {key: list(heap) for key, heap in pending.heads.items()},
            dict(pending.offered),
            dict(pending.members),
            queue.api.spec,
        )
    return (
        shape(state),
        places,
        sorted(state.reservations.assumed),
        {
            key: (info.last_assignment.tried if info.last_assignment else None, info.cluster_queue, info.tags)
            for key, info in sorted(state.queues.waiting.items())
        },
        sorted(state.workloads),
        sorted(state.reservations.evicting.items()),
        {tree: dict(pairs) for tree, pairs in sorted(state.nominations.repeats.by_tree.items())},
        sorted(state.queues.decisions),
        sorted(state.ledger.cohorts),
        sorted(state.ledger.declared),
        {name: sorted(items) for name, items in state.ledger.parentless.items()},
        (state.log.epoch, state.log.quiet_at, state.log.scheduling_cycle, state.log.cycling, len(state.log.deferred)),
        (sorted(state.retries.cluster_queues), sorted(state.retries.cohorts)),
        {
            key: (line.consumed, dict(line.penalties), line.last_update)
            for key, line in sorted(state.sharing.usages.items())
        },
        {
            key: (sorted(local.items), local.open, local.weight, dict(local.requested))
            for key, local in sorted(state.queues.local_queues.items())
        },
    )


def essence(state: State) -> Any:
    """All that a cycle looks at: a dump without the layout of the heaps, which forget what is stale when they are read;
    without how often quota was added up, which statuses cause too (two generations for one change of quota say no more
    than one); and without quota in a cycle of cohorts, where nothing is admitted."""
    state.ledger.settle()
    (nodes, *shape), places, *rest = dump(state)
    for node in (*state.ledger.cohorts.values(), *(queue.node for queue in state.cluster_queues.values())):
        if state.ledger.cyclic(node):
            del nodes[f"{node.is_queue}/{node.name}"]
    seen = {}
    for name, (_, active, inadmissible, (nomination, *cycles), bulk_moved, last, _, _, _, *others) in places.items():
        promised = None
        if nomination is not None:
            pod_sets = nomination.assignment.pod_sets if nomination.assignment is not None else []
            flavors = [{name: choice.flavor for name, choice in each.flavors.items()} for each in pod_sets]
            promised = (nomination.preemptor, nomination.sticky, dict(nomination.victims), flavors)
        seen[name] = (active, inadmissible, promised, cycles, bulk_moved, last, others)
    return nodes, shape, seen, *rest


def differences(left: Any, right: Any, path: str = "") -> Iterator[str]:
    """Where two dumps differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in (*left, *(key for key in right if key not in left)):
            yield from differences(left.get(key), right.get(key), f"{path}/{key}")
    elif isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from differences(one, other, f"{path}/{index}")
    elif left != right:
        yield f"{path}: {left} became {right}"
