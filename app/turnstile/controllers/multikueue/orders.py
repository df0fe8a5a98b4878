"""Reconciles one worker cluster: makes writes there of what `worker` decides about each Workload.

The controller of a worker runs on the worker's own work queue. It reads the manager's objects, and writes to the worker
alone.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Literal

import msgspec
import orjson

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.conditions import instant, timestamp, truncate_note
from turnstile.api.errors import Conflict
from turnstile.api.meta import Kind, find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue import openings, worker
from turnstile.controllers.multikueue.clusters import Connection
from turnstile.controllers.multikueue.remotes import Keys, Remotes, Sent
from turnstile.controllers.multikueue.situation import Remote, RemoteJob
from turnstile.controllers.multikueue.worker import EVICTED_ON_MANAGER
from turnstile.controllers.multikueue.workloads import CONTROLLER, WORKERS
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.clusterview import NotRead
from turnstile.controllers.view.multikueue import dispatching
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import prebuilt_name
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.remote import Plain, copied_job, copied_metadata, naming

Source = Callable[[], Awaitable[bytes]]


def _refusal(connection: Connection, wanted: Kind, message: str) -> list[Action]:
    """The report of a copy that a worker refuses, on the object that was to be copied: its owner reads events here."""
    note = truncate_note(f'Cluster "{connection.name}" refuses the copy: {message}')
    return [Emit(wanted, "Warning", "MultiKueue", note)]


class Ordering:
    """The decisions of one term about what workers are to have."""

    def __init__(self, remotes: Remotes, count: Callable[[Workload, str], None]) -> None:
        self.remotes = remotes
        self._count = count
        self.cluster = remotes.cluster
        self.clusters = remotes.clusters
        self.sources = self.clusters.sources

    def _concerned(self, workload: Workload | None) -> bool:
        return workload is not None and dispatching(workload, self.cluster.admission_checks) is not None

    def on(self, connection: Connection) -> Controller:
        """The controller of what one worker has of every Workload."""
        cluster = self.cluster

        stores = {kind: jobs for kind in self.clusters.kinds if (jobs := connection.jobs(kind)) is not None}
        kinds = {kind: self.sources.of(kind) for kind in stores}
        shared = [kind for kind, each in kinds.items() if each.copies is not None and each.copies.shared]

        def local_changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
            if not (any(self._concerned(each) for each in (old, new)) or key in connection.workloads):
                return ()
            # A copy that serves several Workloads is deleted by its own key, when the last of them is gone.
            jobs = (split_job_key(each)[1] for each in self.sources.jobs_of(old)) if old and new is None else ()
            return (key, *(each for each in jobs if any(each in stores[kind] for kind in shared)))

        def copies_changed(kind: type[Kind]) -> Watch[RemoteJob, str]:
            def changed(_: str, old: RemoteJob | None, new: RemoteJob | None) -> Iterable[str]:
                latest = new or old
                return self.remotes.keys_of(kind, latest) if latest is not None else ()

            return Watch(stores[kind], changed)

        def member_changed(_: str, old: Kind | None, new: Kind | None) -> list[str]:
            """A group gets another member while it runs, or loses one; a set gets another size."""
            latest = new or old
            stays = old is not None and new is not None and not new.metadata.deletion_timestamp
            if latest is None or (stays and _size(old) == _size(new)):
                return []
            keys = self.sources.workloads_of(self.sources.key_of(latest))
            return [key for key in keys if self._concerned(cluster.workloads.get(key))]

        def _size(job: Kind | None) -> Plain | None:
            copies = self.sources.of(type(job)).copies if job is not None else None
            return copies.size(job, {}) if copies is not None and copies.shared and copies.size is not None else None

        def everything() -> Keys:
            yield from connection.workloads.keys()
            for kind, store in stores.items():
                for each in store.values():
                    yield from self.remotes.keys_of(kind, each)
            yield from self.remotes.sent()

        several = [*(kind for kind, each in kinds.items() if each.groups is not None), *shared]
        watches: list[Watch[Any, str]] = [
            Watch(cluster.workloads, local_changed),
            Watch(connection.workloads, lambda key, old, new: (key,)),
            *(copies_changed(kind) for kind in stores),
            *(Watch(self.sources.stores[kind], member_changed) for kind in several),
        ]
        return Controller(
            name=f"{CONTROLLER}@{connection.name}",
            kind=Workload,
            decide=lambda key: self._decide_on(connection, key),
            watches=watches,
            initial=everything,
            workers=WORKERS,
            base_delay=0.1,
        )

    def _decide_on(self, connection: Connection, key: str) -> ReconcileResult:
        """The next writes to one worker for one Workload."""
        workload = self.cluster.workloads.get(key)
        if workload is None and not self.cluster.workloads.complete:
            return ReconcileResult(why="Workloads are not read yet")
        state = dispatching(workload, self.cluster.admission_checks) if workload is not None else None
        sent = Sent()
        if workload is not None:
            try:
                sent = self.remotes.sent_for(workload)
            except NotRead as error:
                return ReconcileResult(why=str(error))
        remote = self.remotes.remote(connection, key, sent)
        dispatched = state is not None and state.state != "Rejected" and bool(sent.objects or remote.jobs_left)
        kept = self._kept_seconds(workload)
        opens, turn = self._turn(connection, workload, sent, remote)
        order = worker.decide(connection.name, workload, remote, dispatched=dispatched, opens=opens, kept=kept > 0)
        actions = self._ordered(connection, workload, sent, remote, order)
        if wait := min((each for each in (kept, turn) if each > 0), default=0.0):
            actions.append(RequeueAfter(wait))
        return ReconcileResult(actions, why=order.why)

    def _kept_seconds(self, workload: Workload | None) -> float:
        """Seconds for which the copy of a finished job is still kept."""
        finished = find_condition(workload.status.conditions, wl.FINISHED) if workload is not None else None
        if finished is None or finished.status != "True":
            return 0.0
        return self.cluster.left(instant(finished.last_transition_time), self.clusters.options.keep_finished_seconds)

    def _turn(
        self, connection: Connection, workload: Workload | None, sent: Sent, remote: Remote
    ) -> tuple[bool, float]:
        """Whether a cluster may preempt for a Workload now; and seconds until that is to be asked again, if the gate
        holds it back."""
        there = remote.workload
        if not self.clusters.options.orchestrated or workload is None or there is None:
            return False, 0.0
        if openings.blocked_since(there) is None:
            return False, 0.0
        key, nominated = workload.metadata.key, workload.status.nominated_cluster_names
        remotes = {
            name: self.remotes.remote(each, key, sent)
            for name, each in self.clusters.connections.items()
            if name in nominated
        }
        name, wait = openings.opening(remotes, self.cluster.now)
        return name == connection.name, 0.0 if name == connection.name else wait

    def _ordered(
        self, connection: Connection, workload: Workload | None, sent: Sent, remote: Remote, order: worker.Order
    ) -> list[Action]:
        actions: list[Action] = []
        for copy in order.delete_jobs:
            meta = copy.metadata
            serves = sent.integration is not None and sent.integration.as_set is not None
            # The copy of a set, which has no status here, says by being gone that its pods are.
            way: Literal["Foreground", "Background"] = "Foreground" if serves else "Background"
            actions.append(Delete(type(copy), meta.namespace, meta.name, uid=meta.uid, propagation=way))
        there = remote.workload
        if order.delete_workload and there is not None:
            meta = there.metadata
            actions.append(Delete(Workload, meta.namespace, meta.name, uid=meta.uid))
        if order.stop and there is not None:
            actions.append(fresh_patch(there, {"spec": {"active": False}}))
        if order.deactivate and there is not None:
            draft = self.cluster.draft(there)
            draft.set(wl.DEACTIVATION_TARGET, "True", reason=EVICTED_ON_MANAGER, message=order.deactivate)
            actions.append(draft.patch())
        if order.follow_priority and there is not None and workload is not None:
            spec = {
                "priority": workload.spec.priority,
                "priorityClassRef": msgspec.to_builtins(workload.spec.priority_class_ref),
            }
            actions.append(fresh_patch(there, {"spec": spec}))
        if order.resize and workload is not None:
            named = {"metadata": naming(workload.metadata.name)}
            actions += [
                fresh_patch(each, {"spec": remote.size, **(named if prebuilt_name(each) else {})})
                for each in remote.jobs
            ]
        if order.open_gate and there is not None:
            gate = {"name": openings.GATE, "position": "Open", "lastTransitionTime": timestamp(self.cluster.now)}
            actions.append(fresh_patch(there, {"status": {"preemptionGates": [gate]}}, subresource="status"))
        if order.create_workload and workload is not None:
            meta = workload.metadata
            source, written = self._workload_body(workload), partial(self._count, workload, connection.name)
            actions.append(
                Create(
                    Workload,
                    meta.namespace,
                    meta.name,
                    b"",
                    source=source,
                    written=written,
                    taken=partial(self._note_taken, connection, workload, workload),
                    refused=partial(_refusal, connection, workload),
                )
            )
        if order.create_jobs and workload is not None and sent.integration is not None:
            kind = self.clusters.kinds[sent.integration.kind]
            for job in remote.missing:
                meta, source = job.metadata, self._job_body(workload, sent.integration, job)
                actions.append(
                    Create(
                        kind,
                        meta.namespace,
                        meta.name,
                        b"",
                        source=source,
                        taken=partial(self._note_taken, connection, workload, job),
                        refused=partial(_refusal, connection, job),
                    )
                )
        return actions

    def _note_taken(self, connection: Connection, workload: Workload, wanted: Kind) -> None:
        """A cluster has an object of the name of a Workload, or of an object of its job."""
        connection.note_taken(type(wanted), wanted.metadata.key)
        self.clusters.changed(workload.metadata.key)

    def _workload_body(self, workload: Workload) -> Source:
        origin = self.clusters.options.origin

        async def body() -> bytes:
            plain = await self._read(workload)
            spec = {key: value for key, value in plain["spec"].items() if key != "active"}
            if self.clusters.options.orchestrated:
                spec["preemptionGates"] = [{"name": openings.GATE}]
            metadata = copied_metadata(plain["metadata"], origin)
            made = {"apiVersion": names.API_VERSION, "kind": Workload.KIND, "metadata": metadata, "spec": spec}
            return orjson.dumps(made)

        return body

    def _job_body(self, workload: Workload, integration: Integration[Any], job: Kind) -> Source:
        copies, suspension = integration.copies, integration.suspension
        assert copies is not None

        async def body() -> bytes:
            made = copied_job(
                await self._read(job),
                copies,
                workload=workload.metadata.name,
                origin=self.clusters.options.origin,
                suspend=suspension.suspend_path if suspension is not None else (),
            )
            return orjson.dumps(made)

        return body

    async def _read(self, seen: Kind) -> dict[str, Any]:
        """An object of the manager as it is there, with all its fields. Raises Conflict if it is another one."""
        meta, transport = seen.metadata, self.clusters.transport
        answer = await transport.request("GET", transport.path(type(seen), meta.name, meta.namespace))
        plain: dict[str, Any] = orjson.loads(answer)
        if (plain["metadata"]["uid"], plain["metadata"].get("generation", 0)) != (meta.uid, meta.generation):
            raise Conflict(409, "Conflict", f"{seen.KIND} {meta.key} has changed since it was decided about")
        return plain
