"""The release of the chart on the real node, in this order: its pods, what they do, an upgrade, uninstallation."""

import itertools
from collections.abc import Iterator

import pytest

from testbed import ApiError, ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import CHART, MANAGED, NAMESPACE, RELEASE
from tests.cluster.scenario import Scenario, job_path
from tests.cluster.versions import wait_served
from tests.node.images import BUSYBOX, TURNSTILE

ROLES = ("controller", "webhook")
IMAGE = ("--set", f"image.repository={TURNSTILE.partition(':')[0]},image.tag={TURNSTILE.partition(':')[2]}")
WAIT = ("--namespace", NAMESPACE, "--wait", "--timeout", "150s")
PODS = resource_path("v1", "pods", namespace=NAMESPACE)


@pytest.fixture(scope="module")
def release(control_plane: ControlPlane) -> ControlPlane:
    """The chart installed with nothing but the image changed; helm waits until its Deployments are available."""
    try:
        control_plane.helm("install", RELEASE, str(CHART), "--create-namespace", *IMAGE, *WAIT)
    except Exception as error:
        error.add_note(control_plane.kubectl("describe", "pods", "-n", NAMESPACE))
        raise
    wait_served(control_plane.api)
    return control_plane


@pytest.fixture
def scenario(release: ControlPlane) -> Iterator[Scenario]:
    """A managed namespace."""
    made = Scenario(release.api, release.namespace(labels=MANAGED))
    yield made
    made.remove()


def pods(cp: ControlPlane) -> list[Json]:
    """The pods of the release that are not being deleted."""
    return [pod for pod in cp.api.items(PODS) if "deletionTimestamp" not in pod["metadata"]]


def program(*command: str) -> Json:
    """The pod template of a Job that runs a command of busybox."""
    container = {"name": "main", "image": BUSYBOX, "command": ["/bin/busybox", *command]}
    return {
        "containers": [{**container, "resources": {"requests": {"cpu": "100m"}}}],
        "terminationGracePeriodSeconds": 1,
    }


def test_its_pods_are_ready(release: ControlPlane) -> None:
    """Two pods of each role run, ready by their own probes and never restarted."""
    found = pods(release)
    assert sorted(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in found) == [
        *ROLES[:1] * 2,
        *ROLES[1:] * 2,
    ]
    for pod in found:
        (container,) = pod["status"]["containerStatuses"]
        assert (container["ready"], container["restartCount"]) == (True, 0), pod["status"]


def test_a_queued_job_runs_to_its_end(release: ControlPlane, scenario: Scenario) -> None:
    """The webhook, called through its Service, suspends it; admitted, its pod runs, can be read by `kubectl logs`, and
    ends; then its Workload is finished, and the Job that waited for its quota starts."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": "100m"}})
    first = scenario.job("first", queue="team", template=program("echo", "done"))
    assert first["spec"]["suspend"] is True
    release.api.wait_for(
        job_path(scenario.namespace, "first"),
        lambda job: condition(job, "Complete").get("status") == "True",
        timeout=60,
    )
    assert release.kubectl("logs", "-n", scenario.namespace, "job/first") == "done\n"
    scenario.wait_workload(
        "first", lambda workload: condition(workload, "Finished").get("status") == "True", timeout=30
    )
    scenario.job("second", queue="team", template=program("sleep", "600"))
    scenario.wait_started("second", timeout=30)


def test_pending_workloads_are_listed(release: ControlPlane, scenario: Scenario) -> None:
    """The API server asks the leading controller for them, through the Service of the visibility API."""
    queue = scenario.queue("full", {scenario.flavor("plain"): {"cpu": 0}})
    scenario.job("waits", queue="full", template=program("true"))
    path = f"/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{queue}/pendingworkloads"

    def listed() -> bool:
        try:
            return len(release.api.get(path)["items"]) == 1
        except ApiError as error:
            if error.code not in (404, 503):
                raise
            return False

    wait_until(listed, timeout=60, describe=lambda: f"not in {path}")


def test_pods_are_rolled_while_jobs_are_created(release: ControlPlane, scenario: Scenario) -> None:
    """During `helm upgrade` with another log level there are always ready pods of the webhook: no creation of a Job is
    refused, and each is suspended. Afterwards all pods are new, and a Job is admitted by a new leader."""
    before = {pod["metadata"]["uid"] for pod in pods(release)}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    settings = [part for role in ROLES for part in ("--set", f"{role}.logLevel=debug")]
    release.helm("upgrade", RELEASE, str(CHART), *IMAGE, *settings, "--namespace", NAMESPACE)

    def rolled() -> bool:
        found = pods(release)
        new = [pod for pod in found if pod["metadata"]["uid"] not in before]
        return len(new) == len(found) == 4 and all(condition(pod, "Ready").get("status") == "True" for pod in new)

    numbers = itertools.count()

    def create_and_look() -> bool:
        created = scenario.job(f"during-{next(numbers)}", queue="team", template=program("true"))
        assert created["spec"]["suspend"] is True
        return rolled()

    wait_until(create_and_look, timeout=150, describe=lambda: release.kubectl("get", "pods", "-n", NAMESPACE))
    scenario.job("after", queue="team", template=program("true"))
    scenario.wait_started("after", timeout=60)


def test_uninstalled(release: ControlPlane) -> None:
    """Last: `helm uninstall` runs its Job on the node and leaves no pod; a Job that names a queue then starts."""
    release.helm("uninstall", RELEASE, *WAIT)
    wait_until(lambda: not release.api.items(PODS), timeout=60, describe=lambda: str(pods(release)))
    scenario = Scenario(release.api, release.namespace(labels=MANAGED))
    assert not scenario.job("free", queue="team", template=program("true"))["spec"].get("suspend")
    release.api.wait_for(
        job_path(scenario.namespace, "free"), lambda job: condition(job, "Complete").get("status") == "True", timeout=60
    )
