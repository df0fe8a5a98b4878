"""What is done to a cluster under load: upgrade, certificates, drain, restart, slow etcd, frozen and killed pods.

The chart's two Deployments run as they do in a cluster, with real Deployments, EndpointSlices, disruption budgets and
evictions; a Kubelet runs their pods as processes. A load of reviews and Jobs goes through the API server meanwhile, and
each change of a pod and a Workload is judged. `python -m tests.faults.changes` prints the table of docs/operations.md.

    CHANGES_REVIEWS=200 CHANGES_JOBS=20     of each, a second (20 and 5)
    CHANGES_ROTATIONS=20                    of the serving certificate, and of the certificate authority (1)
    CHANGES_SECONDS=30                      for so long etcd is slow, and so long the load goes on after a change (6)
    CHANGES_DOWN=300                        for so long everything of Turnstile is down (8)
"""

import base64
import contextlib
import itertools
import os
import shutil
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.client import Json, resource_path, wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError, TestbedError
from testbed.installation import CHART, MANAGED, NAMESPACE, RELEASE, ROOT
from testbed.kubelet import KWOK_ARGUMENTS, Kubelet, Pod
from testbed.processes import Process
from testbed.serviceproxy import ServiceProxy
from tests.cluster.scenario import GROUP, Scenario
from tests.faults.crew import LEASE
from tests.faults.following import Follower
from tests.faults.overshoot import brief, holds
from tests.faults.underload import Judge, Load, Row

REVIEWS = float(os.environ.get("CHANGES_REVIEWS", "20"))
JOBS = float(os.environ.get("CHANGES_JOBS", "5"))
ROTATIONS = int(os.environ.get("CHANGES_ROTATIONS", "1"))
SECONDS = float(os.environ.get("CHANGES_SECONDS", "6"))
LAG_SECONDS = 5.0
"""A change is judged when it was heard of so long ago: by then all older ones were heard of."""
DOWN = float(os.environ.get("CHANGES_DOWN", "8"))
BEFORE_SECONDS = 3.0
"""Seconds of load before a change."""
SETTLED_SECONDS = 180.0
"""From the end of the load until every Job has been started."""
SECRET = resource_path("v1", "secrets", f"{RELEASE}-webhook-server-cert", namespace=NAMESPACE)
ROLES = ("webhook", "controller")
PLATFORM = ("platform-0", "platform-1", "platform-2")
FOR_JOBS = {"pool": "jobs"}
"""Labels of the nodes on which pods of Jobs run: on those of PLATFORM only pods of the release do."""


@dataclass
class Bed:
    """A control plane with the release of the chart, two queues, and namespaces that are managed and that are not."""

    cp: ControlPlane
    kubelet: Kubelet
    scenario: Scenario
    elsewhere: str
    revisions: Iterator[int]
    release: str = RELEASE
    namespace: str = NAMESPACE

    def helm(self, *values: str, flags: Sequence[str] = ()) -> None:
        """Install or upgrade the release with further values."""
        arguments = (self.release, str(CHART), "-n", self.namespace, "--create-namespace", *flags)
        self.cp.helm("upgrade", "--install", *arguments, *settings(*values))

    def rolled_out(self) -> None:
        """Wait until both Deployments are what was asked for."""
        for role in ROLES:
            name = f"deployment/{RELEASE}-{role}"
            self.cp.kubectl("-n", self.namespace, "rollout", "status", name, "--timeout=150s")

    def ready(self) -> None:
        """Wait until two pods of each role are ready, and a leader has written all certificates."""
        self.kubelet.wait_ready(webhook=2, controller=2)
        for kind in ("mutating", "validating"):
            self.cp.api.wait_for(self.webhooks(kind), trusted, timeout=60, describe="every entry has a caBundle")
        wait_until(self.reviewed, timeout=60, describe=lambda: f"reviews fail\n{self.kubelet.describe()}")

    def reviewed(self) -> bool:
        """Whether the API server has a webhook asked about a flavor: endpoints are known a moment after pods are."""
        flavor = {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "asked-about"}}
        try:
            self.cp.api.create(flavor, dry_run=True)
        except (ApiError, TestbedError):
            return False
        return True

    def serves_leaf(self) -> None:
        """Wait until each webhook pod serves the certificate of the Secret."""
        leaf = base64.b64decode(self.cp.api.get(SECRET)["data"]["tls.crt"]).decode()

        def look() -> bool:
            addresses = [(pod.address, pod.ports["webhook"]) for pod in self.kubelet.pods("webhook")]
            return all(ssl.get_server_certificate(each).strip() == leaf.strip() for each in addresses)

        wait_until(look, timeout=60, describe=lambda: "a webhook pod serves another certificate than the Secret's")

    def webhooks(self, kind: str) -> str:
        """Path of a webhook configuration; the name of the release has the chart's in it or not."""
        name = self.release if RELEASE in self.release else f"{self.release}-{RELEASE}"
        plural = f"{kind}webhookconfigurations"
        return resource_path("admissionregistration.k8s.io/v1", plural, f"{name}-{kind}-webhook-configuration")

    def leader(self) -> Pod:
        """The pod whose process holds the Lease."""

        def look() -> Pod | None:
            lease = self.cp.api.find(LEASE) or {"spec": {}}
            holder = lease["spec"].get("holderIdentity") or ""
            pids = {f"-{pod.process.pid}_": pod for pod in self.kubelet.pods("controller") if pod.process is not None}
            return next((pod for pid, pod in pids.items() if pid in holder), None)

        return wait_until(look, timeout=60, describe=lambda: "no pod of the controller leads")

    def idle(self) -> None:
        """Wait until no Job of an earlier load has quota: a judge that begins then sees each reservation after the
        quota that it has to fit into."""
        path = resource_path(GROUP, "workloads", namespace=self.scenario.namespace)
        held = [""]

        def look() -> bool:
            held[:] = [each["metadata"]["name"] for each in self.cp.api.items(path) if holds(each)]
            return not held

        wait_until(look, timeout=SETTLED_SECONDS, describe=lambda: f"{held[:5]} hold quota")

    def under_load(self, change: "Change") -> Row:
        """Do this under load, wait until all Jobs have been started, and say what happened to whom."""
        self.idle()
        load = Load(self.cp.kubeconfig(), self.scenario.namespace, self.elsewhere, reviews=REVIEWS, jobs=JOBS)
        with ExitStack() as ends:
            judge = Judge(load)
            follower = ends.enter_context(Follower(self.cp.api, judge.paths))
            wait_until(lambda: not follower.blind, timeout=30, describe=lambda: "nothing is followed")
            with load.running():
                wait_until(lambda: load.seconds > BEFORE_SECONDS and load.made, timeout=60, describe=lambda: "no load")
                with load.expected_down() if change.everything_down else contextlib.nullcontext():
                    change.do(self)
                    self.ready()
                end = time.monotonic() + SECONDS
                wait_until(lambda: time.monotonic() > end, timeout=SECONDS + 60, describe=lambda: "")
            rest = time.monotonic()

            def settled() -> bool:
                judge.follow(follower.take(time.monotonic() - LAG_SECONDS))
                return not follower.blind and not judge.waiting

            def unsettled() -> str:
                there = [brief(each) for kind in ("jobs", "workloads") for each in follower.now(kind)]
                return "\n".join([str(judge), *there[:20], self.kubelet.describe()])

            wait_until(settled, timeout=SETTLED_SECONDS, describe=unsettled)
            judge.follow(follower.take(time.monotonic()))
        return Row.of(change.name, load, judge, settled=time.monotonic() - rest)


def trusted(configuration: Json) -> bool:
    """Whether every entry of a webhook configuration has a bundle."""
    return all(hook["clientConfig"].get("caBundle") for hook in configuration["webhooks"])


def settings(*values: str, visibility: bool = False) -> list[str]:
    """Flags of helm for values, beside those that a release needs here."""
    # The API server does not ask a proxy for the way to an aggregated API.
    usual = (
        f"visibility.enabled={str(visibility).lower()}",
        *(f"{role}.nodeSelector.pool=platform" for role in ROLES),
    )
    return [part for value in (*usual, *values) for part in ("--set", value)]


@contextmanager
def bed(
    install: Callable[[Bed], object] = Bed.helm,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    start: Callable[[ControlPlane, Json, Sequence[str]], Process] | None = None,
    nodes: int = 4,
) -> Iterator[Bed]:
    """Everything, ready; `install` brings the release, `start` starts its pods if not `run`. `nodes` are for Jobs,
    beside those for the pods of the release."""
    proxy = ServiceProxy()
    arguments: Mapping[str, tuple[str, ...]] = {"kwok": KWOK_ARGUMENTS, "etcd": ("--unsafe-no-fsync=false",)}
    with ExitStack() as ends:
        cp = ends.enter_context(ControlPlane(extra_arguments=arguments, environment=proxy.environment))
        kubelet = Kubelet(cp, namespace=namespace, run=lambda pod, arguments, _: (start or run)(cp, pod, arguments))
        for number in range(nodes):
            cp.add_node(f"jobs-{number}", labels=FOR_JOBS, cpu=64, memory="256Gi")
        for name in PLATFORM:
            kubelet.add_node(name, labels={"pool": "platform"})
        scenario = Scenario(cp.api, cp.namespace("team", labels=MANAGED))
        made = Bed(cp, kubelet, scenario, cp.namespace("elsewhere"), itertools.count(1), release, namespace)
        ends.enter_context(kubelet.running())
        ends.enter_context(proxy.running(cp.api, namespace=namespace))
        install(made)
        made.ready()
        flavor = scenario.flavor("plain", labels=FOR_JOBS)
        scenario.cohort("all")
        for number in range(2):
            scenario.queue(f"queue-{number}", {flavor: {"cpu": max(4, round(4 * JOBS))}}, cohort="all")
        yield made


def run(cp: ControlPlane, pod: Json, arguments: Sequence[str], *, checkout: Path = ROOT) -> Process:
    """Start what a pod of the chart says, of a checkout, with its files and the rights of its service account."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    kubeconfig = cp.service_account_kubeconfig(namespace, pod["spec"]["serviceAccountName"], seconds=86400)
    files = cp.directory / "pods" / name
    for volume in pod["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            for kind, plural in (("secret", "secrets"), ("configMap", "configmaps")):
                if volume["name"] == "etc" and kind in source:
                    path = resource_path("v1", plural, source[kind]["name"], namespace=namespace)
                    found = cp.api.wait_for(path, lambda each: each.get("data"), timeout=60, describe="data")["data"]
                    for item in source[kind]["items"]:
                        text = found[item["key"]]
                        file = files / item["path"]
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(base64.b64decode(text) if kind == "secret" else text.encode())
    given = [argument.replace("/etc/turnstile", str(files)) for argument in arguments]
    older = checkout / "app"  # before the package was called turnstile
    program = "app" if (older / "__main__.py").exists() else "app.main" if (older / "main.py").exists() else "turnstile"
    return cp.start_process(name, [sys.executable, "-m", program, *given, "--kubeconfig", kubeconfig], cwd=checkout)


@dataclass(frozen=True)
class Change:
    """Something that is done to a cluster; `do` returns when it is over."""

    name: str
    do: Callable[[Bed], object]
    everything_down: bool = False
    """Whether no pod of Turnstile runs meanwhile: then creations in managed namespaces are refused, and no others."""
    needs: str = ""
    """A program without which it cannot be done."""

    @property
    def possible(self) -> bool:
        """Whether this machine has what it needs."""
        return not self.needs or shutil.which(self.needs) is not None


def nothing(found: Bed) -> None:
    """What the others are compared with."""


def rolled(found: Bed) -> None:
    """`helm upgrade` with other pods of both roles."""
    revision = next(found.revisions)
    found.helm(*(f"{role}.podAnnotations.revision=r{revision}" for role in ROLES))
    found.rolled_out()


def leaf_rotated(found: Bed) -> None:
    """The serving certificate is lost: the same authority issues another, which each webhook pod takes up."""
    for _ in range(ROTATIONS):
        before = found.cp.api.get(SECRET)["data"]
        found.cp.api.patch(SECRET, {"data": {"tls.crt": None, "tls.key": None}})

        def issued(secret: Json, old: Json = before) -> bool:
            data = secret["data"]
            return "tls.crt" in data and data["tls.crt"] != old["tls.crt"] and data["ca.crt"] == old["ca.crt"]

        found.cp.api.wait_for(SECRET, issued, timeout=120, describe="another leaf of the same authority")
        found.serves_leaf()


def authority_rotated(found: Bed) -> None:
    """The key of the certificate authority is lost: a new one is staged, trusted everywhere, and then signs."""
    for _ in range(ROTATIONS):
        before = found.cp.api.get(SECRET)["data"]
        found.cp.api.patch(SECRET, {"data": {"ca.key": None}})

        def switched(secret: Json, old: str = before["tls.crt"]) -> bool:
            data = secret["data"]
            return data["tls.crt"] != old and "ca.key" in data and "ca-next.key" not in data

        found.cp.api.wait_for(SECRET, switched, timeout=120, describe="a leaf of the next authority")


def drained(found: Bed) -> None:
    """`kubectl drain` of the node of a webhook pod, and its return."""
    node = found.kubelet.pods("webhook")[0].node
    only = f"--pod-selector=app.kubernetes.io/instance={RELEASE}"
    found.cp.kubectl("drain", node, "--delete-emptydir-data", "--timeout=150s", only)
    found.rolled_out()
    found.cp.kubectl("uncordon", node)


def api_server_restarted(found: Bed) -> None:
    """The only API server is killed and started."""
    found.cp.restart("kube-apiserver", timeout=90)


def etcd_slow(found: Bed) -> None:
    """Each write of etcd to its disk takes 300 ms."""
    slow = found.cp.start_process(
        f"strace-{next(found.revisions)}",
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=300000",
         "-p", str(found.cp.process("etcd").pid)],
    )  # fmt: skip
    end = time.monotonic() + SECONDS
    wait_until(lambda: time.monotonic() > end, timeout=SECONDS + 60, describe=lambda: "")
    slow.require_running()
    slow.terminate()


def frozen(pod: Pod, found: Bed) -> None:
    """The process of a pod is stopped (SIGSTOP) until its liveness probe has it killed."""
    assert pod.process is not None
    restarts = pod.restarts
    pod.process.pause()
    wait_until(lambda: pod.restarts > restarts, timeout=120, describe=found.kubelet.describe)


def everything_down(found: Bed) -> None:
    """Every process of Turnstile is killed, and none started for a while."""
    found.kubelet.kill_all()
    end = time.monotonic() + DOWN
    wait_until(lambda: time.monotonic() > end, timeout=DOWN + 60, describe=lambda: "")
    found.kubelet.turn_on()


CHANGES = (
    Change("nothing", nothing),
    Change("rolling upgrade of both Deployments", rolled),
    Change("serving certificate rotated", leaf_rotated),
    Change("certificate authority rotated", authority_rotated),
    Change("node drained", drained),
    Change("API server restarted", api_server_restarted),
    Change("etcd slow: 300 ms a write", etcd_slow, needs="strace"),
    Change("webhook pod frozen", lambda found: frozen(found.kubelet.pods("webhook")[0], found)),
    Change("leading controller frozen", lambda found: frozen(found.leader(), found)),
    Change("all pods of Turnstile down", everything_down, everything_down=True),
)


def main(words: list[str]) -> None:
    """Print a row for each change whose name has one of these words, or for all."""
    print(f"{REVIEWS:g} reviews and {JOBS:g} Jobs a second\n\n{Row.HEADER}", flush=True)
    with bed() as found:
        for change in CHANGES:
            if change.possible and (not words or any(word in change.name for word in words)):
                try:
                    row = found.under_load(change)
                except (AssertionError, TestbedError) as error:  # the other rows are worth having
                    print(f"{change.name}: {error}", flush=True)
                    continue
                print(row, *row.wrong, sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
