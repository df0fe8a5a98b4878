"""Turnstile as it runs in production: webhook and controllers apart, one controller leading and one standing by.

Faults are done to the leader, whoever that is: SIGKILL, or SIGSTOP until another one leads. A controller that was
killed is followed by the standby at once, and replaced by a new process.
"""

import signal
import threading
from pathlib import Path

from testbed.client import resource_path, wait_until
from testbed.controlplane import ControlPlane
from testbed.installation import NAMESPACE, Installation
from testbed.processes import Process

LEASE = resource_path("coordination.k8s.io/v1", "leases", "turnstile-controller", namespace=NAMESPACE)


class Crew:
    """One webhook and two controllers under one configuration file, if there is one.

    Decision logs are written to the directory.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        installation: Installation,
        *,
        directory: Path,
        configuration: Path | None = None,
    ) -> None:
        self.control_plane = control_plane
        self.installation = installation
        self._arguments = () if configuration is None else ("--config", str(configuration))
        self._directory = directory
        self.decision_logs: list[Path] = []
        self.webhook: Process | None = None
        self.controllers: list[Process] = []
        self._frozen: list[Process] = []
        self.kills = 0

    def start(self) -> None:
        """Start all three and wait until they work."""
        self.webhook = self.installation.start(role="webhook", arguments=self._arguments)
        self.controllers = [self._controller(), self._controller()]
        self.installation.wait_ready(self.webhook, timeout=90)
        self.wait_led()

    def start_one(self) -> Process:
        """Start one process that does everything; the way a small installation runs."""
        process = self.installation.start(role="all", arguments=(*self._arguments, *self._logging()))
        self.controllers = [process]
        return process

    def stop(self) -> None:
        """SIGKILL all."""
        for process in (self.webhook, *self.controllers, *self._frozen):
            if process is not None and process.poll() is None:
                process.resume()
                process.kill()
        self.webhook, self.controllers, self._frozen = None, [], []

    def restart_webhook(self, *, away: float) -> None:
        """SIGKILL the webhook, and start another one after so many seconds."""
        assert self.webhook is not None
        self.webhook.kill()
        threading.Event().wait(away)
        self.webhook = self.installation.start(role="webhook", arguments=self._arguments)
        self.installation.wait_ready(self.webhook, timeout=90)

    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        processes = [self.webhook, *self.controllers]
        return {each.name: each.pid for each in processes if each is not None}

    def _controller(self) -> Process:
        return self.installation.start(role="controller", arguments=(*self._arguments, *self._logging()))

    def _logging(self) -> tuple[str, str]:
        """One decision log a process; it is there though the process be killed before it makes one."""
        path = self._directory / f"decisions-{len(self.decision_logs)}.jsonl"
        path.touch()
        self.decision_logs.append(path)
        return "--decision-log", str(path)

    def leader(self) -> Process | None:
        """The controller that holds the Lease, if it lives."""
        lease = self.control_plane.api.find(LEASE)
        holder = (lease["spec"].get("holderIdentity") or "") if lease is not None else ""
        return next((p for p in self.controllers if f"-{p.pid}_" in holder and p.poll() is None), None)

    def wait_led(self, *, timeout: float = 60) -> None:
        """Wait until a living controller leads."""
        wait_until(lambda: self.leader() is not None, timeout=timeout, describe=lambda: "nobody leads")

    def kill_leader(self) -> None:
        """SIGKILL the one that leads, or all controllers when none is known to lead. Any thread may call this."""
        leader = self.leader()
        self._kill([leader] if leader is not None else self.controllers)

    def kill_all(self) -> None:
        """SIGKILL every controller: nobody stands by."""
        self._kill(self.controllers)

    def _kill(self, processes: list[Process]) -> None:
        for process in processes:
            process.signal(signal.SIGKILL)
        self.controllers = [process for process in self.controllers if process not in processes]
        self.kills += 1

    def freeze_leader(self) -> None:
        """SIGSTOP the leader; `replace` lets it go on, when another one leads."""
        leader = self.leader()
        if leader is None:
            self.kill_leader()
            return
        leader.pause()
        self.controllers.remove(leader)
        self._frozen.append(leader)
        self.kills += 1

    def replace(self) -> None:
        """Put new processes in the place of those that ended."""
        while len(self.controllers) < 2:
            self.controllers.append(self._controller())

    def thaw(self) -> None:
        """Let frozen ones go on: they were leaders and must notice that they are none any more. Then they go too."""
        for process in self._frozen:
            process.resume()
        self.controllers, self._frozen = [*self.controllers, *self._frozen], []
