"""How an assignment to domains is written, and read."""

from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from turnstile.api import topologyassignment
from turnstile.api.meta import to_plain
from turnstile.api.topology import TopologyAssignment
from turnstile.api.topologyassignment import Domain
from turnstile.api.workload import Admission, PodSetAssignment

Json = Any


def domains(recorded: Json) -> list[Domain]:
    """Domains as Go prints its own form of an assignment."""
    return [
        Domain(tuple(each.get("Values") or ()), each.get("Count", 0)) for each in (recorded or {}).get("Domains") or ()
    ]


def shown(found: list[Domain]) -> list[Json]:
    """Domains as Go prints them: without a count of 0."""
    return [{"Values": list(values), **({"Count": count} if count else {})} for values, count in found]


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found: list[str] | None = None
    split = world.gates(case.body.get("featureGates"), run.get("gates")).tas_assignments_encoding_by_hostname_prefix
    for step in run.get("trace") or ():
        name = step["op"].rpartition(".")[2]
        args, results = step.get("args") or {}, step.get("results") or [None]
        given = args.get("ta")
        if given is None and name not in _WITHOUT_ASSIGNMENT:
            continue  # the answer about nothing is nothing
        if "$tooLarge" in (given or {}):
            continue
        want = results[0]
        if name in {"InternalSeqFrom", "PodCounts", "LowestLevelValues"}:
            looks = [each for each in run.get("checks") or () if each.get("of") == "got"]
            if not looks:
                continue
            want = looks[0].get("got") or []
        if name == "reusableHostnamePrefixKeys" and "results" not in step:
            want = None
        have = _call(name, args, split=split)
        found = [*(found or []), *differs(step["op"], _sorted(want), _sorted(have))]
    return found


_WITHOUT_ASSIGNMENT = frozenset({"reusableHostnamePrefixKeys", "HasNodeInPodSetAssignment", "HasTASAssignmentOnNode"})


def _sorted(value: Json) -> Json:
    return {**value, "slices": value.get("slices") or []} if isinstance(value, dict) and "levels" in value else value


def _call(name: str, args: dict[str, Json], *, split: bool) -> Json:
    given = args.get("ta") or {}
    match name:
        case "V1Beta2From":
            return to_plain(topologyassignment.encode(given["Levels"], domains(given), split=split))
        case "singleCompactTopologyAssignmentEncoding":
            return to_plain(topologyassignment.write(given["Levels"], [domains(given)]))
        case "compactTopologyAssignmentEncodingWithHostnamePrefixRuns":
            parts = topologyassignment.runs(given["Levels"], domains(given))
            return to_plain(topologyassignment.write(given["Levels"], parts))
        case "reusableHostnamePrefixKeys":
            return topologyassignment.host_prefixes([each["Values"][-1] for each in args["domains"]])
        case "HasNodeInPodSetAssignment":
            pod_sets = [world.load(PodSetAssignment, args["psa"])] if args["psa"] is not None else []
            return any(args["nodeName"] in topologyassignment.hosts(each.topology_assignment) for each in pod_sets)
        case "HasTASAssignmentOnNode":
            admission = world.load(Admission, args["admission"] or {})
            return any(
                args["nodeName"] in topologyassignment.hosts(each.topology_assignment)
                for each in admission.pod_set_assignments
            )
    assignment = world.load(TopologyAssignment, given)
    found = list(topologyassignment.decode(assignment))
    match name:
        case "InternalFrom":
            return {"Levels": assignment.levels, **({"Domains": shown(found)} if found else {})}
        case "InternalSeqFrom":
            return shown(found)
        case "PodCounts":
            return [domain.pods for domain in found]
        case "LowestLevelValues":
            return [domain.values[-1] for domain in found]
        case "TotalDomainCount":
            return len(found)
        case _:
            raise NotRead(f"the runner does not know the call {name}")
