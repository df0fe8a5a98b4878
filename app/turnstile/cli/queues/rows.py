"""The columns of each kind in `kubectl turnstile list`, those of kueuectl first, and what `-o wide` adds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from turnstile.cli.queues.board import quota_of
from turnstile.cli.queues.tables import since, span

Plain = Mapping[str, Any]

LONGEST_TYPE: Final = 20
"""Characters of a job type that are shown."""

CLUSTER_QUEUE: Final = ("Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age")
CLUSTER_QUEUE_WIDE: Final = ("Strategy", "Stop Policy", "Reserving Workloads", "Flavors")
LOCAL_QUEUE: Final = ("Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Age")
LOCAL_QUEUE_WIDE: Final = ("Active", "Stop Policy", "Reserving Workloads")
RESOURCE_FLAVOR: Final = ("Name", "Node Labels", "Age")
RESOURCE_FLAVOR_WIDE: Final = ("Node Taints", "Tolerations", "Topology")
WORKLOAD: Final = (
    "Name",
    "Job Type",
    "Job Name",
    "LocalQueue",
    "ClusterQueue",
    "Status",
    "Position in Queue",
    "Exec Time",
    "Age",
)
WORKLOAD_WIDE: Final = ("Priority", "Active", "Reason")


def condition(obj: Plain, kind: str) -> Plain:
    """The condition of a type; empty if there is none."""
    found: Plain = next(
        (each for each in obj.get("status", {}).get("conditions") or () if each["type"] == kind),
        {},
    )
    return found


def holds(obj: Plain, kind: str) -> bool:
    """Whether a condition is True."""
    return condition(obj, kind).get("status") == "True"


def state(workload: Plain) -> str:
    """The state of a Workload, in kueuectl's word."""
    for kind, word in (("Finished", "finished"), ("Admitted", "admitted"), ("QuotaReserved", "quotareserved")):
        if holds(workload, kind):
            return word
    return "pending"


def cluster_queue(queue: Plain, now: datetime, *, wide: bool) -> list[str]:
    """A row of `list clusterqueue`."""
    spec, status = queue["spec"], queue.get("status", {})
    row = [
        queue["metadata"]["name"],
        spec.get("cohortName", ""),
        str(status.get("pendingWorkloads", 0)),
        str(status.get("admittedWorkloads", 0)),
        str(holds(queue, "Active")).lower(),
        since(queue["metadata"].get("creationTimestamp"), now),
    ]
    if wide:
        flavors = [each["name"] for group in quota_of(queue)[0] for each in group["flavors"]]
        row += [
            spec.get("queueingStrategy", ""),
            spec.get("stopPolicy") or "None",
            str(status.get("reservingWorkloads", 0)),
            ", ".join(dict.fromkeys(flavors)),
        ]
    return row


def local_queue(queue: Plain, now: datetime, *, wide: bool) -> list[str]:
    """A row of `list localqueue`."""
    status = queue.get("status", {})
    row = [
        queue["metadata"]["name"],
        queue["spec"].get("clusterQueue", ""),
        str(status.get("pendingWorkloads", 0)),
        str(status.get("admittedWorkloads", 0)),
        since(queue["metadata"].get("creationTimestamp"), now),
    ]
    if wide:
        row += [
            str(holds(queue, "Active")).lower(),
            queue["spec"].get("stopPolicy") or "None",
            str(status.get("reservingWorkloads", 0)),
        ]
    return row


def resource_flavor(flavor: Plain, now: datetime, *, wide: bool) -> list[str]:
    """A row of `list resourceflavor`."""
    spec = flavor.get("spec", {})
    labels = sorted(f"{key}={value}" for key, value in (spec.get("nodeLabels") or {}).items())
    row = [flavor["metadata"]["name"], ", ".join(labels), since(flavor["metadata"].get("creationTimestamp"), now)]
    if wide:
        row += [
            ", ".join(_tainted(each) for each in spec.get("nodeTaints") or ()),
            ", ".join(_tainted(each) for each in spec.get("tolerations") or ()),
            spec.get("topologyName", ""),
        ]
    return row


def _tainted(taint: Plain) -> str:
    """A taint or toleration as the options of `create resourceflavor` take it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    effect = f":{taint['effect']}" if taint.get("effect") else ""
    return f"{taint.get('key', '')}{value}{effect}"


@dataclass(slots=True)
class Around:
    """Facts about Workloads beside themselves. Workloads and LocalQueues are named namespace/name."""

    cluster_queues: dict[str, str] = field(default_factory=dict)
    """The ClusterQueue of each LocalQueue."""
    positions: dict[str, int] = field(default_factory=dict)
    """The position of each pending Workload in its LocalQueue, from 0."""
    job_types: dict[tuple[str, str], str] = field(default_factory=dict)
    """The API server's name for a job of each API version and kind."""


def key(obj: Plain) -> str:
    """namespace/name."""
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def queue_key(workload: Plain) -> str:
    """namespace/name of a Workload's LocalQueue."""
    return f"{workload['metadata'].get('namespace', '')}/{workload['spec'].get('queueName', '')}"


def owners(obj: Plain) -> Sequence[Plain]:
    """The owner references of an object."""
    return obj["metadata"].get("ownerReferences") or ()


def is_for(workload: Plain, uid: str) -> bool:
    """Whether a Workload is for the job with this UID: as the job's own, or as that of a pod group it is part of."""
    labelled = (workload["metadata"].get("labels") or {}).get("kueue.x-k8s.io/job-uid")
    return labelled == uid or any(owner["uid"] == uid for owner in owners(workload))


def admitted_by(workload: Plain) -> str:
    """The ClusterQueue that holds quota for a Workload; empty without one."""
    admission = workload.get("status", {}).get("admission") or {}
    return str(admission.get("clusterQueue", ""))


def cluster_queue_of(workload: Plain, around: Around) -> str:
    """The ClusterQueue that holds quota for a Workload, or else that of its LocalQueue."""
    return admitted_by(workload) or around.cluster_queues.get(queue_key(workload), "")


def workload(obj: Plain, around: Around, now: datetime, *, wide: bool) -> list[str]:
    """A row of `list workload`."""
    types = {around.job_types.get((each["apiVersion"], each["kind"]), "") for each in owners(obj)} - {""}
    position = around.positions.get(key(obj))
    row = [
        obj["metadata"]["name"],
        ", ".join(sorted(each[:LONGEST_TYPE] + "..." * (len(each) > LONGEST_TYPE) for each in types)),
        ", ".join(sorted({each["name"] for each in owners(obj)})),
        obj["spec"].get("queueName", ""),
        cluster_queue_of(obj, around),
        state(obj).upper(),
        "" if position is None else str(position),
        _ran(obj, now),
        since(obj["metadata"].get("creationTimestamp"), now),
    ]
    if wide:
        reserved = condition(obj, "QuotaReserved")
        row += [
            str(obj["spec"].get("priority", 0)),
            str(obj["spec"].get("active", True)).lower(),
            reserved.get("message", "") if state(obj) == "pending" else "",
        ]
    return row


def _ran(workload: Plain, now: datetime) -> str:
    """How long a Workload has been admitted, until it finished."""
    if not holds(workload, "Admitted"):
        return ""
    begun = datetime.fromisoformat(condition(workload, "Admitted")["lastTransitionTime"])
    if holds(workload, "Finished"):
        now = datetime.fromisoformat(condition(workload, "Finished")["lastTransitionTime"])
    return span((now - begun).total_seconds())
