"""What Turnstile's own absence, the API server's, and a dead leader cost: little, and not for long."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from testbed.client import Json, resource_path, wait_until
from testbed.controlplane import ControlPlane
from testbed.installation import QUICK_ELECTION
from testbed.ports import lent_port
from tests.cluster.scenario import Scenario, job, job_path
from tests.faults.background import background_proxy, kubeconfig_of
from tests.faults.proxy import Request, black_hole, deafened
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


class TestWebhookDown:
    """Opt-in: who did not ask for Turnstile does not miss it."""

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
    """The API server goes and comes back."""

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
    """Another replica goes on where the leader ended."""

    @pytest.mark.parametrize(
        ("signal", "election", "limit"),
        [
            ("SIGKILL", QUICK_ELECTION, 5.0),
            ("SIGTERM", QUICK_ELECTION, 2.0),
            ("SIGKILL", (), 20.0),
            ("SIGTERM", (), 2.5),
        ],
    )
    def test_a_second_replica_takes_over(
        self,
        control_plane: ControlPlane,
        scenario: Scenario,
        turnstile: Turnstile,
        signal: str,
        election: tuple[str, ...],
        limit: float,
    ) -> None:
        """From the leader's end to the start of a job that waited for it, by the other replica; with short times of the
        election, and with the default ones."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 100}})
        installation = turnstile.installation
        turnstile.stop()
        webhook = installation.start(role="webhook")
        first = installation.start(role="controller", election=election)
        second = None
        try:
            installation.wait_ready(webhook)
            _wait_leader(control_plane, first.pid, timeout=30)
            scenario.job("before", queue="team", cpu="1")
            scenario.wait_started("before")
            second = installation.start(role="controller", election=election)
            wait_until(lambda: "caches.synced" in second.tail(50), timeout=20, describe=lambda: second.tail(50))
            ended = time.monotonic()
            if signal == "SIGKILL":
                first.kill()
            else:
                first.terminate()
            scenario.job("after", queue="team", cpu="1")
            scenario.wait_started("after", timeout=limit + 10)
            assert time.monotonic() - ended < limit
            _wait_leader(control_plane, second.pid, timeout=1)
        finally:
            for process in (first, second, webhook):
                if process is not None and process.poll() is None:
                    process.terminate()  # a Lease of a killed leader would last until the next test
            turnstile.start()

    def test_a_job_deleted_while_nobody_led_leaves_nothing_behind(
        self, scenario: Scenario, turnstile: Turnstile
    ) -> None:
        """The next leader looks at the owners of all Workloads, not only at the jobs that are there."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 1}})
        scenario.job("gone", queue="team", cpu="1")
        scenario.wait_started("gone")
        workload = scenario.workload_of("gone")
        turnstile.kill()
        scenario.delete_job("gone")
        scenario.api.wait_gone(job_path(scenario.namespace, "gone"))
        turnstile.start()
        scenario.job("next", queue="team", cpu="1")
        scenario.wait_started("next")
        scenario.api.wait_gone(scenario.api.path_of(workload), timeout=60)


class TestLeaseThatIsNotRenewed:
    """The API server answers everything but the renewals of the Lease."""

    def test_what_was_decided_waits_and_is_written_when_a_renewal_succeeds(
        self, control_plane: ControlPlane, scenario: Scenario, turnstile: Turnstile
    ) -> None:
        """The leader says why it does not write, and goes on with the same term."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 100}})
        installation = turnstile.installation
        turnstile.stop()
        webhook = installation.start(role="webhook")
        leader = None
        try:
            installation.wait_ready(webhook)
            with background_proxy(control_plane.kubeconfig()) as proxy:
                port = lent_port()
                arguments = (
                    *("--kubeconfig", str(kubeconfig_of(proxy, control_plane.directory))),
                    *("--health-bind", f"127.0.0.1:{port}"),
                )
                leader = installation.start(role="controller", arguments=arguments)
                _wait_leader(control_plane, leader.pid)
                scenario.job("before", queue="team", cpu="1")
                scenario.wait_started("before")
                proxy.plan(black_hole, applies=_is_of_the_lease, times=float("inf"))
                wait_until(lambda: "lease.suspended" in leader.tail(50), timeout=15, describe=lambda: leader.tail(50))
                scenario.job("waits", queue="team", cpu="1")
                _never(lambda: not scenario.suspended("waits"), seconds=2.0)
                ready, answer = _readyz(port)
                assert ready  # for half a minute it is worth a note only
                (note,) = [note for note in answer["failing"] if note.startswith("leader: ")]
                assert "the Lease was not renewed for" in note
                assert "no answer within" in note
                proxy.clear()
                scenario.wait_started("waits", timeout=10)
                log = leader.tail(500)
                assert (log.count('"lease.acquired"'), log.count('"leading"'), log.count('"lease.resumed"')) == (
                    1,
                    1,
                    1,
                )
                assert "failing" not in _readyz(port)[1]
                leader.terminate()
        finally:
            for process in (leader, webhook):
                if process is not None and process.poll() is None:
                    process.kill()
            turnstile.start()


class TestDeafReplica:
    """A replica whose watch fell silent unnoticed, as behind a router that forgot the connection, takes over."""

    def test_it_does_not_lead_by_what_it_last_heard(
        self, control_plane: ControlPlane, scenario: Scenario, turnstile: Turnstile
    ) -> None:
        """What the late leader admitted goes on, and its quota is not given to the next job."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 1}})
        installation = turnstile.installation
        turnstile.stop()
        webhook = installation.start(role="webhook")
        first = installation.start(role="controller")
        second = None
        silence = threading.Event()
        try:
            installation.wait_ready(webhook)
            _wait_leader(control_plane, first.pid)
            with background_proxy(control_plane.kubeconfig()) as proxy:
                proxy.plan(deafened(silence), applies=_watches_workloads, times=float("inf"))
                arguments = ("--kubeconfig", str(kubeconfig_of(proxy, control_plane.directory)))
                second = installation.start(role="controller", arguments=arguments)
                wait_until(lambda: "caches.synced" in second.tail(50), timeout=20, describe=lambda: second.tail(50))
                silence.set()
                scenario.job("running", queue="team", cpu="1")
                scenario.wait_started("running")
                scenario.job("next", queue="team", cpu="1")
                scenario.wait_pending("next", reason="WaitingForQuota")
                first.kill()
                _wait_leader(control_plane, second.pid)
                wait_until(lambda: '"leading"' in second.tail(50), timeout=10, describe=lambda: second.tail(50))
                _never(lambda: scenario.suspended("running") or not scenario.suspended("next"), seconds=2.0)
                second.kill()
        finally:
            for process in (first, second, webhook):
                if process is not None and process.poll() is None:
                    process.kill()
            turnstile.start()


def _never(happens: Callable[[], bool], *, seconds: float) -> None:
    """Look for so long, and see that it does not happen."""
    end = time.monotonic() + seconds

    def over() -> bool:
        assert not happens()
        return time.monotonic() > end

    wait_until(over, timeout=seconds + 5, describe=lambda: "a look takes seconds")


def _wait_leader(control_plane: ControlPlane, pid: int, *, timeout: float = 20) -> None:
    path = resource_path("coordination.k8s.io/v1", "leases", "turnstile-controller", namespace="turnstile-system")
    control_plane.api.wait_for(
        path,
        lambda lease: f"-{pid}_" in (lease["spec"].get("holderIdentity") or ""),
        timeout=timeout,
        describe=f"held by process {pid}",
    )


def _readyz(port: int) -> tuple[bool, Json]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return True, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return False, json.loads(error.read())


def _is_of_the_lease(request: Request) -> bool:
    return request.path.endswith("/leases/turnstile-controller")


def _watches_workloads(request: Request) -> bool:
    return request.watch and request.path.endswith("/workloads")
