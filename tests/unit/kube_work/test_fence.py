"""The fence is open from the start of a renewal for as long as the Lease surely lasts; once closed it stays closed."""

import pytest

from app.api.errors import InvalidValue, NotLeading
from app.kube.lease import Elector, Fence, monotonic
from tests.cluster.lease_holder import QUICK


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
