"""The release of the chart on the real node, in this order: its pods, what they do, an upgrade, uninstallation."""

import math
import os
import re
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import ApiError, ControlPlane
from testbed.client import Json, condition, resource_path, unverified_tls, wait_until
from testbed.installation import CHART, MANAGED, NAMESPACE, RELEASE, ROOT, metrics_token
from tests.cluster.command import turnstile
from tests.cluster.scenario import Scenario, job, job_path
from tests.cluster.versions import wait_served
from tests.faults.following import Follower
from tests.node.images import BUSYBOX, TURNSTILE

ROLES = ("controller", "webhook")
IMAGE = ("--set", f"image.repository={TURNSTILE.partition(':')[0]},image.tag={TURNSTILE.partition(':')[2]}")
RECORDING = (
    "--set", "controller.recorder.enabled=true,controller.logLevel=debug,webhook.logLevel=debug",
    "--set", "controller.extraArgs={--decision-log=/tmp/decisions.jsonl}",
)  # fmt: skip
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


def exit_code(pod: Json) -> int | None:
    """How the one container of a pod ended; None while it runs."""
    (container,) = pod["status"].get("containerStatuses") or [{"state": {}}]
    code: int | None = container["state"].get("terminated", {}).get("exitCode")
    return code


def program(*command: str) -> Json:
    """The pod template of a Job that runs a command of busybox."""
    container = {"name": "main", "image": BUSYBOX, "command": ["/bin/busybox", *command]}
    return {
        "containers": [{**container, "resources": {"requests": {"cpu": "100m"}}}],
        "terminationGracePeriodSeconds": 1,
    }


def test_its_pods_are_ready(release: ControlPlane) -> None:
    """Two pods of each role run, ready by their own probes and never restarted."""
    found = release.api.items(PODS)
    assert sorted(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in found) == [
        *ROLES[:1] * 2,
        *ROLES[1:] * 2,
    ]
    for pod in found:
        (container,) = pod["status"]["containerStatuses"]
        assert (container["ready"], container["restartCount"]) == (True, 0), pod["status"]


def test_the_release_works_by_helm_test(release: ControlPlane) -> None:
    """`helm test` runs its pod on the node, the pod finds that all is served, and is gone with its account."""
    told = release.helm("test", RELEASE, "--namespace", NAMESPACE, "--timeout", "120s")
    assert re.search(r"Phase:\s+Succeeded", told), told
    assert release.api.find(resource_path("v1", "serviceaccounts", f"{RELEASE}-test", namespace=NAMESPACE)) is None


def test_a_queued_job_runs_to_its_end(release: ControlPlane, scenario: Scenario) -> None:
    """The webhook, called through its Service, suspends it; admitted, its pod runs, can be read by kubectl and by
    `turnstile logs`, and ends; then its Workload is finished, and the Job that waited for its quota starts."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": "100m"}})
    first = scenario.job("first", queue="team", template=program("echo", "done"))
    assert first["spec"]["suspend"] is True
    release.api.wait_for(
        job_path(scenario.namespace, "first"),
        lambda job: condition(job, "Complete").get("status") == "True",
        timeout=60,
    )
    assert release.kubectl("logs", "-n", scenario.namespace, "job/first") == "done\n"
    where = ("-n", scenario.namespace, "--kubeconfig", release.kubeconfig())
    assert turnstile("logs", "-f", "first", *where) == (0, "done\n", "")
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
    """During `helm upgrade` with a recorder, say, there are always ready pods of the webhook: no creation of a Job is
    refused, and each is suspended. The old pods end by themselves when they are asked to. Afterwards all pods are new,
    and a Job is admitted by a new leader."""
    before = {pod["metadata"]["uid"] for pod in release.api.items(PODS)}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})

    def rolled() -> bool:
        found = release.api.items(PODS)
        new = [pod for pod in found if pod["metadata"]["uid"] not in before]
        return len(new) == len(found) == 4 and all(condition(pod, "Ready").get("status") == "True" for pod in new)

    # Dry runs: the pods of hundreds of Jobs would take the node's time from those that are rolled.
    asked = job("during", namespace=scenario.namespace, queue="team", template=program("true"))

    def create_and_look() -> bool:
        assert release.api.create(asked, dry_run=True)["spec"]["suspend"] is True
        return rolled()

    with Follower(release.api, {"pods": PODS}) as follower:
        release.helm("upgrade", RELEASE, str(CHART), *IMAGE, *RECORDING, "--namespace", NAMESPACE)
        wait_until(create_and_look, timeout=240, describe=lambda: release.kubectl("get", "pods", "-n", NAMESPACE))
        ends = {change.uid: exit_code(change.obj) for change in follower.take(math.inf) if change.obj is not None}
    assert {uid: ends.get(uid) for uid in before} == dict.fromkeys(before, 0)
    scenario.job("after", queue="team", template=program("true"))
    scenario.wait_started("after", timeout=60)


def test_commands_of_the_pages_run_in_the_leaders_pod(
    release: ControlPlane, scenario: Scenario, tmp_path: Path
) -> None:
    """After the upgrade to a recorder and a decision log: the Lease names the leader's pod, where `turnstile timeline`
    and `turnstile bundle` read the recorder's file, with the rights of the pod, and the decision log can be read."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    scenario.job("train", queue="team", template=program("sleep", "600"))
    scenario.wait_started("train", timeout=60)
    workload = scenario.workload_of("train")["metadata"]["name"]
    timeline = (ROOT / "docs/tasks/timeline.md").read_text()
    leader, told = re.findall(r"^\$ (.*)$", timeline, re.MULTILINE)
    (bundle,) = re.findall(r"`(kubectl .* turnstile bundle .*)`", timeline)
    (decisions,) = re.findall(r"`(kubectl .* cat .*)`", (ROOT / "docs/tasks/why-a-job-waits.md").read_text())

    def shell(command: str) -> str:
        script = "; ".join((leader, command.replace("team-a", scenario.namespace).replace(" POD ", " ${LEADER%-*} ")))
        path = f"{release.tools['kubectl'].parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", script], capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "PATH": path, "KUBECONFIG": str(release.kubeconfig())},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    wait_until(lambda: "admitted" in shell(told), timeout=30, describe=lambda: shell(told))
    assert shell(told).startswith(f"Workload {scenario.namespace}/{workload} ")
    shell(bundle)
    with tarfile.open(tmp_path / "bundle.tar.gz") as packed:
        assert "turnstile-bundle/timelines.json" in packed.getnames()
    assert workload in shell(decisions)


def test_metrics_are_read_through_a_forwarded_port(release: ControlPlane) -> None:
    """As on the page of the metrics: `kubectl port-forward` to the Deployment, and the token of an account that may."""
    found = re.search(r"^kubectl (.*port-forward.*) &$", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE)
    assert found
    command = [release.tools["kubectl"], "--kubeconfig", release.kubeconfig(), *found[1].split()]
    forward = release.start_process("port-forward", command)
    wait_until(lambda: "Forwarding" in forward.tail(), timeout=30, describe=forward.tail)
    request = urllib.request.Request(
        "https://127.0.0.1:8443/metrics", headers={"Authorization": f"Bearer {metrics_token(release)}"}
    )
    with urllib.request.urlopen(request, context=unverified_tls(), timeout=20) as answer:
        assert b"kueue_build_info" in answer.read()
    forward.terminate()


def test_uninstalled(release: ControlPlane) -> None:
    """Last: `helm uninstall` runs its Job on the node and leaves no pod; a Job that names a queue then starts."""
    release.helm("uninstall", RELEASE, *WAIT)
    wait_until(lambda: not release.api.items(PODS), timeout=60, describe=lambda: release.kubectl("get", "pods", "-A"))
    scenario = Scenario(release.api, release.namespace(labels=MANAGED))
    assert not scenario.job("free", queue="team", template=program("true"))["spec"].get("suspend")
    release.api.wait_for(
        job_path(scenario.namespace, "free"), lambda job: condition(job, "Complete").get("status") == "True", timeout=60
    )
