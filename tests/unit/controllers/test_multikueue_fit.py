"""Which worker cluster a Workload is sent to, by the room of its queue there."""

from datetime import timedelta
from typing import Any

from tests.unit.controllers.test_multikueue import INCREMENTAL, copy, told, workload
from tests.unit.controllers.worlds import NOW, RESERVED, condition, decode
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.multikueue import MultiKueueConfig
from turnstile.controllers.multikueue import openings, quotas
from turnstile.controllers.multikueue.dispatchers import by_room, nominees
from turnstile.controllers.multikueue.fit import LAG, Claims, Fit, Outlook, outlook
from turnstile.controllers.multikueue.situation import Remote, WorkerQueues
from turnstile.controllers.multikueue.worker import decide
from turnstile.jobs.options import MultiKueueOptions

FIT = "turnstile.dev/multikueue-dispatcher-fit"


def queue(
    name: str = "q", cpu: int = 10, used: int = 0, cohort: str = "", waiting: int = 0, **limits: int
) -> ClusterQueue:
    """A ClusterQueue of one flavor on a worker."""
    quota = {"name": "cpu", "nominalQuota": str(cpu), **{key: str(value) for key, value in limits.items()}}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": str(used)}]}]
    spec = {"resourceGroups": groups, **({"cohortName": cohort} if cohort else {})}
    status = {"flavorsReservation": usage}
    return decode(ClusterQueue, {"metadata": {"name": name}, "spec": spec, "status": status})


def room(cpu: int, there: ClusterQueue, *members: ClusterQueue, claimed: int = 0) -> Outlook:
    """The outlook of a Workload that asks for so many CPUs."""
    return outlook([{"cpu": cpu * 1000}], there, members, {"cpu": claimed * 1000})


class TestTheRoomOfAQueue:
    """By its quota, and what is reserved."""

    def test_is_what_nobody_has_reserved(self) -> None:
        """A Workload that does not fit now would wait, or preempt, for the part that is missing."""
        assert room(4, queue(used=6)).fit is Fit.NOW
        assert room(4, queue(used=8)) == Outlook(Fit.LATER, short=0.5)
        assert room(11, queue()).fit is Fit.NEVER

    def test_is_less_by_what_was_sent_there_already(self) -> None:
        """A status follows by seconds."""
        assert room(4, queue(), claimed=8).fit is Fit.LATER

    def test_is_more_by_what_the_cohort_lends(self) -> None:
        """Up to the limits of both sides."""
        idle = queue("other", cohort="c")
        assert room(15, queue(cohort="c"), idle).fit is Fit.NOW
        assert room(15, queue(cohort="c", borrowingLimit=2), idle).fit is Fit.NEVER
        assert room(15, queue(cohort="c"), queue("other", cohort="c", lendingLimit=1)).fit is Fit.NEVER
        assert room(15, queue(cohort="c"), queue("other", used=9, cohort="c")).fit is Fit.LATER

    def test_is_none_for_a_resource_that_the_queue_has_not(self) -> None:
        """The worker never admits it."""
        assert outlook([{"example.com/gpu": 1}], queue(), (), {}).fit is Fit.NEVER


class TestTheDispatcher:
    """Nominates by outlooks."""

    HERE = workload(RESERVED)

    def test_takes_the_worker_that_has_room(self) -> None:
        """One alone, whatever the order of the configuration."""
        outlooks = {"a": room(4, queue(used=9)), "b": room(4, queue(used=2))}
        options = MultiKueueOptions(dispatcher=FIT)
        assert nominees(self.HERE, ["a", "b"], {}, options, due=True, outlooks=outlooks) == ["b"]

    def test_takes_the_one_where_least_is_missing_if_none_has(self) -> None:
        """Fewest others are preempted there."""
        outlooks = {"a": room(4, queue(used=10)), "b": room(4, queue(used=7)), "c": room(40, queue())}
        assert by_room([], ["a", "b", "c"], outlooks, due=True) == ["b"]

    def test_adds_one_that_has_room_by_now(self) -> None:
        """At once, if the present one has none; else after a round."""
        full, free = room(4, queue(used=9)), room(4, queue())
        assert by_room(["a"], ["a", "b"], {"a": full, "b": free}, due=False) == ["a", "b"]
        assert by_room(["a"], ["a", "b"], {"a": free, "b": free}, due=False) == ["a"]
        assert by_room(["a"], ["a", "b"], {"a": free, "b": free}, due=True) == ["a", "b"]

    def test_takes_none_that_could_never_hold_it(self) -> None:
        """The Workload waits, and may give up."""
        assert by_room([], ["a"], {"a": room(40, queue())}, due=True) == []


class TestClaims:
    """What was sent to a queue counts until its status tells of it."""

    def test_count_for_other_workloads_alone(self) -> None:
        """By cluster and queue."""
        claims = Claims()
        claims.note("ns/a", "ns/q", ["east"], [{"cpu": 2}, {"cpu": 1}])
        assert claims.on("east", "ns/q", "ns/b", NOW) == {"cpu": 3}
        assert claims.on("east", "ns/q", "ns/a", NOW) == {"cpu": 0}
        assert claims.on("west", "ns/q", "ns/b", NOW) == {}

    def test_end_some_time_after_the_worker_has_reserved(self) -> None:
        """Or when the Workload is gone."""
        claims = Claims()
        claims.note("ns/a", "ns/q", ["east"], [{"cpu": 2}])
        claims.settle("ns/a", NOW)
        assert claims.on("east", "ns/q", "ns/b", NOW + LAG / 2) == {"cpu": 2}
        assert claims.on("east", "ns/q", "ns/b", NOW + LAG) == {}


class TestGivingUp:
    """A Workload that no worker admits."""

    def test_frees_the_quota_after_the_time_of_the_configuration(self) -> None:
        """It waits longer each time before it has quota again."""
        verdict = told(workload(RESERVED, nominatedClusterNames=["east"]), {"east": Remote()}, give_up=0.0)
        assert verdict.check is not None
        assert (verdict.check[0], verdict.again) == ("Retry", 60)
        waits = told(workload(RESERVED, nominatedClusterNames=["east"]), {"east": Remote()}, give_up=9.0)
        assert (waits.check, waits.wait) == (None, 9.0)

    def test_is_not_for_one_that_a_worker_has_admitted(self) -> None:
        """At the last moment."""
        admitted = Remote(workload=copy(condition("Admitted", "True", "Admitted")))
        verdict = told(workload(RESERVED, nominatedClusterNames=["east"]), {"east": admitted}, give_up=0.0)
        assert verdict.winner == "east"


def test_the_copy_of_a_finished_job_is_kept_for_its_logs() -> None:
    """On the worker where it ran, for as long as the configuration says."""
    here = workload(condition("Finished", "True", "Succeeded"), clusterName="east")
    remote = Remote(workload=copy())
    assert not decide("east", here, remote, dispatched=True, kept=True).delete_workload
    assert decide("east", here, remote, dispatched=True).delete_workload
    assert decide("west", here, remote, dispatched=True, kept=True).delete_workload


def blocked(since: str, **status: Any) -> Remote:
    """A copy that would preempt, but for its gate."""
    there = copy(condition("BlockedOnPreemptionGates", "True", "PreemptionGated", since=since))
    there.status.preemption_gates = decode(type(there), {"metadata": {}, "status": status}).status.preemption_gates
    return Remote(workload=there)


class TestOnePreemptorAtATime:
    """Orchestrated preemption."""

    def test_is_the_worker_that_has_been_blocked_for_longest(self) -> None:
        """The gates of the others stay closed."""
        remotes = {"a": blocked("2026-01-02T03:04:00Z"), "b": blocked("2026-01-02T03:03:00Z"), "c": Remote()}
        assert openings.opening(remotes, NOW)[0] == "b"

    def test_is_followed_by_another_after_five_minutes(self) -> None:
        """The one that was opened stays open."""
        gate = {"name": openings.GATE, "position": "Open", "lastTransitionTime": "2026-01-02T03:04:00Z"}
        remotes = {"a": blocked("2026-01-02T03:04:00Z"), "b": blocked("2026-01-02T03:03:00Z", preemptionGates=[gate])}
        assert openings.opening(remotes, NOW) == ("", 295.0)
        assert openings.opening(remotes, NOW + timedelta(seconds=300))[0] == "a"


def test_quota_is_the_sum_of_the_queues_to_which_doors_of_the_same_name_lead() -> None:
    """Each ClusterQueue once; resources that only workers have are named."""
    spec = {"clusters": ["east"], "quotaManagement": "Automated"}
    config = decode(MultiKueueConfig, {"metadata": {"name": "c"}, "spec": spec})
    doors = [
        decode(LocalQueue, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": "q"}})
        for name in ("one", "two")
    ]
    workers = [WorkerQueues(doors, [queue(cpu=7), queue("strange", cpu=50)])]
    found = quotas.answer(queue("here", cpu=0), ["ns/one", "ns/two"], config, workers)
    assert (found.reason, found.quotas) == ("QuotaAutomated", {"cpu": "7"})


def test_other_dispatchers_read_no_queues() -> None:
    """The manager's account on a worker needs no right for it."""
    assert not MultiKueueOptions().reads_queues
    assert not MultiKueueOptions(dispatcher=INCREMENTAL).reads_queues
    assert MultiKueueOptions(dispatcher=FIT).reads_queues
