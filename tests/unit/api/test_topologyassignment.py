"""An assignment to domains reads as it was written, in either form."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.api.topology import (
    HOSTNAME,
    IndividualValues,
    LevelValues,
    SlicePodCounts,
    TopologyAssignment,
    TopologyAssignmentSlice,
)
from turnstile.api.topologyassignment import Domain, compact, decode, encode, expand, hosts

NAMES = st.lists(st.sampled_from(["a", "b", "pool", "node", "0", "1", ""]), min_size=1, max_size=4).map("-".join)


def assignments(levels: int) -> st.SearchStrategy[list[Domain]]:
    """Lists of domains; host names that share prefixes are likely."""
    return st.lists(st.builds(Domain, st.tuples(*[NAMES] * levels), st.integers(1, 3)), max_size=12)


@given(st.one_of(assignments(1), assignments(3)), st.booleans())
def test_domains_are_read_as_they_were_written(domains: list[Domain], split: bool) -> None:
    """With their counts, and in their order, which gives pods their ranks."""
    levels = ["block", "rack", HOSTNAME][-len(domains[0].values) if domains else 0 :]
    assert list(decode(encode(levels, domains, split=split))) == domains


@given(assignments(2))
def test_the_list_of_v1beta1_survives_the_runs_of_v1beta2(domains: list[Domain]) -> None:
    """A reader of the old version sees what it wrote."""
    listed = {
        "levels": ["rack", HOSTNAME],
        "domains": [{"values": list(domain.values), "count": domain.pods} for domain in domains],
    }
    assert expand(compact(listed)) == listed


@given(assignments(1))
def test_runs_by_prefix_are_never_longer_than_one_run(domains: list[Domain]) -> None:
    """They are written only if they are no longer."""
    one, best = (msgspec.json.encode(encode([HOSTNAME], domains, split=split)) for split in (False, True))
    assert len(best) <= len(one)


def test_a_prefix_of_host_names_is_said_once() -> None:
    """Two pools of nodes make two runs."""
    domains = [Domain((f"pool-{pool}-node-{number}",), 1) for pool in "ab" for number in range(20)]
    first, second = encode([HOSTNAME], domains).slices
    assert (first.domain_count, second.domain_count) == (20, 20)
    assert first.values_per_level[0].individual is not None
    assert first.values_per_level[0].individual.prefix == "pool-a-node-"


def test_a_wide_level_is_not_a_host() -> None:
    """An assignment to racks names no nodes."""
    assert not list(hosts(encode(["rack"], [Domain(("r1",), 2)])))
    assert list(hosts(encode(["rack", HOSTNAME], [Domain(("r1", "x1"), 2)]))) == ["x1"]
    assert not list(hosts(None))


def test_a_count_without_names_bounds_no_loop() -> None:
    """An object may state two thousand million domains in a few bytes."""
    run = TopologyAssignmentSlice(
        domain_count=2**31 - 1,
        values_per_level=[LevelValues(universal="x1")],
        pod_counts=SlicePodCounts(universal=1),
    )
    assert not list(decode(TopologyAssignment(levels=[HOSTNAME], slices=[run] * 1000)))


@pytest.mark.parametrize("count", [1, 3])
def test_a_malformed_run_ends_with_what_it_names(count: int) -> None:
    """Two names and another number of domains: two domains."""
    run = TopologyAssignmentSlice(
        domain_count=count,
        values_per_level=[LevelValues(universal="r1"), LevelValues(individual=IndividualValues(roots=["x1", "x2"]))],
        pod_counts=SlicePodCounts(individual=[1, 2, 3]),
    )
    found = list(decode(TopologyAssignment(levels=["rack", HOSTNAME], slices=[run])))
    assert found == [Domain(("r1", "x1"), 1), Domain(("r1", "x2"), 2)][: min(count, 2)]
