"""How long one user waits on a cluster that is not busy: for a create call, and for a Job to be let in."""

import json
import time

from testbed import resource_path
from tests.bench.bed import Bed, job_body, room, run_jobs, workloads_done
from tests.bench.client import paced
from tests.bench.figures import Figure, percentile

RATE = 4.0
KUEUE_BARE_MS = (3.9, 13.0)
"""Kueue's bench measured its create call without any webhook too: how fast that machine was."""


async def idle(bed: Bed, *, jobs: int) -> list[Figure]:
    """Jobs of one pod into a queue with room, four a second."""
    with bed.world() as scenario:
        room(scenario, cpu=1000)
        async with bed.client() as client:
            await run_jobs(client, scenario.namespace, count=4, rate=RATE, prefix="warm-up")
            run = await run_jobs(client, scenario.namespace, count=jobs, rate=RATE)
            await workloads_done(client, scenario.namespace)
    waits = [wait * 1000 for wait in run.waits]
    return [
        Figure(name="created to unsuspended, p50", value=percentile(waits, 50), unit="ms", target=30, peer=57),
        Figure(name="created to unsuspended, p99", value=percentile(waits, 99), unit="ms", target=80, peer=162),
    ]


async def create(bed: Bed, *, jobs: int) -> list[Figure]:
    """Create calls that the webhook changes, in turn with ones that no webhook sees; none of these Jobs ever starts."""
    control_plane = bed.control_plane
    with bed.world() as scenario:
        scenario.queue("main", {scenario.flavor("default"): {"cpu": 0}})
        unmanaged = control_plane.namespace("bench-unmanaged")
        managed = scenario.namespace
        took: dict[str, list[float]] = {managed: [], unmanaged: []}
        try:
            async with bed.client() as client:

                async def one(number: int) -> None:
                    namespace = (managed, unmanaged)[number % 2]
                    body = job_body(
                        f"job-{number:05}",
                        namespace=namespace,
                        queue="main",
                        run_for="1s",
                        suspend=namespace == unmanaged,
                    )
                    collection = resource_path("batch/v1", "jobs", namespace=namespace)
                    began = time.perf_counter()
                    answer = await client.create(collection, body)
                    took[namespace].append((time.perf_counter() - began) * 1000)
                    if not json.loads(answer)["spec"].get("suspend"):
                        raise AssertionError(f"{namespace}/job-{number:05} was not suspended: is the webhook called?")

                await paced(8, rate=2 * RATE, one=one)
                for values in took.values():
                    values.clear()
                await paced(8 + 2 * jobs, rate=2 * RATE, one=lambda number: one(number + 8))
        finally:
            control_plane.api.delete(resource_path("v1", "namespaces", unmanaged))
    rows = []
    for percent, target, peer in ((50, 6.0, 6.2), (99, 15.0, 15.4)):
        floor = percentile(took[unmanaged], percent)
        value = percentile(took[managed], percent)
        bare = KUEUE_BARE_MS[percent == 99]
        rows.append(
            Figure(
                name=f"create call with the webhook in its way, p{percent}",
                value=value,
                unit="ms",
                target=target,
                peer=peer,
                floor=floor,
                note=f"the floor is without a webhook ({bare:g} ms on Kueue's bench)",
            )
        )
    return rows
