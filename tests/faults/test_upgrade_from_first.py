"""From the first commit whose chart and program ran together to the present one, back, and there again.

Nothing restarts. Workloads are in every state that lasts (`lasting_states.py`). Made under the first version: Jobs and
Pods, also those of Deployments and StatefulSets, that run, wait, fit nowhere, are held, deactivated, finished or in
back-off. It knows neither preemption nor admission checks, pod groups or further kinds: those are made after the first
step, and are there on the way back and on the second way there. Neither pods nor Workloads are made anew, what waits
does not start, and under each version a Job that ends makes room for another.
`UPGRADE_WORKLOADS=500` makes that many; it is 60 if not said. Needs the history of the repository.
"""

import io
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from testbed.client import Json
from testbed.controlplane import ControlPlane
from testbed.installation import CHART, NAMESPACE, RELEASE, ROOT
from testbed.operators import OPERATORS, RunningOperator
from testbed.processes import Process
from tests.cluster.scenario import job_path
from tests.faults.changes import ROLES, Bed, bed, run
from tests.faults.lasting_states import LastingStates, Place, differences

WORKLOADS = int(os.environ.get("UPGRADE_WORKLOADS", "60"))
FIRST = "02f2220"
"""The chart came with ea19f0f; eight commits later the program that its Deployments start was complete."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900 + 3 * WORKLOADS)]


def first_checkout(directory: Path) -> Path:
    """The program and the chart as they were."""
    done = subprocess.run(["git", "archive", FIRST, "app", "charts"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"needs the history of the repository: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return directory


def run_version(checkout: Path, cp: ControlPlane, pod: Json, arguments: Sequence[str]) -> Process:
    """Start the version that the tag of the pod's image names."""
    first = pod["spec"]["containers"][0]["image"].endswith(":first")
    return run(cp, pod, arguments, checkout=checkout if first else ROOT)


def values(tag: str) -> list[str]:
    """Values that both charts know."""
    found = (f"image.tag={tag}", *(f"{role}.nodeSelector.pool=platform" for role in ROLES))
    return [part for value in found for part in ("--set", value)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """The first version."""
    checkout = first_checkout(tmp_path_factory.mktemp("first"))
    chart = checkout / "charts" / "turnstile"

    def install(made: Bed) -> None:
        made.cp.helm("install", RELEASE, str(chart), "-n", NAMESPACE, "--create-namespace", *values("first"))

    with bed(install, start=partial(run_version, checkout)) as made:
        yield made


def upgrade(made: Bed) -> None:
    """Definitions, then the release, as docs/install.md says."""
    made.cp.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    flags = ("--set", "visibility.enabled=false", *values("now"))
    made.cp.helm("upgrade", RELEASE, str(CHART), "-n", NAMESPACE, *flags)


def roll_back(made: Bed) -> None:
    """To the first revision."""
    made.cp.helm("rollback", RELEASE, "1", "-n", NAMESPACE, "--force-conflicts")


def step(
    made: Bed, states: LastingStates, change: Callable[[Bed], None], *, becomes: Mapping[Place, int] | None = None
) -> dict[str, tuple[object, object]]:
    """Change the version once everything is at rest, and wait for rest again: what is not as it was."""
    before = states.at_rest()
    began = time.monotonic()
    change(made)
    made.rolled_out()
    made.ready()
    rolled = time.monotonic() - began
    if becomes:
        states.reach(becomes)
    after = states.at_rest()
    print(f"{change.__name__}: {states.expected.total()} Workloads, {rolled:.0f} s to roll out,", end=" ")
    print(f"{time.monotonic() - began:.0f} s until at rest: {dict(states.expected)}")
    return differences(before, after)


def one_ends_and_one_starts(made: Bed, states: LastingStates, ended: str) -> None:
    """A Job that ends makes room for one that waits in its queue."""
    waiting = states.expected["busy", "pending"]
    made.cp.api.delete(job_path(made.scenario.namespace, ended))
    states.reach({("busy", "pending"): waiting - 1})


def test_nothing_restarts_on_the_way_there_back_and_there_again(found: Bed) -> None:
    """The first version only gives back the quota of Jobs whose pods still stop."""
    states = LastingStates(found.scenario, WORKLOADS)
    states.make_of_jobs_and_pods()
    states.make_pods_of("pod")
    states.make_pods_of("deployment", "statefulset", by_template=True)
    assert step(found, states, upgrade) == {}
    one_ends_and_one_starts(found, states, "running-0")

    RunningOperator(found.cp, OPERATORS["jobset"]).start()
    states.make_pods_of("pod-group", "deployment", "statefulset", "jobset")
    states.make_preempted()
    states.make_checked()
    # The first version would let the next head, even the victim itself, have that quota.
    found.scenario.patch_queue(found.scenario.named("slow"), {"stopPolicy": "Hold"})
    waiting = states.expected["slow", "pods stop"] + states.expected["slow", "pending"]
    changed = step(found, states, roll_back, becomes={("slow", "pods stop"): 0, ("slow", "pending"): waiting})
    assert [name for name in changed if not name.startswith("workloads/job-slow-")] == []
    one_ends_and_one_starts(found, states, "running-1")

    # The present version leaves ten seconds to pods that no Workload is charged for: the first gave their quota back.
    changed = step(found, states, upgrade)
    assert {name.rpartition("-")[0] for name in changed} == {"pods/slow-0", "pods/slow-1"}
    one_ends_and_one_starts(found, states, "running-2")
    states.go_on()
