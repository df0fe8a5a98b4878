"""Decisions of a cycle, ready to be written: admissions, victims, conditions, and the reasons as data.

Values; the words of conditions are Kueue's. Must never change the state.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from turnstile.api import names
from turnstile.api.workload import Admission, PodSetAssignment, PodSetRequest, Workload
from turnstile.engine.causes import Eviction
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.quota.amounts import quantity
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import PREEMPTION_TEXT, Figure, Mode, RequeueReason, considered

Outcome = Literal[
    "admit", "preempting", "migrating", "skipped", "pending", "gated", "inadmissible", "place", "unplaced", "evict"
]
"""The action: `admit` writes the admission; `preempting` and `migrating` evict the victims, the latter with eviction
reason FlavorMigration and no Preempted condition. About a Workload that holds quota: `place` writes the places that
were found for its pods, `unplaced` tells why there are none, and `evict` evicts it for that. The others only tell why a
Workload waits."""

Status = Literal["", "assumed", "skipped", "preemptionGated", "nominated", "evicted"]


class Victim(Struct, frozen=True, gc=False):
    """A workload to evict. `new` is False if it is on its way out already: count it, but write nothing."""

    key: str
    uid: str
    cluster_queue: str
    reason: str
    message: str
    new: bool
    held: Mapping[str, int]
    """The quota that it held, by resource; nothing of one that is not new."""
    ran: float
    """Seconds for which its pods had run: with what it held, the run that it loses."""


@dataclass(slots=True, kw_only=True)
class Decision:
    """One workload looked at in one cycle."""

    key: str
    uid: str
    generation: int
    cluster_queue: str
    workload: Workload
    info: Info
    """With outcome admit or place the workload as it holds quota now, otherwise as it was."""
    outcome: Outcome
    status: Status = ""
    mode: Mode | None = None
    admitted: bool = False
    """With outcome admit: whether no admission check stands between reservation and admission."""
    victims: Sequence[Victim] = ()
    condition_reason: str = ""
    """Reason of QuotaReserved=False; empty when admitted."""
    message: str = ""
    """Kueue's message of that condition, not cut to the API's limit."""
    requeue_reason: RequeueReason = ""
    assignment: Assignment | None = None
    borrowing: int = 0
    recomputed: bool = False
    """Whether it was decided a second time in its cycle, because another workload took some of its victims."""

    @property
    def admission(self) -> Admission | None:
        """The reservation to write, with outcome admit or place."""
        if self.outcome == "place":
            return _with_places(self.workload, self.info)
        return admission_of(self.info, self.cluster_queue) if self.outcome == "admit" else None

    @property
    def resource_requests(self) -> list[PodSetRequest]:
        """For `status.resourceRequests` of a workload that waits."""
        return [] if self.outcome == "admit" else requested([(item.name, item.requests) for item in self.info.totals])

    @property
    def figures(self) -> list[Figure]:
        """Amounts behind every flavor that had no room, by pod set and flavor in the order they were tried."""
        if self.assignment is None:
            return []
        return [
            figure
            for pod_set in self.assignment.pod_sets
            for group in pod_set.attempts
            for attempt in group
            for figure in attempt.figures
        ]

    @property
    def short(self) -> list[tuple[str, str, int, int]]:
        """The amounts as logs and records have them: flavor, resource, what was asked, what was available."""
        return [(each.flavor, each.resource, each.requested + each.assumed, each.available) for each in self.figures]

    @property
    def flavors_considered(self) -> str:
        """Kueue's `Flavors considered` text of the QuotaReserved event, without that title; may be empty."""
        if self.assignment is None:
            return ""
        return considered([(pod_set.name, pod_set.merged_attempts()) for pod_set in self.assignment.pod_sets])


def preempted_message(preemptor: Workload, reason: str, preemptor_path: str, preemptee_path: str) -> str:
    """Kueue's message of the Evicted and Preempted conditions of a victim."""
    uid = preemptor.metadata.uid or "UNKNOWN"
    job = preemptor.metadata.labels.get(names.JOB_UID_LABEL) or "UNKNOWN"
    why = PREEMPTION_TEXT.get(reason, "UNKNOWN")
    return Eviction.PREEMPTED.says(
        uid=uid, job=job, why=why, preemptor=preemptor_path or "UNKNOWN", preemptee=preemptee_path or "UNKNOWN"
    )


_PREEMPTOR_PATH: Final = re.compile(r"; preemptor path: /(?:[^/ ]+/)*([^/ ]+); preemptee path: ")


_PREEMPTOR_UID: Final = re.compile(r"to accommodate a workload \(UID: ([^,)]+)[,)]")


def preemptor_uid(message: str) -> str | None:
    """The UID of the Workload for which a victim had to go, by the message of its conditions (`preempted_message`)."""
    found = _PREEMPTOR_UID.search(message)
    return found[1] if found is not None else None


def preempting_queue(message: str) -> str | None:
    """The ClusterQueue for which a victim had to go, by the message of its conditions (`preempted_message`)."""
    found = _PREEMPTOR_PATH.search(message)
    return found[1] if found is not None else None


def requested(assignment_requests: list[tuple[str, dict[str, int]]]) -> list[PodSetRequest]:
    """Totals by pod set as `status.resourceRequests` has them."""
    return [
        PodSetRequest(
            name=name, resources={resource: quantity(resource, value) for resource, value in requests.items()}
        )
        for name, requests in assignment_requests
    ]


def admission_of(info: Info, cluster_queue: str) -> Admission:
    """The reservation as the API has it."""
    return Admission(
        cluster_queue=cluster_queue,
        pod_set_assignments=[
            PodSetAssignment(
                name=item.name,
                flavors=dict(item.flavors or {}),
                resource_usage={resource: quantity(resource, amount) for resource, amount in item.requests.items()},
                count=item.count,
                topology_assignment=item.topology,
                delayed_topology_request=item.delayed,
            )
            for item in info.totals
        ],
    )


def _with_places(workload: Workload, info: Info) -> Admission | None:
    """The reservation of a Workload with the places of its pods, and otherwise as it is."""
    admission = workload.status.admission
    if admission is None:
        return None
    places = {item.name: item for item in info.totals}
    return Admission(
        cluster_queue=admission.cluster_queue,
        pod_set_assignments=[
            replace(
                each,
                topology_assignment=places[each.name].topology,
                delayed_topology_request=places[each.name].delayed,
            )
            for each in admission.pod_set_assignments
        ],
    )
