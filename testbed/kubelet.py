"""Runs the pods of one namespace as processes of this host: what a kubelet does that kwok does not play.

Nodes that it registers are its own (kwok must be told to leave them alone: `KWOK_ARGUMENTS`). A pod that is bound to
such a node gets an address of its own, is started, probed and restarted as its manifest says, and is stopped as a
kubelet stops it: preStop, SIGTERM, and SIGKILL after its grace period. Mounts no volumes, pulls no image, limits no
resources.
"""

import contextlib
import http.client
import itertools
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from testbed import nodes
from testbed.client import Api, Json, resource_path, unverified_tls, wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError
from testbed.processes import Process

OWN_NODE = "testbed.turnstile.dev/kubelet"
"""Label of the nodes whose pods are run here."""
KWOK_ARGUMENTS = ("--manage-all-nodes=false", f"--manage-nodes-with-label-selector=!{OWN_NODE}")
"""Further arguments of kwok in a control plane with a Kubelet."""
LOOK_SECONDS = 0.1
_HELD_PORT = 60999
HEARTBEAT_SECONDS = 10.0
AGAIN_SECONDS = 1.0
"""From the end of a process to its restart. A kubelet waits longer with each, up to five minutes."""
REFUSED = (ApiError, OSError, http.client.HTTPException)

Run = Callable[[Json, Sequence[str], str], Process]
"""Starts the one container of a pod: the pod, its arguments, and the address that it may listen on."""


@dataclass(slots=True)
class _Probe:
    """One probe of the container, and how often in a row it failed or succeeded."""

    spec: Json | None
    due: float = 0.0
    failures: int = 0
    passed: bool = False

    def look(self, address: str, ports: dict[str, int], now: float) -> None:
        """Ask if it is due. A probe that the container does not have is always passed."""
        if self.spec is None:
            self.passed = True
        if self.spec is None or now < self.due:
            return
        self.due = now + self.spec.get("periodSeconds", 10)
        if _answers(self.spec, address, ports):
            self.failures, self.passed = 0, True
        else:
            self.failures += 1
            if self.failures >= self.spec.get("failureThreshold", 3):
                self.passed = False

    @property
    def failed(self) -> bool:
        """Whether it failed so often in a row that the kubelet acts."""
        return self.spec is not None and self.failures >= self.spec.get("failureThreshold", 3)


def _answers(spec: Json, address: str, ports: dict[str, int]) -> bool:
    target = spec["httpGet"]
    port, timeout = ports.get(target["port"], target["port"]), spec.get("timeoutSeconds", 1)
    if target.get("scheme") == "HTTPS":
        tls = unverified_tls()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address, port, context=tls, timeout=timeout
        )
    else:
        connection = http.client.HTTPConnection(address, port, timeout=timeout)
    try:
        connection.request("GET", target["path"])
        return 200 <= connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Pod:
    """One pod: its container's process while it has one, and the thread that looks after it."""

    def __init__(self, kubelet: "Kubelet", manifest: Json, address: str) -> None:
        self.manifest = manifest
        self.name: str = manifest["metadata"]["name"]
        self.component: str = manifest["metadata"]["labels"].get("app.kubernetes.io/component", "")
        self.node: str = manifest["spec"]["nodeName"]
        self.address = address
        self.process: Process | None = None
        self.restarts = -1
        self.deleted = threading.Event()
        (self._container,) = manifest["spec"]["containers"]
        self.ports = {port["name"]: port["containerPort"] for port in self._container.get("ports", ())}
        self._kubelet = kubelet
        self._told: tuple[bool, int] | None = None
        self.thread = threading.Thread(target=self._run, daemon=True, name=self.name)

    @property
    def ready(self) -> bool:
        """Whether its status says so."""
        return self._told is not None and self._told[0]

    def _run(self) -> None:
        while not self._ending():
            if self._kubelet.off.is_set():
                self._tell(ready=False)
                self._wait()
                continue
            self._start()
            self._serve()
            if self._finished():
                while not self._ending():
                    self._wait()
            self.deleted.wait(AGAIN_SECONDS)
        self._stop()

    def _finished(self) -> bool:
        """Whether the process has ended and is not to be started again; then the pod says how."""
        code = self.process.poll() if self.process is not None else None
        if code is None or self._ending() or self.manifest["spec"].get("restartPolicy", "Always") == "Always":
            return False
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        container = {"name": self._container["name"], "image": self._container["image"], "imageID": "", "state": state}
        container |= {"ready": False, "restartCount": 0}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
        while not self._ending():
            with contextlib.suppress(*REFUSED):
                self._kubelet.api.patch(f"{self._path}/status", {"status": status}, kind="strategic")
                return True
            self._wait()
        return True

    def _ending(self) -> bool:
        return self.deleted.is_set() or self._kubelet.over.is_set()

    def _wait(self) -> None:
        self.deleted.wait(LOOK_SECONDS)

    def _start(self) -> None:
        arguments = [
            argument.replace("$(POD_NAMESPACE)", self.manifest["metadata"]["namespace"])
            .replace("$(POD_NAME)", self.name)
            .replace("0.0.0.0", self.address)
            for argument in self._container["args"]
        ]
        self.process = self._kubelet.run(self.manifest, arguments, self.address)
        self.restarts += 1

    def _serve(self) -> None:
        """Until the process ends, is to be restarted, or the pod is deleted."""
        assert self.process is not None
        kinds = ("startup", "liveness", "readiness")
        startup, alive, ready = (_Probe(self._container.get(f"{kind}Probe")) for kind in kinds)
        while not self._ending() and self.process.poll() is None:
            now = time.monotonic()
            if not startup.passed:
                startup.look(self.address, self.ports, now)
            else:
                alive.look(self.address, self.ports, now)
                ready.look(self.address, self.ports, now)
            self._tell(ready=ready.passed)
            if startup.failed or alive.failed:
                self.process.resume()
                self.process.kill()
            self._wait()
        if not self._ending():
            self._tell(ready=False)

    def _stop(self) -> None:
        """As a kubelet ends a pod: nothing is told to it but by preStop and SIGTERM."""
        if self.process is not None and self.process.poll() is None and not self._kubelet.over.is_set():
            grace: float = self.manifest["spec"].get("terminationGracePeriodSeconds", 30)
            end = time.monotonic() + grace
            sleep = self._container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            self._kubelet.over.wait(sleep)
            self.process.signal(signal.SIGTERM)
            while self.process.poll() is None and time.monotonic() < end and not self._kubelet.over.is_set():
                self._kubelet.over.wait(LOOK_SECONDS)
            self.process.kill()
        while not self._kubelet.over.is_set():
            with contextlib.suppress(*REFUSED):
                self._kubelet.api.delete(self._path, grace_seconds=0)
                return
            self._kubelet.over.wait(LOOK_SECONDS)

    @property
    def _path(self) -> str:
        return resource_path("v1", "pods", self.name, namespace=self.manifest["metadata"]["namespace"])

    def _tell(self, *, ready: bool) -> None:
        """Write the status if it is another one; a write that fails is done again with the next look."""
        state = (ready, self.restarts)
        if state == self._told:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"status": "True" if ready else "False", "lastTransitionTime": now}
        container = {
            "name": self._container["name"], "image": self._container["image"], "imageID": "", "ready": ready,
            "restartCount": max(0, self.restarts), "started": True, "state": {"running": {"startedAt": now}},
        }  # fmt: skip
        address = _outside(self.address)
        status = {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": [container],
            "conditions": [{"type": kind, **condition} for kind in ("Ready", "ContainersReady")],
        }  # fmt: skip
        with contextlib.suppress(*REFUSED):
            self._kubelet.api.patch(f"{self._path}/status", {"status": status}, kind="strategic")
            self._told = state


class _Network:
    """254 loopback addresses that no other bed of this host has: a socket that is bound to the last one holds them."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        while True:
            # 200 and more are not those that kwok gives to its pods.
            self._prefix = f"127.{random.randint(200, 249)}.{random.randint(0, 255)}"
            with contextlib.suppress(OSError):
                self._socket.bind((f"{self._prefix}.254", _HELD_PORT))
                break
        self._numbers = itertools.count()

    def address(self) -> str:
        """The next address; after 253 pods the first is given again."""
        return f"{self._prefix}.{1 + next(self._numbers) % 253}"

    def close(self) -> None:
        """Give them back."""
        self._socket.close()


def _outside(address: str) -> str:
    """The address of a pod in its status: the API server takes no loopback addresses in endpoints."""
    return f"10.{address.removeprefix('127.')}"


def loopback(address: str) -> str:
    """Where a pod with this address in its status listens."""
    return f"127.{address.removeprefix('10.')}"


class Kubelet:
    """The kubelet of some nodes, for the pods of one namespace; `with kubelet.running():`."""

    def __init__(self, control_plane: ControlPlane, *, namespace: str, run: Run) -> None:
        self.api: Api = control_plane.api_as("kubelet", groups=["system:masters"])
        self.run = run
        self.over = threading.Event()
        self.off = threading.Event()
        """While it is set nothing is started."""
        self._namespace = namespace
        self._nodes: list[str] = []
        self._pods: dict[str, Pod] = {}
        self._network = _Network()

    def add_node(self, name: str, *, labels: dict[str, str]) -> None:
        """Register a node and wait until pods may be bound to it."""
        self.api.create(nodes.node(name, labels={**labels, OWN_NODE: "true"}))
        self._nodes.append(name)
        self._heartbeat(name)
        self.api.wait_for(
            resource_path("v1", "nodes", name), nodes.is_ready, timeout=30, describe="Ready and untainted"
        )

    def _heartbeat(self, name: str) -> None:
        now = datetime.now(UTC)
        at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}
        self.api.patch(
            resource_path("v1", "nodes", name, subresource="status"), {"status": {"conditions": [condition]}},
            kind="strategic",
        )  # fmt: skip

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look after the pods for as long as the block lasts; then their processes are killed."""
        threads = [threading.Thread(target=each, daemon=True) for each in (self._look, self._beat)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in (*threads, *(pod.thread for pod in list(self._pods.values()))):
                thread.join(30)
            for pod in self._pods.values():
                if pod.process is not None and pod.process.poll() is None:
                    pod.process.resume()
                    pod.process.kill()
            self._network.close()

    def pods(self, component: str = "") -> list[Pod]:
        """The pods that are there, those of one component if it is given; not those that are being deleted."""
        there = list(self._pods.values())
        return [pod for pod in there if component in ("", pod.component) and not pod.deleted.is_set()]

    def kill_all(self) -> None:
        """SIGKILL every process and start none, until `turn_on`."""
        self.off.set()
        for pod in self.pods():
            if pod.process is not None:
                pod.process.kill()

    def turn_on(self) -> None:
        """Start the pods again that are bound to these nodes."""
        self.off.clear()

    def wait_ready(self, **components: int) -> None:
        """Wait until so many pods of each component are ready, and none beside them is there."""

        def look() -> bool:
            return all(
                len(found := self.pods(component)) == count and all(pod.ready for pod in found)
                for component, count in components.items()
            )

        wait_until(look, timeout=120, describe=self.describe)

    def describe(self) -> str:
        """The pods and the ends of their logs."""
        told = [f"{pod.name} on {pod.node}: {pod.ready=}, {pod.restarts=}" for pod in self._pods.values()]
        logs = [pod.process.tail(15) for pod in self._pods.values() if pod.process is not None]
        return "\n".join(["pods:", *told, *logs])

    def _look(self) -> None:
        path = resource_path("v1", "pods", namespace=self._namespace)
        while not self.over.wait(LOOK_SECONDS):
            try:
                found = {pod["metadata"]["uid"]: pod for pod in self.api.items(path)}
            except REFUSED:
                continue
            for uid, manifest in found.items():
                if uid not in self._pods and manifest["spec"].get("nodeName") in self._nodes:
                    pod = self._pods[uid] = Pod(self, manifest, self._network.address())
                    pod.thread.start()
                if uid in self._pods and manifest["metadata"].get("deletionTimestamp"):
                    self._pods[uid].deleted.set()
            for uid in self._pods.keys() - found.keys():
                self._pods[uid].deleted.set()
                if not self._pods[uid].thread.is_alive():
                    del self._pods[uid]

    def _beat(self) -> None:
        while not self.over.wait(HEARTBEAT_SECONDS):
            for name in self._nodes:
                with contextlib.suppress(*REFUSED):
                    self._heartbeat(name)
