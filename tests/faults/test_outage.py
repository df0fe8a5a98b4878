"""What Turnstile's own absence, the API server's, and a dead leader cost: little, and not for long."""

import threading
import time

import pytest

from testbed.client import resource_path, wait_until
from testbed.controlplane import ControlPlane
from tests.cluster.scenario import Scenario, job, job_path
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


class TestWebhookDown:
    def test_jobs_outside_of_turnstiles_namespaces_are_created_at_once(
        self, control_plane: ControlPlane, turnstile: Turnstile
    ) -> None:
        """With every process of ours dead, a namespace that did not opt in and kube-system do not notice."""
        outside = control_plane.namespace("outside")
        turnstile.kill()
        try:
            for namespace in (outside, "kube-system"):
                began = time.monotonic()
                created = control_plane.api.create(job("free", namespace=namespace, queue="any"))
                assert time.monotonic() - began < 1.0
                assert not created["spec"].get("suspend")
                control_plane.api.delete(job_path(namespace, "free"))
        finally:
            turnstile.start()


class TestApiServerRestart:
    def test_turnstile_goes_on_after_the_api_server_was_killed_under_load(
        self, control_plane: ControlPlane, scenario: Scenario, turnstile: Turnstile
    ) -> None:
        """The API server dies in the middle of admissions; the same process of ours finishes the work."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 100}})
        assert turnstile.process is not None
        pid = turnstile.process.pid
        stop = threading.Event()
        made: list[str] = []

        def create() -> None:
            while not stop.is_set():
                name = f"load-{len(made)}"
                try:
                    scenario.job(name, queue="team", cpu="1")
                except Exception:
                    stop.wait(0.1)
                    continue
                made.append(name)
                stop.wait(0.05)

        load = threading.Thread(target=create)
        load.start()
        try:
            wait_until(lambda: len(made) >= 10, timeout=20, describe=lambda: "no load")
            control_plane.restart("kube-apiserver")
            before = len(made)
            wait_until(lambda: len(made) >= before + 10, timeout=30, describe=lambda: "no load after the restart")
        finally:
            stop.set()
            load.join()
        for name in made:
            scenario.wait_started(name, timeout=20)
        assert turnstile.process.poll() is None
        assert turnstile.process.pid == pid


class TestTakeover:
    @pytest.mark.parametrize(("signal", "limit"), [("SIGKILL", 5.0), ("SIGTERM", 2.0)])
    def test_a_second_replica_takes_over(
        self, control_plane: ControlPlane, scenario: Scenario, turnstile: Turnstile, signal: str, limit: float
    ) -> None:
        """The time from the leader's end to the next admission, decided by the other replica."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 100}})
        installation = turnstile.installation
        webhook = installation.start(role="webhook", port=installation.spare_port())
        turnstile.stop()
        first = installation.start(role="controller")
        try:
            _wait_leader(control_plane, first.pid)
            second = installation.start(role="controller")
            installation.wait_following(second)
            (first.kill if signal == "SIGKILL" else first.terminate)()
            ended = time.monotonic()
            _wait_leader(control_plane, second.pid, timeout=limit + 5)
            assert time.monotonic() - ended < limit
        finally:
            for process in (first, webhook):
                if process.poll() is None:
                    process.kill()
        second.kill()
        turnstile.start()


def _wait_leader(control_plane: ControlPlane, pid: int, *, timeout: float = 20) -> None:
    path = resource_path("coordination.k8s.io/v1", "leases", "turnstile-controller", namespace="turnstile-system")
    control_plane.api.wait_for(
        path,
        lambda lease: (lease["spec"].get("holderIdentity") or "").endswith(f"-{pid}"),
        timeout=timeout,
        describe=f"held by process {pid}",
    )
