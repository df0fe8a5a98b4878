"""The bars: their parts add up to what is used and lent, and none lies outside."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turnstile.engine.quota.amounts import UNLIMITED, FlavorResource
from turnstile.web.quotas import Quota, totals

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
    parts = {part.what: part for part in quota.segments()}
    assert all(part.at >= -1e-9 and part.at + part.wide <= 100 + 1e-9 for part in parts.values())
    solid = [parts[what] for what in ("used", "reserved", "leaving") if what in parts]
    assert abs(sum(part.wide for part in solid) - 100 * used / quota.scale) < 1e-9
    assert all(abs(one.at + one.wide - other.at) < 1e-9 for one, other in pairwise(solid))
    if "borrowed" in parts:
        assert quota.mark is not None
        assert abs(parts["borrowed"].at - quota.mark) < 1e-9
    if "lent" in parts:
        assert abs(parts["lent"].at + parts["lent"].wide - 100) < 1e-9
        assert not solid or solid[-1].at + solid[-1].wide <= parts["lent"].at + 1e-9


def test_no_end_of_the_quota() -> None:
    """An unlimited quota is never full, and has no mark."""
    quota = Quota(pair=GPU, nominal=UNLIMITED, admitted=4)
    assert (quota.limited, quota.mark) == (False, None)
    assert [part.wide for part in quota.segments()] == [50]


def test_totals() -> None:
    """By flavor and resource."""
    one, other = Quota(pair=GPU, nominal=8, admitted=2, reserved=1), Quota(pair=GPU, nominal=4, admitted=4)
    assert totals([(one,), (other,)]) == [Quota(pair=GPU, nominal=12, admitted=6, reserved=1)]
