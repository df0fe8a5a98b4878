"""Reconciles Workloads that are sent to other clusters: on the manager, and on each worker cluster.

Builds the situation of one Workload from the stores, and makes writes of what `manager` and `worker` decide. A worker's
controller runs on the worker's own work queue; it reads the manager's Workload, and writes to the worker alone.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from typing import Any, Final

import msgspec
import orjson

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.conditions import set_check_state, truncate_note
from turnstile.api.core import Job
from turnstile.api.errors import Conflict
from turnstile.api.meta import Kind, to_plain
from turnstile.api.multikueue import MultiKueueConfig
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import AdmissionCheckState, Workload
from turnstile.controllers import wakes
from turnstile.controllers.multikueue import dispatchers, manager, worker
from turnstile.controllers.multikueue.clusters import Clusters, Connection
from turnstile.controllers.multikueue.manager import Verdict
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, Situation, is_ours
from turnstile.controllers.multikueue.worker import EVICTED_ON_MANAGER
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch
from turnstile.controllers.runtime.writes import fresh_operations, fresh_patch
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView, NotRead
from turnstile.controllers.view.multikueue import (
    CHECKS_BY_MULTIKUEUE_CONFIG,
    clusters_in,
    configs_in,
    dispatching,
    is_multikueue,
)
from turnstile.controllers.view.provisioning import WORKLOADS_BY_CHECK
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import prebuilt_name
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.remote import copied_job, copied_metadata
from turnstile.kube.slices import ordered
from turnstile.kube.store import Store

CONTROLLER: Final = "MultiKueueWorkload"
WORKERS: Final = 8
"""Workloads that are reconciled at a time, on the manager and on each worker."""

Keys = Generator[str | None, None, None]
Source = Callable[[], Awaitable[bytes]]


class Dispatching:
    """The knowledge of one term about Workloads on other clusters, and its decisions about them."""

    def __init__(self, cluster: ClusterView, clusters: Clusters) -> None:
        self.cluster = cluster
        self.clusters = clusters
        self._rounds = dispatchers.Rounds()
        self._copied: dict[str, tuple[str, str]] = {}
        """By the uid of a job on the manager: uid and version of the remote job whose status it has."""

    # --- on the manager -----------------------------------------------------------------------------------------------

    def decide(self, key: str) -> ReconcileResult:
        """The next writes to the manager for one Workload."""
        workload = self.cluster.workloads.get(key)
        state = dispatching(workload, self.cluster.admission_checks) if workload is not None else None
        if workload is None or state is None:
            return ReconcileResult(why="not sent to other clusters")
        try:
            integration, job = self._job_of(workload)
        except NotRead as error:
            return ReconcileResult(why=str(error))
        if job is None and self._made_for(workload) is not None:
            return ReconcileResult(why="its job is gone")
        now = self._situation(workload, state, integration, job)
        verdict = manager.decide(now)
        actions = self._written(workload, state, integration, job, verdict)
        if verdict.wait is None and now.nominees is not None and state.state == "Pending" and workload.quota_reserved:
            left = self._rounds.left(workload, self.cluster.measured)
            if left and len(now.nominees) < len(self._offered(state)):
                actions.append(RequeueAfter(left))
        return ReconcileResult(actions, why=verdict.why)

    def _made_for(self, workload: Workload) -> Integration[Any] | None:
        """The kind of the job that a Workload was made for."""
        for key in self.cluster.registry.jobs_of(workload):
            return self.cluster.registry.known.get(split_job_key(key)[0])
        return None

    def _job_of(self, workload: Workload) -> tuple[Integration[Any] | None, Kind | None]:
        """The job of a Workload, if it can be copied. Raises NotRead."""
        for each in self.cluster.registry.jobs_of(workload):
            framework, key = split_job_key(each)
            integration = self.cluster.registry.known.get(framework)
            if integration is not None and integration.copies is not None:
                return integration, self.cluster.find_job(integration.kind, key)
        return None, None

    def _refusal(self, workload: Workload, integration: Integration[Any] | None, job: Kind | None) -> str:
        """Why a Workload cannot be sent to other clusters; empty if it can."""
        meta = workload.metadata
        if integration is None or integration.copies is None:
            owner = meta.controller or next(iter(meta.owner_references), None)
            if owner is None:
                return "No multikueue adapter found"
            group, _, version = owner.api_version.rpartition("/")
            return f'No multikueue adapter found for owner kind "{group}/{version}, Kind={owner.kind}"'
        if job is not None and not integration.copies.dispatched(job):
            found = integration.copies.managed_by(job) or ""
            return (
                "The owner is not managed by Kueue: Expecting spec.managedBy to be "
                f'"{names.MULTIKUEUE_CONTROLLER}" not "{found}"'
            )
        return ""

    def _offered(self, state: AdmissionCheckState) -> list[str]:
        """The clusters of the configuration of a check."""
        check = self.cluster.admission_checks.get(state.name)
        for name in configs_in(check) if check is not None else ():
            if (config := self.cluster.multikueue.configs.get(name)) is not None:
                return clusters_in(config)
        return []

    def _situation(
        self, workload: Workload, state: AdmissionCheckState, integration: Integration[Any] | None, job: Kind | None
    ) -> Situation:
        offered = self._offered(state)
        remotes = {
            name: self.remote(connection, workload.metadata.key, integration, job)
            for name, connection in self.clusters.connections.items()
            if name in offered or self._has(connection, workload)
        }
        suspended = integration is not None and job is not None and integration.suspended(job)
        copies = integration.copies if integration is not None else None
        copied = self._copied.get(job.metadata.uid) if job is not None else None
        due = self._rounds.left(workload, self.cluster.measured) <= 0
        return Situation(
            workload=workload,
            check=state,
            refusal=self._refusal(workload, integration, job),
            remotes=remotes,
            nominees=dispatchers.nominees(workload, offered, remotes, self.clusters.options, due=due),
            job_waits=suspended and copies is not None and copies.late,
            job_active=integration is not None and job is not None and suspended and integration.active(job),
            copied=dict([copied]) if copied is not None else {},
            lost_limit=self.clusters.options.worker_lost_seconds,
        )

    def _has(self, connection: Connection, workload: Workload) -> bool:
        return connection.name == workload.status.cluster_name or workload.metadata.key in connection.workloads

    def remote(
        self, connection: Connection, key: str, integration: Integration[Any] | None, job: Kind | None
    ) -> Remote:
        """The objects that a cluster has for a Workload, by its watches. Only objects with the label are ours."""
        found = connection.workloads.get(key)
        jobs = connection.jobs(integration.kind) if integration is not None else None
        copy = jobs.get(job.metadata.key) if jobs is not None and job is not None else None
        return Remote(
            connected=connection.connected,
            lost_seconds=connection.lost_seconds,
            lacks=connection.lacks(integration.kind) if integration is not None else "",
            workload=found if self._is_ours(found) else None,
            job=copy if self._is_ours(copy) else None,
            seen=connection.seen.get(key, 0),
        )

    def _is_ours(self, found: Kind | None) -> bool:
        return is_ours(found, self.clusters.options.origin)

    def _written(
        self,
        workload: Workload,
        state: AdmissionCheckState,
        integration: Integration[Any] | None,
        job: Kind | None,
        verdict: Verdict,
    ) -> list[Action]:
        actions: list[Action] = []
        if verdict.copy_from and integration is not None and job is not None:
            copy = self.remote(
                self.clusters.connections[verdict.copy_from], workload.metadata.key, integration, job
            ).job
            if copy is not None:
                actions.append(self._copying(job, copy))
        if verdict.reset_job and job is not None:
            actions.append(_reset(job))
        draft = self.cluster.draft(workload)
        if verdict.check is not None:
            to, message = verdict.check
            after = msgspec.structs.replace(state, state=to, message=message, last_transition_time="")
            draft.checks = set_check_state(draft.checks, after, now=self.cluster.now)
        if verdict.winner:
            draft.field("clusterName", verdict.winner)
            draft.field("nominatedClusterNames", None)
            if (admission := _placed_there(workload)) is not None:
                draft.field("admission", admission)
            self._rounds.forget(workload)
        if verdict.nominated is not None:
            draft.field("nominatedClusterNames", list(verdict.nominated) or None)
            self._rounds.begin(workload, self.cluster.measured)
        if verdict.forget:
            draft.field("clusterName", None)
            draft.field("nominatedClusterNames", None)
        if verdict.finish is not None:
            draft.finish(*verdict.finish)
        if draft.changed:
            actions.append(draft.patch())
            if verdict.check is not None:
                note = truncate_note(verdict.check[1])
                bad = verdict.check[0] == "Rejected"
                actions.append(Emit(workload, "Warning" if bad else "Normal", "MultiKueue", note))
        if verdict.wait is not None:
            actions.append(RequeueAfter(verdict.wait))
        return actions

    def _copying(self, job: Kind, copy: RemoteJob) -> Patch:
        """The patch that gives a job the status of its copy."""
        copies = self.cluster.registry.of(job).copies
        assert copies is not None
        status = copies.returned(job, orjson.loads(bytes(copy.status) or b"{}"))
        version = copy.metadata.uid, copy.metadata.resource_version
        meta, uid = job.metadata, job.metadata.uid

        def written() -> None:
            self._copied[uid] = version

        operations = fresh_operations(meta, JsonPatch().add("status", value=status)).encode()
        return Patch(
            type(job), meta.namespace, meta.name, operations, type="json", subresource="status", written=written
        )

    def forget(self, job: Kind) -> None:
        """Forget a job that is gone from the manager."""
        self._copied.pop(job.metadata.uid, None)

    # --- on a worker --------------------------------------------------------------------------------------------------

    def on(self, connection: Connection) -> Controller:
        """The controller of what one worker has of every Workload."""
        cluster = self.cluster

        def local_changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
            return (key,) if any(self._concerned(each) for each in (old, new)) or key in connection.workloads else ()

        def job_changed(_: str, old: RemoteJob | None, new: RemoteJob | None) -> list[str]:
            return [
                f"{each.metadata.namespace}/{name}"
                for each in (new, old)
                if each is not None and (name := prebuilt_name(each))
            ][:1]

        stores = [connection.jobs(kind) for kind in self.clusters.kinds]

        def everything() -> Keys:
            yield from connection.workloads.keys()
            for store in stores:
                for each in store.values() if store is not None else ():
                    yield from job_changed("", None, each)
            yield from self.sent()

        watches: list[Watch[Any, str]] = [
            Watch(cluster.workloads, local_changed),
            Watch(connection.workloads, lambda key, old, new: (key,)),
            *(Watch(store, job_changed) for store in stores if store is not None),
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

    def _concerned(self, workload: Workload | None) -> bool:
        return workload is not None and dispatching(workload, self.cluster.admission_checks) is not None

    def sent(self) -> Keys:
        """All Workloads that are sent to other clusters."""
        for name in list(self.cluster.admission_checks.keys()):
            if is_multikueue(self.cluster.admission_checks.get(name)):
                yield from (
                    yield from ordered(self.cluster.workloads.keys_by_index(WORKLOADS_BY_CHECK, name, ordered=False))
                )

    def _decide_on(self, connection: Connection, key: str) -> ReconcileResult:
        """The next writes to one worker for one Workload."""
        workload = self.cluster.workloads.get(key)
        if workload is None and not self.cluster.workloads.complete:
            return ReconcileResult(why="Workloads are not read yet")
        state = dispatching(workload, self.cluster.admission_checks) if workload is not None else None
        integration: Integration[Any] | None = None
        job: Kind | None = None
        if workload is not None:
            try:
                integration, job = self._job_of(workload)
            except NotRead as error:
                return ReconcileResult(why=str(error))
        remote = self.remote(connection, key, integration, job)
        copies = [remote.job] if remote.job is not None else self._copies_for(connection, key)
        if copies and remote.job is None:
            remote = replace(remote, job=copies[0])
        sent = state is not None and state.state != "Rejected" and (job is not None or remote.job is not None)
        order = worker.decide(connection.name, workload, remote, dispatched=sent)
        return ReconcileResult(self._ordered(connection, workload, integration, job, remote, order), why=order.why)

    def _copies_for(self, connection: Connection, key: str) -> list[RemoteJob]:
        """The job on a worker for a Workload whose job on the manager is gone: the owner of the Workload there."""
        found = connection.workloads.get(key)
        owner = found.metadata.controller if found is not None else None
        if found is None or owner is None or not self._is_ours(found):
            return []
        for kind in self.clusters.kinds:
            if (owner.kind, owner.api_version.rpartition("/")[0]) == (kind.KIND, kind.GROUP):
                jobs = connection.jobs(kind)
                copy = jobs.get(f"{found.metadata.namespace}/{owner.name}") if jobs is not None else None
                return [copy] if copy is not None and self._is_ours(copy) else []
        return []

    def _ordered(
        self,
        connection: Connection,
        workload: Workload | None,
        integration: Integration[Any] | None,
        job: Kind | None,
        remote: Remote,
        order: worker.Order,
    ) -> list[Action]:
        actions: list[Action] = []
        if order.delete_job and remote.job is not None:
            meta = remote.job.metadata
            actions.append(Delete(type(remote.job), meta.namespace, meta.name, uid=meta.uid))
        there = remote.workload
        if order.delete_workload and there is not None:
            meta = there.metadata
            actions.append(Delete(Workload, meta.namespace, meta.name, uid=meta.uid))
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
        if order.create_workload and workload is not None:
            meta = workload.metadata
            actions.append(Create(Workload, meta.namespace, meta.name, b"", source=self._workload_body(workload)))
        if order.create_job and workload is not None and integration is not None and job is not None:
            kind, meta = self.clusters.kinds[integration.kind], job.metadata
            source = self._job_body(workload, integration, job)
            actions.append(Create(kind, meta.namespace, meta.name, b"", source=source))
        return actions

    def _workload_body(self, workload: Workload) -> Source:
        origin = self.clusters.options.origin

        async def body() -> bytes:
            plain = await self._read(workload)
            spec = {key: value for key, value in plain["spec"].items() if key != "active"}
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


# --- what is reconciled, and when -------------------------------------------------------------------------------------


def controller(work: Dispatching) -> Controller:
    """The controller of the manager's Workloads."""
    cluster = work.cluster
    workloads = cluster.workloads

    def workload_changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
        checks = cluster.admission_checks
        return (key,) if new is not None and dispatching(new, checks) is not None and not new.finished else ()

    def job_changed(_: str, old: Kind | None, new: Kind | None) -> list[str]:
        latest = new or old
        if latest is None:
            return []
        integration = cluster.registry.of(latest)
        if new is None:
            work.forget(latest)
        if integration.copies is None or not integration.copies.dispatched(latest):
            return []
        return workloads.keys_by_index(WORKLOADS_BY_JOB, cluster.registry.key_of(latest))

    def check_changed(name: str, old: AdmissionCheck | None, new: AdmissionCheck | None) -> Keys | None:
        return with_check(name) if wakes.spec_concerned(old, new) else None

    def config_changed(name: str, _: MultiKueueConfig | None, __: MultiKueueConfig | None) -> Keys:
        for check in cluster.admission_checks.keys_by_index(CHECKS_BY_MULTIKUEUE_CONFIG, name):
            yield from with_check(check)

    def with_check(name: str) -> Keys:
        yield from (yield from ordered(workloads.keys_by_index(WORKLOADS_BY_CHECK, name, ordered=False)))

    jobs: list[Store[Kind]] = [cluster.jobs[kind] for kind in work.clusters.kinds]
    return Controller(
        name=CONTROLLER,
        kind=Workload,
        decide=work.decide,
        watches=[
            Watch(workloads, workload_changed),
            *(Watch(store, job_changed) for store in jobs),
            Watch(cluster.admission_checks, many=check_changed),
            Watch(cluster.multikueue.configs, many=config_changed),
        ],
        initial=work.sent,
        workers=WORKERS,
    )


def _placed_there(workload: Workload) -> dict[str, Any] | None:
    """The admission of a Workload whose pods the worker has placed by its own topology; None if none waits for that."""
    admission = workload.status.admission
    if admission is None or all(each.delayed_topology_request != "Pending" for each in admission.pod_set_assignments):
        return None
    plain: dict[str, Any] = to_plain(admission)
    for each in plain["podSetAssignments"]:
        if each.get("delayedTopologyRequest") == "Pending":
            each["delayedTopologyRequest"] = "Ready"
    return plain


def _reset(job: Kind) -> Patch:
    """The patch that takes the pods of a lost worker out of a job's status."""
    gone: dict[str, Any] = dict.fromkeys(("active", "ready", "terminating"))
    if isinstance(job, Job):
        return fresh_patch(job, {"status": gone}, subresource="status")
    meta = job.metadata
    empty = fresh_operations(meta, JsonPatch().add("status", value={})).encode()
    return Patch(type(job), meta.namespace, meta.name, empty, type="json", subresource="status")
