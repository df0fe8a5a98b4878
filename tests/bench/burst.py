"""Many Jobs at once: when they are all let in, and what that costs in CPU, memory and writes.

There are 50 Jobs a second, or as many as BURST_RATE says (`BURST_RATE=25 make bench ARGS="burst"`).
"""

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

from testbed import resource_path
from tests.bench.bed import CONTROLLER, Bed, Run, room, run_jobs, workloads_done
from tests.bench.figures import Figure, peak_memory_mib, percentile

RATE = float(os.environ.get("BURST_RATE", "50"))


async def burst(bed: Bed, *, jobs: int) -> list[Figure]:
    """`RATE` Jobs a second into a queue with room; pods run a second or two and finish meanwhile.

    Then the same in a namespace that is not managed: what the create calls take there is the floor of ours.
    """
    with bed.world() as scenario:
        room(scenario, cpu=2 * jobs)
        async with bed.client() as client:
            gauge = bed.gauge()
            run = await run_jobs(client, scenario.namespace, count=jobs, rate=RATE)
            last = max(run.finished.values()) - min(run.sent.values())
            await workloads_done(client, scenario.namespace)
            each = {name: seconds / jobs * 1000 for name, seconds in gauge.seconds().items()}
            sentence = gauge.sentence()
        memory = peak_memory_mib(bed.manager.pid)
    bare = await _without_queueing(bed, jobs=jobs)
    whole = jobs == 1000 and RATE == 50
    return [
        Figure(
            name=f"{jobs} Jobs, {RATE:g} a second: last one unsuspended after",
            value=run.last_started,
            unit="s",
            target=36 if whole else None,
            peer=55 if whole else None,
            note=f"last one completed after {last:.1f} s",
        ),
        Figure(
            name="created to unsuspended, p50",
            value=percentile(run.waits, 50),
            unit="s",
            target=8 if whole else None,
            peer=28.6 if whole else None,
            note=f"p99 {percentile(run.waits, 99):.2f} s; {sentence}",
        ),
        Figure(
            name="CPU of controller and webhook for one Job",
            value=each[bed.program.name],
            unit="ms",
            target=8,
            peer=18,
            note=f"kube-apiserver {each['kube-apiserver']:.0f} ms, etcd {each['etcd']:.0f} ms",
        ),
        Figure(name=f"peak memory, {jobs} Jobs", value=memory, unit="MiB", target=120, peer=166),
        *_create_calls(run, bare),
    ]


def _create_calls(run: Run, bare: Run) -> list[Figure]:
    figures = []
    for percent, peer in ((50, 133), (99, 323)):
        floor = percentile(bare.calls, percent) * 1000
        figures.append(
            Figure(
                name=f"create call meanwhile, p{percent}",
                value=percentile(run.calls, percent) * 1000,
                unit="ms",
                target=1.2 * floor,
                peer=peer,
                floor=floor,
                note="the floor is without any queueing",
            )
        )
    return figures


async def _without_queueing(bed: Bed, *, jobs: int) -> Run:
    """The same Jobs in a namespace that is not managed."""
    control_plane = bed.control_plane
    namespace = control_plane.namespace("bench-unmanaged")
    try:
        async with bed.client() as client:
            return await run_jobs(client, namespace, count=jobs, rate=RATE, queue=None)
    finally:
        control_plane.api.delete(resource_path("v1", "namespaces", namespace))


async def writes(bed: Bed, *, jobs: int) -> list[Figure]:
    """What the controller writes for one Job until nothing is left to do, on an idle and on a busy cluster.

    Needs a bed with an audit log. Leases are left out: their number depends on time alone.
    """
    rows = []
    for rate, words in ((4.0, "idle, 4 a second"), (RATE, "busy, 50 a second")):
        with bed.world() as scenario:
            room(scenario, cpu=2 * jobs)
            await asyncio.sleep(2.5)  # figures of the queues are written within seconds
            log = bed.control_plane.audit_log
            start = log.stat().st_size
            async with bed.client() as client:
                await run_jobs(client, scenario.namespace, count=jobs, rate=rate)
                await workloads_done(client, scenario.namespace)
                await asyncio.sleep(2.5)
            counted = _written(log, start)
        events = sum(number for (_, resource), number in counted.items() if resource == "events")
        others = sum(counted.values()) - events
        detail = ", ".join(
            f"{verb} {resource} {number / jobs:.2f}" for (verb, resource), number in counted.most_common(8)
        )
        idle = rate < RATE
        rows += [
            Figure(
                name=f"writes for one Job ({words}), without events",
                value=others / jobs,
                unit="writes",
                target=4.5,
                peer=5.5,
                note=detail,
            ),
            Figure(
                name=f"events for one Job ({words})",
                value=events / jobs,
                unit="writes",
                target=5,
                peer=5.1,
                note="" if idle else "events give way under load",
            ),
        ]
    return rows


def _written(log: Path, start: int) -> Counter[tuple[str, str]]:
    """Successful writes of the controller's account since that position of the audit log, by verb and resource."""
    counted: Counter[tuple[str, str]] = Counter()
    with log.open("rb") as file:
        file.seek(start)
        for line in file:
            entry = json.loads(line)
            target = entry.get("objectRef") or {}
            if (
                entry["stage"] == "ResponseComplete"
                and entry["user"]["username"] == CONTROLLER
                and entry["verb"] in ("create", "update", "patch", "delete")
                and target.get("resource") not in ("leases", None)
            ):
                failed = (
                    "" if entry["responseStatus"]["code"] < 400 else f" (refused {entry['responseStatus']['code']})"
                )
                resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
                counted[entry["verb"], resource + failed] += 1
    return counted
