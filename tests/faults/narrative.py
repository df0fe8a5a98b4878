"""A recorded history as lines for people: what to read when a promise was broken."""

from testbed.client import Json
from tests.faults.moments import Moment, job_cpus
from tests.faults.recording import Event


def narrate(moments: list[Moment], first: int, last: int) -> str:
    """The events between two moments, one a line, each with what changed."""
    start = moments[0].event.at
    lines = []
    for index in range(max(0, first), min(last, len(moments))):
        event = moments[index].event
        if words := _change(event):
            uid = event.obj["metadata"]["uid"][:8]
            usage = dict(sorted(moments[index].usage.items()))
            name = event.obj["metadata"]["name"]
            lines.append(f"#{index} {event.at - start:7.3f} {event.kind} {name} {uid}: {words}  {usage}")
    return "\n".join(lines)


def _change(event: Event) -> str:
    if event.new is None:
        return "gone"
    words = [] if event.old is not None else ["new"]
    before = _facts(event.kind, event.old) if event.old is not None else {}
    words += [f"{name}={value}" for name, value in _facts(event.kind, event.new).items() if before.get(name) != value]
    return " ".join(words)


def _facts(kind: str, obj: Json) -> dict[str, str]:
    status, spec = obj.get("status", {}), obj.get("spec", {})
    facts = {}
    if kind == "workloads":
        facts = {c["type"]: f"{c['status']}/{c['reason']} {c['message']}" for c in status.get("conditions", ())}
        facts |= {name: str(spec.get(name)) for name in ("active", "queueName", "priority")}
        facts["count"] = str([each["count"] for each in spec["podSets"]])
        facts["admission"] = str(status.get("admission", {}).get("clusterQueue"))
    elif kind == "jobs":
        facts = {"suspend": str(spec.get("suspend")), "cpus": str(job_cpus(obj))}
        facts |= {name: str(status.get(name, 0)) for name in ("active", "terminating", "succeeded")}
    elif kind == "pods":
        facts = {"phase": status.get("phase", "")}
    elif kind == "leases":
        facts = {"holder": str(spec.get("holderIdentity"))}
    else:
        facts = {"spec": str({k: spec.get(k) for k in ("resourceGroups", "stopPolicy") if k in spec})}
    if "deletionTimestamp" in obj["metadata"]:
        facts["deleting"] = "yes"
    return facts
