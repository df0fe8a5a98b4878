"""Connections to worker clusters: one for each MultiKueueCluster, kept for as long as this process leads.

Each has a transport, stores, watches, a gate and a work queue of its own, so that nothing waits for a cluster that is
slow or away but what is meant for it. Everything is watched by the label of this manager's origin. Workloads are
needed; a kind of jobs that a cluster does not have, or may not be read there, takes the cluster out for that kind only.

Must never write, and never decide: `workloads` does.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import structlog

from turnstile import __version__
from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import ApiError, TurnstileError, WireError
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueConfig
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.access import By, Follower
from turnstile.controllers.multikueue.kubeconfigs import ACTIVE, NO_PROFILES, BadKubeConfig, Standing
from turnstile.controllers.multikueue.situation import RemoteJob, WorkerQueues, reduce, remote_kind
from turnstile.controllers.multikueue.sources import Sources
from turnstile.controllers.runtime.actions import Emit
from turnstile.controllers.runtime.controller import Controller
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.runner import Runner
from turnstile.controllers.view.clusterview import ClusterView, NotRead
from turnstile.controllers.view.multikueue import clusters_in
from turnstile.jobs.labels import prebuilt_name
from turnstile.jobs.options import MultiKueueOptions
from turnstile.kube.backoff import Backoff
from turnstile.kube.cache import Cache, State
from turnstile.kube.caches import Caches
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Kind)

CHECK_SECONDS: Final = 0.5
"""Between two looks at whether the watches of a cluster are alive."""
BLINK_SECONDS: Final = 2.0
"""For so long a watch may be down until its cluster counts as lost: most are open again within a second."""
QUIET_SECONDS: Final = 10.0
"""Without a word from a cluster, after which it is asked for its version."""
ASK_SECONDS: Final = 5.0
"""For an answer to that."""
TAKEN_SECONDS: Final = 300.0
"""For so long no job is sent to a cluster that has an object of its name, if another cluster can take the job."""
AGAIN: Final = Backoff(first=1.0, limit=60.0)
"""Pauses after a connection that failed in an unexpected way."""

COPIES_BY_WORKLOAD: Final = "workload"
"""Index of copies on a worker by the key of the Workload that they name; of those that name none, by their own."""
_BY_COHORT: Final = "cohort"
"""Index of the ClusterQueues of a worker by their cohort."""
CONNECTED: Final = "Connected"
FAILED: Final = "ClientConnectionFailed"
_UNSAFE_PATH: Final = (
    "DeprecatedPathUsage",
    (
        "Using locationType=Path without MultiKueueKubeConfigPathValidation feature gate is deprecated and will be "
        "removed in a future release. Enable the MultiKueueKubeConfigPathValidation feature gate and place kubeconfig "
        "files under /etc/multikueue/kubeconfigs/."
    ),
)
"""Reason and note of an event."""


def _made_for(copy: RemoteJob) -> list[str]:
    meta = copy.metadata
    return [f"{meta.namespace}/{prebuilt_name(copy) or meta.name}"]


def caches_of(transport: Transport, kinds: Iterable[type[RemoteJob]], origin: str) -> Caches:
    """The caches of what a manager has on a worker: Workloads, and jobs of these kinds."""
    caches = Caches(transport)
    label = {"labelSelector": f"{names.MULTIKUEUE_ORIGIN}={origin}"}
    caches.of(Workload, params=label, reduce=reduce)
    for each in kinds:
        caches.of(each, params=label, optional=True, reduce=reduce).add_index(COPIES_BY_WORKLOAD, _made_for)
    return caches


class Connection:
    """The connection to one worker cluster. `await run()` in a task of its own."""

    def __init__(self, name: str, clusters: "Clusters") -> None:
        self.name = name
        self._clusters = clusters
        self._lost_since: float | None = asyncio.get_running_loop().time()
        self._caches: Caches | None = None
        self._kinds: Mapping[type[Kind], type[RemoteJob]] = clusters.kinds
        self.transport: Transport | None = None
        self.runner: Runner | None = None
        self.standing = Standing(FAILED, "not connected yet")
        self.seen: dict[str, int] = {}
        """Place of each admitted Workload, by its key, in the order in which the manager saw them admitted."""
        self._taken: dict[tuple[str, str], float] = {}
        """When the cluster was found to have an object of its own of the name of one to create, by kind and key."""

    # --- what is known of the cluster ---------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether the manager hears of every change there."""
        return self.standing.active

    @property
    def lost_seconds(self) -> float:
        """Seconds since the manager last heard of the cluster; 0 while it does."""
        since = self._lost_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    def note_taken(self, kind: type[Kind], key: str) -> None:
        """The cluster has an object of that name. If it is the manager's own, its watch says so in a moment."""
        now = asyncio.get_running_loop().time()
        self._taken.pop((kind.KIND, key), None)
        self._taken[kind.KIND, key] = now
        while now - next(iter(self._taken.values())) >= TAKEN_SECONDS:  # by the age of the notes, the oldest first
            del self._taken[next(iter(self._taken))]

    def is_taken(self, kind: type[Kind], key: str) -> bool:
        """Whether the cluster has an object of its own of that name, as far as was seen a while ago."""
        since = self._taken.get((kind.KIND, key))
        if since is not None and asyncio.get_running_loop().time() - since >= TAKEN_SECONDS:
            del self._taken[kind.KIND, key]
            since = None
        return since is not None

    @property
    def workloads(self) -> Store[Workload]:
        """The Workloads that this manager has there; empty before the first connection."""
        found = self._caches.held(Workload) if self._caches is not None else None
        return found if found is not None else Store()

    def jobs(self, kind: type[Kind]) -> Store[RemoteJob] | None:
        """The jobs of a kind that this manager has there; None if none can be sent."""
        remote = self._kinds.get(kind)
        return self._caches.held(remote) if self._caches is not None and remote is not None else None

    def lacks(self, kind: type[Kind]) -> str:
        """Why the cluster takes no jobs of a kind; empty if it does, or is not heard of."""
        remote = self._kinds.get(kind)
        if remote is None:
            return f"jobs of kind {kind.KIND} cannot be sent to other clusters"
        if self._caches is None or not self.connected:
            return ""
        standing = self._caches.standing(remote)
        if standing.state is State.DORMANT:
            return f"cluster {self.name} has no kind {kind.KIND} of {kind.GROUP}"
        if standing.state is State.FAILING:
            return f"cluster {self.name}: {self._plural(kind)} cannot be read: {standing.reason}"
        return "" if standing.state is State.SYNCED else f"cluster {self.name}: {self._plural(kind)} are being read"

    def _plural(self, kind: type[Kind]) -> str:
        """The name of a kind in URLs there; as on the manager where the cluster does not have the kind."""
        remote, known = self._kinds[kind], self.transport.plurals if self.transport is not None else {}
        return known.get(remote) or self._clusters.transport.plural(kind)

    def queue_of(self, key: str) -> "tuple[ClusterQueue, list[ClusterQueue]] | None":
        """The ClusterQueue there of the LocalQueue `namespace/name`, and those of its cohort; None if it has none that
        admits. Raises NotRead while the queues of the cluster are not read, or may not be."""
        queues, doors = self._queues
        if not (queues.complete and doors.complete):
            raise NotRead(f"the queues of cluster {self.name} are not read")
        door = doors.get(key)
        queue = queues.get(door.spec.cluster_queue) if door is not None and door.spec.cluster_queue else None
        if queue is None or door is None:
            return None
        if queue.spec.stop_policy != "None" or door.spec.stop_policy != "None":
            return None
        cohort = queue.spec.cohort_name
        return queue, queues.by_index(_BY_COHORT, cohort) if cohort else []

    @property
    def _queues(self) -> tuple[Store[ClusterQueue], Store[LocalQueue]]:
        caches = self._caches
        found = (caches.held(ClusterQueue), caches.held(LocalQueue)) if caches is not None else (None, None)
        return found[0] if found[0] is not None else Store(), found[1] if found[1] is not None else Store()

    @property
    def worker_queues(self) -> WorkerQueues:
        """All queues there that are read."""
        queues, doors = self._queues
        return WorkerQueues(list(doors.values()), list(queues.values()))

    # --- the connection -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stay connected, with the kubeconfig as it is, until cancelled."""
        attempt = 0
        while True:
            try:
                await self._follow_source()
            except Exception as failed:  # a cluster must not end the work for all others
                error = failed
                while isinstance(error, ExceptionGroup):
                    error = error.exceptions[0]
                known = isinstance(error, TurnstileError | OSError)
                log.warning("multikueue.connection_failed", cluster=self.name, exc_info=None if known else error)
                self._stand(Standing(FAILED, str(error) or type(error).__name__))
            await asyncio.sleep(AGAIN.delay(attempt, random.random))
            attempt += 1

    async def _follow_source(self) -> None:
        clusters, options = self._clusters, self._clusters.options
        cluster = clusters.cluster.multikueue.clusters.get(self.name)
        source = cluster.spec.cluster_source if cluster is not None and cluster.spec is not None else None
        profile = source.cluster_profile_ref if source is not None and options.providers is not None else None
        if cluster is None or source is None or (source.kube_config is None and profile is None):
            self._stand(NO_PROFILES)
            await asyncio.Event().wait()
            return
        if source.kube_config is not None and source.kube_config.location_type == "Path" and not options.safe_paths:
            clusters.executor.emit(Emit(cluster, "Warning", *_UNSAFE_PATH))
        namespace = clusters.cluster.multikueue.namespace
        follower = Follower(source, clusters.transport, namespace, options.safe_paths, options.providers or ())
        data: asyncio.Queue[bytes | Standing] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(follower.run(data.put_nowait), name=f"access to {self.name}")
            group.create_task(self._connect_by(data, follower.by), name=f"cluster {self.name}")

    async def _connect_by(self, data: "asyncio.Queue[bytes | Standing]", by: By) -> None:
        """Hold a connection for the newest kubeconfig. The same bytes again do not reconnect."""
        task: asyncio.Task[None] | None = None
        present: bytes | Standing | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                found = await data.get()
                if found == present:
                    continue
                present = found
                if task is not None:
                    task.cancel()
                    await asyncio.wait({task})
                if isinstance(found, Standing):
                    self._stand(found)
                    task = None
                else:
                    task = group.create_task(self._connect(found, by), name=f"connection to {self.name}")

    async def _connect(self, kubeconfig: bytes, by: By) -> None:
        """Watch the cluster and write to it with a kubeconfig until cancelled."""
        try:
            access = await by(kubeconfig)
        except BadKubeConfig as error:
            self._stand(error.standing)
            return
        agent = f"turnstile/{__version__} (multikueue {self.name})"
        async with Transport(access, user_agent=agent) as transport:
            caches = caches_of(transport, self._kinds.values(), self._clusters.options.origin)
            if self._clusters.options.reads_queues:
                self._read_queues(caches)
            self._caches, self.transport, self.seen = caches, transport, {}
            workloads = self.workloads
            executor = self._clusters.executor.beside(transport, caches.stores)
            self.runner = Runner(executor, [self._clusters.controller(self)])
            undo = [workloads.subscribe(self._workload_changed)]
            for remote in self._kinds.values():
                jobs: Store[Any] | None = caches.held(remote)
                if jobs is not None:
                    undo.append(jobs.subscribe(self._job_changed))
            try:
                async with asyncio.TaskGroup() as group:
                    caches.start(group)
                    group.create_task(executor.run(), name="housekeeping")
                    group.create_task(self._check(next(each for each in caches.all if each.kind is Workload)))
                    await caches.synced()
                    group.create_task(self.runner.run(), name=f"controllers of {self.name}")
            finally:
                for unsubscribe in undo:
                    unsubscribe()
                self._lose("the kubeconfig has changed")
                self.runner = None

    async def _check(self, cache: Cache[Workload]) -> None:
        """Tell for how long the cluster is not heard of, and when it is again.

        A server that is cut off does not end its watches: where nothing has come for a while, it is asked.
        """
        loop = asyncio.get_running_loop()
        down: float | None = loop.time()
        heard = loop.time()
        while True:
            heard = max(heard, cache.reflector.last_contact)
            error = cache.reflector.error
            fault = "" if error is None else str(error) or type(error).__name__
            up = cache.reflector.listed and cache.store.followed
            if up and loop.time() - heard < QUIET_SECONDS:
                fault = ""
            elif up and not (fault := await self._asked()):
                heard = loop.time()
            elif up:
                down = down or heard
            if up and not fault:
                down = None
                if not self.connected or self.standing.message != self._message():
                    self._lost_since = None
                    self._stand(Standing(ACTIVE, self._message()))
            elif fault:
                down = down or loop.time()
                if loop.time() - down >= BLINK_SECONDS or not self.connected:
                    self._lose(fault, since=down)
            await asyncio.sleep(CHECK_SECONDS)

    async def _asked(self) -> str:
        """Why the cluster does not answer a question; empty if it does."""
        assert self.transport is not None
        try:
            await self.transport.request("GET", "/version", timeout=ASK_SECONDS, retry="never")
        except ApiError:
            return ""
        except WireError as error:
            return f"nothing is heard of the cluster: {error}"
        return ""

    def _message(self) -> str:
        """The message of a cluster that is reached: which kinds of jobs cannot be sent there."""
        caches = self._caches
        assert caches is not None
        missing = [
            f"{self._plural(kind)}.{kind.GROUP}"
            for kind, remote in self._kinds.items()
            if caches.standing(remote).state in (State.DORMANT, State.FAILING) and self._served(kind)
        ]
        says = f"{CONNECTED}; takes no jobs of these kinds: {', '.join(missing)}" if missing else CONNECTED
        unread = self._clusters.options.reads_queues and not all(each.complete for each in self._queues)
        return f"{says}; its ClusterQueues and LocalQueues cannot be read" if unread else says

    def _read_queues(self, caches: Caches) -> None:
        """Watch the queues of the cluster, whatever their origin."""
        queues = caches.of(ClusterQueue, optional=True, reduce=reduce)
        doors = caches.of(LocalQueue, optional=True, reduce=reduce)
        queues.add_index(_BY_COHORT, lambda queue: [queue.spec.cohort_name] if queue.spec.cohort_name else [])
        if self._clusters.options.automated_quotas:
            for store in (queues, doors):
                store.subscribe(self._queues_changed)

    def _queues_changed(self, _: str, old: Kind | None, new: Kind | None) -> None:
        if old is None or new is None or getattr(old, "spec", None) != getattr(new, "spec", None):
            self._clusters.queues_changed(self.name)

    def _served(self, kind: type[Kind]) -> bool:
        return self._clusters.cluster.multikueue.served(kind)

    def _lose(self, why: str, *, since: float | None = None) -> None:
        if self._lost_since is None:
            self._lost_since = since if since is not None else asyncio.get_running_loop().time()
        self._stand(Standing(FAILED, why))

    def _stand(self, standing: Standing) -> None:
        if self._lost_since is None and not standing.active:
            self._lost_since = asyncio.get_running_loop().time()
        if standing != self.standing:
            self.standing = standing
            log.info("multikueue.cluster", cluster=self.name, reason=standing.reason, message=standing.message)
            self._clusters.stands(self.name)

    # --- changes there ------------------------------------------------------------------------------------------------

    def _workload_changed(self, key: str, _: Workload | None, new: Workload | None) -> None:
        if new is not None:
            self._taken.pop((Workload.KIND, key), None)
        if new is not None and new.admitted:
            self.seen.setdefault(key, self._clusters.next_place())
        else:
            self.seen.pop(key, None)
        self._clusters.changed(key)

    def _job_changed(self, key: str, old: RemoteJob | None, new: RemoteJob | None) -> None:
        if new is not None:
            self._taken.pop((new.KIND, key), None)
        for each in (old, new):
            if each is not None and (name := prebuilt_name(each)):
                self._clusters.changed(f"{each.metadata.namespace}/{name}")


class Clusters:
    """All connections of one term. `await run()`; `controller` makes the controller of a connection."""

    def __init__(
        self,
        cluster: ClusterView,
        executor: Executor,
        options: MultiKueueOptions,
        *,
        controller: Callable[[Connection], Controller],
    ) -> None:
        self.cluster = cluster
        self.executor = executor
        self.transport = executor.transport
        self.options = options
        self.controller = controller
        self.sources = Sources(cluster)
        self.kinds = {
            each.kind: remote_kind(each.kind, sized=each.copies is not None and each.copies.size is not None)
            for each in self.sources.kinds
        }
        self.connections: dict[str, Connection] = {}
        self.changed: Callable[[str], None] = lambda key: None
        """Called with the key of a Workload when its copy or its job on a worker has changed."""
        self.stands: Callable[[str], None] = lambda name: None
        """Called when a cluster is reached, or not any more."""
        self.queues_changed: Callable[[str], None] = lambda name: None
        """Called when a queue of a cluster has changed."""
        self._places = 0

    def queues_of(self, config: MultiKueueConfig | None) -> list[WorkerQueues]:
        """The queues of the connected clusters of a configuration."""
        found = [self.connections.get(name) for name in clusters_in(config)] if config is not None else []
        return [each.worker_queues for each in found if each is not None and each.connected]

    def next_place(self) -> int:
        """The next place in the order in which Workloads are seen admitted."""
        self._places += 1
        return self._places

    async def run(self) -> None:
        """Hold a connection to each cluster there is, until cancelled."""
        store, wake = self.cluster.multikueue.clusters, asyncio.Event()
        stale: set[str] = set()

        def changed(name: str, old: MultiKueueCluster | None, new: MultiKueueCluster | None) -> None:
            if old is None or new is None or old.spec != new.spec:
                stale.add(name)
                wake.set()

        unsubscribe = store.subscribe(changed, replay=True)
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await wake.wait()
                    wake.clear()
                    while stale:
                        name = stale.pop()
                        if (task := tasks.pop(name, None)) is not None:
                            task.cancel()
                            await asyncio.wait({task})
                        if store.get(name) is None:
                            self.connections.pop(name, None)
                        else:
                            connection = self.connections.setdefault(name, Connection(name, self))
                            tasks[name] = group.create_task(connection.run(), name=f"worker {name}")
                        self.stands(name)
        finally:
            unsubscribe()
