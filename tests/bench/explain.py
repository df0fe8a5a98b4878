"""How long it takes to explain a Workload of a large cluster: `python -m tests.bench.explain`.

The shape of the benches on the test bed, in one namespace with a LocalQueue for each ClusterQueue: first as a backlog
that no cycle has tried yet, then with as many Workloads admitted as there is quota for. CPU time of one process with
the garbage collector off, as in the fork in which the page explains. The floor is to make a ledger of everything.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import msgspec

from tests.bench.figures import HEADER, Figure
from tests.bench.shape import FLAVOR, SMALL, planned, queue_jsons, queues_for, workload_json
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.insight.explain import explain
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import admitted, decided

T = TypeVar("T")

PENDING = 50_000
NAMESPACE = "team"
NOW = 1_790_000_000.0
CREATED = "2026-01-01T00:00:00Z"
TARGET_SECONDS, TARGET_REMEDIES_SECONDS = 1.0, 30.0


def _backlog(pending: int) -> Snapshot:
    queues, snapshot = queues_for(pending), Snapshot()
    snapshot.put(msgspec.convert({"metadata": {"name": NAMESPACE}}, Namespace))
    snapshot.put(msgspec.convert({"metadata": {"name": FLAVOR}}, ResourceFlavor))
    for number in range(queues):
        cluster_queue, local_queue = queue_jsons(number, NAMESPACE, queues=queues)
        snapshot.put(msgspec.convert(cluster_queue, ClusterQueue))
        snapshot.put(msgspec.convert(local_queue, LocalQueue))
    for each in planned(pending, queues=queues):
        body = workload_json(each, NAMESPACE)
        body["metadata"] |= {"uid": f"uid-{each.name}", "creationTimestamp": CREATED}
        snapshot.put(msgspec.convert(body, Workload))
    return snapshot


def _admit(snapshot: Snapshot) -> None:
    """Admit what the scheduler would."""
    state, _ = snapshot.state(Options(), NOW)
    for _ in decided(state, NOW):
        pass
    for assumed in state.reservations.assumed.values():
        snapshot.put(admitted(assumed.waiting.workload, state, NOW))


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.process_time()
    found = work()
    seconds = time.process_time() - began
    gc.enable()
    return seconds, found


def _figures(snapshot: Snapshot, what: str) -> Iterator[Figure]:
    floor, _ = _timed(lambda: snapshot.state(Options(), NOW))
    small = (each for each in snapshot.of(Workload) if each.spec.priority == SMALL.priority)
    key = [each.metadata.key for each in small if not each.quota_reserved][-1]
    for name, remedies, target in (("why", 0, TARGET_SECONDS), ("with all remedies", None, TARGET_REMEDIES_SECONDS)):
        question = partial(explain, snapshot, Options(), NOW, key, sees=lambda _: True, remedies=remedies)
        seconds, found = _timed(question)
        note = f"{len(found.remedies)} remedies" if remedies is None else found.sentence
        yield Figure(name=f"{what}: {name}", value=seconds, unit="s", target=target, floor=floor, note=note)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.explain", description=__doc__)
    parser.add_argument("--pending", type=int, default=PENDING, metavar="N", help=f"Workloads (default: {PENDING})")
    given = parser.parse_args()
    snapshot = _backlog(given.pending)
    print(HEADER)
    for figure in _figures(snapshot, "none was tried yet"):
        print(figure, flush=True)
    _admit(snapshot)
    for figure in _figures(snapshot, "the quota is full"):
        print(figure, flush=True)


if __name__ == "__main__":
    main()
