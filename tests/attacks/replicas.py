"""Turnstile as the chart runs it: two webhooks, one controller that leads and one that stands by, in four processes."""

from testbed.client import resource_path, wait_until
from testbed.installation import NAMESPACE, RELEASE, Installation
from testbed.ports import ReservedPort
from testbed.processes import Process
from tests.turnstile import Turnstile

LEASE = resource_path("coordination.k8s.io/v1", "leases", f"{RELEASE}-controller", namespace=NAMESPACE)


class Replicas(Turnstile):
    """`process` is the controller that leads at first; the three others start and end with it.

    Half of the webhook configurations' entries name the second webhook, and the entries that mutate and validate a kind
    name different ones: so each write of a job is judged by two processes, of which neither knows what the other does.
    """

    def __init__(self, installation: Installation, *arguments: str) -> None:
        super().__init__(installation, *arguments)
        self._others: list[Process] = []
        with ReservedPort() as port:
            self._port = port.number
        api = installation.control_plane.api
        for first, kind in enumerate(("mutating", "validating")):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            path = f"{path}/{RELEASE}-{kind}-webhook-configuration"
            hooks = api.get(path)["webhooks"]
            for hook in hooks[first::2]:
                client = hook["clientConfig"]
                client["url"] = client["url"].replace(f":{installation.port}/", f":{self._port}/")
            api.patch(path, {"webhooks": hooks})

    def start_with(self, *arguments: str) -> None:
        """Start the controller that leads, and then the others."""
        given = (*self.arguments, *arguments)
        start = self.installation.start
        self.process = leader = start(role="controller", arguments=given)
        wait_until(
            lambda: f"-{leader.pid}_" in self._holder(), timeout=40, describe=lambda: f"no leader\n{leader.tail(20)}"
        )
        webhooks = [start(role="webhook", arguments=given, port=port) for port in (self.installation.port, self._port)]
        self._others = [*webhooks, start(role="controller", arguments=given)]
        for webhook in webhooks:
            self.installation.wait_ready(webhook)
        wait_until(
            lambda: self.installation.ready(self._port),
            timeout=40,
            describe=lambda: f"not ready: {self.installation.status(self._port)}\n{webhooks[1].tail(20)}",
        )

    def kill(self) -> None:
        """SIGKILL to all."""
        for each in self._others:
            each.kill()
        super().kill()

    def crash(self) -> None:
        """SIGKILL to all, of whom none keeps the Lease."""
        for each in self._others:
            each.kill()
        super().crash()

    def stop(self) -> None:
        """SIGTERM to all, first to those that do not lead, and wait for their end."""
        for each in self._others:
            each.terminate()
        super().stop()

    def _holder(self) -> str:
        lease = self.installation.control_plane.api.find(LEASE)
        return "" if lease is None else lease["spec"].get("holderIdentity") or ""
