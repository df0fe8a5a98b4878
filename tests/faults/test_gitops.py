"""Tools that apply what the chart renders again and again, as Argo CD and Flux do, find nothing to change.

The chart is rendered with the values of the examples in examples/gitops: every object, with Deployments, APIServices
and definitions. `REAPPLIES=100` applies it that often; it is 3 if not said. Half-way the leader rotates its certificate
authority, and the tool applies on meanwhile. Nothing answers behind the APIServices: the
API server does not ask the proxy of the bed for the way to an aggregated API.
"""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.client import Json, wait_until
from testbed.controlplane import ControlPlane
from testbed.installation import CHART, NAMESPACE, RELEASE, ROOT
from testbed.manifests import documents
from tests.cluster.versions import wait_served
from tests.faults.changes import Bed, authority_rotated, bed, settings

REAPPLIES = int(os.environ.get("REAPPLIES", "3"))
ON_THE_SERVER = ("--server-side", "--force-conflicts")
EXAMPLES = ROOT / "examples" / "gitops"
APPLICATION = "argocd-application.yaml"
RELEASED = "flux-helmrelease.yaml"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500 + 40 * REAPPLIES)]


def example(name: str, path: str) -> Any:
    """A part of an example."""
    part = yaml.safe_load((EXAMPLES / name).read_text())
    for key in path.split("."):
        part = part[key]
    return part


@dataclass(frozen=True)
class Way:
    """How a tool applies the chart: with which values, and by which flags of kubectl, or by Helm if `helm`."""

    values: Json
    flags: tuple[str, ...] = ()
    helm: bool = False

    def chart(self, directory: Path) -> tuple[str, ...]:
        """Arguments of helm: definitions are not taken from crds/ in any of the examples."""
        file = directory / "values.yaml"
        file.write_text(json.dumps(self.values))
        return (RELEASE, str(CHART), "-n", NAMESPACE, "--skip-crds", "-f", str(file), *settings(visibility=True))

    def rendered(self, cp: ControlPlane) -> str:
        """What is applied; hooks are run by Helm, and left out by the others."""
        return cp.helm("template", "--no-hooks", *self.chart(cp.directory))

    def apply(self, cp: ControlPlane, rendered: str) -> None:
        """As the tool does each time; Helm renders the chart itself."""
        if self.helm:
            cp.helm("upgrade", "--install", "--history-max=5", *self.chart(cp.directory))
        else:
            cp.kubectl("apply", *self.flags, "-f", "-", input=rendered)


VALUES = example(APPLICATION, "spec.source.helm.valuesObject")
FLUX_VALUES = example(RELEASED, "spec.values")
WAYS = {
    "Argo CD": Way(VALUES),
    "Argo CD, ServerSideApply=true": Way(VALUES, (*ON_THE_SERVER, "--field-manager=argocd-controller")),
    "Flux, Kustomization": Way(FLUX_VALUES, (*ON_THE_SERVER, "--field-manager=kustomize-controller")),
    # helm-controller is Helm's library, and finds a drift by a dry run of server-side apply.
    "Flux, HelmRelease": Way(FLUX_VALUES, (*ON_THE_SERVER, "--field-manager=helm-controller"), helm=True),
}


def test_the_examples_leave_out_crds() -> None:
    """As every way here does."""
    assert example(APPLICATION, "spec.source.helm.skipCrds")
    assert "ServerSideApply=true" in example(APPLICATION, "spec.syncPolicy.syncOptions")
    assert [example(RELEASED, f"spec.{when}.crds") for when in ("install", "upgrade")] == ["Skip", "Skip"]


@pytest.fixture(params=WAYS)
def found(request: pytest.FixtureRequest) -> Iterator[tuple[Bed, Way]]:
    """A cluster to which the chart was applied in one of these ways, and how."""
    way = WAYS[request.param]

    def install(made: Bed) -> None:
        made.cp.kubectl("create", "namespace", NAMESPACE)
        way.apply(made.cp, way.rendered(made.cp))

    with bed(install) as made:
        wait_served(made.cp.api)
        yield made, way


def test_applying_again_changes_nothing(found: tuple[Bed, Way]) -> None:
    """Neither the tool nor the leader writes any object, and the tool sees no difference at any time, also while the
    leader rotates its certificate authority half-way."""
    made, way = found
    rendered = way.rendered(made.cp)
    manifests = documents(rendered)
    assert {"Deployment", "Service", "APIService", "NetworkPolicy", "PodDisruptionBudget"} < {
        each["kind"] for each in manifests
    }

    def read() -> dict[str, Json]:
        found = (made.cp.api.get(made.cp.api.path_of(each)) for each in manifests)
        return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}

    def again() -> None:
        way.apply(made.cp, rendered)
        made.cp.kubectl("diff", "--concurrency=4", *way.flags, "-f", "-", input=rendered)

    def again_and_the_same(times: int) -> dict[str, Json]:
        before = settled(read)
        for _ in range(times):
            again()
        after = settled(read)
        assert {name: changes(before[name], after[name]) for name in before if before[name] != after[name]} == {}
        return after

    # Once Kubernetes has written the status of a policy, the next apply puts its managedFields into another order.
    settled(read)
    way.apply(made.cp, rendered)
    began = time.monotonic()
    before = again_and_the_same(REAPPLIES // 2)
    times = applied_while_rotated(made, again)
    after = again_and_the_same(REAPPLIES - REAPPLIES // 2)
    assert bundles(after)
    assert bundles(before).isdisjoint(bundles(after))
    seconds = time.monotonic() - began
    print(
        f"{len(manifests)} objects, applied {REAPPLIES} times and {times} times during a rotation, in {seconds:.0f} s"
    )


def applied_while_rotated(made: Bed, again: Callable[[], None]) -> int:
    """Apply again until a new authority has signed the certificate; how often that was."""
    rotation = threading.Thread(target=authority_rotated, args=[made], daemon=True)
    rotation.start()
    times = 0
    while rotation.is_alive():
        again()
        times += 1
    return times


def bundles(objects: dict[str, Json]) -> set[str]:
    """The authorities that the API server is told to trust by webhooks, definitions and APIServices."""
    return set(re.findall('"caBundle": "([^"]+)"', json.dumps(objects)))


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
