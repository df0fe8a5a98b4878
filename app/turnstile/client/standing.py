"""How a job stands, from the job and its Workload. Pure: reads no cluster and no clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """How far a job has come."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"


ENDS = frozenset({State.SUCCEEDED, State.FAILED, State.GONE})


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a job, and in a sentence why: what a job that waits waits for, or how it ended. `cluster` is the
    worker cluster of MultiKueue on which it runs or ran; empty if that is this one."""

    state: State
    message: str = ""
    cluster: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job has ended, or was deleted."""
        return self.state in ENDS


def standing(job: Mapping[str, Any] | None, workload: Mapping[str, Any] | None) -> Standing:
    """How a job stands; None for what is not there. A Workload knows best; a job without one is asked itself."""
    if job is None:
        return Standing(State.GONE, "it was deleted")
    own, held = _conditions(job), _conditions(workload or {})
    cluster = ((workload or {}).get("status") or {}).get("clusterName") or ""
    for condition, state in (("Complete", State.SUCCEEDED), ("Failed", State.FAILED)):
        if condition in own and own[condition]["status"] == "True":
            return Standing(state, own[condition].get("message", ""), cluster)
    if workload is None:
        if (job.get("spec") or {}).get("suspend") is False:
            return Standing(State.ADMITTED, "it has no Workload: nothing holds it back")
        return Standing(State.WAITING, "it has no Workload yet")
    if _is_true(held, "Finished"):
        state = State.FAILED if held["Finished"].get("reason") == "Failed" else State.SUCCEEDED
        return Standing(state, held["Finished"].get("message", ""), cluster)
    if _is_true(held, "Admitted"):
        return Standing(State.ADMITTED, held["Admitted"].get("message", ""), cluster)
    if (workload.get("spec") or {}).get("active") is False:
        return Standing(State.WAITING, held.get("Evicted", {}).get("message") or "its Workload is not active")
    if _is_true(held, "QuotaReserved"):
        return Standing(State.WAITING, "it has quota and waits for its admission checks")
    return Standing(State.WAITING, held.get("QuotaReserved", {}).get("message") or "it is not decided on yet")


def _conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {each["type"]: each for each in (obj.get("status") or {}).get("conditions") or ()}


def _is_true(conditions: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    return conditions.get(name, {}).get("status") == "True"
