"""One leads, whatever happens to it, and another follows in time."""

import asyncio
import datetime as dt
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from testbed import ControlPlane
from tests.cluster.lease_holder import QUICK
from tests.faults.proxy import Proxy, black_hole
from tests.waiting import until
from turnstile.api.errors import NotLeading
from turnstile.kube import auth
from turnstile.kube.fence import Fence
from turnstile.kube.lease import Elector, Lease, micro_time
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

NAME = "turnstile-controller"
HOLDER = Path(__file__).parent / "lease_holder.py"


class Candidate:
    """An elector of this process that notes its terms."""

    def __init__(self, transport: Transport, namespace: str, identity: str, **options: object) -> None:
        self.holders: list[str] = []
        self.elector = Elector(
            transport,
            namespace=namespace,
            name=NAME,
            identity=identity,
            on_change=self.holders.append,
            **{**QUICK, **options},
        )
        self.fences: list[Fence] = []
        self.leading = False
        self.led_at = 0.0
        self.ended_at = 0.0

    async def lead(self, fence: Fence) -> None:
        """Lead until cancelled."""
        self.fences.append(fence)
        self.leading, self.led_at = True, time.monotonic()
        try:
            await asyncio.Event().wait()
        finally:
            self.leading, self.ended_at = False, time.monotonic()


@asynccontextmanager
async def campaigning(*candidates: Candidate) -> AsyncIterator[None]:
    """Let them run for the time of a block, then stop them in order."""
    runs = [asyncio.ensure_future(candidate.elector.run(candidate.lead)) for candidate in candidates]
    try:
        yield
    finally:
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)
    for run in runs:
        assert run.cancelled() or run.exception() is None


@pytest_asyncio.fixture
async def transport(control_plane: ControlPlane) -> AsyncIterator[Transport]:
    """A connection of our own."""
    async with await Transport.connect(str(control_plane.kubeconfig())) as connected:
        yield connected


class Holder:
    """A leader in a process of its own; see lease_holder.py."""

    def __init__(self, control_plane: ControlPlane, namespace: str, identity: str, kubeconfig: Path) -> None:
        self._name = f"lease-holder-{namespace}-{identity}"
        self._log = control_plane.log(self._name)
        self.process = control_plane.start_process(
            self._name,
            [sys.executable, HOLDER, kubeconfig, namespace, NAME, identity],
            cwd=Path(__file__).parents[2],
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def said(self, word: str) -> list[str]:
        """The lines that begin with a word."""
        if not self._log.exists():
            return []
        return [line for line in self._log.read_text().splitlines() if line.startswith(word)]


@pytest.fixture
def holder(control_plane: ControlPlane, namespace: str) -> Iterator[Holder]:
    """A process that campaigns and, as leader, writes the ConfigMap."""
    control_plane.api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": namespace}}
    )
    started = Holder(control_plane, namespace, "other", control_plane.kubeconfig())
    yield started
    started.process.kill()


async def test_a_killed_leader_is_followed_within_five_seconds(
    transport: Transport, namespace: str, holder: Holder
) -> None:
    """SIGKILL leaves the Lease held: the next candidate waits for as long as it was granted, and no longer."""
    await until(lambda: holder.said("leading"), seconds=10, what="the process does not lead")
    candidate = Candidate(transport, namespace, "next")
    async with campaigning(candidate):
        await until(lambda: candidate.elector.holder.startswith("other_"), seconds=5, what="it is not seen")
        await asyncio.sleep(1)
        assert not candidate.leading
        holder.process.kill()
        killed = time.monotonic()
        await until(lambda: candidate.leading, seconds=5, what="nobody follows")
        assert candidate.led_at - killed > 2.5
        assert candidate.fences[0].epoch == 2
        assert [name.rpartition("_")[0] for name in candidate.holders] == ["other", "next"]


async def test_a_terminated_leader_is_followed_within_two_seconds(
    transport: Transport, namespace: str, holder: Holder
) -> None:
    """SIGTERM releases the Lease."""
    await until(lambda: holder.said("leading"), seconds=10, what="the process does not lead")
    candidate = Candidate(transport, namespace, "next")
    async with campaigning(candidate):
        await until(lambda: candidate.elector.holder, seconds=5, what="the leader is not seen")
        holder.process.signal(signal.SIGTERM)
        await until(lambda: candidate.leading, seconds=2, what="nobody follows")
        await until(lambda: holder.said("ended"), seconds=5, what="the process does not end")


async def test_a_leader_that_was_stopped_cannot_write_when_it_goes_on(
    control_plane: ControlPlane, transport: Transport, namespace: str, holder: Holder
) -> None:
    """SIGSTOP, a new leader that writes, SIGCONT: the old one's late write is refused by its own fence."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{NAME}"
    await until(
        lambda: control_plane.api.get(path).get("data", {}).get("writer") == "other", seconds=10, what="no write"
    )
    candidate = Candidate(transport, namespace, "next")
    async with campaigning(candidate):
        await until(lambda: candidate.elector.holder, seconds=5, what="the leader is not seen")
        holder.process.pause()
        await until(lambda: candidate.leading, seconds=6, what="nobody follows")
        candidate.fences[0].check()
        control_plane.api.patch(path, {"data": {"writer": "next"}})
        holder.process.resume()
        await until(lambda: holder.said("refused"), seconds=5, what="the late write is not refused")
        await asyncio.sleep(0.5)
        assert control_plane.api.get(path)["data"]["writer"] == "next"
        assert candidate.leading
        assert len(holder.said("leading")) == 1


async def test_a_leader_cut_off_stops_writing_before_its_lease_ends(
    control_plane: ControlPlane, transport: Transport, namespace: str
) -> None:
    """Behind a black hole its term is suspended, before the other one, who still sees the server, takes over."""
    async with Proxy(await auth.connect(str(control_plane.kubeconfig()))) as way, Transport(way.access) as cut_off:
        first, second = Candidate(cut_off, namespace, "first"), Candidate(transport, namespace, "second")
        async with campaigning(first):
            await until(lambda: first.leading, seconds=5, what="the first does not lead")
            async with campaigning(second):
                await until(lambda: second.elector.holder, seconds=5, what="the leader is not seen")
                way.plan(black_hole, times=float("inf"))
                await until(lambda: first.fences[0].suspended, seconds=3.5, what="it would still write")
                assert not second.leading
                await until(lambda: second.leading, seconds=8, what="nobody follows")
                assert first.leading  # what it has decided is kept, for it may be alone
                with pytest.raises(NotLeading, match="nothing was sent"):
                    first.fences[0].check()
                second.fences[0].check()
                way.clear()
                await until(lambda: not first.leading, seconds=8, what="it does not notice the other one")
                assert first.fences[0].closed
                assert second.leading


async def test_a_server_that_is_away_costs_no_term(
    control_plane: ControlPlane, transport: Transport, namespace: str
) -> None:
    """A pause shorter than the deadline is not noticed; a longer one suspends the term, and then it goes on."""
    candidate = Candidate(transport, namespace, "only")
    async with campaigning(candidate):
        await until(lambda: candidate.leading, seconds=5, what="nobody leads")
        (fence,) = candidate.fences
        control_plane.pause("kube-apiserver")
        await asyncio.sleep(1)
        control_plane.resume("kube-apiserver")
        await asyncio.sleep(1)
        fence.check()
        assert candidate.elector.stats.suspensions == 0
        control_plane.pause("kube-apiserver")
        await until(lambda: fence.suspended, seconds=5, what="it writes without a server")
        writer = asyncio.ensure_future(fence.opened())
        await until(lambda: candidate.elector.stats.suspensions, seconds=5, what="the elector does not notice")
        assert not writer.done()
        control_plane.resume("kube-apiserver")
        await asyncio.wait_for(writer, 60)
        fence.check()
        assert candidate.leading
        assert [each.epoch for each in candidate.fences] == [1]


async def test_a_term_that_another_had_in_between_does_not_go_on(
    control_plane: ControlPlane, transport: Transport, namespace: str
) -> None:
    """The other one led and left again while the first was cut off: the Lease is free, and the first begins anew."""
    async with Proxy(await auth.connect(str(control_plane.kubeconfig()))) as way, Transport(way.access) as cut_off:
        first, second = Candidate(cut_off, namespace, "first"), Candidate(transport, namespace, "second")
        async with campaigning(first):
            await until(lambda: first.leading, seconds=5, what="the first does not lead")
            async with campaigning(second):
                await until(lambda: second.elector.holder, seconds=5, what="the leader is not seen")
                way.plan(black_hole, times=float("inf"))
                await until(lambda: second.leading, seconds=10, what="nobody follows")
            writer = asyncio.ensure_future(first.fences[0].opened())
            way.clear()
            await until(lambda: len(first.fences) == 2, seconds=8, what="it does not lead again")
            with pytest.raises(NotLeading, match="given up"):
                await writer
            assert [fence.epoch for fence in first.fences] == [1, 3]
            assert second.fences[0].closed


async def test_many_candidates_one_leader(transport: Transport, namespace: str) -> None:
    """Of five that start together one leads; as each leaves in order the next follows at once."""
    candidates = [Candidate(transport, namespace, f"c{number}") for number in range(5)]
    runs = {candidate: asyncio.ensure_future(candidate.elector.run(candidate.lead)) for candidate in candidates}
    epochs = []
    try:
        while runs:
            await until(lambda: any(c.leading for c in runs), seconds=2, what="nobody leads")
            (leader,) = (candidate for candidate in runs if candidate.leading)
            epochs.append(leader.fences[-1].epoch)
            runs[leader].cancel()
            await asyncio.wait([runs.pop(leader)])
    finally:
        for run in runs.values():
            run.cancel()
    assert epochs == [1, 2, 3, 4, 5]


class TestTheEndOfATerm:
    """However `lead` ends, the Lease is free at once, unless it was lost."""

    async def test_lead_returns(self, transport: Transport, namespace: str) -> None:
        """The call returns too."""
        elector = Elector(transport, namespace=namespace, name=NAME, identity="done", **QUICK)

        async def lead(fence: Fence) -> None:
            fence.check()

        await asyncio.wait_for(elector.run(lead), 60)
        assert elector.holder == ""

    async def test_lead_fails(self, transport: Transport, namespace: str) -> None:
        """The error comes out, and the Lease is released."""
        elector = Elector(transport, namespace=namespace, name=NAME, identity="broken", **QUICK)

        async def lead(_fence: Fence) -> None:
            raise ValueError("broken")

        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(elector.run(lead), 60)
        assert raised.group_contains(ValueError, match="broken")
        assert (await transport.get(Lease, NAME, namespace)).spec.holder_identity == ""

    async def test_lead_keeps_the_lease(self, transport: Transport, namespace: str) -> None:
        """A write of its may still take effect: no other process leads before the Lease has expired."""
        elector = Elector(transport, namespace=namespace, name=NAME, identity="keeping", **QUICK)

        async def lead(fence: Fence) -> None:
            fence.keep()

        await asyncio.wait_for(elector.run(lead), 60)
        assert (await transport.get(Lease, NAME, namespace)).spec.holder_identity == elector.identity

    async def test_lead_is_told_first(self, transport: Transport, namespace: str) -> None:
        """A NotLeading that escapes from it is the end of the term, not of the process."""
        elector = Elector(transport, namespace=namespace, name=NAME, identity="told", **QUICK)
        epochs: list[int] = []

        async def lead(fence: Fence) -> None:
            epochs.append(fence.epoch)
            if len(epochs) == 1:
                raise NotLeading("a write was refused")

        await asyncio.wait_for(elector.run(lead), 60)
        assert epochs == [1, 2]


async def test_losing_the_record_ends_the_term(
    control_plane: ControlPlane, transport: Transport, namespace: str
) -> None:
    """Someone writes another holder into the Lease, or deletes it: the leader stops before anyone else can start."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"
    candidate = Candidate(transport, namespace, "robbed")
    async with campaigning(candidate):
        await until(lambda: candidate.leading, seconds=5, what="nobody leads")
        control_plane.api.patch(path, {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}})
        await until(lambda: not candidate.leading, seconds=2, what="it leads on")
        await until(lambda: candidate.leading, seconds=4, what="it does not come back")
        control_plane.api.delete(path)
        await until(lambda: len(candidate.fences) == 3, seconds=4, what="it does not notice the deletion")
        assert candidate.leading


async def test_a_label_on_the_lease_costs_nothing(
    control_plane: ControlPlane, transport: Transport, namespace: str
) -> None:
    """A change that is not of the record makes the renewal conflict; it is read and renewed again, and kept."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"
    candidate = Candidate(transport, namespace, "labelled")
    async with campaigning(candidate):
        await until(lambda: candidate.leading, seconds=5, what="nobody leads")
        for number in range(5):
            control_plane.api.patch(path, {"metadata": {"labels": {"touched": str(number)}}})
            await asyncio.sleep(0.5)
        assert candidate.leading
        assert len(candidate.fences) == 1
        assert control_plane.api.get(path)["metadata"]["labels"] == {"touched": "4"}


async def test_the_record_is_what_others_read(
    control_plane: ControlPlane, transport: Transport, namespace: str
) -> None:
    """Holder, duration, times in UTC and transitions while led; no holder after a release."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"
    candidate = Candidate(transport, namespace, "me")
    async with campaigning(candidate):
        await until(lambda: candidate.leading, seconds=5, what="nobody leads")
        spec = control_plane.api.get(path)["spec"]
        assert spec["holderIdentity"] == candidate.elector.identity
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (4, 1)
        renewed = dt.datetime.fromisoformat(spec["renewTime"])
        assert abs(dt.datetime.now(dt.UTC) - renewed) < dt.timedelta(seconds=5)
    assert control_plane.api.get(path)["spec"]["holderIdentity"] == ""


async def test_a_time_without_microseconds_is_understood(transport: Transport, namespace: str) -> None:
    """The server wants six digits; a wall clock at a whole second has them too."""
    whole = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=-5)))
    assert micro_time(whole) == "2026-01-02T08:04:05.000000Z"
    candidate = Candidate(transport, namespace, "punctual", wall=lambda: whole)
    async with campaigning(candidate):
        await until(lambda: candidate.leading, seconds=5, what="nobody leads")
        lease = await transport.get(Lease, NAME, namespace)
        assert lease.spec.renew_time == "2026-01-02T08:04:05.000000Z"
