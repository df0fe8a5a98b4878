"""The API server is in trouble for a while, under load, with two controllers: slow, shedding, forgetful, without etcd.

Whatever the trouble, the leader stays the leader or is followed once, nobody gets quota that is not there, and soon
after the end of the trouble everything that was asked for has been done. The controllers reach the API server through a
proxy that makes the trouble; users and their load do not, but for etcd, which all of them need. The controllers elect
their leader with the default times (15, 10 and 2 s): with the short ones of other tests no renewal is answered in time
when each answer takes two seconds.

`TROUBLE_SECONDS=120` makes each trouble that long; it is 20 seconds if not said. etcd stops for 20 seconds always:
kube-controller-manager itself needs up to a minute to recover from more.
"""

import contextlib
import http.client
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError
from testbed.installation import NAMESPACE
from testbed.processes import Process
from tests.audits import assert_passes
from tests.cluster.scenario import GROUP, Scenario, job
from tests.faults.background import background_proxy, kubeconfig_of
from tests.faults.proxy import Exchange, Fault, Proxy, answer, late_answer, passed
from tests.faults.recording import Event, Recorder
from tests.model.quota import Limits, Tree
from tests.turnstile import Turnstile

SECONDS = float(os.environ.get("TROUBLE_SECONDS", "20"))
ETCD_SECONDS = 20.0
SETTLED_SECONDS = 30.0
"""Seconds from the end of a trouble until everything is done."""
BEFORE_SECONDS = 4.0
"""Seconds of load before the trouble."""
PAUSE_SECONDS = 0.4
"""Between two Jobs of the load."""
QUOTA = 8
"""Of each of two queues in a cohort: Jobs of one pod that runs for a second."""
LEASES = resource_path("coordination.k8s.io/v1", "leases", namespace=NAMESPACE)
LEASE_NAME = "turnstile-controller"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180 + SECONDS)]


@dataclass
class Switch:
    """A fault that is played for every request while it is on."""

    fault: Fault = passed

    async def __call__(self, exchange: Exchange) -> bool:
        """Play it."""
        return await self.fault(exchange)


@dataclass
class Load:
    """Creates a Job every `PAUSE_SECONDS`, in two queues by turns. A creation that fails is tried again."""

    scenario: Scenario
    control_plane: ControlPlane
    made: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `stop`, in a thread of its own."""
        api, namespace = self.control_plane.api_as("admin"), self.scenario.namespace
        while not self._over.wait(PAUSE_SECONDS):
            number = len(self.made)
            name = f"load-{number}"
            body = job(name, namespace=namespace, queue=f"queue-{number % 2}", run_for="1s")
            try:
                api.request("POST", resource_path("batch/v1", "jobs", namespace=namespace), body, timeout=10)
            except ApiError as error:
                if error.code != 409:
                    continue  # 409: an earlier attempt without an answer was successful
            except (OSError, http.client.HTTPException):
                continue
            self.made.append(name)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Load for as long as the block lasts."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


@dataclass
class Bed:
    """Two controllers behind the proxy, a webhook beside it, two queues, and a recording of Workloads and the Lease."""

    control_plane: ControlPlane
    scenario: Scenario
    proxy: Proxy
    switch: Switch
    recorder: Recorder
    controllers: list[Process]

    def survives(self, trouble: Callable[[], None], *, end: Callable[[], None] = lambda: None) -> None:
        """The whole test: load, then the trouble beside it, and what must hold during it and after its end."""
        load = Load(self.scenario, self.control_plane)
        with load.running():
            wait_until(lambda: len(load.made) >= BEFORE_SECONDS / PAUSE_SECONDS, timeout=30, describe=lambda: "no load")
            self.scenario.wait_started(load.made[0], timeout=10)
            try:
                trouble()
            finally:
                end()
                self.switch.fault = passed
        over = time.monotonic()
        self._settles(load.made, over + SETTLED_SECONDS)
        print(f"{len(load.made)} Jobs; settled {time.monotonic() - over:.1f} s after the end")
        self.recorder.catch_up()
        history = self.recorder.history()
        assert overshoots(history) == []
        holders = leaders(history)
        assert len(holders) <= 2, f"led by {' then '.join(holders)}"
        assert all(process.poll() is None for process in self.controllers)

    def _settles(self, names: list[str], deadline: float) -> None:
        left: set[str] = set(names)
        path = resource_path("batch/v1", "jobs", namespace=self.scenario.namespace)

        def look() -> bool:
            jobs = self.scenario.api.items(path)
            left.clear()
            left.update(each["metadata"]["name"] for each in jobs if not _is_true(each, "Complete"))
            waiting = [each for each in self.recorder.now("Workload") if not _is_true(each, "Finished")]
            return not left and not waiting and len(jobs) == len(names)

        logs = "\n".join(process.tail(15) for process in self.controllers)
        wait_until(
            look,
            timeout=max(0.0, deadline - time.monotonic()),
            describe=lambda: f"not complete: {sorted(left)}\n{logs}",
        )
        assert_passes(self.scenario.api, self.scenario.namespace)


def overshoots(history: list[Event]) -> list[str]:
    """Each moment at which Workloads held more than the quota of the cohort, counted anew after every change."""
    tree = Tree({f"queue-{number}": Limits(QUOTA, parent="all") for number in range(2)})
    held: dict[str, str] = {}
    found: list[str] = []
    for event in history:
        if event.kind != "Workload":
            continue
        uid, new = event.obj["metadata"]["uid"], event.new
        if new is not None and _is_true(new, "QuotaReserved") and not _is_true(new, "Finished"):
            held[uid] = new["status"]["admission"]["clusterQueue"]
        else:
            held.pop(uid, None)
        usage = {name: sum(queue.startswith(name) for queue in held.values()) for name in ("queue-0", "queue-1")}
        if tree.room("queue-0", usage) < 0:
            found.append(f"revision {event.revision}: {usage} of {2 * QUOTA}")
    return found


def leaders(history: list[Event]) -> list[str]:
    """Who held the Lease, one after the other."""
    found: list[str] = []
    for event in history:
        if event.kind == "Lease" and event.new is not None and event.new["metadata"]["name"] == LEASE_NAME:
            holder = event.new["spec"].get("holderIdentity") or ""
            if holder and found[-1:] != [holder]:
                found.append(holder)
    return found


def _is_true(obj: Json, kind: str) -> bool:
    found: Any = condition(obj, kind).get("status")
    return bool(found == "True")


@pytest.fixture
def bed(control_plane: ControlPlane, turnstile: Turnstile, scenario: Scenario) -> Iterator[Bed]:
    """All of it; afterwards Turnstile runs as before."""
    flavor = scenario.flavor("plain")
    for number in range(2):
        scenario.queue(f"queue-{number}", {flavor: {"cpu": QUOTA}}, cohort="all")
    installation, switch = turnstile.installation, Switch()
    processes: list[Process] = []
    turnstile.stop()
    user = control_plane.service_account_kubeconfig(NAMESPACE, "turnstile-controller")
    workloads = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    try:
        with background_proxy(user) as proxy:
            proxy.plan(switch, times=float("inf"))
            webhook = installation.start(role="webhook")
            processes.append(webhook)
            token = control_plane.service_account_token(NAMESPACE, "turnstile-controller")
            through = ("--kubeconfig", str(kubeconfig_of(proxy, control_plane.directory, token=token)))
            controllers = [installation.start(role="controller", arguments=through, election=()) for _ in range(2)]
            processes += controllers
            installation.wait_ready(webhook)
            for each in controllers:
                _wait_logged(each, "caches.synced")
            wait_until(
                lambda: any('"leading"' in each.tail(200) for each in controllers),
                timeout=40,
                describe=lambda: "nobody leads",
            )
            with Recorder(control_plane.api, {"Workload": workloads, "Lease": LEASES}) as recorder:
                yield Bed(control_plane, scenario, proxy, switch, recorder, controllers)
            for each in processes:
                each.kill()
    finally:
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                if each.poll() is None:
                    each.kill()
        turnstile.start()


def _wait_logged(process: Process, event: str) -> None:
    wait_until(lambda: event in process.tail(200), timeout=40, describe=lambda: process.tail(20))


def _lasts(seconds: float = SECONDS) -> None:
    threading.Event().wait(seconds)


@pytest.mark.parametrize("seconds", [0.5, 2.0], ids=["500ms", "2s"])
def test_slow_answers(bed: Bed, seconds: float) -> None:
    """Every answer comes late: one leader, and what was decided is written in the end."""

    def trouble() -> None:
        bed.switch.fault = late_answer(seconds)
        _lasts()

    bed.survives(trouble)


def test_shed_requests(bed: Bed) -> None:
    """Of ten requests three are refused with 429 and a second to wait, those for the Lease too."""
    chance = random.Random(15)
    refused = answer("429 Too Many Requests", b"{}", Retry_After="1")

    async def sometimes(exchange: Exchange) -> bool:
        return await (refused if chance.random() < 0.3 else passed)(exchange)

    def trouble() -> None:
        bed.switch.fault = sometimes
        _lasts()

    bed.survives(trouble)


def test_cut_watches(bed: Bed) -> None:
    """All watches break every five seconds."""

    def trouble() -> None:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            bed.proxy.cut_watches()
            _lasts(5.0)

    bed.survives(trouble)


def test_etcd_stops(bed: Bed) -> None:
    """The API server is there, but can neither read nor write."""

    def trouble() -> None:
        bed.control_plane.pause("etcd")
        _lasts(ETCD_SECONDS)

    bed.survives(trouble, end=lambda: bed.control_plane.resume("etcd"))
