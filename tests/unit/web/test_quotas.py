"""The bars: their parts add up to what is used and lent, and none lies outside."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turnstile.engine.quota.amounts import UNLIMITED, FlavorResource
from turnstile.web.quotas import WIDEST, Quota, scarcest, totals, widest

GPU = FlavorResource("a100", "nvidia.com/gpu")
AMOUNTS = st.integers(0, 50)


@given(
    nominal=st.one_of(AMOUNTS, st.just(UNLIMITED)),
    admitted=AMOUNTS,
    reserved=AMOUNTS,
    leaving=AMOUNTS,
    lent=AMOUNTS,
)
def test_the_parts_of_a_bar(nominal: int, admitted: int, reserved: int, leaving: int, lent: int) -> None:
    """From left to right: used, reserved, leaving; lent at the right end; borrowed over the end of what is used."""
    used = admitted + reserved
    quota = Quota(
        pair=GPU,
        nominal=nominal,
        admitted=admitted,
        reserved=reserved,
        leaving=min(leaving, used),
        borrowed=max(0, used - nominal),
        lent=min(lent, max(0, nominal - used)),
    )
    widest = max(1.0, used / nominal if nominal not in (0, UNLIMITED) else 1.0)
    parts = {part.what: part for part in quota.segments(widest)}
    assert all(part.at >= -1e-9 and part.at + part.wide <= 100 + 1e-9 for part in parts.values())
    solid = [parts[what] for what in ("used", "reserved", "leaving") if what in parts]
    assert abs(sum(part.wide for part in solid) - 100 * used / quota.scale(widest)) < 1e-9
    assert all(abs(one.at + one.wide - other.at) < 1e-9 for one, other in pairwise(solid))
    if "borrowed" in parts:
        assert abs(parts["borrowed"].at - (quota.mark(widest) or 0.0)) < 1e-9
    if "lent" in parts and nominal != UNLIMITED:
        assert abs(parts["lent"].at + parts["lent"].wide - (quota.mark(widest) or 100)) < 1e-9
        assert not solid or solid[-1].at + solid[-1].wide <= parts["lent"].at + 1e-9


def test_no_end_of_the_quota() -> None:
    """An unlimited quota is never full, and has no mark."""
    quota = Quota(pair=GPU, nominal=UNLIMITED, admitted=4)
    assert (quota.limited, quota.mark()) == (False, None)
    assert [part.wide for part in quota.segments()] == [50]


def test_totals() -> None:
    """By flavor and resource."""
    one, other = Quota(pair=GPU, nominal=8, admitted=2, reserved=1), Quota(pair=GPU, nominal=4, admitted=4)
    assert totals([(one,), (other,)]) == [Quota(pair=GPU, nominal=12, admitted=6, reserved=1)]


def test_one_scale() -> None:
    """The nominal quota ends at the same place in every bar, however large it is; one that borrows much is cut off."""
    small, large = Quota(pair=GPU, nominal=8, admitted=12), Quota(pair=GPU, nominal=80, admitted=8)
    scale = widest((small, large))
    assert scale == 1.5
    assert small.mark(scale) == large.mark(scale)
    assert widest([Quota(pair=GPU, nominal=1, admitted=100)]) == WIDEST
    assert widest([]) == 1.0
    assert widest([Quota(pair=GPU, nominal=0, admitted=5), Quota(pair=GPU, nominal=UNLIMITED, admitted=5)]) == 1.0


def test_the_scarcest_is_first() -> None:
    """The one nearest to its end; of equal ones accelerators, then CPUs, then memory."""
    pairs = [FlavorResource("a", name) for name in ("memory", "cpu", "nvidia.com/gpu")]
    equal = [Quota(pair=pair, nominal=8, admitted=4) for pair in pairs]
    assert [each.pair.resource for each in scarcest(equal)] == ["nvidia.com/gpu", "cpu", "memory"]
    fuller = Quota(pair=FlavorResource("b", "memory"), nominal=8, admitted=5)
    assert scarcest([*equal, fuller])[0] == fuller
    lent = Quota(pair=pairs[2], nominal=8, admitted=4, lent=4)
    assert scarcest([fuller, lent])[0] == lent
