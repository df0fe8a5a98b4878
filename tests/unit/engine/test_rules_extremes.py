"""Quota without end, amounts near the largest int64, and cohorts in which hardly anybody admits.

The rules are those of Kueue's amounts (unlimited less a number is unlimited, unlimited less unlimited is nothing, sums
saturate) and of its snapshots, in which a queue that admits nothing is missing while its quota is not.
"""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.quantity import MAX_INT64
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import FairSharing
from turnstile.engine.pace import Pace, finish
from turnstile.engine.quota import shares, tree
from turnstile.engine.quota.amounts import FlavorResource, bounded
from turnstile.engine.quota.tree import Node

ENDLESS = MAX_INT64


def node(state: State, name: str) -> Node:
    """A ClusterQueue in the tree, or a Cohort."""
    state.ledger.settle()
    queue = state.cluster_queues.get(name)
    return queue.node if queue is not None else state.ledger.cohorts[name]


def gpu(state: State) -> FlavorResource:
    """The pair all of this is about."""
    return state.surroundings.catalog.pair("default", "gpu")


def queue(name: str, nominal: Any, borrowing: Any = None, lending: Any = None, **spec: Any) -> Any:
    """A queue of devices in the cohort `team`."""
    return b.queue(name, {"default": {"gpu": (nominal, borrowing, lending)}}, "team", **spec)


def workload(name: str, line: str, amount: int, *more: int, priority: int = 0) -> Workload:
    """A workload that asks for so many devices in each of its pod sets."""
    body = msgspec.to_builtins(b.workload(name, line, priority=priority))
    body["spec"]["podSets"] = [
        {
            "name": f"p{index}",
            "count": 1,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"gpu": str(each)}}}]}},
        }
        for index, each in enumerate((amount, *more))
    ]
    return msgspec.convert(body, Workload)


class TestQuotaWithoutEnd:
    """The largest int64 as nominal quota, and more than that."""

    def test_a_lending_limit_keeps_all_of_it(self) -> None:
        """What is kept is unlimited less the limit, which is unlimited: nothing is left to lend."""
        state = b.world(queue("a", ENDLESS, lending=5), queue("b", 1))
        assert node(state, "team").subtree[gpu(state)] == 1
        assert tree.available(node(state, "b"), gpu(state)) == 1
        assert bounded(tree.available(node(state, "a"), gpu(state))) == ENDLESS

    def test_an_unlimited_lending_limit_lends_all_of_it(self) -> None:
        """Nothing is kept then."""
        state = b.world(queue("a", ENDLESS, lending=ENDLESS), queue("b", 1))
        assert bounded(tree.available(node(state, "b"), gpu(state))) == ENDLESS
        assert bounded(tree.potential(node(state, "b"), gpu(state))) == ENDLESS

    def test_a_borrowing_limit_holds_beside_it(self) -> None:
        """What may be borrowed of it is limited all the same."""
        state = b.world(queue("a", ENDLESS), queue("b", 1, 3))
        assert tree.available(node(state, "b"), gpu(state)) == 4
        assert tree.potential(node(state, "b"), gpu(state)) == 4

    def test_an_unlimited_borrowing_limit_is_none(self) -> None:
        """It is past what any cohort has."""
        state = b.world(queue("a", 5), queue("b", 1, ENDLESS))
        assert tree.available(node(state, "b"), gpu(state)) == 6

    def test_quotas_that_add_up_past_int64_are_without_end(self) -> None:
        """A sum does not wrap, and it has no end either."""
        half = 2**62
        state = b.world(queue("a", half), queue("b", half), queue("c", half))
        tree.add_usage(node(state, "a"), gpu(state), half)
        assert bounded(tree.available(node(state, "c"), gpu(state))) == ENDLESS

    def test_a_borrowing_limit_on_top_of_a_large_quota_does_not_wrap(self) -> None:
        """Nominal quota and limit together are past int64."""
        large = MAX_INT64 - 1
        state = b.world(queue("a", large), queue("b", large, large))
        assert bounded(tree.potential(node(state, "b"), gpu(state))) == ENDLESS
        state.put_workload(workload("w", "b", large), b.NOW)
        assert [decision.outcome for decision in cycle(state, b.NOW)] == ["admit"]

    def test_nothing_is_left_once_as_much_is_used(self) -> None:
        """Unlimited less unlimited is nothing, and it comes back with the workload."""
        state = b.world(b.queue("a", {"default": {"gpu": ENDLESS}}))
        state.put_workload(workload("all", "a", ENDLESS), b.NOW)
        assert [decision.outcome for decision in cycle(state, b.NOW)] == ["admit"]
        state.put_workload(workload("more", "a", 1), b.NOW)
        assert [decision.message for decision in b.settle(state)] == [
            "couldn't assign flavors to pod set p0: insufficient unused quota for gpu in flavor default, 1 more needed"
        ]
        state.drop_workload("team/all")
        assert [decision.outcome for decision in b.settle(state)] == ["admit"]

    def test_pod_sets_that_add_up_past_int64_saturate(self) -> None:
        """They fit quota without end, and are counted as no more than that."""
        state = b.world(b.queue("a", {"default": {"gpu": ENDLESS}}))
        state.put_workload(workload("w", "a", MAX_INT64 - 1, MAX_INT64 - 1), b.NOW)
        assert [decision.outcome for decision in cycle(state, b.NOW)] == ["admit"]
        assert node(state, "a").usage[gpu(state)] == MAX_INT64

    def test_they_do_not_fit_a_large_quota(self) -> None:
        """However large it is."""
        state = b.world(b.queue("a", {"default": {"gpu": MAX_INT64 - 1}}))
        state.put_workload(workload("w", "a", MAX_INT64 - 1, MAX_INT64 - 1), b.NOW)
        (decision,) = cycle(state, b.NOW)
        assert decision.outcome == "pending"
        assert decision.condition_reason == "ExceedsMaxQuota"


class TestShares:
    """Dominant resource shares beside quota without end."""

    def test_what_is_lent_without_end_is_the_largest_number(self) -> None:
        """A borrower's share of it is next to nothing, but it is there, and rounds up to one thousandth."""
        state = b.world(queue("a", ENDLESS), queue("b", 1))
        assert shares.lendable(node(state, "team")) == {"gpu": MAX_INT64}
        tree.add_usage(node(state, "b"), gpu(state), 11)
        assert shares.dominant(node(state, "b")) == (10 * 1000.0 / MAX_INT64, "gpu")
        assert shares.share(node(state, "b")).status == 1

    def test_a_share_by_a_tiny_weight_stays_within_int64(self) -> None:
        """It is told as the largest number there is, and is not infinite."""
        state = b.world(queue("a", 1), queue("b", 0, fairSharing={"weight": "1n"}))
        tree.add_usage(node(state, "b"), gpu(state), 2**62)
        found = shares.share(node(state, "b"))
        assert (found.infinite, found.status) == (False, MAX_INT64)

    def test_a_resource_with_an_end_dominates(self) -> None:
        """Its share is larger, however little is borrowed of it."""
        quotas = {"default": {"gpu": ENDLESS, "cpu": 1000}}
        state = b.world(b.queue("a", quotas, "team"), b.queue("b", {"default": {"gpu": 0, "cpu": 0}}, "team"))
        tree.add_usage(node(state, "b"), gpu(state), 2**40)
        tree.add_usage(node(state, "b"), state.surroundings.catalog.pair("default", "cpu"), 1)
        assert shares.dominant(node(state, "b"))[1] == "cpu"

    def test_the_smaller_share_of_quota_without_end_comes_first(self) -> None:
        """Two borrowers of it are told apart."""
        queues = queue("a", ENDLESS), queue("b", 0), queue("c", 0)
        state = b.world(*queues, options=Options(fair_sharing=FairSharing()))
        state.put_workload(b.held("running", "b", {"gpu": "7"}), b.NOW)
        for name in ("b", "c"):
            state.put_workload(workload(f"of-{name}", name, 2), b.NOW)
        assert cycle(state, b.NOW).order == ["team/of-c", "team/of-b"]


class TestHeight:
    """How far away quota is borrowed from: heights are those of a tree without the queues that admit nothing."""

    def grow(self, *, stopped: str = "None") -> State:
        """`top` has `q` and the cohort `side`, which has one queue."""
        state = b.world(
            b.queue("q", {"default": {"cpu": 1}}, "top"),
            b.queue("r", {"default": {"cpu": 5}}, "side", stopPolicy=stopped),
        )
        state.put_cohort(b.cohort("side", parent="top"))
        state.ledger.settle()
        return state

    def level(self, state: State) -> tuple[int, bool]:
        """Of two cores for `q`."""
        finish(state.catching_up(Pace()))
        pair = state.surroundings.catalog.pair("default", "cpu")
        return tree.level(node(state, "q"), pair, 2000)

    @pytest.mark.parametrize(("stopped", "height"), [("None", 2), ("Hold", 1)])
    def test_a_stopped_queue_adds_nothing(self, stopped: str, height: int) -> None:
        """Its cohort is as low as one without members; the quota is lent all the same."""
        state = self.grow(stopped=stopped)
        assert self.level(state) == (height, False)
        state.put_workload(b.workload("w", "q", cpu=6), b.NOW)
        (decision,) = cycle(state, b.NOW)
        assert (decision.outcome, decision.borrowing) == ("admit", height)

    def test_it_follows_when_a_queue_stops_admitting(self) -> None:
        """A flavor goes, and comes back; nothing of that is a change of quota."""
        state = b.world(
            b.queue("q", {"default": {"cpu": 1}}, "top"),
            b.queue("r", {"other": {"cpu": 5}, "default": {"cpu": 5}}, "side"),
            flavors=("default", "other"),
        )
        state.put_cohort(b.cohort("side", parent="top"))
        assert self.level(state) == (2, False)
        generation = state.cluster_queues["q"].generation
        state.drop_flavor("other")
        assert self.level(state) == (1, False)
        state.put_flavor(b.flavor("other"))
        assert self.level(state) == (2, False)
        assert state.cluster_queues["q"].generation == generation

    def test_who_is_nearer_to_the_quota_it_borrows_comes_first(self) -> None:
        """Of two trees that are alike but for a stopped queue, the one that is lower without it."""
        queues = [b.queue(f"{tree_}-q", {"default": {"cpu": 1}}, f"{tree_}-top") for tree_ in ("deep", "flat")] + [
            b.queue(f"{tree_}-r", {"default": {"cpu": 5}}, f"{tree_}-side", stopPolicy=policy)
            for tree_, policy in (("deep", "None"), ("flat", "Hold"))
        ]
        state = b.world(*queues)
        for tree_ in ("deep", "flat"):
            state.put_cohort(b.cohort(f"{tree_}-side", parent=f"{tree_}-top"))
            state.put_workload(b.workload(f"w-{tree_}", f"{tree_}-q", cpu=2), b.NOW)
        assert cycle(state, b.NOW).order == ["team/w-flat", "team/w-deep"]


def test_a_request_that_is_too_large_is_named_as_a_number() -> None:
    """A request has an end, other than a quota: it is held within int64, and told so."""
    state = b.world(b.queue("a"))
    state.put_workload(b.workload("w", cpu="9223372036854776"), b.NOW)
    (decision,) = cycle(state, b.NOW)
    assert decision.message == (
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered"
        " podsets requests (0) + current podset request (9223372036854775807m) > maximum capacity (10)"
    )
