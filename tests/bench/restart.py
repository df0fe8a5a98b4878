"""Turnstile is started where many Workloads wait, on a cluster that does nothing else.

Measured from the start of the process, its imports included: until the first reservation, and until all that fits has
been admitted, which is one large Workload in each queue.
"""

import asyncio
import json
import time

from testbed import resource_path
from testbed.installation import MANAGED
from tests.bench import backlog
from tests.bench.bed import Bed
from tests.bench.client import Seen
from tests.bench.figures import Figure, peak_memory_mib
from tests.bench.shape import make_queues, planned, queues_for, tell
from tests.cluster.scenario import GROUP

GOALS = {50_000: (20.0, 40.0), 100_000: (40.0, 80.0)}
"""Seconds to the first reservation and to all that fit, by Workloads."""
MEMORY_MIB = {100_000: 500.0}
PATIENCE = 240.0


class _Reserved:
    """When each Workload was first seen to have quota."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def saw(self, kind: str, seen: Seen, at: float) -> None:
        if kind != "DELETED" and seen.has("QuotaReserved"):
            self.at.setdefault(seen.metadata.name, at)


async def restart(bed: Bed, *, workloads: int) -> list[Figure]:
    """Start over a standing backlog."""
    queues = queues_for(workloads)
    namespace = bed.control_plane.namespace("bench", labels=MANAGED)
    path = resource_path(GROUP, "workloads", namespace=namespace)
    reserved = _Reserved()
    async with bed.client() as client:
        await make_queues(bed, client, namespace, queues=queues)
        etcd, all_planned = bed.control_plane.etcd, planned(workloads, queues=queues)
        pattern = await backlog.pattern_of(client, etcd, namespace, all_planned[0])
        bed.stop()
        began = time.perf_counter()
        await backlog.fill(etcd, namespace, pattern, all_planned)
        tell(f"{workloads} Workloads in {queues} queues stand after {time.perf_counter() - began:.1f} s")
        version = json.loads(await client.call("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        async with client.watching(path, reserved.saw, since=version):
            began = time.perf_counter()
            bed.launch()
            gauge = bed.gauge()
            while len(reserved.at) < queues:
                await asyncio.sleep(0.2)
                bed.manager.require_running()
                spent = time.perf_counter() - began
                if int(spent * 5) % 25 == 0:
                    tell(
                        f"after {spent:.0f} s {len(reserved.at)} of {queues} have quota; "
                        f"{peak_memory_mib(bed.manager.pid):.0f} MiB"
                    )
                if spent > PATIENCE:
                    break
            used = gauge.seconds()
    moments = sorted(at - began for at in reserved.at.values())
    first, whole = GOALS.get(workloads, (None, None))
    shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in used.items() if seconds >= 0.1)
    return [
        Figure(
            name=f"{workloads} pending in {queues} queues: first reservation after",
            value=moments[0] if moments else float("inf"),
            unit="s",
            target=first,
        ),
        Figure(
            name="all that fit have quota after",
            value=moments[-1] if len(moments) >= queues else float("inf"),
            unit="s",
            target=whole,
            note=f"{len(moments)} of {queues}; seconds of CPU: {shares}",
        ),
        Figure(
            name="peak memory until then",
            value=peak_memory_mib(bed.manager.pid),
            unit="MiB",
            target=MEMORY_MIB.get(workloads),
        ),
    ]
