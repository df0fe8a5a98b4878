"""The Lease is renewed in a thread of its own, whatever the main event loop does; the term is led in the main one."""

import asyncio
import datetime as dt
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog
import yaml

from testbed import ControlPlane
from tests.cluster.lease_holder import QUICK
from tests.cluster.test_lease import NAME, Candidate, campaigning
from tests.waiting import until
from turnstile.api.errors import InvalidValue, NotLeading
from turnstile.kube.candidacy import Candidacy
from turnstile.kube.fence import Fence
from turnstile.kube.lease import Lease
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

Make = Callable[..., Candidacy]


@pytest.fixture
def make(schema_server: ControlPlane) -> Make:
    """Makes a candidate for a Lease of a namespace."""

    def make(namespace: str, *, kubeconfig: Path | None = None, **options: Any) -> Candidacy:
        file = str(kubeconfig or schema_server.kubeconfig())
        return Candidacy(
            lambda: Transport.connect(file), namespace=namespace, name=NAME, identity="own", **{**QUICK, **options}
        )

    return make


@pytest.fixture
def namespace(schema_server: ControlPlane) -> str:
    """A new one."""
    return schema_server.namespace("lease")


@pytest_asyncio.fixture
async def transport(schema_server: ControlPlane) -> AsyncIterator[Transport]:
    """A connection of the main event loop."""
    async with await Transport.connect(str(schema_server.kubeconfig())) as connected:
        yield connected


class Terms:
    """What a candidate led."""

    def __init__(self) -> None:
        self.fences: list[Fence] = []
        self.ended: list[int] = []

    async def lead(self, fence: Fence) -> None:
        """Lead until cancelled."""
        assert threading.current_thread() is threading.main_thread()
        self.fences.append(fence)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(fence.epoch)


@asynccontextmanager
async def running(candidacy: Candidacy, lead: Callable[[Fence], Awaitable[None]]) -> AsyncIterator[asyncio.Task[None]]:
    """Let it run for the time of a block."""
    run = asyncio.ensure_future(candidacy.run(lead))
    try:
        yield run
    finally:
        run.cancel()
        await asyncio.wait({run})
        assert not [thread for thread in threading.enumerate() if thread.name == "lease"]


def hold_up(seconds: float) -> None:
    """Keep the event loop from turning, as a long step of a task does: half of the time it computes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
        time.sleep(0.00002)


async def test_a_busy_event_loop_loses_no_lease(make: Make, transport: Transport, namespace: str) -> None:
    """For longer than the Lease lasts it does not turn once; the fence is open all the time, and nobody else leads."""
    candidacy, terms, other = make(namespace), Terms(), Candidate(transport, namespace, "other")
    async with running(candidacy, terms.lead):
        await until(lambda: terms.fences, seconds=5, what="it does not lead")
        async with campaigning(other):
            await until(lambda: other.elector.holder, seconds=5, what="the leader is not seen")
            began, renewed = time.monotonic(), candidacy.stats.renewed
            while time.monotonic() - began < 6.0 or candidacy.stats.renewed < renewed + 4:
                hold_up(0.1)
                terms.fences[0].check()
            assert candidacy.stats.suspensions == 0
            assert not other.leading
    assert candidacy.stats.terms == 1


async def test_an_event_loop_that_hangs_does_not_keep_the_lease(
    make: Make, schema_server: ControlPlane, namespace: str
) -> None:
    """Another process leads, and the log shows where this one hangs; what it was about to write is refused."""
    candidacy, terms = make(namespace, tick_seconds=0.1, stall_seconds=1.0), Terms()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"
    others = make(namespace, lease_duration=4)
    led, done = threading.Event(), threading.Event()

    async def lead(fence: Fence) -> None:
        led.set()
        await asyncio.to_thread(done.wait)

    elsewhere = threading.Thread(target=lambda: asyncio.run(others.run(lead)))
    with structlog.testing.capture_logs() as logs:
        async with running(candidacy, terms.lead):
            await until(lambda: terms.fences, seconds=5, what="it does not lead")
            elsewhere.start()
            try:
                assert led.wait(timeout=60)  # on the main thread, whose event loop does not turn meanwhile
                with pytest.raises(NotLeading):
                    terms.fences[0].check()
                assert schema_server.api.get(path)["spec"]["leaseTransitions"] == 2
                await until(lambda: terms.ended, seconds=5, what="its term does not end")
            finally:
                done.set()
                elsewhere.join()
    (stalled,) = [entry for entry in logs if entry["event"] == "loop.stalled"]
    assert any("test_an_event_loop_that_hangs_does_not_keep_the_lease" in frame for frame in stalled["stack"])


class TestTheEnd:
    """However the term or the thread ends, no thread is left, and the Lease is free after the term."""

    async def test_the_term_returns(self, make: Make, transport: Transport, namespace: str) -> None:
        """So does the call."""

        async def lead(fence: Fence) -> None:
            fence.check()

        async with asyncio.timeout(60):
            await make(namespace).run(lead)
        assert (await transport.get(Lease, NAME, namespace)).spec.holder_identity == ""

    async def test_the_term_fails(self, make: Make, transport: Transport, namespace: str) -> None:
        """Its error comes out."""

        async def lead(_: Fence) -> None:
            raise ValueError("broken")

        with pytest.raises(ExceptionGroup) as raised:
            await make(namespace).run(lead)
        assert raised.group_contains(ValueError, match="broken")
        assert (await transport.get(Lease, NAME, namespace)).spec.holder_identity == ""

    async def test_the_term_is_refused_a_write(self, make: Make, namespace: str) -> None:
        """That ends the term, not the process."""
        epochs: list[int] = []

        async def lead(fence: Fence) -> None:
            epochs.append(fence.epoch)
            if len(epochs) == 1:
                raise NotLeading("a write was refused")

        async with asyncio.timeout(60):
            await make(namespace).run(lead)
        assert epochs == [1, 2]

    async def test_the_call_is_cancelled(self, make: Make, transport: Transport, namespace: str) -> None:
        """The term ends first, in its time; then the Lease is released. A second cancellation changes nothing."""
        begun = asyncio.Event()
        holders: list[str | None] = []

        async def lead(_: Fence) -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.3)
                holders.append((await transport.get(Lease, NAME, namespace)).spec.holder_identity)

        async with running(make(namespace), lead) as run:
            await begun.wait()
            run.cancel()
            await asyncio.sleep(0.1)
            run.cancel()
            await asyncio.wait({run})
        assert (holders[0] or "").startswith("own_")
        assert (await transport.get(Lease, NAME, namespace)).spec.holder_identity == ""

    async def test_the_call_is_cancelled_at_once(self, make: Make, namespace: str) -> None:
        """Before the thread has begun."""
        async with running(make(namespace), Terms().lead):
            await asyncio.sleep(0)

    async def test_the_call_is_cancelled_when_the_term_was_just_won(
        self, make: Make, transport: Transport, namespace: str
    ) -> None:
        """A term that waits to be led when the call is cancelled is never led, and the Lease is released."""
        candidacy, terms = make(namespace), Terms()
        async with asyncio.timeout(60), running(candidacy, terms.lead):
            await asyncio.sleep(0)
            deadline = time.monotonic() + 10
            while not candidacy.stats.terms and time.monotonic() < deadline:
                hold_up(0.05)
            hold_up(0.2)
        assert candidacy.stats.terms == 1
        assert terms.fences == []
        assert (await transport.get(Lease, NAME, namespace)).spec.holder_identity == ""

    async def test_the_thread_cannot_connect(self, make: Make, namespace: str, tmp_path: Path) -> None:
        """Its error comes out."""
        with pytest.raises(InvalidValue):
            await make(namespace, kubeconfig=tmp_path / "none").run(Terms().lead)

    async def test_the_thread_fails(self, make: Make, namespace: str) -> None:
        """The term is over, and the error comes out; nobody releases the Lease, which expires."""
        terms = Terms()

        def wall() -> Any:
            if terms.fences:
                raise SystemExit("the thread fails")
            return dt.datetime.now(dt.UTC)

        with pytest.raises(SystemExit):
            async with asyncio.timeout(60):
                await make(namespace, wall=wall).run(terms.lead)
        assert terms.ended == [1]
        assert terms.fences[0].closed


async def test_a_lease_that_was_taken_away_ends_the_term_and_it_leads_again(
    make: Make, schema_server: ControlPlane, namespace: str
) -> None:
    """The next term begins after the first has ended."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"
    terms = Terms()
    async with running(make(namespace), terms.lead):
        await until(lambda: terms.fences, seconds=5, what="it does not lead")
        schema_server.api.patch(path, {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}})
        await until(lambda: len(terms.fences) == 2, seconds=8, what="it does not lead again")
        assert terms.ended == [1]
        assert terms.fences[0].closed


async def test_the_thread_follows_a_token_that_is_replaced(
    make: Make, schema_server: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Renewals go on with the token that the file holds now, after the server has refused the one before."""
    account = schema_server.api.create({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "candidate", "namespace": namespace},
    })  # fmt: skip
    schema_server.api.create({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "candidate", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": namespace}],
    })  # fmt: skip
    token = tmp_path / "token"
    token.write_text(schema_server.service_account_token(namespace, "candidate", seconds=600))
    config = yaml.safe_load(schema_server.kubeconfig().read_text())
    config["users"] = [{"name": user["name"], "user": {"tokenFile": str(token)}} for user in config["users"]]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    candidacy, terms = make(namespace, kubeconfig=kubeconfig), Terms()
    async with running(candidacy, terms.lead):
        await until(lambda: candidacy.stats.renewed, seconds=5, what="it does not renew")
        schema_server.api.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/candidate")
        schema_server.api.create({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "candidate", "namespace": namespace},
        })  # fmt: skip
        token.write_text(schema_server.service_account_token(namespace, "candidate", seconds=600))
        renewed = candidacy.stats.renewed
        await until(lambda: candidacy.stats.renewed > renewed + 1, seconds=5, what="it renews no more")
        assert candidacy.stats.suspensions == 0
        terms.fences[0].check()
