"""Which facts about a Workload people are told of without asking: it started, it was preempted, it can never start.

Pure. A notice says nothing of other Workloads: not who preempted one, nor whose quota it waits for. Must never send.
"""

from typing import Any, Final, Literal

import msgspec

from turnstile.api import workload as wl
from turnstile.api.workload import Workload
from turnstile.engine.decisions import Decision
from turnstile.engine.instants import Instant
from turnstile.engine.reasons import EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR
from turnstile.recorder.facts import Fact, kept

About = Literal["started", "preempted", "cannotstart"]
_NEVER: Final = (EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR)


class Notice(msgspec.Struct, frozen=True, gc=False):
    """One thing to tell. `mark` is the same whenever it is derived again, also by another leader."""

    about: About
    uid: str
    mark: str
    namespace: str
    name: str
    at: Instant
    data: dict[str, Any]


def of_fact(workload: Workload, fact: Fact) -> Notice | None:
    """The notice of a fact that the object shows; None for facts without a notice."""
    if fact.what == "admitted":
        return _notice("started", workload, fact.mark, fact.at)
    if fact.what == "evicted" and fact.reason == wl.PREEMPTED:
        why = (fact.detail or {}).get("why", "")
        return _notice("preempted", workload, fact.mark, fact.at, reason=why, evictions=fact.attempt)
    return None


def of_decision(decision: Decision, now: Instant) -> Notice | None:
    """The notice that a Workload can never start as it and the quotas are; None if it may.

    In every flavor that some pod set could take, it asks for more than the tree of Cohorts has, or no flavor's nodes
    suit it. A Workload that may start with fewer pods is left out: with those it may fit.
    """
    found = decision.assignment
    if decision.requeue_reason != "NoFit" or found is None or found.no_fit_reason not in _NEVER:
        return None
    if any(item.min_count is not None for item in decision.info.totals):
        return None
    message = kept(decision.message)
    generation = str(decision.generation)
    return _notice("cannotstart", decision.workload, generation, now, reason=found.no_fit_reason, message=message)


def _notice(about: About, workload: Workload, mark: str, at: Instant, **more: object) -> Notice:
    meta, admission = workload.metadata, workload.status.admission
    owner = meta.controller or next(iter(meta.owner_references), None)
    data = {
        "namespace": meta.namespace,
        "workload": meta.name,
        "uid": meta.uid,
        "job": {"kind": owner.kind, "name": owner.name} if owner is not None else None,
        "localQueue": workload.spec.queue_name or "",
        "clusterQueue": admission.cluster_queue if admission is not None else "",
        **more,
    }
    return Notice(about, meta.uid, mark, meta.namespace, meta.name, at, data)
