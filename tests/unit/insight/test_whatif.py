"""What if: the answer is what the engine decides, with the objects as they are supposed to be."""

from collections.abc import Iterator

import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Pod
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import State, cycle
from turnstile.insight.whatif import Fate, Outlook, WhatIf

PREEMPTION = {"withinClusterQueue": "LowerPriority"}


def asked(state: State, question: WhatIf) -> tuple[list[tuple[str, str, int]], Outlook]:
    """Who has which fate in which cycle, and the outlook."""
    *fates, outlook = question.answer(state)
    assert isinstance(outlook, Outlook)
    return [(fate.key, fate.outcome, fate.cycle) for fate in fates if isinstance(fate, Fate)], outlook


def busy() -> State:
    """A queue of 4 cpus: one runs on two of them, and two wait that want three."""
    state = b.world(b.queue("main", {"default": {"cpu": 4}}, preemption=PREEMPTION))
    state.put_workload(b.held("runs", "main", {"cpu": "2"}, flavor="default"), b.NOW)
    state.put_workload(b.workload("first", cpu=3, second=1), b.NOW)
    state.put_workload(b.workload("second", cpu=3, second=2), b.NOW)
    return state


class TestWhatIf:
    """What a question changes, and what it is told."""

    def test_nothing_changes(self) -> None:
        """Who waits goes on waiting, and why."""
        *fates, outlook = WhatIf(now=b.NOW).answer(busy())
        assert outlook == Outlook(admitted=0, preempted=0, pending=2, cycles=1, settled=True)
        first = fates[0]
        assert isinstance(first, Fate)
        assert (first.key, first.outcome, first.cluster_queue) == ("team/first", "pending", "main")
        assert first.message.startswith("couldn't assign flavors to pod set main: insufficient unused quota for cpu")
        assert first.explanation == "Waits for 1 more CPU on default nodes: asks 3, 2 free."

    def test_another_workload(self) -> None:
        """It need not exist, and goes before others by its priority; its fate comes first of those who wait."""
        new = b.workload("new", cpu=2, priority=1)
        fates, outlook = asked(busy(), WhatIf(now=b.NOW, put=[new]))
        assert fates[0] == ("team/new", "admitted", 1)
        assert outlook.pending == 2
        wide = b.workload("wide", cpu=5, priority=1)
        assert asked(busy(), WhatIf(now=b.NOW, put=[wide], listed=0))[0] == [("team/wide", "pending", 2)]

    def test_the_same_workload_otherwise(self) -> None:
        """Whatever version is known of it."""
        state = busy()
        state.put_workload(b.workload("second", cpu=3, second=2, version=9), b.NOW)
        fates, _ = asked(state, WhatIf(now=b.NOW, put=[b.workload("second", cpu=2, second=2, version=1)]))
        assert ("team/second", "admitted", 2) in fates

    def test_a_victim_is_gone_in_the_next_cycle(self) -> None:
        """It waits again, and its preemptor is admitted."""
        new = b.workload("new", cpu=4, priority=1)
        *fates, outlook = WhatIf(now=b.NOW, put=[new]).answer(busy())
        assert isinstance(fates[0], Fate)
        assert (fates[0].key, fates[0].outcome, fates[0].preemptor) == ("team/runs", "preempted", "team/new")
        assert fates[0].reason == "InClusterQueue"
        assert isinstance(fates[1], Fate)
        assert (fates[1].key, fates[1].outcome, fates[1].cycle) == ("team/new", "admitted", 2)
        assert fates[1].flavors == ({"cpu": "default"},)
        assert isinstance(outlook, Outlook)
        assert (outlook.admitted, outlook.preempted, outlook.pending) == (1, 1, 3)

    def test_one_that_is_only_assumed_is_a_victim_too(self) -> None:
        """Its admission is not written yet."""
        state = b.world(b.queue("main", {"default": {"cpu": 2}}, preemption=PREEMPTION))
        state.put_workload(b.workload("low", cpu=2), b.NOW)
        cycle(state, b.NOW)
        assert "team/low" in state.reservations.assumed
        new = b.workload("new", cpu=2, priority=1)
        assert asked(state, WhatIf(now=b.NOW, put=[new]))[0] == [
            ("team/low", "preempted", 1),
            ("team/new", "admitted", 2),
            ("team/low", "pending", 3),
        ]

    def test_one_cycle_alone(self) -> None:
        """What the scheduler decides next."""
        new = b.workload("new", cpu=4, priority=1)
        fates, outlook = asked(busy(), WhatIf(now=b.NOW, put=[new], cycles=1, listed=1))
        assert fates == [("team/runs", "preempted", 1), ("team/new", "pending", 1), ("team/first", "pending", 1)]
        assert not outlook.settled

    def test_what_is_listed_is_bounded(self) -> None:
        """All are counted, and those that were asked for are listed."""
        state = b.world(b.queue("main", {"default": {"cpu": 4}}))
        for index in range(9):
            state.put_workload(b.workload(f"w{index}", cpu=1, second=index), b.NOW)
        fates, outlook = asked(state, WhatIf(now=b.NOW, put=[b.workload("new", cpu=1, second=3)], listed=1))
        assert fates == [("team/w0", "admitted", 1), ("team/new", "admitted", 4), ("team/w3", "pending", 5)]
        assert (outlook.admitted, outlook.pending) == (4, 6)

    @pytest.mark.parametrize(
        "given",
        [
            b.queue("main", {"default": {"cpu": 8}}, preemption=PREEMPTION),
            b.cohort("x", {"default": {"cpu": 4}}),
        ],
    )
    def test_more_quota(self, given: ClusterQueue | Cohort) -> None:
        """Of the queue, or of its cohort."""
        state = busy()
        state.put_cluster_queue(b.queue("main", {"default": {"cpu": 4}}, "x", preemption=PREEMPTION), b.NOW)
        fates, outlook = asked(state, WhatIf(now=b.NOW, put=[given]))
        assert fates == [("team/first", "admitted", 1), ("team/second", "admitted", 2)]
        assert outlook.settled

    @pytest.mark.parametrize(
        ("kind", "key", "reason"),
        [
            (ClusterQueue, "main", "doesn't exist"),
            (LocalQueue, "team/main", "doesn't exist"),
            (ResourceFlavor, "default", "is inactive"),
        ],
    )
    def test_something_is_gone(
        self, kind: type[ClusterQueue | LocalQueue | ResourceFlavor], key: str, reason: str
    ) -> None:
        """Who waits is told."""
        fates = [fate for fate in WhatIf(now=b.NOW, drop=[(kind, key)]).answer(busy()) if isinstance(fate, Fate)]
        assert [fate.key for fate in fates] == ["team/first", "team/second"]
        assert all(fate.message.endswith(reason) for fate in fates)

    def test_somebody_is_gone(self) -> None:
        """Its quota is free."""
        fates, _ = asked(busy(), WhatIf(now=b.NOW, drop=[(Workload, "team/runs")]))
        assert fates == [("team/first", "admitted", 1), ("team/second", "pending", 2)]

    def test_a_kind_that_decides_nothing_is_refused(self) -> None:
        """With those that do."""

        def ask() -> Iterator[object]:
            return WhatIf(now=b.NOW, put=[Pod()]).answer(busy())

        with pytest.raises(InvalidValue, match="put: 'Pod': use one of Namespace, ResourceFlavor"):
            list(ask())
