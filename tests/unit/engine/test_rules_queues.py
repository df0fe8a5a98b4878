"""Rules of the queues that no recorded case shows: what parks a workload, what puts it back, who comes first."""

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import LimitRange, RuntimeClass
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import AdmissionFairSharing, Gates, WaitForPodsReady
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.queue.requeueing import requeue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.progress import LastAssignment


def parked(state: State, name: str = "a") -> set[str]:
    """Names of what is not tried."""
    return {info.key.partition("/")[2] for info in state.cluster_queues[name].pending.inadmissible_infos()}


def in_line(state: State, name: str = "a") -> list[str]:
    """Names of what is tried, first to last."""
    return [info.key.partition("/")[2] for info in state.cluster_queues[name].pending.in_order()]


def full(options: Options | None = None) -> State:
    """A queue of 4 cores that are all in use."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}), options=options)
    state.put_workload(b.workload("runs", cpu=4), b.NOW)
    b.settle(state)
    return state


class TestWhoMayWait:
    """Kueue's IsAdmissible."""

    def test_a_gate_annotation_keeps_out_unless_its_feature_is_off(self) -> None:
        """Without the feature gate AdmissionGatedBy the annotation means nothing."""
        gated = b.workload("w", annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/gate"})
        for on, waits in ((True, []), (False, ["w"])):
            state = b.world(b.queue("a"), options=Options(gates=Gates(admission_gated_by=on)))
            state.put_workload(gated, b.NOW)
            assert in_line(state) == waits

    def test_an_empty_gate_annotation_gates_nothing(self) -> None:
        """Only a value does."""
        state = b.world(b.queue("a"))
        state.put_workload(b.workload("w", annotations={"kueue.x-k8s.io/admission-gated-by": ""}), b.NOW)
        assert in_line(state) == ["w"]

    def test_inactive_held_and_incomplete_workloads_stay_out(self) -> None:
        """Deactivated, on hold, or waiting for replacement pods."""
        state = b.world(b.queue("a"))
        state.put_workload(b.changed(b.workload("inactive"), spec={"active": False}), b.NOW)
        state.put_workload(b.with_conditions(b.workload("held"), QuotaReserved=("False", "OnHold")), b.NOW)
        incomplete = b.with_conditions(b.workload("pods"), WaitingForReplacementPods=("True", "PodsFailed"))
        state.put_workload(incomplete, b.NOW)
        state.put_workload(b.with_conditions(b.workload("fine"), QuotaReserved=("False", "WaitingForQuota")), b.NOW)
        assert in_line(state) == ["fine"]

    def test_a_parent_of_variants_never_stands_in_line(self) -> None:
        """Under concurrent admission its variants compete; without the gate the label means nothing."""
        parent = b.changed(b.workload("w"), metadata={"labels": {"kueue.x-k8s.io/concurrent-admission-parent": "true"}})
        for on, waits in ((True, []), (False, ["w"])):
            state = b.world(b.queue("a"), options=Options(gates=Gates(concurrent_admission=on)))
            state.put_workload(parent, b.NOW)
            assert in_line(state) == waits


class TestOrder:
    """Who comes first."""

    def test_time_in_line_by_what_sent_it_back(self) -> None:
        """Lack of ready pods (by setting) and checks send to the back, preemption does not."""
        for setting, first in (("Eviction", "other"), ("Creation", "w")):
            for reason in ("PodsReadyTimeout", "AdmissionCheck", "Preempted", "ClusterQueueStopped"):
                options = Options(wait_for_pods_ready=WaitForPodsReady(requeuing_timestamp=setting))  # type: ignore[arg-type]
                state = b.world(b.queue("a"), options=options)
                old = b.changed(b.workload("w"), metadata={"creationTimestamp": "2026-01-02T03:03:00Z"})
                state.put_workload(b.with_conditions(old, Evicted=("True", reason)), b.NOW)
                other = b.changed(b.workload("other"), metadata={"creationTimestamp": "2026-01-02T03:03:30Z"})
                state.put_workload(other, b.NOW)
                want = {"PodsReadyTimeout": first, "AdmissionCheck": "other"}.get(reason, "w")
                assert in_line(state)[0] == want, (setting, reason)

    def test_reclaimed_while_borrowing_goes_behind_only_without_priority_sorting(self) -> None:
        """Then its time is that of the preemption and a millisecond."""
        old = b.with_conditions(
            b.changed(b.workload("w"), metadata={"creationTimestamp": "2026-01-02T03:00:00Z"}),
            Preempted=("True", "InCohortReclaimWhileBorrowing"),
            Evicted=("True", "Preempted"),
        )
        same_second = b.changed(b.workload("other"), metadata={"creationTimestamp": b.STAMP})
        for on, first in ((True, "w"), (False, "other")):
            state = b.world(b.queue("a"), options=Options(gates=Gates(priority_sorting_within_cohort=on)))
            state.put_workload(old, b.NOW)
            state.put_workload(same_second, b.NOW)
            assert in_line(state)[0] == first

    def test_a_priority_boost_counts_only_with_its_gate(self) -> None:
        """And only if it is an int32."""
        for on, value, first in (
            (True, "7", "w"),
            (True, "+7", "w"),
            (True, "7.5", "other"),
            (True, " 7", "other"),
            (True, "2147483648", "other"),
            (False, "7", "other"),
        ):
            state = b.world(b.queue("a"), options=Options(gates=Gates(priority_boost=on)))
            state.put_workload(b.workload("w", annotations={"kueue.x-k8s.io/priority-boost": value}), b.NOW)
            state.put_workload(b.workload("other", priority=3), b.NOW)
            assert in_line(state)[0] == first, value

    def test_usage_outranks_stickiness_and_priority(self) -> None:
        """A LocalQueue of weight 0 comes last, whatever it used."""
        sharing = AdmissionFairSharing(usage_half_life=60.0)
        scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
        for weight, first in (("1", "light"), ("0", "heavy")):
            state = b.world(b.queue("a", admissionScope=scope), options=Options(admission_fair_sharing=sharing))
            state.put_local_queue(b.local("x", "a"), b.NOW)
            state.put_local_queue(b.local("y", "a", fairSharing={"weight": weight}), b.NOW)
            state.sharing.set_consumed("team/x", {"cpu": "6"}, b.NOW)
            state.sharing.set_consumed("team/y", {"cpu": "2"}, b.NOW)
            state.put_workload(b.workload("heavy", "x", priority=100), b.NOW)
            state.put_workload(b.workload("light", "y"), b.NOW)
            pending = state.cluster_queues["a"].pending
            pending.nomination = Nomination("team/heavy", sticky=True)
            assert in_line(state)[0] == first
            head = pending.peek()
            assert head is not None
            assert head.key == f"team/{first}"


class TestParked:
    """What puts a parked workload back in line."""

    def park(self, options: Options | None = None) -> tuple[State, Workload]:
        """A workload parked alone: without hashes nobody speaks for it."""
        gates = Gates(scheduling_equivalence_hashing=False, priority_boost=bool(options))
        state = full(Options(gates=gates))
        waits = b.changed(
            b.workload("w", cpu=2),
            spec={"preemptionGates": [{"name": "g"}]},
            status={"preemptionGates": [{"name": "g", "position": "Closed", "lastTransitionTime": b.STAMP}]},
        )
        state.put_workload(waits, b.NOW)
        b.settle(state)
        assert parked(state) == {"w"}
        return state, waits

    def test_a_write_of_its_status_changes_nothing(self) -> None:
        """Neither why it waits nor what it asks for helps it."""
        state, waits = self.park()
        told = b.with_conditions(waits, QuotaReserved=("False", "WaitingForQuota"))
        state.put_workload(b.changed(told, status={"resourceRequests": [{"name": "main"}]}), b.NOW)
        assert parked(state) == {"w"}

    def test_another_generation_spec_eviction_or_reclaimable_count_helps(self) -> None:
        """Any of these may make it admissible."""
        for change in (
            {"metadata": {"generation": 2}},
            {"spec": {"priority": 5}},
            {"status": {"reclaimablePods": [{"name": "main", "count": 1}]}},
            {"status": {"preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": b.STAMP}]}},
        ):
            state, waits = self.park()
            state.put_workload(b.changed(waits, **change), b.NOW)
            assert in_line(state) == ["w"], change
        for condition in ({"Evicted": ("True", "Preempted")}, {"Requeued": ("True", "Preempted")}):
            state, waits = self.park()
            state.put_workload(b.with_conditions(waits, **condition), b.NOW)
            assert in_line(state) == ["w"], condition

    def test_a_check_that_refuses_it_no_more_helps(self) -> None:
        """While one wants to try again or rejects it, it is not considered; any other answer ends that."""
        state = b.world(b.queue("a", {"default": {"cpu": 4}}))

        def answered(answer: str) -> Workload:
            check = {"name": "c", "state": answer, "message": "", "lastTransitionTime": b.STAMP}
            return b.changed(b.workload("w", cpu=2), status={"admissionChecks": [check]})

        state.put_workload(answered("Rejected"), b.NOW)
        b.settle(state)
        assert parked(state) == {"w"}
        state.put_workload(answered("Retry"), b.NOW)
        assert parked(state) == {"w"}
        state.put_workload(answered("Pending"), b.NOW)
        assert in_line(state) == ["w"]

    def test_a_gate_that_stays_closed_does_not_help(self) -> None:
        """Only whether a preemption gate is closed counts, not when it was."""
        state, waits = self.park()
        moved = [{"name": "g", "position": "Closed", "lastTransitionTime": "2026-01-02T03:09:00Z"}]
        state.put_workload(b.changed(waits, status={"preemptionGates": moved}), b.NOW)
        assert parked(state) == {"w"}

    def test_a_boost_helps_only_with_its_gate(self) -> None:
        """Without PriorityBoost the annotation means nothing."""
        for options, where in ((None, parked), (Options(), in_line)):
            state, waits = self.park(options)
            state.put_workload(
                b.changed(waits, metadata={"annotations": {"kueue.x-k8s.io/priority-boost": "1"}}), b.NOW
            )
            assert list(where(state)) == ["w"]

    def test_back_off_holds_what_waits_with_its_equals(self) -> None:
        """One of a parked class whose back-off begins is not tried when the class is."""
        state = full()
        for number in range(3):
            state.put_workload(b.workload(f"w{number}", cpu=2, second=number), b.NOW)
        b.settle(state)
        waits = b.changed(b.workload("w1", cpu=2, second=1), status={"requeueState": {"requeueAt": b.stamp(60)}})
        state.put_workload(waits, b.NOW)
        state.drop_workload("team/runs")
        b.settle(state)
        assert b.admitted(state) == {"team/w0", "team/w2"}
        assert parked(state) == {"w1"}

    def test_limits_that_let_it_through_wake_it(self) -> None:
        """A LimitRange that is widened or goes changes no request, but what is valid."""
        state = b.world(b.queue("a"))

        def limit(cpu: str) -> LimitRange:
            limits = [{"type": "Container", "max": {"cpu": cpu}}]
            return msgspec.convert(
                {"metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": limits}}, LimitRange
            )

        state.put_limit_range(limit("1"), b.NOW)
        state.put_workload(b.workload("w", cpu=2), b.NOW)
        b.settle(state)
        assert parked(state) == {"w"}
        state.put_limit_range(limit("2"), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_limits_that_come_are_a_new_reason_to_wait(self) -> None:
        """Also for a Workload that was inadmissible together with its equals, as it is without quota."""
        state = full()
        state.put_workload(b.workload("w", cpu=2), b.NOW)
        b.settle(state)
        assert "insufficient" in str(state.questions.why("team/w"))
        limits = {"limits": [{"type": "Container", "min": {"cpu": "3"}}]}
        body = {"metadata": {"name": "l", "namespace": "team"}, "spec": limits}
        state.put_limit_range(msgspec.convert(body, LimitRange), b.NOW)
        b.settle(state)
        assert "LimitRange" in str(state.questions.why("team/w"))

    def test_limits_and_overheads_that_stay_the_same_wake_nothing(self) -> None:
        """Their annotations may change; with many pending Workloads it is costly to count the requests anew."""
        state = full()
        limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "3"}}]}
        for seen in ("1", "2"):
            meta = {"namespace": "team", "resourceVersion": seen, "annotations": {"seen": seen}}
            state.put_limit_range(
                msgspec.convert({"metadata": {"name": "l", **meta}, "spec": limits}, LimitRange), b.NOW
            )
            overhead = {"podFixed": {"cpu": "1"}}
            state.put_runtime_class(
                msgspec.convert({"metadata": {"name": "r", **meta}, "overhead": overhead}, RuntimeClass), b.NOW
            )
            if seen == "1":
                state.put_workload(b.workload("w", cpu=2), b.NOW)
                b.settle(state)
                before = state.log.epoch, state.queues.waiting["team/w"]
        assert (state.log.epoch, state.queues.waiting["team/w"]) == before


class TestScanProgress:
    """How far a scan of flavors came, when the workload is seen anew."""

    def progress(self, new: Workload, *, preserve: bool) -> LastAssignment | None:
        """What is remembered after an update."""
        gates = Gates(flavor_fungibility_preserve_scan_progress=preserve)
        state = b.world(b.queue("a"), options=Options(gates=gates))
        state.put_workload(b.workload("w"), b.NOW)
        info: Info = state.queues.waiting["team/w"]
        info.last_assignment = LastAssignment([{"cpu": 0}], 3, 7, info.hash)
        state.put_workload(new, b.NOW)
        return state.queues.waiting["team/w"].last_assignment

    def test_it_is_kept_while_the_workload_asks_for_the_same(self) -> None:
        """A status write does not start the scan over; another request does."""
        told = b.with_conditions(b.workload("w"), QuotaReserved=("False", "WaitingForQuota"))
        assert self.progress(told, preserve=True) is not None
        assert self.progress(b.workload("w", cpu=2), preserve=True) is None

    def test_without_the_gate_every_update_starts_over(self) -> None:
        """FlavorFungibilityPreserveScanProgress off."""
        told = b.with_conditions(b.workload("w"), QuotaReserved=("False", "WaitingForQuota"))
        assert self.progress(told, preserve=False) is None


class TestPreemptor:
    """The workload that had others preempted comes first until it is served."""

    def served(self) -> State:
        """A preemptor that got its room."""
        state = b.world(b.queue("a", {"default": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"}))
        low, high = b.workload("low", cpu=4), b.workload("high", cpu=4, priority=5)
        state.put_workload(low, b.NOW)
        b.settle(state)
        low = b.reserved(low, state)
        state.put_workload(low, b.NOW)
        state.put_workload(high, b.NOW)
        b.settle(state)
        pending = state.cluster_queues["a"].pending
        assert pending.first == "team/high"
        state.put_workload(b.with_conditions(b.released(low), Requeued=("True", "Preempted")), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/high"}
        return state

    def test_it_stays_first_while_its_admission_is_only_assumed(self) -> None:
        """Should the write fail, it is tried before all others."""
        state = self.served()
        state.put_workload(b.workload("urgent", cpu=4, priority=9), b.NOW)
        state.forget("team/high", b.NOW)
        assert in_line(state)[0] == "high"

    def test_it_loses_precedence_once_it_is_seen_admitted(self) -> None:
        """If it is evicted later it comes back like any other."""
        state = self.served()
        high = b.reserved(b.workload("high", cpu=4, priority=5), state)
        state.put_workload(high, b.NOW)
        state.put_workload(b.workload("urgent", cpu=4, priority=9), b.NOW)
        state.put_workload(b.with_conditions(b.released(high), Requeued=("True", "Preempted")), b.NOW)
        b.retried(state, b.NOW)
        assert in_line(state)[0] == "urgent"

    @staticmethod
    def _queue(strategy: str) -> ClusterQueue:
        policy = {"withinClusterQueue": "LowerPriority"}
        return b.queue("a", {"default": {"cpu": 4}}, preemption=policy, queueingStrategy=strategy)

    def _overtaken(self, strategy: str) -> State:
        """`high` had `low` preempted and waits for its room; `urgent` came after."""
        state = b.world(self._queue(strategy))
        for name, priority in (("low", 0), ("high", 5)):
            state.put_workload(b.workload(name, cpu=4, priority=priority), b.NOW)
            b.settle(state)
        state.put_workload(b.workload("urgent", cpu=4, priority=9), b.NOW)
        return state

    def test_one_that_was_changed_since_has_no_claim_to_its_victims(self) -> None:
        """In its new generation it may not preempt them, so it waits like anybody until they have gone."""
        state = b.world(self._queue("BestEffortFIFO"))
        for name, priority in (("low", 0), ("high", 5)):
            state.put_workload(b.workload(name, cpu=4, priority=priority), b.NOW)
            b.settle(state)
        lowered = b.changed(b.workload("high", cpu=4, priority=-5), metadata={"generation": 2})
        state.put_workload(lowered, b.NOW)
        decision = b.decide(state, "high")
        assert (decision.outcome, decision.requeue_reason) == ("pending", "PreemptionNoCandidates")

    def test_in_a_strict_line_it_gives_way_to_higher_priority(self) -> None:
        """Only a BestEffortFIFO queue holds the room for it."""
        for strategy, first in (("StrictFIFO", "urgent"), ("BestEffortFIFO", "high")):
            state = self._overtaken(strategy)
            head = state.cluster_queues["a"].pending.peek()
            assert head is not None
            assert head.key == f"team/{first}"
            assert in_line(state)[0] == first

    def test_it_stays_first_should_its_line_become_strict(self) -> None:
        """Its victims are on their way out for it: the new strategy is for those who come to preempt later."""
        state = self._overtaken("BestEffortFIFO")
        state.put_cluster_queue(self._queue("StrictFIFO"), b.NOW)
        assert in_line(state)[0] == "high"

    def test_the_flavors_it_preempted_for_bind_nobody_else(self) -> None:
        """One that comes before it in a strict line takes the first that has room."""
        state = b.world(
            b.queue(
                "a",
                {"one": {"cpu": 4}, "two": {"cpu": 4}},
                preemption={"withinClusterQueue": "LowerPriority"},
                queueingStrategy="StrictFIFO",
            ),
            flavors=("one", "two"),
        )
        low = b.held("low", "a", {"cpu": "4"}, flavor="two")
        for item in (b.held("fixed", "a", {"cpu": "3"}, flavor="one", priority=9), low):
            state.put_workload(item, b.NOW)
        state.put_workload(b.workload("high", cpu=4, priority=5), b.NOW)
        assert [victim.key for victim in b.settle(state)[0].victims] == ["team/low"]
        state.put_workload(b.released(low), b.NOW)
        state.put_workload(b.workload("urgent", cpu=1, priority=9), b.NOW)
        assert b.flavors_of(b.decide(state, "urgent")) == [{"cpu": "one"}]

    def test_it_holds_nobody_up_once_it_is_inadmissible(self) -> None:
        """It fails after all and is parked with its equals; it is first again when they are tried again."""
        state = full()
        pending = state.cluster_queues["a"].pending
        pending.nomination = Nomination("team/w1", sticky=True)
        for number in range(2):
            state.put_workload(b.workload(f"w{number}", cpu=3, second=number), b.NOW)
        assert [decision.key for decision in b.settle(state)] == ["team/w1"]
        assert pending.peek() is None
        state.put_workload(b.workload("other", cpu=1, second=9), b.NOW)
        head = pending.peek()
        assert head is not None
        assert head.key == "team/other"
        state.drop_workload("team/runs")
        b.retried(state, b.NOW)
        assert in_line(state) == ["w1", "w0", "other"]

    def test_a_namesake_of_one_that_is_gone_has_none(self) -> None:
        """Deletion ends it, also of one whose admission is only assumed."""
        state = self.served()
        state.drop_workload("team/high")
        state.put_workload(b.workload("urgent", cpu=4, priority=9), b.NOW)
        state.put_workload(b.workload("high", cpu=4, priority=5), b.NOW)
        assert in_line(state)[0] == "urgent"


class TestRequeue:
    """Where a head goes after a cycle."""

    def test_a_selector_mismatch_parks_even_in_strict_fifo(self) -> None:
        """And labels that match wake it."""
        state = b.world(b.queue("a", queueingStrategy="StrictFIFO", namespaceSelector={"matchLabels": {"dep": "eng"}}))
        state.put_workload(b.workload("w"), b.NOW)
        (decision,) = b.settle(state)
        assert decision.condition_reason == "Misconfigured"
        assert decision.message == "workload namespace doesn't match ClusterQueue selector"
        assert parked(state) == {"w"}
        state.put_namespace("team", {"dep": "eng"})
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_nobody_is_tried_again_whose_namespace_is_not_selected(self) -> None:
        """Whatever room there is by now."""
        state = b.world(b.queue("a", namespaceSelector={"matchLabels": {"team": "x"}}))
        state.put_workload(b.workload("w"), b.NOW)
        b.settle(state)
        state.retries.mark("a")
        assert not b.retried(state, b.NOW)
        assert (parked(state), in_line(state)) == ({"w"}, [])
        state.put_namespace("team", {"team": "x"})
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_one_in_back_off_still_speaks_for_its_equals(self) -> None:
        """Its requeueing parks those that ask for the same, itself until its time has come."""
        state = full()
        queue = state.cluster_queues["a"]
        for number in range(2):
            state.put_workload(b.workload(f"w{number}", cpu=2, second=number), b.NOW)
        head = queue.pending.pop()
        assert head is not None
        assert not requeue(queue, head, "NoFit", "WaitingForQuota", backoff_over=False)
        assert parked(state) == {"w0", "w1"}
        assert "team/w0" in queue.pending.inadmissible

    def test_a_queue_in_a_cycle_of_cohorts_says_that_it_is_inactive(self) -> None:
        """Its head is told, and tried again once the cycle is gone."""
        state = b.world(b.queue("a", cohort="x"))
        state.put_cohort(b.cohort("x", parent="y"))
        state.put_cohort(b.cohort("y", parent="x"))
        state.put_workload(b.workload("w"), b.NOW)
        (decision,) = cycle(state, b.NOW)
        assert (decision.outcome, decision.condition_reason) == ("inadmissible", "Suspended")
        assert decision.message == "ClusterQueue a is inactive"
        b.settle(state)
        state.put_cohort(b.cohort("y"))
        b.settle(state)
        assert b.admitted(state) == {"team/w"}


class TestEquals:
    """Scheduling equivalence."""

    def test_limits_of_the_pod_do_not_count_but_its_requests_do(self) -> None:
        """Of pod-level resources the requests alone tell workloads apart."""
        state = b.world(b.queue("a"))

        def hashed(requests: str, limits: str) -> str:
            spec = {"resources": {"requests": {"cpu": requests}, "limits": {"cpu": limits}}}
            return Info(b.workload("w", spec=spec), state.surroundings).hash

        assert hashed("1", "4") == hashed("1", "5")
        assert hashed("1", "4") != hashed("2", "4")


@pytest.mark.parametrize("late", [False, True])
def test_workloads_of_one_second_are_queued_as_they_were_created(late: bool) -> None:
    """Where the first version that is seen is that of the creation, its resourceVersion orders what the clock does not;
    what changes later does not. Of Workloads that were changed before they were seen only the UID is left."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}))
    for name, version, uid in (("first", "7", "z"), ("second", "8", "a")):
        workload = b.workload(name, cpu=1)
        workload.metadata.uid, workload.metadata.resource_version = uid, version
        if late:
            workload = b.with_conditions(workload, QuotaReserved=("False", "Pending"))
        state.put_workload(workload, b.NOW)
    again = b.with_conditions(b.workload("first", cpu=1), QuotaReserved=("False", "Pending"))
    again.metadata.uid, again.metadata.resource_version = "z", "9"
    state.put_workload(again, b.NOW)
    assert in_line(state) == (["second", "first"] if late else ["first", "second"])
