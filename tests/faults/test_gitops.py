"""Tools that apply what the chart renders again and again, as Argo CD and Flux do, find nothing to change.

The chart is rendered with Deployments, Services and definitions (`crds.render`) and applied without Helm.
`REAPPLIES=100` applies it that often; it is 3 if not said.
"""

import os
from collections.abc import Callable, Iterator

import pytest

from testbed.client import Json, wait_until
from testbed.installation import CHART, NAMESPACE, RELEASE
from testbed.manifests import documents
from tests.cluster.versions import wait_served
from tests.faults.changes import Bed, bed, settings

REAPPLIES = int(os.environ.get("REAPPLIES", "3"))
ON_THE_SERVER = ("--server-side", "--force-conflicts")
WAYS = {
    "Argo CD": (),
    "Argo CD, ServerSideApply=true": (*ON_THE_SERVER, "--field-manager=argocd-controller"),
    "Flux": (*ON_THE_SERVER, "--field-manager=kustomize-controller"),
}
"""Flags of kubectl that make it apply as each of them does."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300 + 30 * REAPPLIES)]


@pytest.fixture(params=WAYS)
def found(request: pytest.FixtureRequest) -> Iterator[tuple[Bed, tuple[str, ...], str]]:
    """A cluster on which the rendered chart was applied in one of these ways, how, and what was applied."""
    way = WAYS[request.param]
    rendered = ""

    def install(made: Bed) -> None:
        nonlocal rendered
        values = settings("crds.render=true")
        rendered = made.cp.helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "--no-hooks", "--skip-crds", *values)
        made.cp.kubectl("create", "namespace", NAMESPACE)
        made.cp.kubectl("apply", *way, "-f", "-", input=rendered)

    with bed(install) as made:
        wait_served(made.cp.api)
        yield made, way, rendered


def test_applying_again_changes_nothing(found: tuple[Bed, tuple[str, ...], str]) -> None:
    """Neither the tool nor the leader writes any object, and the tool sees no difference."""
    made, way, rendered = found
    manifests = [each for each in documents(rendered) if each["kind"] != "Lease"]

    def read() -> dict[str, Json]:
        found = (made.cp.api.get(made.cp.api.path_of(each)) for each in manifests)
        return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}

    # Once Kubernetes has written the status of a policy, the next apply puts its managedFields into another order.
    settled(read)
    made.cp.kubectl("apply", *way, "-f", "-", input=rendered)
    before = settled(read)
    for _ in range(REAPPLIES):
        made.cp.kubectl("apply", *way, "-f", "-", input=rendered)
    made.cp.kubectl("diff", *way, "-f", "-", input=rendered)
    after = settled(read)
    assert {name: changes(before[name], after[name]) for name in before if before[name] != after[name]} == {}


def changes(before: Json, after: Json) -> list[str]:
    """What is another in two versions of an object, for people."""
    return [f"{path}: {old!r} -> {new!r}" for path, old, new in differences(before, after, "")]


def differences(before: object, after: object, path: str) -> Iterator[tuple[str, object, object]]:
    """The parts that differ, with their paths."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{number}]")
    elif before != after:
        yield path, before, after


def settled(read: Callable[[], dict[str, Json]]) -> dict[str, Json]:
    """What no longer changes: read until it has been the same for a while, and policies have been checked."""
    seen: list[dict[str, Json]] = []

    def look() -> bool:
        seen.append(read())
        policies = (each for each in seen[-1].values() if each["kind"] == "ValidatingAdmissionPolicy")
        checked = all(each.get("status", {}).get("observedGeneration") for each in policies)
        return checked and len(seen) > 10 and all(each == seen[-1] for each in seen[-10:])

    wait_until(look, timeout=90, describe=lambda: "objects change still")
    return seen[-1]
