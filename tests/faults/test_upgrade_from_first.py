"""From the first commit whose chart and program ran together to the present one, and back: nothing restarts.

Workloads are in every state: they run, wait, wait in a held queue, were deactivated, finished, and before the way back
preempted, which the first version did not do. Neither pods nor Workloads are made anew, what waits does not start, and
under each version a Job that ends makes room for another.
`UPGRADE_WORKLOADS=500` makes that many; it is 60 if not said. Needs the history of the repository.
"""

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.controlplane import ControlPlane
from testbed.installation import CHART, NAMESPACE, RELEASE, ROOT
from testbed.processes import Process
from tests.cluster.scenario import GROUP, job, job_path
from tests.faults.changes import ROLES, Bed, bed, run

WORKLOADS = int(os.environ.get("UPGRADE_WORKLOADS", "60"))
FIRST = "02f2220"
"""The chart came with ea19f0f; eight commits later the program that its Deployments start was complete."""
RUNNING, WAITING, HELD, DEACTIVATED, FINISHED, LOW = (WORKLOADS * share // 100 for share in (20, 40, 10, 10, 10, 5))
TIMES = WORKLOADS / 4 + 60
"""Seconds in which all of them reach a state."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 + 2 * WORKLOADS)]

Seen = dict[str, dict[str, tuple[object, ...]]]


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
    """The first version, with Workloads in every state."""
    checkout = first_checkout(tmp_path_factory.mktemp("first"))
    chart = checkout / "charts" / "turnstile"

    def install(made: Bed) -> None:
        made.cp.helm("install", RELEASE, str(chart), "-n", NAMESPACE, "--create-namespace", *values("first"))

    with bed(install, start=partial(run_version, checkout)) as made:
        fill(made)
        yield made


def fill(made: Bed) -> None:
    """Jobs by queue: `busy` and `mixed` run full, `held` is stopped, `done` is empty again; some are deactivated."""
    scenario = made.scenario
    flavor = scenario.flavor("any")
    scenario.queue("busy", {flavor: {"cpu": RUNNING}})
    scenario.queue("held", {flavor: {"cpu": 1000}}, stopPolicy="Hold")
    scenario.queue("done", {flavor: {"cpu": 1000}})
    scenario.queue("mixed", {flavor: {"cpu": LOW}}, preemption={"withinClusterQueue": "LowerPriority"})
    create(made, "busy", RUNNING + WAITING + DEACTIVATED)
    create(made, "held", HELD)
    create(made, "done", FINISHED, run_for="1s")
    create(made, "mixed", LOW)
    reach(made, "Admitted", RUNNING + FINISHED + LOW)
    reach(made, "Finished", FINISHED)
    for number in range(RUNNING + WAITING, RUNNING + WAITING + DEACTIVATED):
        workload = scenario.workload_of(f"busy-{number}")["metadata"]["name"]
        path = resource_path(GROUP, "workloads", workload, namespace=scenario.namespace)
        made.cp.api.patch(path, {"spec": {"active": False}})


def create(
    made: Bed, name: str, count: int, *, queue: str = "", run_for: str | None = None, priority_class: str = ""
) -> None:
    """So many Jobs of a pod."""
    namespace = made.scenario.namespace
    labels = {"kueue.x-k8s.io/priority-class": priority_class} if priority_class else {}
    for number in range(count):
        each = f"{name}-{number}"
        made.cp.api.create(job(each, namespace=namespace, queue=queue or name, run_for=run_for, labels=labels))


def workloads(made: Bed) -> list[Json]:
    """All that are there."""
    return made.cp.api.items(resource_path(GROUP, "workloads", namespace=made.scenario.namespace))


def reach(made: Bed, kind: str, count: int) -> None:
    """Wait until so many Workloads have a condition."""

    def having() -> int:
        return sum(condition(each, kind).get("status") == "True" for each in workloads(made))

    wait_until(lambda: having() >= count, timeout=TIMES, describe=lambda: f"{having()} of {count} are {kind}")


def at_rest(made: Bed) -> Seen:
    """What there is once nothing changes any more: which Workloads have quota, which Jobs and pods run."""
    previous: Seen = {}
    same = 0

    def look() -> bool:
        nonlocal previous, same
        seen = state(made)
        same = same + 1 if seen == previous else 0
        previous = seen
        return same > 20

    wait_until(look, timeout=TIMES, describe=lambda: "Workloads, Jobs or pods change still")
    return previous


def state(made: Bed) -> Seen:
    """By uid: of Workloads the conditions that count, of Jobs whether they run, of pods whether they go."""
    namespace, api = made.scenario.namespace, made.cp.api
    kinds = ("QuotaReserved", "Admitted", "Evicted", "Finished")
    pods = api.items(resource_path("v1", "pods", namespace=namespace))
    jobs = api.items(resource_path("batch/v1", "jobs", namespace=namespace))
    return {
        "workloads": {
            each["metadata"]["name"]: (
                each["metadata"]["uid"], each["spec"].get("active", True),
                *(condition(each, kind).get("status", "False") for kind in kinds),
            )
            for each in workloads(made)
        },
        "jobs": {
            each["metadata"]["name"]: (each["spec"].get("suspend"), each["status"].get("startTime")) for each in jobs
        },
        "pods": {
            each["metadata"]["name"]: (
                each["metadata"]["uid"], each["status"].get("phase"), each["metadata"].get("deletionTimestamp"),
            )
            for each in pods
        },
    }  # fmt: skip


def differences(before: Seen, after: Seen) -> dict[str, tuple[object, object]]:
    """What is another now, by kind and name."""
    return {
        f"{kind}/{name}": (before[kind].get(name), after[kind].get(name))
        for kind in before
        for name in before[kind].keys() | after[kind].keys()
        if before[kind].get(name) != after[kind].get(name)
    }


def one_ends_and_one_starts(made: Bed, ended: str) -> None:
    """A Job that ends makes room for one that waits in its queue."""
    scenario = made.scenario

    def running() -> set[str]:
        jobs = made.cp.api.items(resource_path("batch/v1", "jobs", namespace=scenario.namespace))
        return {each["metadata"]["name"] for each in jobs if not each["spec"].get("suspend")}

    before = running()
    made.cp.api.delete(job_path(scenario.namespace, ended))
    wait_until(lambda: running() - before, timeout=60, describe=lambda: "no Job starts in the place of one that ended")


def test_nothing_restarts_on_the_way_there_and_back(found: Bed) -> None:
    """Definitions, then the release, as docs/install.md says; and `helm rollback`."""
    before = at_rest(found)
    found.cp.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    flags = ("--set", "visibility.enabled=false", *values("now"))
    found.cp.helm("upgrade", RELEASE, str(CHART), "-n", NAMESPACE, *flags)
    found.rolled_out()
    found.ready()
    now = at_rest(found)
    assert differences(before, now) == {}
    one_ends_and_one_starts(found, "busy-0")
    create(found, "urgent", LOW, queue="mixed", priority_class=found.scenario.priority_class("high", 100))
    reach(found, "Evicted", LOW)
    before = at_rest(found)
    found.cp.helm("rollback", RELEASE, "1", "-n", NAMESPACE, "--force-conflicts")
    found.rolled_out()
    found.ready()
    back = at_rest(found)
    assert differences(before, back) == {}
    one_ends_and_one_starts(found, "busy-1")
