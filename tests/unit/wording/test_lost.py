"""The run that a victim loses is told in the resource that people think of first."""

import pytest

from turnstile.wording.lost import lost

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("held", "seconds", "said"),
    [
        ({"cpu": 64_000, GPU: 8, "pods": 1}, 7_500, "16.7 GPU-hours"),
        ({"cpu": 500, "memory": 2**30}, 7_200, "1 core-hours"),
        ({"memory": 4 * 2**30}, 3_600, "4 GiB-hours"),
        ({GPU: 4}, 60, "4 GPU-minutes"),
        ({"hugepages-2Mi": 2**31}, 3_600, "2 GiB-hours of hugepages-2Mi"),
        ({GPU: 0}, 60, ""),
        ({GPU: 4}, 0, ""),
    ],
)
def test_hours_or_minutes_of_one_resource(held: dict[str, int], seconds: float, said: str) -> None:
    """Accelerators before CPUs before memory."""
    assert lost(held, seconds) == said
