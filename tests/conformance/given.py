"""Recorded directives to pod sets, as an admission gives them to a job or as a stop restores them."""

from typing import Any

from tests.conformance import world
from turnstile.api.pods import PodTemplate, Toleration
from turnstile.api.workload import PodSet
from turnstile.jobs.podsets import PodSetInfo

Json = Any


def infos(recorded: list[Json] | None, *, name: str = "") -> list[PodSetInfo]:
    """What an admission says of each pod set; `name` is that of a pod set whose name was not recorded."""
    return [
        PodSetInfo(
            info.get("Name", name),
            info.get("Count", 0),
            labels=info.get("Labels") or {},
            annotations=info.get("Annotations") or {},
            node_selector=info.get("NodeSelector") or {},
            tolerations=tuple(world.load(Toleration, each) for each in info.get("Tolerations") or ()),
            scheduling_gates=tuple(each["name"] for each in info.get("SchedulingGates") or ()),
        )
        for info in recorded or ()
    ]


def pod_sets(recorded: list[Json] | None) -> list[PodSet]:
    """The pod sets of a Workload whose templates say what a stop restores."""
    return [
        PodSet(
            name=info.get("Name") or str(index),
            count=info.get("Count", 1),
            template=world.load(
                PodTemplate,
                {
                    "metadata": {"labels": info.get("Labels") or {}, "annotations": info.get("Annotations") or {}},
                    "spec": {
                        "nodeSelector": info.get("NodeSelector") or {},
                        "tolerations": info.get("Tolerations") or [],
                        "schedulingGates": info.get("SchedulingGates") or [],
                    },
                },
            ),
        )
        for index, info in enumerate(recorded or ())
    ]
