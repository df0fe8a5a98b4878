"""MultiKueue on the manager: checks, places of kubeconfigs, nominations, and what becomes of a Workload elsewhere.

Kueue's reconciler writes to the manager and to all workers in one pass. Here each write is decided from what is there,
so a case is decided about until nothing more is to be written.
"""

import json
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import world
from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.core import Job
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueConfig
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue import checks, manager, openings, worker
from turnstile.controllers.multikueue.dispatchers import nominees
from turnstile.controllers.multikueue.kubeconfigs import path_fault
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, Situation, is_ours
from turnstile.controllers.view.multikueue import index_multikueue
from turnstile.jobs.options import MultiKueueOptions

Json = Any
K = TypeVar("K", bound=Kind)
LOST_SECONDS = 300.0
"""The workerLostTimeout of the recorded tests."""


def check_conditions(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The condition Active of an AdmissionCheck."""
    table = case.body["case"]
    cluster = world(*(_read(AdmissionCheck, each) for each in table["checks"] or ()))
    for each in table["configs"] or ():
        cluster.multikueue.configs.observe(_read(MultiKueueConfig, each))
    for each in table["clusters"] or ():
        cluster.multikueue.clusters.observe(_read(MultiKueueCluster, each))
    index_multikueue(cluster.multikueue.configs, cluster.admission_checks)
    decision = checks.decide_check(table["reconcileFor"], cluster)
    body = json.loads(decision.actions[0].body) if decision.actions else {}  # type: ignore[union-attr]
    have = {_plain(each) for each in body.get("status", {}).get("conditions", ())}
    wanted = [each for each in table["wantChecks"] or () if each["metadata"]["name"] == table["reconcileFor"]]
    want = {_plain(each) for check in wanted for each in (check.get("status") or {}).get("conditions", ())}
    return differs("conditions", sorted(want), sorted(have))


def _plain(condition: Json) -> tuple[str, ...]:
    return tuple(condition[name] for name in ("type", "status", "reason", "message"))


def check_path(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The place of a kubeconfig in a file."""
    table = case.body["case"]
    if not table["featureGate"]:
        return differs("refused", table["wantErr"], False)  # nothing is looked at then
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as outside:
        folder = Path(directory)
        (folder / "worker.kubeconfig").touch()
        (folder / "escape-symlink").symlink_to(Path(outside) / "external-secret")
        allowed, path = (table[name].replace("TMPDIR", directory) for name in ("allowedPrefix", "path"))
        return differs("refused", table["wantErr"], bool(path_fault(path, Path(allowed))))


class _Group:
    """A Workload on the manager, and what both workers have of it, as JSON that decisions change."""

    def __init__(self, table: Json, now: datetime) -> None:
        self.name = table["reconcileFor"]
        self.now = now
        self.workload = _named(table["managersWorkloads"], self.name)
        self.job = next(iter(table["managersJobs"] or ()), None)
        self.workers = {"worker1": 1, **({"worker2": 2} if table["useSecondWorker"] else {})}
        self.there = {each: _named(table[f"{each}Workloads"], self.name) for each in self.workers}
        self.jobs = {each: next(iter(table[f"{each}Jobs"] or ()), None) for each in self.workers}
        self.away = {each: table[f"{each}Reconnecting"] for each in self.workers}
        self.since = {each: table[f"{each}DisconnectedSince"] for each in self.workers}
        self.gated = table.get("gated", False)
        self.copied: dict[str, str] = {}
        self.finished: Json = None

    def remotes(self) -> dict[str, Remote]:
        """Each worker as the manager knows it; Workloads were seen admitted in the order of their times."""
        found = {}
        for each, place in self.workers.items():
            there, job = self.there[each], self.jobs[each]
            since = self.since[each]
            lost = (self.now - datetime.fromisoformat(since)).total_seconds() if since else 0.0
            found[each] = Remote(
                connected=not self.away[each],
                lost_seconds=lost,
                workload=_read(Workload, there) if there is not None and _ours(there) and not self.away[each] else None,
                jobs=[_read(RemoteJob, job)] if job is not None and _ours(job) and not self.away[each] else [],
                missing=[_read(Job, self.job)] if job is None and self.job is not None else [],
                seen=place,
            )
        return found

    def step(self) -> bool:
        """Write what is decided now; whether anything was."""
        here = _read(Workload, self.workload) if self.workload is not None else None
        remotes, changed = self.remotes(), False
        sent = here is not None and any(each.name == "ac1" for each in here.status.admission_checks)
        if here is not None and sent:
            changed = self._manage(here, remotes)
            here = _read(Workload, self.workload)
            sent = here.status.admission_checks[0].state != "Rejected"
        turn, _ = openings.opening(remotes, self.now) if self.gated else ("", 0.0)
        for name, remote in remotes.items():
            if remote.connected:
                order = worker.decide(name, here, remote, dispatched=sent, opens=name == turn)
                changed |= self._order(name, order)
        return changed

    def _manage(self, here: Workload, remotes: dict[str, Remote]) -> bool:
        owner = here.metadata.controller
        known = owner is not None and owner.kind == Job.KIND
        refusal = (
            "" if known else f'No multikueue adapter found for owner kind "/v1, Kind={owner.kind if owner else ""}"'
        )
        job = _read(Job, self.job) if self.job is not None else None
        if known and job is not None and job.spec.managed_by != names.MULTIKUEUE_CONTROLLER:
            refusal = (
                "The owner is not managed by Kueue: Expecting spec.managedBy to be "
                f'"{names.MULTIKUEUE_CONTROLLER}" not "{job.spec.managed_by or ""}"'
            )
        verdict = manager.decide(
            Situation(
                workload=here,
                check=here.status.admission_checks[0],
                refusal=refusal,
                remotes=remotes,
                nominees=nominees(here, list(self.workers), remotes, MultiKueueOptions(), due=True),
                copied=self.copied,
                lost_limit=LOST_SECONDS,
            )
        )
        status = self.workload["status"]
        if verdict.copy_from:
            copy = self.jobs[verdict.copy_from]
            self.copied[copy["metadata"].get("uid", "")] = copy["metadata"].get("resourceVersion", "")
            self.job = {**self.job, "status": copy.get("status") or {}}
        if verdict.check is not None:
            status["admissionChecks"][0] |= {"state": verdict.check[0], "message": verdict.check[1]}
        if verdict.winner:
            status["clusterName"] = verdict.winner
        if verdict.winner or verdict.forget:
            status.pop("nominatedClusterNames", None)
        if verdict.forget:
            status.pop("clusterName", None)
        if verdict.nominated is not None:
            status["nominatedClusterNames"] = list(verdict.nominated)
        if verdict.finish is not None:
            reason, message = verdict.finish
            condition = {"type": "Finished", "status": "True", "reason": reason, "message": message}
            status["conditions"] = [*status["conditions"], {**condition, "lastTransitionTime": "2026-01-02T03:04:05Z"}]
        parts = verdict.copy_from, verdict.check, verdict.winner, verdict.nominated, verdict.finish, verdict.forget
        return any(each not in ("", None, False) for each in parts)

    def _order(self, name: str, order: worker.Order) -> bool:
        if order.delete_jobs:
            self.jobs[name] = None
        if order.delete_workload:
            self.there[name] = None
        if order.create_workload:
            meta = {"name": self.name, "namespace": "ns", "labels": {names.MULTIKUEUE_ORIGIN: "multikueue"}}
            gates = {"preemptionGates": [{"name": openings.GATE}]} if self.gated else {}
            self.there[name] = {"metadata": meta, "spec": {**self.workload["spec"], **gates}}
        if order.open_gate:
            since = self.now.isoformat().replace("+00:00", "Z")
            gate = {"name": openings.GATE, "position": "Open", "lastTransitionTime": since}
            self.there[name]["status"]["preemptionGates"] = [gate]
        if order.create_jobs:
            self.jobs[name] = {"metadata": {"name": "job1", "labels": {names.MULTIKUEUE_ORIGIN: "multikueue"}}}
        if order.deactivate:
            target = {"type": "DeactivationTarget", "status": "True", "reason": worker.EVICTED_ON_MANAGER}
            target |= {"message": order.deactivate, "lastTransitionTime": "2026-01-02T03:04:05Z"}
            self.there[name]["status"]["conditions"].append(target)
        parts = (
            bool(order.delete_jobs),
            order.delete_workload,
            order.create_workload,
            order.create_jobs,
            order.open_gate,
        )
        return any((*parts, order.deactivate))

    def told(self) -> list[str]:
        """The state of all of it as lines."""
        found = []
        if self.workload is not None:
            found.append(_told(self.workload))
        for name in self.workers:
            there, job = self.there[name], self.jobs[name]
            found.append(
                f"{name}: workload {there is not None} job {job is not None} {_targets(there)} {_gates(there)}"
            )
        return found


def check_group(case: Case, run: dict[str, Json]) -> list[str] | None:
    """A Workload on the manager and on its workers, after all that is decided about it."""
    table = json.loads(json.dumps(case.body["case"]))
    table["gated"] = (case.body.get("featureGates") or {}).get("MultiKueueOrchestratedPreemption", False)
    group = _Group(table, datetime.fromisoformat(case.body["fixture"]["now"]))
    for _ in range(8):
        if not group.step():
            break
    have = group.told()
    wanted = _Group(table, group.now)
    wanted.workload = _named(table["wantManagersWorkloads"], group.name)
    wanted.there = {each: _named(table[f"want{each.capitalize()}Workloads"], group.name) for each in group.workers}
    wanted.jobs = {each: next(iter(table[f"want{each.capitalize()}Jobs"] or ()), None) for each in group.workers}
    return differs("group", wanted.told(), have)


def _told(workload: Json) -> str:
    status = workload.get("status") or {}
    found = [(each["state"], each["message"]) for each in status.get("admissionChecks") or ()]
    done = [(each["reason"], each["message"]) for each in status.get("conditions") or () if each["type"] == "Finished"]
    return f"{found} {status.get('clusterName')} {status.get('nominatedClusterNames') or []} {done}"


def _targets(workload: Json) -> list[tuple[str, str]]:
    found = ((workload or {}).get("status") or {}).get("conditions") or ()
    return [(each["reason"], each["message"]) for each in found if each["type"] == "DeactivationTarget"]


def _gates(workload: Json) -> list[Json]:
    parts = [(workload or {}).get(name) or {} for name in ("spec", "status")]
    return [[sorted(gate.items()) for gate in each.get("preemptionGates") or ()] for each in parts]


def _named(items: Iterable[Json] | None, name: str) -> Json:
    return next((each for each in items or () if each["metadata"]["name"] == name), None)


def _ours(item: Json) -> bool:
    return is_ours(_read(RemoteJob, item), "multikueue")


def _read(kind: type[K], item: Json) -> K:
    return msgspec.json.decode(json.dumps(item).encode(), type=kind)
