"""Reconciles Workloads that are sent to other clusters, on the manager; `orders` does so on each worker.

Builds the situation of one Workload from the stores, and makes writes of what `manager` decides.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from turnstile.api import workload as wl
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.conditions import instant, set_check_state, truncate_note
from turnstile.api.config.defaults import FIT
from turnstile.api.errors import Conflict
from turnstile.api.meta import Kind, find_condition, to_plain
from turnstile.api.multikueue import MultiKueueConfig
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import AdmissionCheckState, Workload
from turnstile.controllers import wakes
from turnstile.controllers.jobs import slices
from turnstile.controllers.multikueue import dispatchers, fit, manager
from turnstile.controllers.multikueue.clusters import ASK_SECONDS, Connection
from turnstile.controllers.multikueue.dispatchers import FIT_SECONDS, ROUND_SECONDS
from turnstile.controllers.multikueue.fit import Outlook
from turnstile.controllers.multikueue.manager import Verdict
from turnstile.controllers.multikueue.remotes import Keys, Remotes, Sent
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, Situation
from turnstile.controllers.runtime.actions import Action, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch
from turnstile.controllers.runtime.writes import fresh_operations, fresh_patch
from turnstile.controllers.view.clusterview import NotRead
from turnstile.controllers.view.multikueue import (
    CHECKS_BY_MULTIKUEUE_CONFIG,
    clusters_in,
    configs_in,
    dispatching,
)
from turnstile.controllers.view.provisioning import WORKLOADS_BY_CHECK
from turnstile.jobs.integration import Integration
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.remote import RemoteCopies
from turnstile.kube.slices import ordered
from turnstile.kube.store import Store

CONTROLLER: Final = "MultiKueueWorkload"
WORKERS: Final = 8
"""Workloads that are reconciled at a time, on the manager and on each worker."""

REPORT_SECONDS: Final = 30.0
"""Between two messages of a check that say why no cluster has admitted its Workload: each is a write."""
REFUSALS: Final = 3
"""Attempts to write a status that the API server refuses, until it counts as copied."""
REFUSALS_REMEMBERED: Final = 1_000
"""Maximum number of refused statuses that are remembered; forgetting an entry costs futile writes."""
CHECK_SECONDS: Final = 10.0
"""Between two looks at the room of workers, while a Workload waits for one."""

Source = Callable[[], Awaitable[bytes]]


class Dispatching:
    """The knowledge of one term about Workloads on other clusters, and its decisions about them."""

    def __init__(self, remotes: Remotes) -> None:
        self.remotes = remotes
        self.cluster = remotes.cluster
        self.clusters = remotes.clusters
        self._rounds = dispatchers.Rounds()
        self.claims = fit.Claims()
        self._reported: dict[str, datetime] = {}
        """When the check of a Workload last said why no cluster has admitted it, by the key of the Workload."""
        self._copied: dict[str, tuple[str, str]] = {}
        """By the uid of a job on the manager: uid and version of the remote job whose status it has."""
        self._reading: set[str] = set()
        """Clusters from which a long status is being read."""
        self._refused: dict[tuple[str, str], int] = {}
        """How often the API server of the manager has refused a status, by uid and version of the remote job."""

    # --- on the manager -----------------------------------------------------------------------------------------------

    def decide(self, key: str) -> ReconcileResult:
        """The next writes to the manager for one Workload."""
        workload = self.cluster.workloads.get(key)
        state = dispatching(workload, self.cluster.admission_checks) if workload is not None else None
        if workload is None or state is None:
            return ReconcileResult(why="not sent to other clusters")
        try:
            sent = self.remotes.sent_for(workload)
        except NotRead as error:
            return ReconcileResult(why=str(error))
        if not sent.objects and self._made_for(workload) is not None:
            return ReconcileResult(why="its job is gone")
        now = self._situation(workload, state, sent)
        verdict = manager.decide(now)
        actions = self._written(workload, state, sent, now, verdict)
        waits = [each for each in (verdict.wait, self._until_next_round(now)) if each is not None]
        if waits:
            actions.append(RequeueAfter(min(waits)))
        return ReconcileResult(actions, why=verdict.why)

    def _until_next_round(self, now: Situation) -> float | None:
        """Seconds until a Workload that waits for a cluster may be nominated for another."""
        workload, options = now.workload, self.clusters.options
        if now.nominees is None or now.check.state != "Pending" or not workload.quota_reserved:
            return None
        if options.dispatcher == FIT:
            return CHECK_SECONDS
        left = self._rounds.left(workload, self.cluster.measured)
        return left if left and len(now.nominees) < len(self._offered(now.check)) else None

    def _made_for(self, workload: Workload) -> Integration[Any] | None:
        """The kind of the job that a Workload was made for."""
        for key in self.clusters.sources.jobs_of(workload):
            return self.clusters.sources.known(split_job_key(key)[0])
        return None

    def _refusal(self, workload: Workload, sent: Sent) -> str:
        """Why a Workload cannot be sent to other clusters; empty if it can."""
        meta, copies = workload.metadata, sent.copies
        if copies is None or sent.integration is None:
            owner = meta.controller or next(iter(meta.owner_references), None)
            if owner is None:
                return "No multikueue adapter found"
            group, _, version = owner.api_version.rpartition("/")
            return f'No multikueue adapter found for owner kind "{group}/{version}, Kind={owner.kind}"'
        if slices.replaced_by(workload) and copies.size is None:
            return f"A {sent.integration.kind.KIND} cannot grow while its copy runs on another cluster"
        refused = next((each for each in sent.objects if not copies.dispatched(each)), None)
        return f"The owner is not managed by Kueue: {copies.refusal(refused)}" if refused is not None else ""

    def _offered(self, state: AdmissionCheckState) -> list[str]:
        """The clusters of the configuration of a check."""
        check = self.cluster.admission_checks.get(state.name)
        for name in configs_in(check) if check is not None else ():
            if (config := self.cluster.multikueue.configs.get(name)) is not None:
                return clusters_in(config)
        return []

    def _situation(self, workload: Workload, state: AdmissionCheckState, sent: Sent) -> Situation:
        offered = self._offered(state)
        remotes = {
            name: self.remotes.remote(connection, workload.metadata.key, sent)
            for name, connection in self.clusters.connections.items()
            if name in offered or self._has(connection, workload)
        }
        integration, copies = sent.integration, sent.copies
        waiting = [each for each in sent.objects if integration is not None and integration.suspended(each)]
        options, now = self.clusters.options, self.cluster.measured
        seconds = FIT_SECONDS if options.dispatcher == FIT else ROUND_SECONDS
        due = self._rounds.left(workload, now, seconds) <= 0
        outlooks = self._outlooks(workload, offered, remotes)
        nominees: list[str] | None = None
        if cluster := sent.cluster(workload):
            nominees = [cluster]
        elif sent.leads(workload):
            nominees = dispatchers.nominees(workload, offered, remotes, options, due=due, outlooks=outlooks)
        return Situation(
            workload=workload,
            check=state,
            refusal=self._refusal(workload, sent),
            remotes=remotes,
            nominees=nominees,
            follows=copies is not None and copies.returned is not None,
            job_waits=bool(waiting) and copies is not None and copies.late,
            job_active=integration is not None and any(integration.active(each) for each in waiting),
            copied=dict(each for job in sent.objects if (each := self._copied.get(job.metadata.uid)) is not None),
            lost_limit=self.clusters.options.worker_lost_seconds,
            reports_in=self._until_reported(workload),
            give_up=self._until_given_up(workload, state),
        )

    def _until_reported(self, workload: Workload) -> float:
        at = self._reported.get(workload.metadata.key)
        return 0.0 if at is None else max(0.0, REPORT_SECONDS - (self.cluster.measured - at).total_seconds())

    def _until_given_up(self, workload: Workload, state: AdmissionCheckState) -> float | None:
        """Seconds until a Workload that waits for a cluster gives its quota back; None if it does not."""
        limit, reserved = (
            self.clusters.options.give_up_seconds,
            find_condition(workload.status.conditions, wl.QUOTA_RESERVED),
        )
        if limit is None or reserved is None:
            return None
        others = [each.last_transition_time for each in workload.status.admission_checks if each.name != state.name]
        times = [found for each in (reserved.last_transition_time, *others) if (found := instant(each)) is not None]
        return self.cluster.left(max(times, default=None), limit)

    def _claim(self, workload: Workload, names_: Sequence[str]) -> None:
        """Count what a Workload is sent to these clusters for."""
        admission, meta = workload.status.admission, workload.metadata
        if self.clusters.options.dispatcher == FIT and admission is not None:
            queue = f"{meta.namespace}/{workload.spec.queue_name or ''}"
            self.claims.note(meta.key, queue, names_, fit.requests_of(admission))

    def _outlooks(self, workload: Workload, offered: list[str], remotes: dict[str, Remote]) -> dict[str, Outlook]:
        """The room for a Workload on each cluster that is connected, takes its job and has its queue."""
        admission, meta = workload.status.admission, workload.metadata
        if self.clusters.options.dispatcher != FIT or admission is None:
            return {}
        requests, queue = fit.requests_of(admission), f"{meta.namespace}/{workload.spec.queue_name or ''}"
        if workload.status.nominated_cluster_names and meta.key not in self.claims:  # by an earlier leader
            self._claim(workload, workload.status.nominated_cluster_names)
        found: dict[str, Outlook] = {}
        for name in offered:
            remote = remotes.get(name)
            if remote is None or not remote.connected or remote.lacks:
                continue
            try:
                seen = self.clusters.connections[name].queue_of(queue)
            except NotRead:
                found[name] = fit.UNKNOWN
                continue
            if seen is not None:
                claimed = self.claims.on(name, queue, meta.key, self.cluster.measured)
                found[name] = fit.outlook(requests, *seen, claimed)
            if remote.workload is not None and remote.workload.quota_reserved:
                self.claims.settle(meta.key, self.cluster.measured)
        return found

    def _has(self, connection: Connection, workload: Workload) -> bool:
        return connection.name == workload.status.cluster_name or workload.metadata.key in connection.workloads

    def _written(
        self, workload: Workload, state: AdmissionCheckState, sent: Sent, now: Situation, verdict: Verdict
    ) -> list[Action]:
        actions: list[Action] = []
        mine = {each.metadata.key: each for each in sent.objects}
        copied = now.remotes[verdict.copy_from].jobs if verdict.copy_from else ()
        actions += [
            patch
            for each in copied
            if now.copied.get(each.metadata.uid) != each.metadata.resource_version
            if (patch := self._copying(mine[each.metadata.key], each, verdict.copy_from)) is not None
        ]
        if verdict.reset_job and sent.integration is not None and sent.copies is not None:
            actions += [_reset(each, sent.copies) for each in sent.objects if sent.integration.active(each)]
        draft = self.cluster.draft(workload)
        if verdict.check is not None:
            to, message = verdict.check
            after = msgspec.structs.replace(
                state, state=to, message=message, last_transition_time="", requeue_after_seconds=verdict.again
            )
            draft.checks = set_check_state(draft.checks, after, now=self.cluster.now)
        if verdict.winner:
            draft.field("clusterName", verdict.winner)
            draft.field("nominatedClusterNames", None)
            if (admission := _placed_there(workload)) is not None:
                draft.field("admission", admission)
            self._rounds.forget(workload)
            self.claims.settle(workload.metadata.key, self.cluster.measured)
        if verdict.nominated is not None:
            draft.field("nominatedClusterNames", list(verdict.nominated) or None)
            self._rounds.begin(workload, self.cluster.measured)
            self._claim(workload, verdict.nominated)
        if verdict.forget:
            self.claims.drop(workload.metadata.key)
            draft.field("clusterName", None)
            draft.field("nominatedClusterNames", None)
        if verdict.finish is not None:
            draft.finish(*verdict.finish)
            note = f"Workload '{workload.metadata.key}' is declared finished"
            actions += [Emit(each, "Normal", "FinishedWorkload", note) for each in sent.objects[:1]]
        if draft.changed:
            actions.append(draft.patch())
            if verdict.check is not None and verdict.check[0] == state.state:
                self._reported[workload.metadata.key] = self.cluster.measured
            elif verdict.check is not None:
                self._reported.pop(workload.metadata.key, None)
                note = truncate_note(verdict.check[1])
                bad = verdict.check[0] == "Rejected"
                actions.append(Emit(workload, "Warning" if bad else "Normal", "MultiKueue", note))
        return actions

    def _copying(self, job: Kind, copy: RemoteJob, name: str) -> Patch | None:
        """The patch that gives a job the status of its copy on the cluster of that name; None if the job gets nothing
        from it."""
        copies = self.clusters.sources.of(type(job)).copies
        assert copies is not None
        assert copies.returned is not None
        version = copy.metadata.uid, copy.metadata.resource_version
        meta, uid = job.metadata, job.metadata.uid
        returned, content = copies.returned, b"[]"
        if held := bytes(copy.status):
            status = returned(job, orjson.loads(held))
            if status is None:
                self._copied[uid] = version
                return None
            content = fresh_operations(meta, _status(status)).encode()

        async def source() -> bytes:
            found = returned(job, (await self._read(copy, name)).get("status") or {})
            return fresh_operations(meta, JsonPatch() if found is None else _status(found)).encode()

        def written() -> None:
            self._copied[uid] = version
            self._refused.pop(version, None)

        def refused(message: str) -> list[Action]:
            """The worker decides what its job says of itself: the Workload must not wait for a status that this
            cluster does not take."""
            times = self._refused.pop(version, 0) + 1
            if times >= REFUSALS:
                written()
            else:
                self._refused[version] = times
                if len(self._refused) > REFUSALS_REMEMBERED:
                    del self._refused[next(iter(self._refused))]
            note = truncate_note(f"The status of the copy is refused: {message}")
            return [Emit(job, "Warning", "MultiKueue", note)]

        return Patch(
            type(job),
            meta.namespace,
            meta.name,
            content,
            type="json",
            subresource="status",
            source=None if held else source,
            written=written,
            refused=refused,
        )

    async def _read(self, copy: RemoteJob, name: str) -> dict[str, Any]:
        """A copy as its cluster has it, which lends the manager the right to list, and no right to get. Raises Conflict
        if it is another object there, and while another one is read: a cluster that does not answer holds up the
        decision about one Workload, and not about those of other clusters."""
        connection, meta = self.clusters.connections.get(name), copy.metadata
        transport = connection.transport if connection is not None else None
        if transport is None or name in self._reading:
            raise Conflict(409, "Conflict", f"cluster {name} is not connected, or is being read from")
        path, named = transport.collection_path(type(copy), meta.namespace), f"metadata.name={meta.name}"
        self._reading.add(name)
        try:
            items, _ = await transport.list_raw(path, params={"fieldSelector": named}, timeout=ASK_SECONDS)
        finally:
            self._reading.discard(name)
        for item in items:
            plain: dict[str, Any] = orjson.loads(bytes(item))
            if plain.get("metadata", {}).get("uid") == meta.uid:
                return plain
        raise Conflict(409, "Conflict", f"{copy.KIND} {meta.key} on cluster {name} is gone, or another one by now")

    def forget(self, job: Kind) -> None:
        """Forget a job that is gone from the manager."""
        self._copied.pop(job.metadata.uid, None)

    def forget_workload(self, workload: Workload) -> None:
        """Forget a Workload that is gone or has finished."""
        self.claims.drop(workload.metadata.key)
        self._reported.pop(workload.metadata.key, None)
        self._rounds.forget(workload)


# --- what is reconciled, and when -------------------------------------------------------------------------------------


def controller(work: Dispatching) -> Controller:
    """The controller of the manager's Workloads."""
    cluster = work.cluster
    workloads, sources = cluster.workloads, work.clusters.sources

    def workload_changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
        checks = cluster.admission_checks
        latest = new or old
        if latest is not None and (new is None or new.finished):
            work.forget_workload(latest)
        return (key,) if new is not None and dispatching(new, checks) is not None and not new.finished else ()

    def job_changed(_: str, old: Kind | None, new: Kind | None) -> list[str]:
        latest = new or old
        if latest is None:
            return []
        copies = sources.of(type(latest)).copies
        if new is None:
            work.forget(latest)
        if copies is None or not len(cluster.multikueue.clusters) or not copies.dispatched(latest):
            return []
        return sources.workloads_of(sources.key_of(latest))

    def part_changed(_: str, old: Workload | None, new: Workload | None) -> Keys | None:
        """The other parts of a job go where its first part runs."""
        latest = new or old
        before, after = (each.status.cluster_name if each is not None else None for each in (old, new))
        if latest is None or (before == after and old is not None and new is not None):
            return None
        return work.remotes.parts_of(latest)

    def check_changed(name: str, old: AdmissionCheck | None, new: AdmissionCheck | None) -> Keys | None:
        return with_check(name) if wakes.spec_concerned(old, new) else None

    def config_changed(name: str, _: MultiKueueConfig | None, __: MultiKueueConfig | None) -> Keys:
        for check in cluster.admission_checks.keys_by_index(CHECKS_BY_MULTIKUEUE_CONFIG, name):
            yield from with_check(check)

    def with_check(name: str) -> Keys:
        yield from (yield from ordered(workloads.keys_by_index(WORKLOADS_BY_CHECK, name, ordered=False)))

    jobs: list[Store[Kind]] = [sources.stores[kind] for kind in work.clusters.kinds]
    return Controller(
        name=CONTROLLER,
        kind=Workload,
        decide=work.decide,
        watches=[
            Watch(workloads, workload_changed, many=part_changed),
            *(Watch(store, job_changed) for store in jobs),
            Watch(cluster.admission_checks, many=check_changed),
            Watch(cluster.multikueue.configs, many=config_changed),
        ],
        initial=work.remotes.sent,
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


def _status(value: dict[str, Any]) -> JsonPatch:
    """The operation that sets a status."""
    return JsonPatch().add("status", value=value)


def _reset(job: Kind, copies: RemoteCopies[Any]) -> Patch:
    """The patch that takes the pods of a lost worker out of a job's status."""
    if copies.emptied is not None:
        return fresh_patch(job, {"status": copies.emptied}, subresource="status")
    meta = job.metadata
    empty = fresh_operations(meta, _status({})).encode()
    return Patch(type(job), meta.namespace, meta.name, empty, type="json", subresource="status")
