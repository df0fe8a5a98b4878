"""What a change makes different, in words: for the jobs that are asked about and for all others."""

import msgspec
import pytest

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.insight.consequences import Change
from turnstile.insight.difference import Difference, difference
from turnstile.insight.snapshot import Snapshot

PREEMPTION = {"withinClusterQueue": "LowerPriority"}


def running() -> Workload:
    """A Workload that holds 3 cpus."""
    asks = msgspec.to_builtins(b.workload("runs", cpu=3).spec)
    return b.changed(b.held("runs", "main", {"cpu": "3"}, flavor="default"), spec={"podSets": asks["podSets"]})


def running_too() -> Workload:
    """The same with a priority that nobody beats."""
    return b.changed(running(), spec={"priority": 9})


def busy(**spec: object) -> Snapshot:
    """A queue of 4 cpus in which 3 run, and a Workload waits for 2."""
    snapshot = Snapshot()
    queue = b.queue("main", {"default": {"cpu": 4}}, preemption=PREEMPTION, **spec)
    for each in (team(), b.flavor(), queue, b.local("main", "main"), running(), b.workload("waits", cpu=2, second=1)):
        snapshot.put(each)
    return snapshot


def asked(*put: Kind, drop: tuple[tuple[type[Kind], str], ...] = (), sees: bool = True) -> Difference:
    """What a change of the busy cluster makes different."""
    return difference(busy(), Options(), b.NOW, Change(put, drop), sees=lambda _: sees)


def effects(told: Difference) -> list[tuple[str, str]]:
    """Workload and effect of each."""
    return [(each.workload, each.what) for each in told.effects]


class TestAJob:
    """What becomes of a Workload that is asked about."""

    def test_it_fits(self) -> None:
        """It is admitted, and nobody else is affected."""
        told = asked(b.workload("new", cpu=1, second=2))
        (verdict,) = told.asked
        assert (verdict.outcome, verdict.flavors, verdict.round) == ("admitted", ({"cpu": "default"},), 0)
        assert (told.effects, told.waits, told.waits_before) == ((), 1, 1)

    def test_it_preempts(self) -> None:
        """Whom, and for what reason; and who profits."""
        told = asked(b.workload("new", cpu=2, priority=1, second=2))
        assert told.asked[0].preempts == ("team/runs",)
        assert effects(told) == [("team/waits", "admitted"), ("team/runs", "preempted")]
        victim = told.effects[1]
        assert (victim.by, victim.reason, victim.after) == ("team/new", "InClusterQueue", 1)

    def test_it_has_finished(self) -> None:
        """That it can never start would be untrue."""
        finished = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "",
            "lastTransitionTime": b.STAMP,
        }
        done = b.changed(b.workload("waits", cpu=2, second=1), status={"conditions": [finished]})
        with pytest.raises(InvalidValue, match="it has finished"):
            asked(done)

    def test_it_waits(self) -> None:
        """Until when at the latest, and why."""
        (verdict,) = asked(b.workload("new", cpu=3, second=2)).asked
        assert (verdict.outcome, verdict.round) == ("waits", 2)
        assert verdict.explanation.endswith("on default nodes: asks 3, 1 free.")

    def test_it_starves(self) -> None:
        """It asks for more than there ever is."""
        (verdict,) = asked(b.workload("new", cpu=5, second=2)).asked
        assert (verdict.outcome, verdict.round) == ("starves", None)
        assert "asks for 5 CPUs on default nodes, where its queue can have 4 at most" in verdict.explanation

    def test_it_delays_another(self) -> None:
        """A Workload of higher priority that does not fit yet is admitted before who waited."""
        told = asked(b.workload("new", cpu=4, priority=1, second=2, spec={"nodeSelector": {}}), running_too())
        assert (told.asked[0].outcome, told.asked[0].round) == ("waits", 1)
        assert [(each.workload, each.what, each.before, each.after) for each in told.effects] == [
            ("team/waits", "later", 1, 2)
        ]

    def test_one_that_runs_already(self) -> None:
        """It keeps its quota."""
        told = asked(running())
        assert (told.asked[0].outcome, told.effects) == ("admitted", ())


class TestQueues:
    """What becomes of Workloads when queues change."""

    def test_more_quota(self) -> None:
        """Who waited is admitted."""
        told = asked(b.queue("main", {"default": {"cpu": 5}}, preemption=PREEMPTION))
        assert effects(told) == [("team/waits", "admitted")]
        assert told.effects[0].before == 1

    def test_less_quota(self) -> None:
        """Nobody is evicted; the queue is over its quota, and who waits starves."""
        told = asked(b.queue("main", {"default": {"cpu": 1}}, preemption=PREEMPTION))
        assert effects(told) == [("team/waits", "starves")]
        assert [(each.what, each.cluster_queue) for each in told.queues] == [("over quota", "main")]
        assert "it holds 3 CPUs on default nodes" in told.queues[0].message
        assert (
            "2 more CPUs than quotas of it or its cohort allow; Workloads keep what they hold until they end"
            in told.queues[0].message
        )

    def test_hold(self) -> None:
        """Nothing is evicted, and nothing more admitted."""
        told = asked(b.queue("main", {"default": {"cpu": 4}}, stopPolicy="Hold"))
        assert effects(told) == [("team/waits", "starves")]
        assert [each.what for each in told.queues] == ["inactive"]

    @pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
    def test_hold_and_drain(self, kind: str) -> None:
        """Who runs is evicted."""
        drained: dict[str, Kind] = {
            "ClusterQueue": b.queue("main", {"default": {"cpu": 4}}, stopPolicy="HoldAndDrain"),
            "LocalQueue": b.local("main", "main", stopPolicy="HoldAndDrain"),
        }
        told = asked(drained[kind])
        assert ("team/runs", "evicted") in effects(told)
        assert told.effects[0].reason == f"{kind}Stopped"
        assert told.effects[0].message == f"The {kind} is stopped"

    def test_a_queue_is_deleted(self) -> None:
        """It stays until what runs in it has ended, and admits nothing more."""
        told = asked(drop=((ClusterQueue, "main"),))
        assert effects(told) == [("team/waits", "starves")]
        assert told.notes == (
            "ClusterQueue main, in which 1 Workload hold quota, stays until these have ended, and admits nothing more",
        )

    def test_a_local_queue_is_deleted(self) -> None:
        """Who waits in it waits for ever."""
        told = asked(drop=((LocalQueue, "team/main"),))
        assert [(each.workload, each.what, each.message) for each in told.effects] == [
            ("team/waits", "starves", "There is no LocalQueue main in its namespace.")
        ]

    def test_a_flavor_in_use_is_deleted(self) -> None:
        """It stays."""
        told = asked(drop=((ResourceFlavor, "default"),))
        assert told.effects == ()
        assert told.notes[0].startswith("ResourceFlavor default stays, and nothing changes, while a ClusterQueue names")

    def test_deactivated(self) -> None:
        """A Workload that runs is evicted, and who waits takes its place."""
        told = asked(b.changed(running(), spec={"active": False}))
        assert effects(told) == [("team/waits", "admitted"), ("team/runs", "evicted")]


class TestTheAsker:
    """What the asker may know, and what is refused."""

    def test_names_are_hidden(self) -> None:
        """Effects on Workloads of namespaces that the asker may not see are counted."""
        told = asked(b.workload("new", cpu=2, priority=1, second=2), sees=False)
        assert (told.effects, told.hidden) == ((), {"admitted": 1, "preempted": 1})
        assert told.asked[0].preempts == ("a Workload of another namespace",)

    def test_what_the_api_server_would_refuse(self) -> None:
        """Is refused, with its message."""
        with pytest.raises(InvalidValue, match=r"would refuse it: .*lendingLimit"):
            asked(b.queue("main", {"default": {"cpu": (4, None, 5)}}, "team"))

    def test_what_is_not_there(self) -> None:
        """Cannot be deleted."""
        with pytest.raises(InvalidValue, match="there is no such object"):
            asked(drop=((ClusterQueue, "other"),))
