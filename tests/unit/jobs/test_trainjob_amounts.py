"""Amounts of a new TrainJob are written as Trainer will write them: it must never have a reason to change them."""

import msgspec
import orjson
import pytest

from turnstile.api.patch import JsonPatch
from turnstile.jobs.kinds.trainjob import TrainJob, TrainJobs


def written(**amounts: object) -> dict[str, object]:
    """The amounts that the webhook writes into a new TrainJob, by path below `resourcesPerNode`."""
    trainer = {"trainer": {"resourcesPerNode": amounts}}
    body = {"metadata": {"name": "train", "namespace": "team"}, "spec": trainer}
    patch = JsonPatch()
    TrainJobs().defaults(msgspec.convert(body, TrainJob), patch)
    prefix = "/spec/trainer/resourcesPerNode/"
    found = orjson.loads(patch.encode())
    return {each["path"].removeprefix(prefix): each["value"] for each in found if each["path"].startswith(prefix)}


@pytest.mark.parametrize(
    ("amount", "text"), [(1, "1"), (0.5, "500m"), ("0.5", "500m"), ("1024Mi", "1Gi"), (1e3, "1k"), ("4000m", "4")]
)
def test_in_the_canonical_form(amount: object, text: str) -> None:
    """A number becomes a string, and a string the form in which the API server's own code writes it."""
    assert written(requests={"cpu": amount}, limits={"nvidia.com/gpu": amount}) == {
        "requests/cpu": text,
        "limits/nvidia.com~1gpu": text,
    }


@pytest.mark.parametrize("amount", ["1", "500m", "1Gi", "lots"])
def test_others_are_left(amount: str) -> None:
    """Those in the canonical form, and those that are no amounts, which the API server refuses."""
    assert written(requests={"cpu": amount}) == {}
