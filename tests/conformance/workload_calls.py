"""Replays the recorded calls into Kueue's workload packages: one handler a call, whichever suite it is recorded in.

A handler gets the arguments by name and what came of the call, and answers with differences, or None if the call has no
counterpart. Calls that change a Workload become a `StatusDraft` whose patch is applied to the recorded object.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.conditions import set_check_state
from turnstile.api.meta import to_plain
from turnstile.api.quantity import to_int
from turnstile.api.workload import Admission, AdmissionCheckState, CheckState, PodSet, ReclaimablePod, Workload
from turnstile.controllers.metrics import workloadtimes
from turnstile.controllers.status import admissionchecks, podsready
from turnstile.controllers.status.draft import StatusDraft
from turnstile.engine.decisions import requested
from turnstile.engine.devices.charges import Charges
from turnstile.engine.options import Options
from turnstile.engine.queue.admissible import is_admissible
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ordering import queue_timestamp
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.jobs.options import PodsReadyOptions
from turnstile.jobs.workload import limited_reclaimable

Json = Any
_NOW = datetime.fromisoformat(world.NOW)


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call and its surroundings; `table` is the entry of the table that it was made for."""

    args: dict[str, Json]
    results: list[Json]
    run: dict[str, Json]
    table: dict[str, Json]
    gates: dict[str, bool]

    def result(self, index: int = 0) -> Json:
        """A result, None if the recording leaves it out, as it does with a nil."""
        return self.results[index] if index < len(self.results) else None

    @property
    def workload(self) -> Json:
        """The argument that is a Workload."""
        return next(
            (value for value in self.args.values() if isinstance(value, dict) and value.get("kind") == "Workload"), {}
        )

    @property
    def now(self) -> datetime:
        """The time it was called at."""
        given = self.args.get("now") or next(
            (value["$clock"] for value in self.args.values() if isinstance(value, dict) and "$clock" in value), None
        )
        return datetime.fromisoformat(given) if given else _NOW

    @property
    def failed(self) -> bool:
        """Whether it returned an error, as a fake client was told to."""
        return any(isinstance(value, dict) and "$error" in value for value in self.results)


Handler = Callable[[Call], list[str] | None]


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every recorded call that has a counterpart."""
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        handler = CALLS.get(step["op"])
        if handler is None:
            continue
        gates = gates_of(case, run)
        texts = handler(
            Call(step.get("args") or {}, step.get("results") or [], run, case.body.get("case") or {}, gates)
        )
        compared = compared or texts is not None
        found += [f"{step['op']}: {text}" for text in texts or ()]
    return found if compared else None


def gates_of(case: Case, run: dict[str, Json]) -> dict[str, bool]:
    """Feature gates in force which differ from the default."""
    gates: dict[str, bool] = {}
    for given in (case.body, case.body.get("case"), {"featureGates": run.get("gates")}):
        gates |= (given or {}).get("featureGates") or {}
    return gates


# What a call changes


def _patched(before: Json, draft: StatusDraft) -> Json:
    """The recorded object with the patch of a draft applied."""
    return merged(before, orjson.loads(draft.patch().body)) if draft.changed else before


def merged(target: Json, patch: Json) -> Json:
    """An object with a merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    whole = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            whole.pop(name, None)
        else:
            whole[name] = merged(whole.get(name), value)
    return whole


def _seen(call: Call) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Parts of the Workload after the call that the recorded test looked at: the path in the object, and the value."""
    for item in call.run.get("checks") or ():
        of, got = item.get("of") or "", item.get("got")
        fields = re.search(r"\.(Status(?:\.\w+)*)$", of)
        if fields:
            yield tuple(name[0].lower() + name[1:] for name in fields[1].split(".")), got
        elif isinstance(got, dict) and got.get("kind") == "Workload":
            yield ("status",), got.get("status")


def bare(value: Json, name: str = "") -> Json:
    """Without what is empty; conditions by their type, as their order says nothing; times of conditions as they are,
    but one that was recorded without a time, which the API requires, has the time of the recording."""
    if isinstance(value, dict):
        parts = {key: bare(part, key) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, "", [], {})}
    if isinstance(value, list):
        parts_of_list = [bare(part) for part in value]
        if name != "conditions":
            return parts_of_list
        timed = ({"lastTransitionTime": world.NOW} | part for part in parts_of_list)
        return sorted(timed, key=lambda part: str(part.get("type")))
    return value


def _changed(call: Call, draft: StatusDraft) -> list[str]:
    """What became of the Workload, in every part that was looked at, and in the API afterwards."""
    after = _patched(call.workload, draft)
    meta = after.get("metadata") or {}
    found = []
    for path, want in _seen(call):
        have = after
        for name in path:
            have = (have or {}).get(name)
        found += differs(".".join(path), bare(want, path[-1]), bare(have, path[-1]))
    for item in call.run.get("finalObjects") or ():
        if item.get("kind") == "Workload" and world.key_of(item) == world.key_of({"metadata": meta}):
            found += differs("status in the API", bare(item.get("status")), bare(after.get("status")))
    return found


def _draft(call: Call) -> StatusDraft:
    granular = call.gates.get("UnadmittedWorkloadsObservability", True)
    return StatusDraft(world.load(Workload, call.workload), call.now, granular=granular)


def _sync_admitted(call: Call) -> list[str]:
    draft = _draft(call)
    changed = draft.sync_admitted()
    return differs("changed", call.result(), changed) + _changed(call, draft)


def _set_requeue_state(call: Call) -> list[str] | None:
    draft = _draft(call)
    until = datetime.fromisoformat(call.args["waitUntil"])
    changed = draft.requeue(until, counted=call.args["incrementCount"])
    return differs("changed", call.result(), changed) + _changed(call, draft)


def _set_quota_reservation(call: Call) -> list[str] | None:
    draft = _draft(call)
    draft.reserve(world.load(Admission, call.args["admission"]), admitted=False)
    return differs("changed", call.result(), draft.changed) + _changed(call, draft)


def _set_condition(call: Call) -> list[str] | None:
    if call.failed:
        return None
    draft, args = _draft(call), call.args
    draft.set(args["conditionType"], args["conditionStatus"], reason=args["reason"], message=args["message"])
    return _changed(call, draft)


def _unset_quota_reservation(call: Call) -> list[str]:
    draft = _draft(call)
    draft.unreserve(reason=call.args["reason"], message=call.args["message"])
    return differs("changed", call.result(), draft.changed) + _changed(call, draft)


def _finish(call: Call) -> list[str] | None:
    if call.failed:
        return None
    draft = _draft(call)
    draft.finish(call.args["reason"], call.args["msg"])
    return _changed(call, draft)


def _update_reclaimable(call: Call) -> list[str] | None:
    if call.failed:
        return None
    draft = _draft(call)
    draft.reclaim(_counts(call.args["reclaimablePods"]))
    return _changed(call, draft)


def _propagate_requests(call: Call) -> list[str] | None:
    draft = _draft(call)
    totals = call.args["info"].get("TotalRequests") or ()
    draft.requests(requested([(item.get("Name", ""), item.get("Requests") or {}) for item in totals]))
    return differs("changed", call.result(), draft.changed) + _changed(call, draft)


def _set_check_state(call: Call) -> list[str] | None:
    if call.args.get("checks") is None:
        return None
    before = [world.load(AdmissionCheckState, item) for item in call.args["checks"]]
    after = set_check_state(before, world.load(AdmissionCheckState, call.args["newCheck"]), now=call.now)
    found = differs("changed", call.result(), after != before)
    for item in call.run.get("checks") or ():
        if isinstance(item.get("got"), list):
            found += differs("states", bare(item["got"]), bare(to_plain(after)))
    return found


# What a call answers


def _counts(pods: Json) -> dict[str, int]:
    return {item["name"]: item.get("count", 0) for item in pods or ()}


def _limit_reclaimable(call: Call) -> list[str]:
    have = limited_reclaimable(world.load(Workload, call.workload), _counts(call.args["reclaimablePods"]))
    return differs("pods", _counts(call.result()), have)


def _same_reclaimable(call: Call) -> list[str]:
    workload = Workload()
    workload.status.reclaimable_pods = [world.load(ReclaimablePod, item) for item in call.args["a"] or ()]
    draft = StatusDraft(workload, _NOW)
    draft.reclaim(_counts(call.args["b"]))
    return differs("equal", call.result(), not draft.changed)


def _checks_for_admission(call: Call) -> list[str]:
    covered = {name: frozenset(flavors or ()) for name, flavors in (call.args["acs"] or {}).items()}
    have = admissionchecks.required_on(covered, world.load(Admission, call.args["admission"]))
    return differs("checks", sorted(call.result() or []), have)


def _checks_for_workload(call: Call) -> list[str]:
    workload = world.load(Workload, call.workload)
    have = admissionchecks.required(world.load(ClusterQueue, call.args["cq"]), workload.status.admission)
    return differs("checks", sorted(call.result() or []), have)


def _synced_checks(call: Call) -> list[str]:
    states = [world.load(AdmissionCheckState, item) for item in call.args["conds"] or ()]
    names = call.args["admissionChecks"] or ()
    have = [to_plain(state) for state in admissionchecks.listed(states, names, now=call.now)]
    return differs("states", bare(call.result() or []), bare(have))


def _synced_workload(call: Call) -> list[str]:
    states = world.load(Workload, call.workload).status
    needed = admissionchecks.required(world.load(ClusterQueue, call.args["cq"]), states.admission)
    have = admissionchecks.listed(states.admission_checks, needed, now=call.now)
    want = call.table.get("wantChecks") or []
    untimed = [{**to_plain(state), "lastTransitionTime": ""} for state in have]
    return differs("changed", call.result(), have != list(states.admission_checks)) + differs(
        "checks", bare([{**state, "lastTransitionTime": ""} for state in want]), bare(untimed)
    )


def _patience(call: Call) -> list[str]:
    """How long an admitted Workload without ready pods is left alone, by the configuration in the table."""
    given = {
        name: world.seconds(text)
        for name, text in (call.table.get("waitForPodsReady") or {}).items()
        if isinstance(text, str)
    }
    limits = PodsReadyOptions(timeout=given.get("timeout", 0.0), recovery_timeout=given.get("recoveryTimeout"))
    waits = podsready.patience(world.load(Workload, call.workload), limits, call.now) if given else None
    return differs("cause and rest", (call.result(0), world.seconds(call.result(1))), waits or ("", 0.0))


def _retry_time(call: Call) -> list[str]:
    have = admissionchecks.retry_at(world.load(Workload, call.workload).status.admission_checks)
    want = call.result()
    return differs("time", datetime.fromisoformat(want) if want else None, have)


def _lost_quota(call: Call) -> list[str]:
    return differs("lost", call.result(), workloadtimes.lost_quota(call.args["prevStatus"], call.args["newStatus"]))


def _eviction_latency(call: Call) -> list[str]:
    old, new = world.load(Workload, call.args["oldWl"]), world.load(Workload, call.args["newWl"])
    queue, reason, latency, counted = (call.result(index) for index in range(4))
    want = (queue, reason, world.seconds(latency)) if counted else None
    return differs("latency", want, workloadtimes.eviction_latency(old, new, call.now))


def _execution_time(call: Call) -> list[str]:
    want = call.result()
    have = workloadtimes.execution_seconds(world.load(Workload, call.workload))
    return differs("time", world.seconds(want) if want is not None else None, have)


def _by_pods_ready_timeout(call: Call) -> list[str]:
    """The one eviction whose place in line depends on the configured timestamp."""
    workload = world.load(Workload, call.workload)
    places = {
        name: queue_timestamp(
            workload, Options(wait_for_pods_ready=world.pods_ready({"PodsReadyRequeuingTimestamp": name}))
        )
        for name in ("Eviction", "Creation")
    }
    return differs("evicted by it", call.result(1), places["Eviction"] != places["Creation"])


def _totals(info: Info) -> list[tuple[str, int, dict[str, int]]]:
    return [(item.name, item.count, item.requests) for item in info.totals]


def _recorded_totals(totals: Json) -> list[tuple[str, int, dict[str, int]]]:
    return [(item.get("Name", ""), item.get("Count", 0), item.get("Requests") or {}) for item in totals or ()]


class _Charged(Surroundings):
    """Surroundings in which the charges for devices are known."""

    __slots__ = ("known",)

    def charges(self, workload: Workload) -> Charges | None:
        """Those that were recorded."""
        return self.known


def _surroundings(call: Call) -> Surroundings:
    """What the options of a call configure."""
    chosen: dict[str, Json] = {}
    for option in call.args.get("opts") or ():
        chosen |= option.get("sets") or {}
    around = _Charged(
        Options(
            gates=world.gates(call.gates),
            transformations=world.transformations(chosen.get("resourceTransformations")),
            exclude_resource_prefixes=tuple(chosen.get("excludedResourcePrefixes") or ()),
        )
    )
    devices = chosen.get("dra") or {}
    counts = devices.get("preprocessedDRAResources") or {}
    replaced = devices.get("replacedExtendedResources") or {}
    around.known = Charges(
        {name: {key: to_int(key, value) for key, value in found.items()} for name, found in counts.items()},
        once={},
        replaced={name: frozenset(found) for name, found in replaced.items()},
    )
    return around


def _new_info(call: Call) -> list[str] | None:
    around = _surroundings(call)
    info = Info(world.load(Workload, call.workload), around)
    return differs("totals", _recorded_totals((call.result() or {}).get("TotalRequests")), _totals(info))


def _updated_info(call: Call) -> list[str] | None:
    """A newer version of a Workload is counted anew, whatever the older one asked for. Where a recording keeps totals
    that were known, which is an optimization of Go's, there is nothing to compare."""
    if any((option.get("sets") or {}).get("preserveTotalRequests") for option in call.args.get("opts") or ()):
        return None
    around = _surroundings(call)
    totals = [item["got"] for item in call.run.get("checks") or () if (item.get("of") or "").endswith(".TotalRequests")]
    if not totals:
        return None
    return differs("totals", _recorded_totals(totals[-1]), _totals(Info(world.load(Workload, call.workload), around)))


def _asks(question: Callable[[Workload], bool]) -> Handler:
    return lambda call: differs("answer", call.result(), question(world.load(Workload, call.workload)))


def _has(state: CheckState) -> Handler:
    return _asks(lambda workload: bool(admissionchecks.in_state(workload.status.admission_checks, state)))


def _asks_for_topology(call: Call) -> list[str]:
    pod_sets = [world.load(PodSet, item) for item in call.args["podSets"] or ()]
    have = any(item.topology_request is not None and item.topology_request.is_explicit for item in pod_sets)
    return differs("asks", call.result(), have)


CALLS: dict[str, Handler] = {
    "workload.IsExplicitlyRequestingTAS": _asks_for_topology,
    "workload.SyncAdmittedCondition": _sync_admitted,
    "workload.SetRequeueState": _set_requeue_state,
    "workload.SetQuotaReservation": _set_quota_reservation,
    "workload.SetConditionAndUpdate": _set_condition,
    "workload.UnsetQuotaReservationWithCondition": _unset_quota_reservation,
    "workload.PropagateResourceRequests": _propagate_requests,
    "workload.UpdateReclaimablePods": _update_reclaimable,
    "workload.LimitReclaimablePodsToPodSetSizes": _limit_reclaimable,
    "workload.ReclaimablePodsAreEqual": _same_reclaimable,
    "workload.admissionChecksForAdmission": _checks_for_admission,
    "workload.AdmissionChecksForWorkload": _checks_for_workload,
    "workload.GetMaxRetryTime": _retry_time,
    "workload.FromQuotaReservedOrAdmittedToPending": _lost_quota,
    "workload.EvictionPendingLatency": _eviction_latency,
    "workload.TotalExecutionTime": _execution_time,
    "workload.NewInfo": _new_info,
    "workload.Info.Update": _updated_info,
    "workload.Status": lambda call: differs(
        "status", call.result(), workloadtimes.phase(world.load(Workload, call.workload))
    ),
    "workload.HasQuotaReservation": _asks(lambda workload: workload.quota_reserved),
    "workload.IsAdmitted": _asks(lambda workload: workload.admitted),
    "workload.IsFinished": _asks(lambda workload: workload.finished),
    "workload.IsActive": _asks(lambda workload: workload.spec.active),
    "workload.IsOnHold": _asks(lambda workload: workload.on_hold),
    "workload.IsAdmissible": lambda call: differs(
        "admissible",
        call.result(),
        is_admissible(world.load(Workload, call.workload), Options(gates=world.gates(call.gates))),
    ),
    "workload.HasRetryChecks": _has("Retry"),
    "workload.HasRejectedChecks": _has("Rejected"),
    "controller/core.WorkloadReconciler.admittedNotReadyWorkload": _patience,
    "controller/core.WorkloadReconciler.reconcileSyncAdmissionChecks": _synced_workload,
    "controller/core.syncAdmissionCheckConditions": _synced_checks,
    "workload/evict.IsEvicted": _asks(lambda workload: workload.evicted),
    "workload/evict.IsEvictedByPodsReadyTimeout": _by_pods_ready_timeout,
    "workload/finish.Finish": _finish,
    "workload/patching.SetAdmissionCheckState": _set_check_state,
}
"""Handlers by the recorded name of the call."""
