"""Manifests as people copy them: applied with kubectl in the version they are in, read back in both."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import Api, ControlPlane
from tests.cluster.schema_server import Json
from tests.cluster.versions import of, path, served
from tests.turnstile import Turnstile
from turnstile.api.kinds import KINDS

__all__ = ["served"]

pytestmark = pytest.mark.cluster

MANIFESTS = Path(__file__).parent / "manifests"
LOST = {"admissionChecks", "retryDelayMinutes"}
"""Fields of v1beta1 that never come back, as in Kueue: one in another place, one that nothing reads."""


@pytest.fixture(params=["v1beta1", "v1beta2"])
def applied(
    request: pytest.FixtureRequest, served: Turnstile, control_plane: ControlPlane, api: Api, namespace: str
) -> Iterator[list[Json]]:
    """What was applied from the manifests of one version; all of it is removed in the end."""
    text = (MANIFESTS / f"{request.param}.yaml").read_text().replace("NAMESPACE", namespace).replace("NAME", namespace)
    control_plane.kubectl("apply", "-f", "-", input=text)
    objects = list(yaml.safe_load_all(text))
    yield objects
    for obj in reversed(objects):
        where = api.path_of(obj | {"apiVersion": "kueue.x-k8s.io/v1beta2"})
        api.patch(where, {"metadata": {"finalizers": None}})
        api.delete(where)


def within(part: Any, whole: Any) -> Iterator[str]:
    """What of one JSON value is not in another."""
    if isinstance(part, dict) and isinstance(whole, dict):
        for name, value in part.items():
            if name not in LOST:
                yield from (f".{name}{rest}" for rest in within(value, whole.get(name)))
    elif isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        for index, (one, other) in enumerate(zip(part, whole, strict=True)):
            yield from (f"[{index}]{rest}" for rest in within(one, other))
    elif part != whole and (part, whole) != ("Preempt", "MayStopSearch"):
        yield f": {part!r} is {whole!r}"


def test_read_back(applied: list[Json], api: Api, namespace: str) -> None:
    """Every kind is in there; it reads as it was written in its version, and the other version reads the same."""
    assert {obj["kind"] for obj in applied} == {kinds.stored.KIND for kinds in KINDS}
    for obj in applied:
        kinds, version = of(obj["kind"]), obj["apiVersion"].partition("/")[2]
        other = "v1beta2" if version == "v1beta1" else "v1beta1"
        read = {
            name: api.get(path(kinds, name, obj["metadata"]["name"], obj["metadata"].get("namespace", "")))
            for name in (version, other)
        }
        assert list(within(obj, read[version])) == [], obj["kind"]
        assert read[other]["metadata"]["uid"] == read[version]["metadata"]["uid"]
        if not kinds.converted:
            assert list(within(obj.get("spec", {}), read[other].get("spec", {}))) == [], obj["kind"]


def test_applied_again(applied: list[Json], control_plane: ControlPlane) -> None:
    """Applying the same once more changes nothing but what never comes back."""
    lossy = {obj["kind"].lower() for obj in applied if LOST & set(obj.get("spec", {}))}
    for line in control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(applied)).splitlines():
        assert line.endswith("unchanged") or line.partition(".")[0] in lossy, line
