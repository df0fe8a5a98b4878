"""Judges where the pods of a job are, from pods, nodes and the topology assignments of their Workloads alone.

Nothing here depends on how Turnstile handles a kind.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from testbed.client import Json
from tests.unit.controllers.worlds import decode as read
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import Workload

GATE: Final = "kueue.x-k8s.io/topology"
PODSET: Final = "kueue.x-k8s.io/podset"
WORKLOAD: Final = "kueue.x-k8s.io/workload"

Labels = Mapping[str, str]
Rank = Callable[[Labels], int]
"""The place of a pod among those of its pod set, by its labels."""
Values = tuple[str, ...]
"""The labels of a node that make a domain."""


@dataclass(frozen=True)
class Rules:
    """What the pods of a job have to comply with, beside the assignment.

    `level` is the label of nodes that has one value for all pods of a pod set; `ranks` number the pods of pod sets
    whose names end so. All pods of the pod sets whose names end as `together` says are in one domain of the level. So
    many consecutive pods of a numbered pod set are a `slice`, which is in one domain of `slice_level`.
    """

    level: str = ""
    ranks: Mapping[str, Rank] | None = None
    together: tuple[str, ...] = ()
    slice_level: str = ""
    slice: int = 0

    def rank(self, pod_set: str) -> Rank | None:
        """How the pods of a pod set are numbered."""
        found = (rank for end, rank in (self.ranks or {}).items() if pod_set.endswith(end))
        return next(found, None)


def faults(rules: Rules, *, pods: Collection[Json], nodes: Collection[Json], workloads: Collection[Json]) -> list[str]:
    """What is wrong with the places of the pods of a job, in sentences."""
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    found = [f"{_name(pod)} is held by the topology gate" for pod in pods if GATE in _gates(pod)]
    found += [f"{_name(pod)} is on no node" for pod in pods if pod["spec"].get("nodeName") not in labels]
    placed = {_name(pod): labels[node] for pod in pods if (node := pod["spec"].get("nodeName")) in labels}
    known: set[str] = set()
    for workload in workloads:
        admission = read(Workload, workload).status.admission
        shared: dict[str, str | None] = {}
        for given in admission.pod_set_assignments if admission is not None else ():
            members = [pod for pod in pods if _marks(pod) == (workload["metadata"]["name"], given.name)]
            known |= {_name(pod) for pod in members}
            if len(members) != given.count:
                found.append(f"pod set {given.name} has {len(members)} pods, not {given.count}")
            if given.topology_assignment is None:
                found.append(f"pod set {given.name} has no topology assignment")
                continue
            levels = given.topology_assignment.levels
            places = [each.values for each in decode(given.topology_assignment) for _ in range(each.pods)]
            where = {
                name: tuple(placed[name].get(level, "") for level in levels)
                for name in map(_name, members)
                if name in placed
            }
            found += _crowds(where, Counter(places))
            if len({placed[name].get(rules.level) for name in where}) > 1:
                found.append(f"pod set {given.name} is in several domains of {rules.level}: {where}")
            if given.name.endswith(rules.together):
                shared |= {name: placed[name].get(rules.level) for name in where}
            if (rank := rules.rank(given.name)) is not None:
                ranks = {_name(pod): rank(pod["metadata"]["labels"]) for pod in members}
                found += _out_of_order(ranks, where, places)
                if rules.slice:
                    found += _torn(
                        {ranks[name]: placed[name].get(rules.slice_level) for name in where}, rules.slice, given.name
                    )
        if len(set(shared.values())) > 1:
            found.append(f"a leader and its workers are in several domains of {rules.level}: {shared}")
    return found + [f"{_name(pod)} is of no pod set" for pod in pods if _name(pod) not in known]


def _name(pod: Json) -> str:
    found: str = pod["metadata"]["name"]
    return found


def _gates(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates", ())]


def _marks(pod: Json) -> tuple[str, str]:
    """The Workload and the pod set that a pod says it belongs to."""
    meta = pod["metadata"]
    return meta.get("annotations", {}).get(WORKLOAD, ""), meta.get("labels", {}).get(PODSET, "")


def _crowds(where: Mapping[str, Values], room: Mapping[Values, int]) -> list[str]:
    """Domains with more pods than the assignment says, which for those that it does not name is none."""
    return [
        f"{pods} pods are in {values}, where {room.get(values, 0)} belong"
        for values, pods in Counter(where.values()).items()
        if pods > room.get(values, 0)
    ]


def _out_of_order(ranks: Mapping[str, int], where: Mapping[str, Values], places: Sequence[Values]) -> list[str]:
    """Pods that are not in the place of their rank."""
    if sorted(ranks.values()) != list(range(len(places))):
        return [f"the ranks of the pods are {ranks}, of {len(places)} places"]
    return [
        f"{name} of rank {rank} is in {where[name]}, not {places[rank]}"
        for name, rank in ranks.items()
        if name in where and where[name] != places[rank]
    ]


def _torn(domains: Mapping[int, str | None], size: int, pod_set: str) -> list[str]:
    """Slices whose pods are in several domains; the domain of each pod by its rank."""
    slices: dict[int, set[str | None]] = {}
    for rank, domain in domains.items():
        slices.setdefault(rank // size, set()).add(domain)
    return [
        f"slice {number} of pod set {pod_set} is in {sorted(map(str, found))}"
        for number, found in sorted(slices.items())
        if len(found) > 1
    ]
