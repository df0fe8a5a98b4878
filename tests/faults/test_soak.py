"""A soak: jobs of six kinds in twenty queues with all features on, under faults of every sort.

Pods are counted against reservations and quota change by change (`overshoot`), states that may not last have deadlines
(`forbidden`), and the memory of each process is sampled. In the first half processes are killed. In the second half the
processes go on running, so that it is seen whether their memory grows; the API server is restarted, the definition of
JobSets is deleted and created again, and users go on.

    make soak                                    half an hour
    SOAK_SECONDS=180 SOAK_SEED=7 make soak       three minutes of another seed
"""

import contextlib
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.client import Json, wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import ComponentFailed
from testbed.operators import OPERATORS, RunningOperator
from tests.faults.crew import Crew
from tests.faults.following import Follower
from tests.faults.forbidden import GROUP_NAME, Deadlines, World, key_of, state_of
from tests.faults.overshoot import Overshoot
from tests.faults.soak import CONFIGURATION, FAIR, Soak
from tests.turnstile import Turnstile

SECONDS = float(os.environ.get("SOAK_SECONDS", "180"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
LED_SECONDS = 60.0
SETTLED_SECONDS = 150.0
"""From the end of all operations until every job that was deleted is gone with its pods and its Workloads, at most."""
PAUSE_SECONDS = 0.35
"""Between two operations, on average."""
LOOK_SECONDS = 1.0
LAG_SECONDS = 10.0
"""A change is judged when it was heard of so long ago: by then all older ones were heard of."""
FAULT_SECONDS = 8.0
"""From the end of a fault to the next one, on average."""
LEAST_SLOPE_SECONDS = 500.0
"""Memory is judged when it was sampled for so long; in less time it is only printed."""
SLOPE_MIB = 0.5
"""A minute, at most."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS + 600)]


class Faults:
    """What happens to Turnstile and the API server; `healthy` while nothing is away."""

    def __init__(self, crew: Crew, control_plane: ControlPlane, operator: RunningOperator, lots: random.Random) -> None:
        self._crew = crew
        self._control_plane = control_plane
        self._operator = operator
        self._lots = lots
        self.done: Counter[str] = Counter()
        self.healthy = True
        self._kills: list[Callable[[], None]] = [
            self.leader_killed, self.webhook_killed, self.all_killed, self.leader_frozen, self.api_server_restarted
        ]  # fmt: skip
        self._others: list[Callable[[], None]] = [self.api_server_restarted, self.definition_removed]
        lots.shuffle(self._kills)
        lots.shuffle(self._others)

    def run(self, over: threading.Event) -> None:
        """In the first half kills, in the second half nothing that ends a process of Turnstile."""
        began = time.monotonic()
        kills, others = itertools.cycle(self._kills), itertools.cycle(self._others)
        due = began + self._lots.expovariate(1 / FAULT_SECONDS)
        while not over.wait(1.0):
            self.revive()
            left = began + SECONDS - time.monotonic()
            if left < 2 * FAULT_SECONDS:
                return
            if time.monotonic() < due:
                continue
            fault = next(kills if left > SECONDS / 2 else others)
            self.healthy = False
            fault()
            self.revive()
            self._crew.wait_led(timeout=LED_SECONDS)
            self.healthy = True
            self.done[fault.__name__] += 1
            due = time.monotonic() + self._lots.expovariate(1 / FAULT_SECONDS)

    def revive(self) -> None:
        """Start what ended because it lost its own Lease, as a kubelet does with Kubernetes' controllers."""
        for name in self._control_plane.ended():
            self._control_plane.start(name, timeout=60)

    def leader_killed(self) -> None:
        """The standby takes over."""
        self._crew.kill_leader()
        self._crew.replace()

    def all_killed(self) -> None:
        """No standby."""
        self._crew.kill_all()
        self._crew.replace()

    def leader_frozen(self) -> None:
        """It wakes up when another one leads."""
        self._crew.freeze_leader()
        self._crew.replace()
        self._crew.wait_led(timeout=LED_SECONDS)
        self._crew.thaw()

    def webhook_killed(self) -> None:
        """Creations are refused until it is back."""
        self._crew.restart_webhook(away=self._lots.uniform(0.2, 2.0))

    def api_server_restarted(self) -> None:
        """etcd stays."""
        self._control_plane.kill("kube-apiserver")
        with contextlib.suppress(ComponentFailed):  # another component has ended
            self._control_plane.start("kube-apiserver", timeout=60)

    def definition_removed(self) -> None:
        """All JobSets are gone with it; other kinds go on meanwhile."""
        self._operator.remove_definitions()
        self.healthy = True
        threading.Event().wait(self._lots.uniform(3.0, 8.0))
        self._operator.install_definitions()
        self._operator.start()


class Memory:
    """Resident memory of processes, sampled in the last third. The last of them was killed before the second half:
    a process grows by 10 to 15 MiB in its first minutes, in which it does everything for the first time."""

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[float, float]]] = {}

    def sample(self, name: str, pid: int) -> None:
        """One more point, if the process lives."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
        if found:
            self._samples.setdefault(name, []).append((time.monotonic() / 60, int(found[0]) / 1024))

    def slopes(self) -> dict[str, tuple[float, float, float]]:
        """Of each process MiB a minute by least squares, the last sample, and the minutes between first and last."""
        return {name: (slope(points), points[-1][1], points[-1][0] - points[0][0]) for name, points in
                self._samples.items() if len(points) > 2}  # fmt: skip


def slope(points: list[tuple[float, float]]) -> float:
    """Of the line through these points that least squares give."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


@pytest.fixture
def operator(control_plane: ControlPlane, nodes: dict[str, str]) -> Iterator[RunningOperator]:
    """JobSet's, with its definition."""
    made = RunningOperator(control_plane, OPERATORS["jobset"])
    made.start()
    yield made
    made.stop()
    made.remove_definitions()


@pytest.fixture
def crew(
    control_plane: ControlPlane, turnstile: Turnstile, operator: RunningOperator, tmp_path: Path
) -> Iterator[Crew]:
    """A webhook, a leader and a standby in the place of the session's Turnstile; fair sharing if the seed is even."""
    configuration = tmp_path / "config.yaml"
    configuration.write_text(CONFIGURATION.format(sharing=FAIR if SEED % 2 == 0 else ""))
    policies = "config.objectRetentionPolicies.workloads"
    turnstile.stop()
    installation = turnstile.installation
    installation.install(
        "config.integrations.frameworks={batch/job,pod,deployment,statefulset,jobset.x-k8s.io/jobset}",
        f"{policies}.afterFinished=3s",
        f"{policies}.afterDeactivatedByKueue=3s",
        "config.defaultLocalQueues[0].clusterQueueLabel=soak.turnstile.dev/default",
    )
    crew = Crew(control_plane, installation, directory=tmp_path, configuration=configuration)
    try:
        crew.start()
        yield crew
    finally:
        crew.stop()
        installation.install()
        turnstile.start()


def test_no_overshoot_and_nothing_stuck(control_plane: ControlPlane, crew: Crew, operator: RunningOperator) -> None:
    """However long it goes on, whatever users do, and whoever dies."""
    lots = random.Random(SEED)
    soak = Soak(control_plane, lots)
    overshoot, deadlines, memory = Overshoot(), Deadlines(), Memory()
    faults = Faults(crew, control_plane, operator, random.Random(lots.random()))
    over = threading.Event()
    failures: list[BaseException] = []

    def trouble() -> None:
        try:
            faults.run(over)
        except BaseException as error:
            failures.append(error)

    with ExitStack() as ends:
        follower = ends.enter_context(Follower(control_plane.api, soak.paths))
        ends.enter_context(soak.answering())
        thread = threading.Thread(target=trouble, daemon=True)
        ends.callback(thread.join)
        ends.callback(over.set)
        last = began = time.monotonic()

        def look() -> World:
            """See what there is, and judge it."""
            nonlocal last
            overshoot.follow(follower.take(time.monotonic() - LAG_SECONDS))
            kinds = {kind: [each for each in follower.now(kind) if soak.concerns(each)] for kind in soak.paths}
            world, now = World(kinds), time.monotonic()
            away = follower.blind or not faults.healthy
            deadlines.look(world, 0.0 if away else min(now - last, 2 * LOOK_SECONDS))
            last = now
            if now - began > SECONDS * 2 / 3:
                for name, pid in crew.pids().items():
                    memory.sample(name, pid)
            if wrong := [*overshoot.wrong, *deadlines.wrong]:
                raise AssertionError(told(soak, faults, "\n".join([*wrong, *overshoot.story(), *states_of(world)])))
            return world

        def settled() -> bool:
            world = look()
            left = [*world.workloads, *world.pods]
            return not left and not follower.blind

        wait_until(lambda: not follower.blind, timeout=30, describe=lambda: "nothing is followed")
        thread.start()
        while time.monotonic() - began < SECONDS:
            assert not failures, failures
            if time.monotonic() - last > LOOK_SECONDS:
                world = look()
                soak.forget(names(world))
            soak.step()
            over.wait(lots.expovariate(1 / PAUSE_SECONDS))
        thread.join()
        assert not failures, failures
        soak.open_all()
        rest = time.monotonic()
        soak.remove_all()
        wait_until(settled, timeout=SETTLED_SECONDS, describe=lambda: told(soak, faults, left_over(follower, soak)))
        rested = time.monotonic() - rest
        overshoot.follow(follower.take(time.monotonic()))
        assert not overshoot.wrong, told(soak, faults, "\n".join([*overshoot.wrong, *overshoot.story()]))
    print(told(soak, faults, f"{overshoot.reservations} reservations, at most {overshoot.peak} cpus ran; all gone"))
    print(f"after {rested:.0f} s; longest in a forbidden state: "
          + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sorted(deadlines.longest.items())))  # fmt: skip
    slopes = memory.slopes()
    for name, (slope_, mib, minutes) in slopes.items():
        print(f"memory of {name}: {mib:.0f} MiB, {slope_:+.2f} MiB a minute over {minutes:.1f} minutes")
    grown = {name: each for name, each in slopes.items() if each[2] * 60 > LEAST_SLOPE_SECONDS and each[0] > SLOPE_MIB}
    assert not grown, grown


def names(world: World) -> set[str]:
    """Namespace and name of all objects, and of all groups of pods."""
    found = {key_of(each) for kind in world.objects.values() for each in kind if "namespace" in each["metadata"]}
    labels = ((each["metadata"]["namespace"], each["metadata"].get("labels", {})) for each in world.pods)
    return found | {f"{namespace}/{each.get(GROUP_NAME, '')}" for namespace, each in labels}


def states_of(world: World) -> list[str]:
    """All Workloads and pods as they are now."""
    orphans = [each["metadata"]["uid"] for each in world.ownerless()]
    workloads = [
        f"{key_of(each)} of {each['spec'].get('queueName')}: {state_of(each)}"
        + (" without an owner" if each["metadata"]["uid"] in orphans else "")
        + "".join(f", which left Job {key_of(job)}" for job in world.left_by_owners(each))
        for each in world.workloads
    ]
    return [*workloads, *(f"Pod {key_of(each)}: {pod_state(each)}" for each in world.pods)]


def pod_state(pod: Json) -> str:
    """A pod for people."""
    meta, spec = pod["metadata"], pod["spec"]
    gates = [each["name"] for each in spec.get("schedulingGates", ())]
    deleted = f"deleted {meta['deletionTimestamp']}" if "deletionTimestamp" in meta else ""
    return f"{pod['status'].get('phase')} on {spec.get('nodeName')} {gates} {meta.get('finalizers', [])} {deleted}"


def left_over(follower: Follower, soak: Soak) -> str:
    """What is there though all jobs were deleted."""
    kinds = ("workloads", "pods", "jobs", "jobsets", "statefulsets", "deployments")
    there = [f"{kind}/{key_of(each)}" for kind in kinds for each in follower.now(kind) if soak.concerns(each)]
    return f"left over: {there}"


def told(soak: Soak, faults: Faults, text: str) -> str:
    """What was done, and something more."""
    done = ", ".join(f"{count} {name}" for name, count in sorted(soak.done.items()))
    refused = ", ".join(f"{count} {name}" for name, count in sorted(soak.refused.items()))
    happened = ", ".join(f"{count} {name}" for name, count in sorted(faults.done.items()))
    return f"seed {SEED}, {SECONDS:.0f} s: {done}; refused: {refused}; {happened};\n{text}"
