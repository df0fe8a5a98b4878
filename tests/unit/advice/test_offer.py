"""What each ClusterQueue could be given is kept change by change, and is what the engine's tree computes."""

import random

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.advice.offer import Offer
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Namespace
from turnstile.api.errors import InvalidValue
from turnstile.engine import Options
from turnstile.engine.quota import tree

FLAVORS = ("small", "large")
COHORTS = ("root", "left", "right", "leaf")
QUEUES = tuple(f"q{number}" for number in range(6))


def fresh(offer: Offer) -> dict[tuple[str, str], int]:
    """What a ledger that is settled says of all queues."""
    ledger = offer.state.ledger
    ledger.settle()
    pair = offer.state.surroundings.catalog.pair
    return {
        (name, flavor): tree.potential(queue.node, pair(flavor, "cpu"))
        for name, queue in offer.state.cluster_queues.items()
        for flavor in FLAVORS
        if not offer.cyclic(queue)
    }


def kept(offer: Offer) -> dict[tuple[str, str], int]:
    """What the offer says of them, before anything computes it anew."""
    return {
        (name, flavor): offer.most(queue, flavor, "cpu")
        for name, queue in offer.state.cluster_queues.items()
        for flavor in FLAVORS
        if not offer.cyclic(queue)
    }


def amounts(lots: random.Random) -> dict[str, dict[str, object]]:
    """Quotas with limits, some of them without end."""

    def quota() -> tuple[object, object, object]:
        unlimited = str((1 << 63) - 1)
        nominal = lots.choice([lots.randint(0, 9), lots.randint(0, 9), unlimited])
        return nominal, lots.choice([None, None, lots.randint(0, 5)]), lots.choice([None, None, lots.randint(0, 5)])

    return {flavor: {"cpu": quota()} for flavor in lots.sample(FLAVORS, lots.randint(1, 2))}


def change(lots: random.Random, offer: Offer) -> None:
    """One ClusterQueue or Cohort is made, changed, moved or deleted."""
    if lots.random() < 0.6:
        name = lots.choice(QUEUES)
        if lots.random() < 0.2:
            offer.drop(ClusterQueue, name)
        else:
            offer.put(b.queue(name, amounts(lots), lots.choice([None, *COHORTS])))
        return
    name = lots.choice(COHORTS)
    if lots.random() < 0.3:
        offer.drop(Cohort, name)
    else:
        offer.put(b.cohort(name, amounts(lots), lots.choice([None, None, *COHORTS])))


@pytest.mark.parametrize("seed", range(60))
def test_it_is_what_the_tree_computes(seed: int) -> None:
    """After each of many changes, also while cohorts form a cycle and after that."""
    lots = random.Random(seed)
    whole, offer = Offer(Options()), Offer(Options())
    for _ in range(60):
        choices = lots.getstate()
        change(lots, offer)
        lots.setstate(choices)
        change(lots, whole)
        assert kept(offer) == fresh(whole)


def test_an_object_that_cannot_be_read_changes_nothing() -> None:
    """The quota stays as it was."""
    offer = Offer(Options())
    offer.put(b.queue("main", {"small": {"cpu": 4}}))
    with pytest.raises(InvalidValue):
        offer.put(b.queue("main", {"small": {"cpu": "many"}}))
    queue = offer.cluster_queue("main")
    assert queue is not None
    assert offer.most(queue, "small", "cpu") == 4000


def test_objects_by_name() -> None:
    """Namespaces are known until they are gone."""
    offer = Offer(Options())
    offer.put(msgspec.convert({"metadata": {"name": "team", "labels": {"tier": "gold"}}}, Namespace))
    assert offer.namespace_labels("team") == {"tier": "gold"}
    offer.drop(Namespace, "team")
    assert offer.namespace_labels("team") is None
