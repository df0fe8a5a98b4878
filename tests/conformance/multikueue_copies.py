"""Copies of jobs on worker clusters: how they are made, what comes back, and when they are deleted."""

import json
from typing import Any

import msgspec

from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from turnstile.api import names
from turnstile.api.meta import Kind
from turnstile.controllers.multikueue import worker
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, is_ours
from turnstile.jobs.integration import Integration
from turnstile.jobs.registry import ALL
from turnstile.jobs.remote import copied_job

Json = Any
ORIGIN, WORKLOAD = "origin1", "wl1"
"""The origin and the Workload of all recorded copies."""


def check_adapter(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Objects of a job on the manager, their copies on the worker, or both. Here a copy is always created suspended."""
    table, kind = case.body["case"], case.suite.split(".")[-2]
    integration = next(each for each in ALL if each.framework.rpartition("/")[2] == kind)
    copies = integration.copies
    assert copies is not None
    here, there = _named(table, "managers"), _named(table, "worker")
    want_here, want_there = _named(table, "wantManagers"), _named(table, "wantWorker")
    if there and not want_there:
        remote = Remote(jobs=[copy for each in there.values() if (copy := _remote(each)) is not None])
        order = worker.decide("worker1", None, remote, dispatched=False)
        return differs("deleted", sorted(there), sorted(each.metadata.name for each in order.delete_jobs))
    if there:
        found = (_status(integration, here[name], copy) for name, copy in there.items())
        return differs("status", [_bare(each.get("status") or {}) for each in want_here.values()], list(found))
    if want_there:
        return [each for name, want in want_there.items() for each in _made(integration, here[name], want)]
    jobs = [_read(integration.kind, each) for each in here.values()]
    if "replicas" in str(table.get("wantError") or ""):
        return differs("invalid", True, any(integration.create_errors(each) for each in jobs))
    return differs("managed", bool(jobs) and "wrong" not in case.name, any(copies.dispatched(each) for each in jobs))


def _status(integration: Integration[Any], here: Json, there: Json) -> Json:
    """The status of the job on the manager, after that of its copy was read."""
    job, copies = _read(integration.kind, here), integration.copies
    assert copies is not None
    waits = copies.returned is None or (copies.late and integration.suspended(job))
    returned = copies.returned or (lambda job, status: status)
    return _bare((here if waits else {"status": returned(job, there.get("status") or {})}).get("status") or {})


def _made(integration: Integration[Any], here: Json, want: Json) -> list[str]:
    """The copy that is created."""
    copies = integration.copies
    assert copies is not None
    made = copied_job(here, copies, workload=WORKLOAD, origin=ORIGIN)
    meta = {**want["metadata"]["labels"], **(want["metadata"].get("annotations") or {})}
    named = {**made["metadata"]["labels"], **made["metadata"]["annotations"]}
    if names.MULTIKUEUE_ORIGIN_UID not in meta:  # Kueue has it for sets alone
        named.pop(names.MULTIKUEUE_ORIGIN_UID)
    return [
        *differs("labels and annotations", meta, named),
        *differs("spec", _bare(want.get("spec") or {}), _bare(made["spec"])),
    ]


def check_owned(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether an object on a worker belongs to this manager, and may be deleted."""
    table = case.body["case"]
    if "wantErr" in table and "wantDeleted" not in table:
        found = table.get("obj")
        return differs("owned", table["wantErr"] is None, is_ours(_read(RemoteJob, found or {}), table["origin"]))
    if table.get("wantErr"):
        return None  # the client of the recorded test fails
    remote = next(iter(table["remoteObjects"] or ()), None)
    ours = remote is not None and is_ours(_read(RemoteJob, remote), table["origin"])
    order = worker.decide("worker1", None, Remote(jobs=[_read(RemoteJob, remote)] if ours else []), dispatched=False)
    return differs("deleted", table["wantDeleted"], bool(order.delete_jobs))


def _remote(item: Json) -> RemoteJob | None:
    found = _read(RemoteJob, item) if item is not None else None
    return found if is_ours(found, ORIGIN) else None


def _named(table: Json, start: str) -> dict[str, Json]:
    """The objects of the list in a table whose name begins so, by name."""
    items = next((value for name, value in table.items() if name.startswith(start)), None)
    return {each["metadata"]["name"]: each for each in items or ()}


def _read(kind: type[Kind], item: Json) -> Any:
    return msgspec.json.decode(json.dumps(item).encode(), type=kind)


def _bare(value: Json) -> Json:
    """A value without what is empty or false."""
    if isinstance(value, dict):
        return {key: part for key, inner in value.items() if (part := _bare(inner)) not in ({}, [], None, False)}
    return [_bare(each) for each in value] if isinstance(value, list) else value
