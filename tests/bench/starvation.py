"""How long a gang waits beside an endless stream of small Jobs: `python -m tests.bench.starvation`.

A simulation on the engine, without a cluster and without a clock: a ClusterQueue of 64 GPUs, Jobs of one GPU that ask
together for 1.25 times as many, with run times drawn as exponential around an hour, and one gang of 64 after six hours.
First as in Kueue, then with `turnstile.dev/keep-quota-after`. The price is beside it: GPU-hours that stood idle.
"""

import itertools
import random
from collections.abc import Iterator

import msgspec

from tests.bench.figures import HEADER, Figure
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.timeannotations import KEEP_QUOTA_AFTER
from turnstile.api.workload import Workload
from turnstile.engine import State
from turnstile.engine.instants import Instant, stamp
from turnstile.insight.simulation import Simulation

GPU = "nvidia.com/gpu"
GPUS = 64
HOUR = 3600.0
BEGIN = 1_790_000_000.0
COMES = BEGIN + 6 * HOUR
END = BEGIN + 72 * HOUR
LOAD = 1.25
GANG = "team/gang"


def _state(after: str) -> State:
    state = State()
    state.put_namespace("team", {})
    state.put_flavor(msgspec.convert({"metadata": {"name": "gpus"}}, ResourceFlavor))
    quota = {"name": "gpus", "resources": [{"name": GPU, "nominalQuota": GPUS}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}]}
    annotations = {KEEP_QUOTA_AFTER: after} if after else {}
    made = msgspec.convert({"metadata": {"name": "main", "annotations": annotations}, "spec": spec}, ClusterQueue)
    state.put_cluster_queue(made, BEGIN)
    line = {"metadata": {"name": "main", "namespace": "team"}, "spec": {"clusterQueue": "main"}}
    state.put_local_queue(msgspec.convert(line, LocalQueue), BEGIN)
    return state


def _workload(name: str, pods: int, at: Instant) -> Workload:
    containers = [{"name": "main", "resources": {"requests": {GPU: "1"}}}]
    pod_set = {"name": "main", "count": pods, "template": {"spec": {"containers": containers}}}
    meta = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": stamp(at)}
    return msgspec.convert({"metadata": meta, "spec": {"queueName": "main", "podSets": [pod_set]}}, Workload)


def _arrivals(lots: random.Random) -> Iterator[tuple[Instant, Workload]]:
    at, pending = BEGIN, True
    for number in itertools.count():
        at += lots.expovariate(LOAD * GPUS / HOUR)
        if pending and at >= COMES:
            pending = False
            yield COMES, _workload("gang", GPUS, COMES)
        yield at, _workload(f"small-{number}", 1, at)


def _waits(after: str, seed: int = 1) -> tuple[float, float]:
    """Hours for which the gang waits, and GPU-hours that stand idle from its arrival until it starts or all ends."""
    lots = random.Random(seed)
    lasts = {GANG: HOUR}

    def runs(workload: Workload, _: float) -> float:
        return lasts.setdefault(workload.metadata.key, lots.expovariate(1 / HOUR))

    simulation = Simulation(_state(after), BEGIN, runs, _arrivals(random.Random(seed + 1)))
    idle, before = 0.0, BEGIN
    while GANG not in simulation.admitted and before < END:
        free = GPUS - len(simulation.runs)
        simulation.step()
        if simulation.now > COMES:
            idle += free * (simulation.now - max(before, COMES)) / HOUR
        before = simulation.now
    return (min(before, END) - COMES) / HOUR, idle


def main() -> None:
    """Print the figures."""
    print(HEADER)
    for after in ("", "2h", "30m"):
        waits, idle = _waits(after)
        way = f"keep-quota-after {after}" if after else "none, as in Kueue"
        note = "has not started in 66 hours" if waits >= (END - COMES) / HOUR else ""
        print(Figure(name=f"wait of a gang of {GPUS} beside Jobs of one ({way})", value=waits, unit="h", note=note))
        print(Figure(name=f"GPU-hours that stood idle meanwhile ({way})", value=idle, unit="h"))


if __name__ == "__main__":
    main()
