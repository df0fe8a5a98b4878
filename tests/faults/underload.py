"""A load of reviews and Jobs through the API server, and who was served wrongly meanwhile.

A review is a dry run of a new Job that names a queue, so the API server asks the webhook and stores nothing. A Job that
was not created is created again until it is, as a controller or a pipeline does. What the API server says of a call is
told apart from calls that it did not answer.
"""

import asyncio
import itertools
import json
import statistics
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

import aiohttp

from testbed.client import Json, resource_path
from tests.bench.client import Client, Refused
from tests.cluster.scenario import GROUP, job
from tests.faults.following import Change
from tests.faults.overshoot import FOR_QUEUE, Overshoot, holds

CALL_SECONDS = 30.0
"""What a client waits for an answer."""
AGAIN_SECONDS = 0.5
"""From a Job that was not created to the next attempt."""
IN_FLIGHT = 400
"""Calls under way at a time, at most: what comes beside them is left out, and shows in the number of reviews."""
FORGOTTEN_SECONDS = 20
"""From the end of a Job to its deletion, so that a long run has no more objects than a short one."""
QUEUES = 2
Call = Callable[[Client, str], Awaitable[object]]


@dataclass
class Load:
    """Reviews and Jobs at fixed rates, whether or not earlier ones were answered; `with load.running():`."""

    kubeconfig: Path
    namespace: str
    elsewhere: str
    reviews: float
    jobs: float
    made: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Milliseconds of each review that was answered."""
    failed: Counter[str] = field(default_factory=Counter)
    """Calls that the API server refused because it could not have them reviewed, by kind of call."""
    late: int = 0
    """Those that were not reviewed in time: a pod is frozen, or the machine is full."""
    failed_elsewhere: list[str] = field(default_factory=list)
    failed_while_down: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    """Calls that got no answer, or an error of the API server's own, by kind of call."""
    complaints: Counter[str] = field(default_factory=Counter)
    began: float = 0.0
    ended: float = 0.0
    _down: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _count: int = 0
    _prefix: str = field(default_factory=lambda: f"load-{uuid.uuid4().hex[:6]}")

    @property
    def seconds(self) -> float:
        """For how long the load has gone on."""
        return (self.ended or time.monotonic()) - self.began

    @contextmanager
    def running(self) -> Iterator[None]:
        """Load for as long as the block lasts; at its end every Job that was begun has been created."""
        self.began = time.monotonic()
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.ended = time.monotonic()
            self._over.set()
            thread.join(120)
        assert not thread.is_alive(), f"Jobs are not created: {self.complaints}"

    @contextmanager
    def expected_down(self) -> Iterator[None]:
        """Reviews that fail in this block fail because no pod of Turnstile runs."""
        self._down = True
        yield
        self._down = False

    async def _run(self) -> None:
        async with Client(self.kubeconfig) as client, asyncio.TaskGroup() as group:
            for rate, call in ((self.reviews, self._review), (self.jobs, self._job), (1.0, self._elsewhere)):
                group.create_task(self._paced(client, rate, call))

    async def _paced(self, client: Client, rate: float, call: Call) -> None:
        due, under_way = time.monotonic(), set[asyncio.Future[object]]()
        while not self._over.is_set():
            if len(under_way) < IN_FLIGHT:
                self._count += 1
                task = asyncio.ensure_future(call(client, f"{self._prefix}-{self._count}"))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            due = max(due + 1 / rate, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        if under_way:
            await asyncio.wait(under_way)

    async def _review(self, client: Client, name: str) -> None:
        began = time.monotonic()
        if await self._create(client, "review", self._manifest(name, self.namespace), dry_run=True):
            self.waits.append((time.monotonic() - began) * 1000)

    async def _job(self, client: Client, name: str) -> None:
        body = self._manifest(name, self.namespace)
        if await self._create(client, "Job", body):
            self.made.append(name)
        else:
            await asyncio.sleep(AGAIN_SECONDS)
            await self._job(client, name)

    async def _elsewhere(self, client: Client, name: str) -> None:
        await self._create(client, "elsewhere", self._manifest(name, self.elsewhere), dry_run=True)

    def _manifest(self, name: str, namespace: str) -> Json:
        number = self._count % QUEUES
        body = job(name, namespace=namespace, queue=f"queue-{number}", run_for="1s")
        body["spec"]["ttlSecondsAfterFinished"] = FORGOTTEN_SECONDS
        body["spec"]["template"]["metadata"]["labels"] = {FOR_QUEUE: f"queue-{number}-{self.namespace}"}
        return body

    async def _create(self, client: Client, kind: str, body: Json, *, dry_run: bool = False) -> bool:
        path = resource_path("batch/v1", "jobs", namespace=body["metadata"]["namespace"])
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await client.create(f"{path}?dryRun=All" if dry_run else path, json.dumps(body).encode())
        except Refused as error:
            if "AlreadyExists" in str(error):  # an earlier attempt without an answer was successful
                return True
            if "failed calling webhook" in str(error):
                self._failed(kind, str(error))
            else:
                self.unanswered[kind] += 1
                self.complaints[str(error)[-150:]] += 1
            return False
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            self.unanswered[kind] += 1
            self.complaints[repr(error)[:150]] += 1
            return False
        return True

    def _failed(self, kind: str, why: str) -> None:
        self.complaints[why[-150:]] += 1
        if kind == "elsewhere":
            self.failed_elsewhere.append(why)
        elif self._down:
            self.failed_while_down += 1
        elif "context deadline exceeded" in why:
            self.late += 1
        else:
            self.failed[kind] += 1


class Judge:
    """Sees each change of a pod, a Workload and a Job: what ran beyond quota, what was admitted or started twice."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._overshoot = Overshoot()
        self._held: dict[str, bool] = {}
        self._admissions: Counter[str] = Counter()
        self._workloads: defaultdict[str, set[str]] = defaultdict(set)
        self._admitted_at: list[float] = []
        self._started: set[str] = set()
        self._names: dict[str, str] = {}
        """Of Jobs, by uid."""
        self.story: list[str] = []
        """What led to the first time that something was beyond a quota."""
        self.paths: Mapping[str, str] = {
            "pods": resource_path("v1", "pods", namespace=load.namespace),
            "workloads": resource_path(GROUP, "workloads", namespace=load.namespace),
            "jobs": resource_path("batch/v1", "jobs", namespace=load.namespace),
            "clusterqueues": resource_path(GROUP, "clusterqueues"),
            "cohorts": resource_path(GROUP, "cohorts"),
        }

    def follow(self, changes: Iterable[Change]) -> None:
        """Take these changes in, one after the other."""
        changes = list(changes)
        self._overshoot.follow(changes)
        if self._overshoot.wrong and not self.story:
            self.story = self._overshoot.story()
        for change in changes:
            if (
                change.obj is None
            ):  # nobody deletes a Job before its end; its start may be missed where a watch has ended
                self._started.add(self._names.get(change.uid, ""))
                continue
            owner = next((each["uid"] for each in change.obj["metadata"].get("ownerReferences", ())), "")
            if change.kind == "workloads":
                self._workloads[owner].add(f"{change.obj['metadata']['name']} {change.uid}")
                held = holds(change.obj)
                if held and not self._held.get(change.uid, False):
                    self._admissions[change.uid] += 1
                    self._admitted_at.append(change.at)
                self._held[change.uid] = held
            elif change.kind == "jobs":
                name = self._names[change.uid] = change.obj["metadata"]["name"]
                if not change.obj["spec"].get("suspend"):
                    self._started.add(name)

    @property
    def waiting(self) -> list[str]:
        """Jobs of the load that have not been started: their quota comes from others that have ended."""
        return [name for name in self._load.made if name not in self._started]

    @property
    def twice(self) -> list[str]:
        """Workloads that got quota again, and Jobs with a second Workload.

        A second pod is no sign of it: the Job controller makes another one when the API server is killed before it has
        answered the first creation. Both would count against the quota.
        """
        again = [f"Workload {uid} has got quota {count} times" for uid, count in self._admissions.items() if count > 1]
        second = [f"Workloads of Job {uid}: {sorted(each)}" for uid, each in self._workloads.items() if len(each) > 1]
        return again + second

    @property
    def over_quota(self) -> list[str]:
        """What ran or was reserved beyond a quota."""
        return self._overshoot.wrong

    def longest_pause(self) -> float:
        """Seconds between two admissions, at most, while the load went on."""
        began, ended = self._load.began, self._load.ended
        times = sorted([began, *(at for at in self._admitted_at if at < ended), ended])
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def __str__(self) -> str:
        left = self.waiting
        return f"{len(left)} Jobs have not been started: {left[:5]}; complaints: {self._load.complaints}"


@dataclass(frozen=True)
class Row:
    """What a change did to the load."""

    change: str
    seconds: float
    reviews: int
    failed: int
    late: int
    unanswered: int
    failed_while_down: int
    elsewhere: int
    jobs: int
    twice: tuple[str, ...]
    over_quota: tuple[str, ...]
    story: tuple[str, ...]
    median_ms: float
    p99_ms: float
    pause: float
    settled: float
    complaints: tuple[tuple[str, int], ...]

    HEADER: ClassVar = (
        "| change | seconds | reviews | failed | failed, too late | failed in other namespaces "
        "| failed while all is down "
        "| calls without an answer | Jobs | admitted twice | over quota | review p50 / p99 "
        "| longest without an admission | last Job started after |\n|---|" + 13 * "---:|"
    )

    @classmethod
    def of(cls, change: str, load: Load, judge: Judge, *, settled: float) -> Self:
        """What load and judge saw."""
        cuts = statistics.quantiles(load.waits, n=100)
        failed = sum(load.failed.values())
        return cls(
            change=change,
            seconds=load.seconds,
            reviews=len(load.waits) + failed + load.late + load.failed_while_down,
            failed=failed,
            late=load.late,
            unanswered=sum(load.unanswered.values()),
            failed_while_down=load.failed_while_down,
            elsewhere=len(load.failed_elsewhere),
            jobs=len(load.made),
            twice=tuple(judge.twice),
            over_quota=tuple(judge.over_quota),
            story=tuple(judge.story),
            median_ms=cuts[49],
            p99_ms=cuts[98],
            pause=judge.longest_pause(),
            settled=settled,
            complaints=tuple(load.complaints.most_common(5)),
        )

    @property
    def wrong(self) -> list[str]:
        """What went wrong, a line each."""
        return [
            *(f"{count} times: {why}" for why, count in self.complaints),
            *self.twice,
            *self.over_quota,
            *self.story,
        ]

    def __str__(self) -> str:
        return (
            f"| {self.change} | {self.seconds:.0f} | {self.reviews} | {self.failed} | {self.late} | {self.elsewhere} "
            f"| {self.failed_while_down} | {self.unanswered} "
            f"| {self.jobs} | {len(self.twice)} | {len(self.over_quota)} "
            f"| {self.median_ms:.0f} / {self.p99_ms:.0f} ms | {self.pause:.1f} s | {self.settled:.1f} s |"
        )
