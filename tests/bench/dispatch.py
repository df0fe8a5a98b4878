"""Jobs at a steady rate for two other clusters: how long each is on its way, what it costs, and whether any is lost.

A manager and two workers, each on a control plane of its own, with room for all Jobs. The dispatcher is the default, so
each Workload is sent to both workers, and the first that admits it gets the Job. Pods run for 1 or 2 seconds. The bench
watches Jobs and Workloads on all three clusters. It counts requests by the audit logs of the API servers.
"""

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from testbed.client import resource_path
from tests.bench.bed import CONTROLLER, job_body
from tests.bench.client import Client, Seen, paced
from tests.bench.figures import Figure, Gauge, percentile
from tests.cluster.scenario import GROUP
from tests.cluster.sites import Site, Sites, a_team

PATIENCE: Final = 900.0
"""Seconds after the last creation until what has not happened counts as lost."""
MANAGER_AGENT: Final = "(multikueue "
"""Part of the user agent of the manager's requests to a worker."""


@dataclass(slots=True)
class Copy:
    """A Job on a worker; moments of `perf_counter`."""

    worker: str
    began: float | None = None
    """When it was seen unsuspended."""
    over: float | None = None
    """When it was seen finished or was deleted."""
    completed: bool = False

    def runs_beside(self, other: "Copy") -> bool:
        """Whether both ran at one moment."""
        if self.began is None or other.began is None:
            return False
        ends = (each.over if each.over is not None else float("inf") for each in (self, other))
        return max(self.began, other.began) < min(ends)


@dataclass(slots=True)
class Trip:
    """The way of one Job; moments of `perf_counter`, each the first at which a watch showed it."""

    created: float
    """Just before the call that creates it on the manager."""
    sent: float | None = None
    """When a worker had its Workload."""
    admitted: float | None = None
    """When a worker had admitted it."""
    copied: float | None = None
    """When a worker had the copy of the Job."""
    started: float | None = None
    """When the copy was unsuspended."""
    finished: float | None = None
    """When the Job on the manager was complete."""
    copies: dict[str, Copy] = field(default_factory=dict)
    """By uid."""

    @property
    def doubled(self) -> bool:
        """Whether two copies ran at one moment."""
        found = list(self.copies.values())
        return any(one.runs_beside(other) for place, one in enumerate(found) for other in found[:place])

    @property
    def once(self) -> bool:
        """Whether the Job is complete, and exactly one copy of it ran to its end."""
        ran = [each for each in self.copies.values() if each.began is not None]
        return self.finished is not None and len(ran) == 1 and ran[0].completed


class Trips:
    """The ways of all Jobs of one run, by name, as watches show them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Trip] = {}
        self.left: set[tuple[str, str, str]] = set()
        """What is on a worker now: worker, kind and name."""
        self._changed = asyncio.Event()

    def saw_job(self, _: str, seen: Seen, at: float) -> None:
        """Take in a change of a Job on the manager."""
        trip = self.by_name.get(seen.metadata.name)
        if trip is not None and trip.finished is None and seen.has("Complete"):
            trip.finished = at
            self._changed.set()

    def saw_copy(self, worker: str, event: str, seen: Seen, at: float) -> None:
        """Take in a change of a Job on a worker."""
        name = seen.metadata.name
        self._note(worker, "Job", event, name)
        trip = self.by_name[name]
        copy = trip.copies.setdefault(seen.metadata.uid, Copy(worker))
        trip.copied = trip.copied or at
        if not seen.spec.suspend:
            copy.began = copy.began or at
            trip.started = trip.started or at
        copy.completed = copy.completed or seen.has("Complete")
        if copy.completed or seen.has("Failed") or event == "DELETED":
            copy.over = copy.over or at

    def saw_workload(self, worker: str, event: str, seen: Seen, at: float) -> None:
        """Take in a change of a Workload on a worker, whose name is made from that of its Job."""
        name = seen.metadata.name
        self._note(worker, "Workload", event, name)
        trip = self.by_name[name.removeprefix("job-").rpartition("-")[0]]
        trip.sent = trip.sent or at
        if seen.has("Admitted"):
            trip.admitted = trip.admitted or at

    def _note(self, worker: str, kind: str, event: str, name: str) -> None:
        if event == "DELETED":
            self.left.discard((worker, kind, name))
            self._changed.set()
        else:
            self.left.add((worker, kind, name))

    async def all_over(self) -> None:
        """Wait until all Jobs are complete, and nothing of them is left on the workers."""
        while self.left or any(each.finished is None for each in self.by_name.values()):
            self._changed.clear()
            await self._changed.wait()

    def seconds(self, moment: str) -> list[float]:
        """Seconds from the creation of each Job until a moment of it that has come."""
        found = ((getattr(each, moment), each.created) for each in self.by_name.values())
        return [at - created for at, created in found if at is not None]


async def _run(sites: Sites, namespace: str, jobs: int, rate: float) -> Trips:
    """Create Jobs, `rate` a second, and wait until all are over."""
    trips = Trips()
    path = resource_path("batch/v1", "jobs", namespace=namespace)
    workloads = resource_path(GROUP, "workloads", namespace=namespace)
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(Client(sites.manager.cp.kubeconfig()))
        await stack.enter_async_context(manager.watching(path, trips.saw_job))
        for name, worker in sites.workers.items():
            client = await stack.enter_async_context(Client(worker.cp.kubeconfig()))
            await stack.enter_async_context(client.watching(path, partial(trips.saw_copy, name)))
            await stack.enter_async_context(client.watching(workloads, partial(trips.saw_workload, name)))

        async def one(number: int) -> None:
            name = f"paced-{number:05}"
            body = job_body(name, namespace=namespace, queue="team", run_for=f"{1 + number % 2}s")
            trips.by_name[name] = Trip(time.perf_counter())
            await manager.create(path, body)

        await paced(jobs, rate=rate, one=one)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(trips.all_over(), PATIENCE)
    return trips


def requests(log: Path, start: int) -> dict[str, Counter[str]]:
    """Requests in an audit log since a position, by verb and resource: those of the cluster's own Turnstile as `own`,
    those of a manager as `manager`. Watches and leases are left out: their numbers depend on time alone."""
    found: dict[str, Counter[str]] = {"own": Counter(), "manager": Counter()}
    with log.open("rb") as file:
        file.seek(start)
        for line in file:
            entry = json.loads(line)
            target = entry.get("objectRef") or {}
            by_manager = MANAGER_AGENT in entry.get("userAgent", "")
            if (
                entry["stage"] == "ResponseComplete"
                and entry["verb"] != "watch"
                and target.get("resource") not in ("leases", None)
                and (by_manager or entry["user"]["username"] == CONTROLLER)
            ):
                code = (entry.get("responseStatus") or {}).get("code", 0)
                words = [entry["verb"], "/".join(filter(None, (target["resource"], target.get("subresource"))))]
                words += [f"(refused {code})"] if code >= 400 else []
                found["manager" if by_manager else "own"][" ".join(words)] += 1
    return found


def measure(sites: Sites, jobs: int, rate: float) -> Iterator[Figure | str]:
    """The figures of one run, and lines about the machine."""
    places: dict[str, Site] = {"manager": sites.manager, **sites.workers}
    pids = {name: place.process.pid for name, place in places.items() if place.process is not None}
    pids |= {f"kube-apiserver of {name}": place.cp.process("kube-apiserver").pid for name, place in places.items()}
    # Its end would delete thousands of objects, on control planes that end as well.
    team = a_team(sites.manager, sites.workers, sends=jobs, takes=jobs).__enter__()
    starts = {name: place.cp.audit_log.stat().st_size for name, place in places.items()}
    load, gauge, began = os.getloadavg(), Gauge(pids), time.perf_counter()
    trips = asyncio.run(_run(sites, team.here.namespace, jobs, rate))
    wall, seconds = time.perf_counter() - began, gauge.seconds()
    now = os.getloadavg()
    yield f"{jobs:,} Jobs, {rate:g} a second; load {load[0]:.1f} before, {now[0]:.1f} after; {gauge.sentence()}"
    for moment, words in (
        ("sent", "a worker has its Workload"),
        ("admitted", "a worker has admitted it"),
        ("copied", "its copy is there"),
        ("started", "its copy is started"),
    ):
        found = trips.seconds(moment)
        yield Figure(name=f"created until {words}: p50", value=percentile(found, 50), unit="s")
        yield Figure(name=f"created until {words}: p99", value=percentile(found, 99), unit="s")
    yield Figure(name="all over, and nothing left on the workers, after", value=wall, unit="s")
    every = trips.by_name.values()
    for words, lost in (
        ("Jobs that did not finish exactly once", [not each.once for each in every]),
        ("Jobs with two copies that ran at one moment", [each.doubled for each in every]),
        ("Jobs and Workloads left on the workers", trips.left),
    ):
        count = sum(lost) if isinstance(lost, list) else len(lost)
        yield Figure(name=words, value=count, unit="", target=0)
    won = Counter(copy.worker for each in every for copy in each.copies.values())
    for name, place in places.items():
        by = requests(place.cp.audit_log, starts[name])
        for who, counted in by.items():
            if counted:
                most = ", ".join(f"{words} {number / jobs:.2f}" for words, number in counted.most_common(6))
                whose = f"of {name}'s Turnstile" if who == "own" else f"of the manager to {name}"
                yield Figure(name=f"requests {whose}, a Job", value=counted.total() / jobs, unit="", note=most)
        note = f"kube-apiserver {1000 * seconds[f'kube-apiserver of {name}'] / jobs:.0f} ms"
        note += f"; {won[name]} copies" if name in sites.workers else ""
        yield Figure(name=f"CPU of {name}'s Turnstile, a Job", value=1000 * seconds[name] / jobs, unit="ms", note=note)
