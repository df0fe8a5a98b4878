"""An object of the kind that only the configuration file of the tests describes."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import NAMED_TEMPLATE, POD_TEMPLATE, Sample, moments

Json = dict[str, Any]


def _pods(body: Json) -> int:
    spec = body["spec"]
    leaders = 1 if "leader" in spec and not body["status"].get("leadersDone") else 0
    return leaders + sum(
        each.get("replicas", 1) * min(each.get("size", 2), each.get("limit", 2**31)) for each in spec["groups"]
    )


SIMULATION: Final = moments(
    {"run": {"suspend": False}, "groups": [{"name": "a", "template": NAMED_TEMPLATE, "replicas": 3, "size": 1}]},
    ("nothing is written yet", {}, False),
    ("two of three are counted", {"ready": 2}, False),
    ("all are counted", {"ready": 3}, True),
)

SAMPLES: Final = (
    Sample(
        framework="example.com/simulation",
        api_version="example.com/v1",
        kind="Simulation",
        spec={
            "run": {"suspend": False},
            "leader": {"template": POD_TEMPLATE},
            "groups": [{"name": "a", "replicas": 2, "limit": 4, "template": POD_TEMPLATE}],
            "managedBy": "example.com/operator",
        },
        status={"running": 1, "phase": "Busy", "conditions": [{"type": "Complete", "status": "False"}]},
        pods=_pods,
        moments=SIMULATION,
        gone={"observedGeneration": 1000},
    ),
)
