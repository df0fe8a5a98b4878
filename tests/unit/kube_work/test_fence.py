"""The fence is open from the start of a renewal for as long as the Lease surely lasts; once closed it stays closed."""

import asyncio
import threading

import pytest

from tests.cluster.lease_holder import QUICK
from turnstile.api.errors import InvalidValue, NotLeading
from turnstile.kube.fence import Fence, monotonic
from turnstile.kube.lease import Elector


class Clock:
    """A clock to turn by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """The reading."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At 100 seconds."""
    return Clock()


@pytest.fixture
def fence(clock: Clock) -> Fence:
    """Renewed at 100 for 3.5 seconds."""
    return Fence(clock=clock, epoch=7, renewed_at=100.0, span=3.5)


def test_is_open_until_its_span_has_passed(fence: Fence, clock: Clock) -> None:
    """To the moment, and the error says which term and by how much."""
    clock.now = 103.4
    fence.check()
    assert fence.remaining == pytest.approx(0.1)
    clock.now = 103.5
    with pytest.raises(NotLeading):
        fence.check()
    clock.now = 105.0
    with pytest.raises(NotLeading, match=r"epoch 7: the Lease ran out 1\.500 s ago; nothing was sent"):
        fence.check()


def test_counts_from_the_start_of_a_renewal(fence: Fence, clock: Clock) -> None:
    """A slow answer does not lengthen the term."""
    clock.now = 103.0
    fence.extend(101.0)
    clock.now = 104.4
    fence.check()
    clock.now = 104.6
    with pytest.raises(NotLeading):
        fence.check()


def test_a_renewal_that_succeeds_late_opens_it_again(fence: Fence, clock: Clock) -> None:
    """The server took it, so nobody else had the Lease meanwhile."""
    clock.now = 104.0
    fence.extend(103.0)
    fence.check()


def test_stays_closed(fence: Fence) -> None:
    """The term is over, whatever answer comes later."""
    fence.close()
    fence.extend(1e9)
    assert fence.remaining < 0
    with pytest.raises(NotLeading, match="given up"):
        fence.check()


@pytest.mark.asyncio
class TestSuspended:
    """Between the end of its span and the next renewal, writers wait."""

    async def test_writers_wait_for_the_next_renewal(self, fence: Fence, clock: Clock) -> None:
        """All of them, and go on when it has succeeded."""
        clock.now = 104.0
        assert fence.suspended
        writers = [asyncio.ensure_future(fence.opened()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(writer.done() for writer in writers)
        fence.extend(103.0)
        async with asyncio.timeout(60):
            await asyncio.gather(*writers)
        assert not fence.suspended

    async def test_a_renewal_that_was_started_too_long_ago_opens_nothing(self, fence: Fence, clock: Clock) -> None:
        """Its answer came after its own span."""
        clock.now = 104.0
        writer = asyncio.ensure_future(fence.opened())
        await asyncio.sleep(0)
        fence.extend(100.4)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer, 0.05)

    async def test_writers_of_a_term_that_is_over_are_refused(self, fence: Fence, clock: Clock) -> None:
        """Those that wait, and those that come later."""
        clock.now = 104.0
        writer = asyncio.ensure_future(fence.opened())
        await asyncio.sleep(0)
        fence.close()
        for refused in (writer, fence.opened()):
            with pytest.raises(NotLeading, match="given up"):
                async with asyncio.timeout(60):
                    await refused
        assert not fence.suspended

    async def test_a_writer_that_was_cancelled_is_not_woken(self, fence: Fence, clock: Clock) -> None:
        """Nothing fails when the others are."""
        clock.now = 104.0
        gone, writer = asyncio.ensure_future(fence.opened()), asyncio.ensure_future(fence.opened())
        await asyncio.sleep(0)
        gone.cancel()
        fence.extend(104.0)
        async with asyncio.timeout(60):
            await writer
        assert gone.cancelled()

    async def test_no_renewal_of_another_thread_is_missed(self) -> None:
        """Whenever it comes: a thread suspends and renews without a pause, and a writer waits thousands of times."""
        clock = Clock()
        fence = Fence(clock=clock, epoch=1, renewed_at=100.0, span=1.0)
        done = threading.Event()

        def renew() -> None:
            while not done.is_set():
                clock.now += 2.0
                fence.extend(clock.now)

        thread = threading.Thread(target=renew)
        thread.start()
        try:
            async with asyncio.timeout(60):
                for _ in range(5_000):
                    await fence.opened()
                    await asyncio.sleep(0)
        finally:
            done.set()
            thread.join()


def test_the_clock_only_goes_forward() -> None:
    """Readings never decrease."""
    readings = [monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_duration": 0},
        {"renew_deadline": 3.6},
        {"renew_deadline": 4.5, "margin": 0.0},
        {"renew_period": 3.0},
        {"renew_period": 0.0},
        {"lease_duration": 3},
    ],
)
def test_durations_with_which_two_could_lead_are_refused(wrong: dict[str, float]) -> None:
    """A leader must give up before a candidate may take over."""
    with pytest.raises(InvalidValue):
        Elector(None, namespace="n", name="l", identity="i", **{**QUICK, **wrong})  # type: ignore[arg-type]


def test_two_of_one_name_are_two() -> None:
    """An identity is unique, or both would take the Lease for theirs."""
    first, second = (Elector(None, namespace="n", name="l", identity="i") for _ in range(2))  # type: ignore[arg-type]
    assert first.identity != second.identity
    assert first.identity.startswith("i_")


def test_no_other_process_leads_for_a_while_after_the_fence_has_closed_for_writers() -> None:
    """So long a write that was sent in time may take effect; after the end of the term it may not."""
    now = 100.0
    fence = Fence(clock=lambda: now, epoch=1, renewed_at=100.0, span=10.0, grace=4.5)
    assert fence.exclusive() == 14.5
    now = 112.0
    assert fence.exclusive() == 2.5
    fence.close()
    assert fence.exclusive() < 0
