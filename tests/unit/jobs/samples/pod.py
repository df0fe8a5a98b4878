"""A Pod."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import NAMED_TEMPLATE, Sample, moments, true

Json = dict[str, Any]


POD: Final = moments(
    NAMED_TEMPLATE["spec"],
    ("it is created", {"phase": "Pending"}, False),
    ("there is no node for it", {"phase": "Pending", **true(PodScheduled="False")}, False),
    ("its containers start", {"phase": "Pending", **true("PodScheduled")}, False),
    ("it is ready", {"phase": "Running", **true("PodScheduled", "Ready")}, True),
    ("its probe fails", {"phase": "Running", **true("PodScheduled", Ready="False")}, False),
)

SAMPLES: Final = (
    Sample(
        framework="pod",
        api_version="v1",
        kind="Pod",
        spec={
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
            "schedulingGates": [{"name": "g"}],
            "tolerations": [{"key": "a"}],
        },
        pods=lambda _: 1,
        moments=POD,
    ),
)
