"""Random histories of the whole controller in virtual time: the real leader with all that it runs, on an API server in
memory, beside Jobs, nodes and pods that come, go and fail.

The leader's watches are behind, each kind by its own time, answers are lost, leaders are killed and followed by others.
Judged from objects alone: no node and no queue has more placed than it takes, and at rest no pod of an admitted Job is
gated or without a node.

    python -m tests.faults.virtual_history SEED [LAST]
"""

import argparse
import asyncio
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import looptime
import structlog
from prometheus_client import CollectorRegistry

from tests.faults.virtual_cluster import (
    NAMESPACE,
    NODES,
    RACK,
    SYSTEM,
    Cluster,
    is_over,
    true,
)
from tests.faults.virtual_judge import PREEMPTED, QUOTA, Judge, holds
from tests.faults.virtual_server import Connection, Json, Server, Watches, key_of
from tests.unit.engine import builders as b
from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Job, Namespace, Node, Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import HOSTNAME, Topology
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.leader import Leader
from turnstile.controllers.metrics.counters import WorkloadMetrics
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.scheduling import scheduler
from turnstile.controllers.status.spans import Spans
from turnstile.controllers.view.managed import ManagedNamespaces
from turnstile.engine import State
from turnstile.engine.options import FairSharing, Options
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import slices
from turnstile.kube.caches import Caches
from turnstile.kube.events import Recorder
from turnstile.kube.fence import Fence
from turnstile.process.views import cluster_view

T = TypeVar("T")

STEPS = 60
"""Operations in a history."""
KILLED = 0.04
"""How likely the leader is killed after an operation."""
LOST = 0.03
"""How likely the answer to a request is lost."""
LATE = 0.4
"""How likely a controller of the cluster does not act on an object in its turn."""
PATIENCE = 150
"""Rounds in which a history has to come to rest."""
ROUND_SECONDS = 5.0
QUIET = 14
"""Rounds without a change after which a history is at rest."""
PRIORITIES: Final = {"low": 0, "high": 10}
WISHES: Final = (
    {"kueue.x-k8s.io/podset-required-topology": RACK},
    {"kueue.x-k8s.io/podset-preferred-topology": RACK},
    {"kueue.x-k8s.io/podset-unconstrained-topology": "true"},
    {},
)


class Process:
    """One leader: its stores and watches, its connection, and all that runs in a term."""

    def __init__(self, server: Server, lots: random.Random, *, epoch: int, fair: bool) -> None:
        loop = asyncio.get_running_loop()
        self.connection = Connection(server, lots, lost=LOST)
        transport = cast(Any, self.connection)
        caches, options, registry = Caches(transport), JobOptions(), Registry({"batch/job"})
        managed = ManagedNamespaces(caches, options, registry)
        cluster = cluster_view(
            caches, options, registry, managed, clock=lambda: server.now, namespace="turnstile-system"
        )
        cluster.spans = Spans(loop.time)
        cluster.ends.begin(cluster.measured)
        self.watches = Watches(server, caches, lots)
        fence = Fence(clock=loop.time, epoch=epoch, renewed_at=loop.time(), span=1e9)
        events = Recorder(transport, instance=f"leader-{epoch}", clock=loop.time, wall=lambda: server.now)
        executor = Executor(transport, caches.stores, events, fence=fence)
        self.leader = Leader(
            cluster,
            executor,
            State(Options(fair_sharing=FairSharing() if fair else None)),
            WorkloadMetrics(CollectorRegistry()),
        )
        self._task = loop.create_task(self._run(executor), name=f"leader {epoch}")

    async def _run(self, executor: Executor) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(executor.run(), name="housekeeping")
            group.create_task(self.leader.run(), name="leader")

    async def kill(self) -> None:
        """End it between any two steps."""
        self.watches.close()
        self.connection.cut()
        self._task.cancel()
        result = (await asyncio.gather(self._task, return_exceptions=True))[0]
        if not isinstance(result, asyncio.CancelledError) and result is not None:
            raise result

    def check(self) -> None:
        """Raise what ended the leader, if anything did."""
        if self._task.done():
            self._task.result()


class History:
    """A cluster, what users and administrators do, and one leader after the other."""

    def __init__(self, seed: int) -> None:
        self.server = Server(asyncio.get_running_loop().time)
        self._fair = bool(seed % 2)
        self._lots = random.Random(seed)
        self._jobs = 0
        self._terms = 0
        self._declare()
        self.cluster = Cluster(self.server, self._lots)
        self.judge = Judge(self.server, self.cluster)
        self._process = self._elect()

    def _declare(self) -> None:
        create = self.server.create
        for name in (NAMESPACE, SYSTEM):
            create(Namespace, {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
        levels = [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]
        create(Topology, {"metadata": {"name": "racks"}, "spec": {"levels": levels}})
        flavor = {"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"}
        create(ResourceFlavor, {"metadata": {"name": "gpu"}, "spec": flavor})
        for name, value in PRIORITIES.items():
            create(WorkloadPriorityClass, {"metadata": {"name": name}, "value": value})
        for name, quota in QUOTA.items():
            spec: Json = {"namespaceSelector": {}, "cohortName": "all"}
            spec["resourceGroups"] = b.quotas({"gpu": {"cpu": quota}})
            spec["preemption"] = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
            create(ClusterQueue, {"metadata": {"name": name}, "spec": spec})
            create(LocalQueue, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"clusterQueue": name}})

    def _elect(self) -> Process:
        self._terms += 1
        return Process(self.server, self._lots, epoch=self._terms, fair=self._fair)

    # --- how it goes on -----------------------------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        """So many operations, with rest in the middle and at the end. After that a new leader finds nothing to do."""
        cluster = self.cluster
        controllers = (cluster.follow_jobs, cluster.bind, cluster.stop_pods, cluster.watch_nodes, cluster.collect)
        try:
            for step in range(steps):
                self._operate()
                for _ in range(self._lots.randint(0, 3)):
                    self._lots.choice(controllers)(LATE)
                await asyncio.sleep(self._lots.choice((0.0, 0.003, 0.02, 0.1, 1.0, 4.0)))
                self._process.check()
                if self._lots.random() < KILLED:
                    await self._kill()
                if step == steps // 2 and not await self._settle():
                    return
            if await self._settle():
                before, preempted = self._admitted, self.judge.figures[PREEMPTED]
                await self._kill()
                # A leader ends a circle of preemptors by what it remembers, and the next one may go on with it.
                if (
                    await self._rest()
                    and self.judge.figures[PREEMPTED] == preempted
                    and (more := self._admitted - before)
                ):
                    self.judge.wrong.append(f"only a new leader admits {sorted(more)}")
        finally:
            await self._process.kill()
            self.judge.figures["bound"] = cluster.bound

    async def _kill(self) -> None:
        self.judge.figures["killed"] += 1
        await self._process.kill()
        self._process = self._elect()

    @property
    def _admitted(self) -> set[str]:
        return {key_of(each) for each in self.server.all(Workload) if holds(each)}

    async def _settle(self) -> bool:
        """End the pods of others, open the queues, repair all nodes or none, and wait for rest."""
        for pod in self.cluster.others:
            self.server.remove(Pod, key_of(pod))
        for name in QUOTA:
            self.server.edit(ClusterQueue, name, lambda draft: draft["spec"].update(stopPolicy="None"))
        if self._lots.random() < 0.5:
            for name in NODES:
                self.cluster.repair(name)
        return await self._rest()

    async def _rest(self) -> bool:
        """Let everything take its course until nothing happens any more, and judge what is left then. Returns whether
        it came to rest."""
        cluster, quiet, before = self.cluster, 0, -1
        for _ in range(PATIENCE):
            for act in (cluster.collect, cluster.follow_jobs, cluster.bind, cluster.watch_nodes, cluster.stop_pods):
                act(0.0)
            await asyncio.sleep(ROUND_SECONDS)
            self._process.check()
            quiet = quiet + 1 if self.server.revision == before and not self._process.watches.behind else 0
            before = self.server.revision
            if quiet >= QUIET:
                self.judge.at_rest()
                return True
        self.judge.wrong.append(f"it did not come to rest; the last change is of {self.server.latest}")
        return False

    # --- users and administrators -------------------------------------------------------------------------------------

    def _operate(self) -> None:
        operations: dict[Callable[[], None], int] = {
            self._submit: 12,
            self._end_pods: 8,
            self._delete_job: 2,
            self._break_node: 4,
            self._repair_node: 5,
            self._add_other: 3,
            self._end_other: 3,
            self._delete_pod: 2,
            self._deactivate: 1,
            self._delete_workload: 1,
            self._suspend: 1,
            self._resize: 1,
            self._move: 1,
            self._stop_queue: 2,
            self.cluster.beat: 3,
        }
        self._lots.choices(list(operations), list(operations.values()))[0]()

    def _pick(self, found: Sequence[T]) -> T | None:
        return self._lots.choice(found) if found else None

    @property
    def _node(self) -> str:
        return self._lots.choice(list(NODES))

    def _submit(self) -> None:
        """Submit a Job, as the webhook leaves it."""
        self._jobs += 1
        pods, lots = self._lots.randint(1, 4), self._lots
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": lots.choice(("1", "1", "2"))}}}
        template = {
            "metadata": {"labels": {}, "annotations": dict(lots.choice(WISHES))},
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template, "backoffLimit": 1000}
        spec |= {"completionMode": lots.choice(("Indexed", "NonIndexed")), "podReplacementPolicy": "Failed"}
        labels = {
            names.QUEUE_LABEL: lots.choice(list(QUOTA)),
            names.PRIORITY_CLASS_LABEL: lots.choice(list(PRIORITIES)),
        }
        meta = {"name": f"job-{self._jobs}", "namespace": NAMESPACE, "labels": labels}
        self.server.create(Job, {"metadata": meta, "spec": spec, "status": {}})

    def _end_pods(self) -> None:
        """Some or all pods of a Job succeed, or a pod fails."""
        running = [each for each in self.cluster.pods if not is_over(each) and self.cluster.is_up(each)]
        pod = self._pick(running)
        if pod is None:
            return
        if self._lots.random() < 0.2:
            self.cluster.end(pod, "Failed")
            return
        some, owner = self._lots.random() < 0.3, pod["metadata"]["ownerReferences"]
        for each in running:
            if each["metadata"]["ownerReferences"] == owner and not (some and self._lots.random() < 0.5):
                self.cluster.end(each, "Succeeded")

    def _delete_job(self) -> None:
        if (job := self._pick(self.server.all(Job))) is not None:
            self.server.remove(Job, key_of(job))

    def _delete_pod(self) -> None:
        if (pod := self._pick([each for each in self.cluster.pods if not is_over(each)])) is not None:
            self.server.delete(Pod, key_of(pod))

    def _deactivate(self) -> None:
        """Deactivate a Workload, or activate it again."""
        workload = self._pick([each for each in self.server.all(Workload) if not true(each, "Finished")])
        if workload is not None:
            active = not workload["spec"].get("active", True)
            self.server.edit(Workload, key_of(workload), lambda draft: draft["spec"].update(active=active))

    def _delete_workload(self) -> None:
        if (workload := self._pick(self.server.all(Workload))) is not None:
            self.server.delete(Workload, key_of(workload))

    def _suspend(self) -> None:
        """Suspend a Job. Policies let nobody unsuspend a Job that has no quota."""
        if (job := self._pick([each for each in self._live_jobs if not each["spec"]["suspend"]])) is not None:
            self.server.edit(Job, key_of(job), lambda draft: draft["spec"].update(suspend=True))

    def _resize(self) -> None:
        """Change how many pods a waiting Job has."""
        if (job := self._pick([each for each in self._live_jobs if each["spec"]["suspend"]])) is not None:
            pods = self._lots.randint(1, 4)
            self.server.edit(Job, key_of(job), lambda draft: draft["spec"].update(parallelism=pods, completions=pods))

    def _move(self) -> None:
        """Send a waiting Job to another queue."""
        if (job := self._pick([each for each in self._live_jobs if each["spec"]["suspend"]])) is not None:
            labels = {names.QUEUE_LABEL: self._lots.choice(list(QUOTA))}
            self.server.edit(Job, key_of(job), lambda draft: draft["metadata"]["labels"].update(labels))

    @property
    def _live_jobs(self) -> list[Json]:
        return [each for each in self.server.all(Job) if not true(each, "Complete")]

    def _stop_queue(self) -> None:
        """Stop a ClusterQueue, or open it again."""
        name = self._lots.choice(list(QUOTA))
        policy = self._lots.choice(("None", "None", "Hold", "HoldAndDrain"))
        self.server.edit(ClusterQueue, name, lambda draft: draft["spec"].update(stopPolicy=policy))

    def _break_node(self) -> None:
        match self._lots.choice(("down", "cordoned", "NoSchedule", "NoExecute", "gone", "gone")):
            case "down":
                self.cluster.down(self._node)
            case "cordoned":
                self.cluster.cordon(self._node)
            case "gone":
                self.server.remove(Node, self._node)
            case effect:
                self.cluster.taint(self._node, effect)

    def _repair_node(self) -> None:
        self.cluster.repair(self._node)

    def _add_other(self) -> None:
        self.cluster.add_other(self._node)

    def _end_other(self) -> None:
        if (pod := self._pick(self.cluster.others)) is not None:
            self.server.remove(Pod, key_of(pod))


@contextmanager
def _virtual(lots: random.Random, errors: list[str], trace: str) -> Iterator[None]:
    """Have slices end by lot instead of by the time that they take, so that a seed is one history; and errors in the
    log added to a list. Lines with `trace` in them are printed."""

    def processed(_: object, level: str, event: Any) -> Any:
        if level in ("error", "exception", "critical"):
            error = event.get("exc_info")
            errors.append("".join(traceback.format_exception(error)) if isinstance(error, Exception) else str(event))
        elif trace and trace in str(event):
            print(f"{asyncio.get_running_loop().time():9.3f}", *(f"{name}={value}" for name, value in event.items()))
        raise structlog.DropEvent

    configured = structlog.get_config()
    structlog.configure(processors=[processed], cache_logger_on_first_use=False)
    real = slices.time, scheduler.time
    read = lambda: asyncio.get_running_loop().time() + (0.001 if lots.random() < 0.05 else 0.0)  # noqa: E731
    slices.time = scheduler.time = cast(Any, SimpleNamespace(perf_counter=read))
    try:
        yield
    finally:
        slices.time, scheduler.time = real
        structlog.configure(**configured)


def play(seed: int, *, steps: int = STEPS, trace: str = "") -> History:
    """Play one history, and judge it."""
    random.seed(seed)

    errors = list[str]()

    async def run() -> History:
        history = History(seed)
        await history.run(steps)
        history.judge.wrong += errors
        return history

    loop = looptime.new_event_loop(start=0.0)
    try:
        with _virtual(random.Random(seed), errors, trace):
            return loop.run_until_complete(run())
    finally:
        loop.close()


def main() -> None:
    """Play histories and print which are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.virtual_history")
    parser.add_argument("seed", type=int)
    parser.add_argument("last", type=int, nargs="?", help="play all seeds up to this one")
    parser.add_argument("--trace", default="", help="print what the leader logs of objects with this part of a name")
    given = parser.parse_args()
    began, figures, wrong = time.monotonic(), Counter[str](), 0
    seeds = range(given.seed, (given.seed if given.last is None else given.last) + 1)
    for seed in seeds:
        history = play(seed, trace=given.trace)
        figures += history.judge.figures
        if history.judge.wrong:
            print("\n".join([f"seed {seed}", *history.judge.wrong]))
        wrong += bool(history.judge.wrong)
    print(", ".join(f"{number} {what}" for what, number in sorted(figures.items())))
    print(f"{wrong} of {len(seeds)} histories are wrong, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
