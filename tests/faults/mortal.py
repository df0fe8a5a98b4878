"""Controllers that die at a certain write: each behind a proxy of its own that counts its writes and then kills it.

One controller leads and one stands by; a webhook answers all the time. When the leader dies its Lease is given back,
after its last write has landed, so that the standby need not wait until the Lease expires; another controller is
started in the place of the standby. Nothing in Turnstile knows of it. Must never judge what becomes of the work.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.client import wait_until
from testbed.controlplane import ControlPlane
from testbed.installation import NAMESPACE, Installation
from testbed.processes import Process
from tests.faults.background import background_proxy, kubeconfig_of
from tests.faults.crew import LEASE
from tests.faults.proxy import Exchange, Proxy, Request, drop, lose_answer, passed

LED_SECONDS = 120.0
"""Until the next controller leads, at most."""


@dataclass(frozen=True)
class Death:
    """The leader dies at its write of that number: `before` it is sent, or when it has landed and was not answered."""

    number: int
    moment: Literal["before", "after"]

    def __str__(self) -> str:
        return f"{self.moment}-{self.number}"


class Controller:
    """One controller behind its proxy."""

    def __init__(self, process: Process, proxy: Proxy, ends: contextlib.ExitStack) -> None:
        self.process = process
        self._ends = ends
        self._namespace = ""
        self._death: Death | None = None
        self._under_way = 0
        self.writes: list[str] = []
        self.dead = threading.Event()
        self._dying = False
        proxy.plan(self._fault, times=float("inf"))

    def expect(self, namespace: str, death: Death | None) -> None:
        """Count the writes in that namespace from now on, and die at the one that is named."""
        self.writes, self._namespace, self._death = [], namespace, death

    async def _fault(self, exchange: Exchange) -> bool:
        request = exchange.request
        if self._dying:
            return await drop(exchange)
        if request.method == "GET" or request.path.endswith("/leases/turnstile-controller"):
            return await passed(exchange)
        if self._concerns(request):
            self.writes.append(f"{request.method} {request.path.partition(self._namespace + '/')[2]}")
            if self._death is not None and len(self.writes) == self._death.number:
                return await self._die(exchange, self._death)
        self._under_way += 1
        try:
            return await passed(exchange)
        finally:
            self._under_way -= 1

    def _concerns(self, request: Request) -> bool:
        """Writes about jobs and their Workloads; queues' statuses and events are written now and then."""
        inside = f"/namespaces/{self._namespace}/"
        return (
            bool(self._namespace)
            and inside in request.path
            and not {"events", "localqueues"} & {*request.path.split("/")}
        )

    async def _die(self, exchange: Exchange, death: Death) -> bool:
        self._dying = True
        if death.moment == "after":
            with contextlib.suppress(ConnectionError):
                await lose_answer(exchange)
        self.process.kill()
        while self._under_way:  # noqa: ASYNC110  these few were sent before
            await asyncio.sleep(0.002)
        self.dead.set()
        return False

    def dies(self) -> bool:
        """Call off the death that is expected; whether it is too late for that, and then it is dead."""
        self._death = None
        return self._dying and self.dead.wait(LED_SECONDS)

    def stop(self) -> None:
        """SIGKILL, and no proxy any more."""
        if self.process.poll() is None:
            self.process.kill()
        self._ends.close()


class Mortals:
    """A webhook and two controllers under one configuration file; see `killed_at`."""

    def __init__(self, control_plane: ControlPlane, installation: Installation, directory: Path, text: str) -> None:
        self._control_plane = control_plane
        self._installation = installation
        self._directory = directory
        file = directory / "config.yaml"
        file.write_text(text)
        self._arguments = ("--config", str(file))
        self._user = control_plane.service_account_kubeconfig(NAMESPACE, "turnstile-controller", seconds=86400)
        self._token = control_plane.service_account_token(NAMESPACE, "turnstile-controller", seconds=86400)
        self._webhook: Process | None = None
        self._leader: Controller | None = None
        self._standby: Controller | None = None
        self._started = 0

    def start(self) -> None:
        """Start all three and wait until they work."""
        self._webhook = self._installation.start(role="webhook", arguments=self._arguments)
        self._leader = self._controller()
        self._installation.wait_ready(self._webhook, timeout=LED_SECONDS)
        self._wait_leads(self._leader)
        self._standby = self._controller()

    def stop(self) -> None:
        """SIGKILL all."""
        for controller in (self._leader, self._standby):
            if controller is not None:
                controller.stop()
        if self._webhook is not None and self._webhook.poll() is None:
            self._webhook.kill()

    def _controller(self) -> Controller:
        self._started += 1
        directory = self._directory / f"controller-{self._started}"
        directory.mkdir()
        with contextlib.ExitStack() as ends:
            proxy = ends.enter_context(background_proxy(self._user))
            through = ("--kubeconfig", str(kubeconfig_of(proxy, directory, token=self._token)))
            process = self._installation.start(role="controller", arguments=(*self._arguments, *through))
            return Controller(process, proxy, ends.pop_all())

    def _wait_leads(self, controller: Controller) -> None:
        """Until a controller leads, and has taken in all that was written before."""
        process = controller.process

        def look() -> bool:
            process.require_running()
            return '"leading"' in process.log.read_text()

        wait_until(look, timeout=LED_SECONDS, describe=lambda: f"does not lead:\n{process.tail(20)}")

    @property
    def leader(self) -> Controller:
        """The controller that leads, or is about to."""
        assert self._leader is not None
        return self._leader

    @contextmanager
    def killed_at(self, namespace: str, deaths: Sequence[Death]) -> Iterator[list[list[str]]]:
        """While the block lasts the first leader dies at the first of these writes in the namespace, the second at the
        second, and so on; the writes of each leader, as they are made."""
        left, over = list(deaths), threading.Event()
        told: list[list[str]] = []
        failures: list[BaseException] = []

        def expect() -> None:
            self.leader.expect(namespace, left.pop(0) if left else None)
            told.append(self.leader.writes)

        def attend() -> None:
            try:
                while not over.wait(0.01):
                    if self.leader.dead.is_set():
                        self._follow(expect)
            except BaseException as error:
                failures.append(error)

        expect()
        thread = threading.Thread(target=attend, daemon=True)
        thread.start()
        try:
            yield told
        finally:
            over.set()
            thread.join()
            left.clear()
            if self.leader.dies():
                self._follow(expect)
            self.leader.expect("", None)
        if failures:
            raise failures[0]

    def _follow(self, expect: Callable[[], None]) -> None:
        """The standby leads: it is told when it has to die before the Lease is free."""
        dead, standby = self.leader, self._standby
        assert standby is not None
        dead.stop()
        self._leader = standby
        expect()
        self._control_plane.api.patch(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
        self._wait_leads(standby)  # else the next one may be faster
        self._standby = self._controller()
