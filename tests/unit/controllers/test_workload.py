"""What is decided about one Workload, apart from its job and its quota."""

from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import pytest

from tests.unit.controllers.worlds import (
    ADMITTED,
    EARLIER,
    NOW,
    RESERVED,
    cluster_queue,
    condition,
    local_queue,
    workload,
    world,
)
from tests.unit.controllers.written import conditions, patches, status
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.controllers.runtime.actions import Emit, RequeueAfter
from turnstile.controllers.workloads.workload import decide
from turnstile.engine.options import DeviceMapping, Options
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.jobs.options import JobOptions

NOT_ADMITTED = condition("Admitted", "False", "NoReservation", "The workload has no reservation")

CHECKED = {
    "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]},
    "resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "9"}]}]}
    ],
}
"""The spec of a ClusterQueue with one check."""
WAITS_FOR_CHECK = {"admissionChecks": [{"name": "a", "state": "Pending", "message": "", "lastTransitionTime": EARLIER}]}
"""The status of a Workload that waits for it."""


SINCE = "2026-01-02T03:00:00Z"
PENDING, READY = (
    {"name": "a", "state": state, "message": "", "lastTransitionTime": SINCE} for state in ("Pending", "Ready")
)


def with_check(**spec: Any) -> ClusterQueue:
    """ClusterQueue `cq` with one check for every flavor."""
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": []}]}]
    return cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a"}]}, resourceGroups=groups, **spec)


class TestDeactivation:
    def test_a_running_one_is_evicted_and_keeps_its_quota_until_its_job_has_stopped(self) -> None:
        """Evicted is set, QuotaReserved stays True."""
        decision = decide(
            "ns/wl",
            world(workload(RESERVED, ADMITTED, admission=True, spec={"active": False}), local_queue(), cluster_queue()),
        )
        assert conditions(decision)["Evicted"] == ("True", "Deactivated", "The workload is deactivated")
        assert conditions(decision)["QuotaReserved"][0] == "True"
        assert [a.reason for a in decision.actions if isinstance(a, Emit)] == ["EvictedDueToDeactivated"]

    def test_one_that_is_evicted_already_is_not_evicted_again(self) -> None:
        """The reason and the count of the eviction under way stay; what it waited for is forgotten."""
        evicted = condition("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout ns/wl")
        stats = {"evictions": [{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}]}
        more = {"schedulingStats": stats, "requeueState": {"count": 1, "requeueAt": SINCE}}
        stopping = workload(RESERVED, ADMITTED, evicted, admission=True, spec={"active": False}, more_status=more)
        decision = decide("ns/wl", world(stopping, local_queue(), cluster_queue()))
        assert [patch["status"] for patch in patches(decision)] == [{"requeueState": None}]
        assert not [a for a in decision.actions if isinstance(a, Emit)]

    def test_one_that_was_evicted_before_says_that_it_is_deactivated(self) -> None:
        """It holds no quota, so nothing is evicted."""
        evicted = condition("Evicted", "True", "Preempted", "preempted")
        waits = condition("QuotaReserved", "False", "WaitingForQuota", "insufficient")
        waiting = workload(evicted, waits, NOT_ADMITTED, spec={"active": False})
        decision = decide("ns/wl", world(waiting, local_queue(), cluster_queue()))
        assert conditions(decision)["Evicted"] == ("True", "Preempted", "preempted")
        assert conditions(decision)["QuotaReserved"] == ("False", "Deactivated", "The workload is deactivated")
        assert "schedulingStats" not in patches(decision)[0]["status"]

    def test_a_waiting_one_says_that_it_is_deactivated(self) -> None:
        """QuotaReserved is False with reason Deactivated."""
        decision = decide("ns/wl", world(workload(spec={"active": False}), local_queue(), cluster_queue()))
        assert conditions(decision)["QuotaReserved"] == ("False", "Deactivated", "The workload is deactivated")

    def test_it_is_said_once(self) -> None:
        """A second look at what was written writes nothing."""
        evicted = condition("Evicted", "True", "Deactivated", "The workload is deactivated")
        told = condition("QuotaReserved", "False", "Deactivated", "The workload is deactivated")
        off = workload(evicted, told, NOT_ADMITTED, spec={"active": False})
        assert decide("ns/wl", world(off, local_queue(), cluster_queue())).actions == []

    def test_one_that_gave_its_quota_back_says_that_it_is_deactivated(self) -> None:
        """Not that it waits, as it said when its job had stopped."""
        evicted = condition("Evicted", "True", "Deactivated", "The workload is deactivated")
        waits = condition("QuotaReserved", "False", "PendingEvaluation", "The workload is deactivated")
        stopped = workload(evicted, waits, NOT_ADMITTED, spec={"active": False})
        decision = decide("ns/wl", world(stopped, local_queue(), cluster_queue()))
        assert conditions(decision)["QuotaReserved"] == ("False", "Deactivated", "The workload is deactivated")

    @pytest.mark.parametrize(
        "reason",
        ["Deactivated", *(f"DeactivatedDueTo{cause}" for cause in ("RequeuingLimitExceeded", "AdmissionCheck"))],
    )
    def test_reactivation_puts_it_back_in_the_queue(self, reason: str) -> None:
        """Requeued turns True with reason Reactivated, also if not a user has deactivated it."""
        held = condition("Requeued", "False", reason)
        decision = decide("ns/wl", world(workload(held), local_queue(), cluster_queue()))
        assert conditions(decision)["Requeued"][:2] == ("True", "Reactivated")

    def test_a_deactivation_target_turns_the_spec_off(self) -> None:
        """What the controller decided is written to spec.active first."""
        target = condition("DeactivationTarget", "True", "MaximumExecutionTimeExceeded", "too long")
        decision = decide("ns/wl", world(workload(target), local_queue(), cluster_queue()))
        assert patches(decision) == [{"metadata": {"resourceVersion": "7"}, "spec": {"active": False}}]

    def test_the_cause_of_a_deactivation_is_told(self) -> None:
        """The eviction's reason is composed of Deactivated and its cause."""
        target = condition("DeactivationTarget", "True", "MaximumExecutionTimeExceeded", "exceeding the maximum")
        decision = decide("ns/wl", world(workload(target, spec={"active": False}), local_queue(), cluster_queue()))
        assert conditions(decision)["Evicted"] == (
            "True",
            "DeactivatedDueToMaximumExecutionTimeExceeded",
            "The workload is deactivated due to exceeding the maximum",
        )
        assert "DeactivationTarget" not in conditions(decision)


class TestStopPolicy:
    @pytest.mark.parametrize(
        ("queue", "cluster", "reason"),
        [("HoldAndDrain", "None", "LocalQueueStopped"), ("None", "HoldAndDrain", "ClusterQueueStopped")],
    )
    def test_hold_and_drain_evicts_what_is_admitted(self, queue: str, cluster: str, reason: str) -> None:
        """Of either queue."""
        decision = decide(
            "ns/wl",
            world(
                workload(RESERVED, ADMITTED, admission=True),
                local_queue(stopPolicy=queue),
                cluster_queue(stopPolicy=cluster),
            ),
        )
        assert conditions(decision)["Evicted"][:2] == ("True", reason)

    def test_hold_leaves_what_is_admitted(self) -> None:
        """Nothing to do."""
        decision = decide(
            "ns/wl",
            world(workload(RESERVED, ADMITTED, admission=True), local_queue(), cluster_queue(stopPolicy="Hold")),
        )
        assert decision.actions == []

    def test_hold_takes_back_a_reservation_that_was_not_admitted(self) -> None:
        """QuotaReserved turns False and the admission goes."""
        held = workload(RESERVED, admission=True, more_status=WAITS_FOR_CHECK)
        decision = decide("ns/wl", world(held, local_queue(), cluster_queue(stopPolicy="Hold", **CHECKED)))
        assert conditions(decision)["QuotaReserved"] == ("False", "Suspended", "ClusterQueue cq is stopped")
        assert patches(decision)[0]["status"]["admission"] is None

    def test_the_end_of_a_stop_puts_the_evicted_back(self) -> None:
        """Requeued turns True with reason ClusterQueueRestarted."""
        held = condition("Requeued", "False", "ClusterQueueStopped")
        decision = decide("ns/wl", world(workload(held), local_queue(), cluster_queue()))
        assert conditions(decision)["Requeued"][:2] == ("True", "ClusterQueueRestarted")


class TestCoarseReasons:
    """Without the gate UnadmittedWorkloadsObservability conditions are those of older versions."""

    coarse = JobOptions(granular_reasons=False)

    def test_a_misconfigured_one_is_inadmissible(self) -> None:
        """Nothing is said of Admitted, and it is said once."""
        decision = decide("ns/wl", world(workload(), options=self.coarse))
        assert conditions(decision) == {"QuotaReserved": ("False", "Inadmissible", "LocalQueue lq doesn't exist")}
        told = workload(condition("QuotaReserved", "False", "Inadmissible", "LocalQueue lq doesn't exist"))
        assert decide("ns/wl", world(told, options=self.coarse)).actions == []

    def test_what_is_mended_is_pending(self) -> None:
        """The reason of all that waits in line."""
        stale = workload(condition("QuotaReserved", "False", "Inadmissible", "LocalQueue lq doesn't exist"))
        decision = decide("ns/wl", world(stale, local_queue(), cluster_queue(), options=self.coarse))
        assert conditions(decision)["QuotaReserved"][1] == "Pending"

    def test_a_waiting_one_that_is_deactivated_is_evicted_only(self) -> None:
        """There was no reason for that."""
        off = workload(spec={"active": False})
        decision = decide("ns/wl", world(off, local_queue(), cluster_queue(), options=self.coarse))
        assert set(conditions(decision)) == {"Evicted"}

    def test_checks_that_are_not_ready_leave_no_word(self) -> None:
        """Until it is admitted."""
        held = workload(RESERVED, admission=True, more_status={"admissionChecks": [PENDING]})
        assert decide("ns/wl", world(held, local_queue(), with_check(), options=self.coarse)).actions == []


class TestWhyNotTried:
    def test_no_local_queue(self) -> None:
        """The name that is missing is told."""
        assert conditions(decide("ns/wl", world(workload())))["QuotaReserved"] == (
            "False",
            "Misconfigured",
            "LocalQueue lq doesn't exist",
        )

    def test_no_cluster_queue(self) -> None:
        """The name that is missing is told."""
        decision = decide("ns/wl", world(workload(), local_queue()))
        assert conditions(decision)["QuotaReserved"] == ("False", "Misconfigured", "ClusterQueue cq doesn't exist")

    def test_namespace_not_selected(self) -> None:
        """A queue that is not for this namespace says so."""
        queue = cluster_queue(namespaceSelector={"matchLabels": {"team": "b"}})
        decision = decide("ns/wl", world(workload(), local_queue(), queue))
        assert conditions(decision)["QuotaReserved"][2] == "workload namespace doesn't match ClusterQueue selector"

    def test_gates(self) -> None:
        """The gates are named."""
        gated = workload(annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/a"})
        decision = decide("ns/wl", world(gated, local_queue(), cluster_queue()))
        assert conditions(decision)["QuotaReserved"][1:] == ("AdmissionGated", "Admission is gated by: example.com/a")
        assert [(a.reason, a.note) for a in decision.actions if isinstance(a, Emit)] == [
            ("AdmissionGated", "Workload admission is gated by: example.com/a")
        ]

    def test_a_gate_comes_before_what_is_wrong_with_its_queues(self) -> None:
        """Both keep it waiting; the gate is named."""
        gated = workload(annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/a"})
        assert conditions(decide("ns/wl", world(gated)))["QuotaReserved"][1] == "AdmissionGated"

    def test_a_gate_takes_back_what_was_not_admitted_yet(self) -> None:
        """Who is admitted runs on."""
        gate = {"kueue.x-k8s.io/admission-gated-by": "example.com/a"}
        held = workload(RESERVED, admission=True, annotations=gate)
        decision = decide("ns/wl", world(held, local_queue(), cluster_queue()))
        assert conditions(decision)["QuotaReserved"][:2] == ("False", "AdmissionGated")
        runs = workload(RESERVED, ADMITTED, admission=True, annotations=gate)
        assert decide("ns/wl", world(runs, local_queue(), cluster_queue())).actions == []

    @pytest.mark.parametrize("there", [[], [local_queue()]], ids=["no queue", "no ClusterQueue"])
    def test_a_reservation_in_a_queue_that_does_not_exist_is_left_as_it_is(self, there: list[Kind]) -> None:
        """Another client made it, and the queue may not be known yet; when it is, the Workload is admitted."""
        made = workload(RESERVED, admission=True)
        assert not patches(decide("ns/wl", world(made, *there)))
        assert conditions(decide("ns/wl", world(made, local_queue(), cluster_queue())))["Admitted"][0] == "True"

    def test_a_queue_that_is_gone_takes_back_what_was_not_admitted_yet(self) -> None:
        """Who is admitted runs on."""
        held = workload(RESERVED, admission=True, more_status={"admissionChecks": [PENDING]})
        for there, told in (
            ([with_check()], "LocalQueue lq is terminating or missing"),
            ([local_queue()], "ClusterQueue cq is terminating or missing"),
        ):
            decision = decide("ns/wl", world(held, *there))
            assert conditions(decision)["QuotaReserved"] == ("False", "Misconfigured", told)
        assert decide("ns/wl", world(workload(RESERVED, ADMITTED, admission=True))).actions == []

    @pytest.mark.parametrize("missing", ["LocalQueue", "ClusterQueue"])
    def test_a_queue_that_is_gone_leaves_one_whose_checks_are_ready(self, missing: str) -> None:
        """It is admitted: what the checks made for it would be lost."""
        held = workload(RESERVED, admission=True, more_status={"admissionChecks": [READY]})
        there = with_check() if missing == "LocalQueue" else local_queue()
        decision = decide("ns/wl", world(held, there))
        assert conditions(decision)["Admitted"][0] == "True"
        assert [a.reason for a in decision.actions if isinstance(a, Emit)] == ["Admitted"]

    def test_hold_takes_back_one_whose_checks_are_ready(self) -> None:
        """Who holds a queue wants nothing more to start."""
        held = workload(RESERVED, admission=True, more_status={"admissionChecks": [READY]})
        decision = decide("ns/wl", world(held, local_queue(), with_check(stopPolicy="Hold")))
        assert conditions(decision)["QuotaReserved"] == ("False", "Suspended", "ClusterQueue cq is stopped")

    def test_the_end_of_a_gate_is_told(self) -> None:
        """Before anything else that keeps it waiting is said, and once."""
        gated = condition("QuotaReserved", "False", "AdmissionGated", "Admission is gated by: example.com/a")
        decision = decide("ns/wl", world(workload(gated)))
        cleared = ("False", "PendingEvaluation", "AdmissionGatedBy cleared, waiting for quota reservation")
        assert conditions(decision)["QuotaReserved"] == cleared
        assert [(a.reason, a.note) for a in decision.actions if isinstance(a, Emit)] == [
            ("AdmissionGateCleared", "Admission gate cleared, workload is now admissible")
        ]
        again = workload(condition("QuotaReserved", *cleared), NOT_ADMITTED)
        assert decide("ns/wl", world(again, local_queue(), cluster_queue())).actions == []

    def test_what_is_mended_is_evaluated_again(self) -> None:
        """The stale reason gives way to PendingEvaluation."""
        stale = condition("QuotaReserved", "False", "Misconfigured", "LocalQueue lq doesn't exist")
        decision = decide("ns/wl", world(workload(stale), local_queue(), cluster_queue()))
        assert conditions(decision)["QuotaReserved"][1] == "PendingEvaluation"

    def test_the_schedulers_reason_stays(self) -> None:
        """What the engine said is not overwritten."""
        waiting = condition("QuotaReserved", "False", "WaitingForQuota", "insufficient")
        decision = decide("ns/wl", world(workload(waiting, NOT_ADMITTED), local_queue(), cluster_queue()))
        assert decision.actions == []

    def test_admitted_follows(self) -> None:
        """One that an older version left without that condition gets it."""
        waiting = condition("QuotaReserved", "False", "WaitingForQuota", "insufficient")
        decision = decide("ns/wl", world(workload(waiting), local_queue(), cluster_queue()))
        assert conditions(decision)["Admitted"] == ("False", "NoReservation", "The workload has no reservation")

    def test_the_coarse_reason_of_an_older_version_gives_way(self) -> None:
        """It says no more than that it waits."""
        waiting = condition("QuotaReserved", "False", "Pending", "Workload is pending")
        decision = decide("ns/wl", world(workload(waiting, NOT_ADMITTED), local_queue(), cluster_queue()))
        assert conditions(decision)["QuotaReserved"][1] == "PendingEvaluation"

    def test_one_on_hold_stays_so(self) -> None:
        """Its job asks for nothing, so that no queue is missed."""
        held = condition("QuotaReserved", "False", "OnHold", "StatefulSet scaled to zero; workload on hold")
        assert decide("ns/wl", world(workload(held, NOT_ADMITTED))).actions == []

    def test_a_fresh_one_in_good_order_is_left_alone(self) -> None:
        """No condition is written before there is something to say."""
        assert decide("ns/wl", world(workload(), local_queue(), cluster_queue())).actions == []


BACK_OFF = {"requeueState": {"count": 1, "requeueAt": "2026-01-02T03:04:35Z"}}


class TestBackOff:
    """A Workload that waits for its back-off is cared for as any other: the deadline hides nothing."""

    HELD = condition("Requeued", "False", "PodsReadyTimeout")

    def test_what_its_queue_lacks_is_said(self) -> None:
        """And it comes back when the back-off is over all the same."""
        decision = decide("ns/wl", world(workload(self.HELD, more_status=BACK_OFF), cluster_queue()))
        assert conditions(decision)["QuotaReserved"][1:] == ("Misconfigured", "LocalQueue lq doesn't exist")
        assert decision.actions[1:] == [RequeueAfter(30.0)]

    def test_a_gate_that_is_gone_is_said(self) -> None:
        """At once, and not when the back-off is over."""
        gated = condition("QuotaReserved", "False", "AdmissionGated", "Admission is gated by: example.com/gate")
        waiting = workload(self.HELD, gated, NOT_ADMITTED, more_status=BACK_OFF)
        decision = decide("ns/wl", world(waiting, local_queue(), cluster_queue()))
        assert conditions(decision)["QuotaReserved"][1] == "PendingEvaluation"
        assert decision.actions[-1] == RequeueAfter(30.0)

    def test_the_checks_that_it_needs_are_listed(self) -> None:
        """Those that its ClusterQueue asks for since it waits."""
        checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}}
        waiting = workload(self.HELD, more_status=BACK_OFF)
        decision = decide("ns/wl", world(waiting, local_queue(), cluster_queue(**checks)))
        assert [check["name"] for check in status(decision)["admissionChecks"]] == ["check"]
        assert decision.actions[1:] == [RequeueAfter(30.0)]


class TestTimeLimit:
    def test_within_the_limit_it_comes_back_when_it_is_up(self) -> None:
        """245 s have passed of 300."""
        decision = decide(
            "ns/wl",
            world(
                workload(RESERVED, ADMITTED, admission=True, spec={"maximumExecutionTimeSeconds": 300}),
                local_queue(),
                cluster_queue(),
            ),
        )
        assert decision.actions == [RequeueAfter(55.0)]

    def test_beyond_it_is_deactivated(self) -> None:
        """DeactivationTarget names the limit."""
        decision = decide(
            "ns/wl",
            world(
                workload(RESERVED, ADMITTED, admission=True, spec={"maximumExecutionTimeSeconds": 245}),
                local_queue(),
                cluster_queue(),
                now=NOW + timedelta(seconds=1),
            ),
        )
        assert conditions(decision)["DeactivationTarget"][:2] == ("True", "MaximumExecutionTimeExceeded")

    @pytest.mark.parametrize(("past", "left"), [(40, 15.0), (54, 1.0), (55, None), (400, None)])
    def test_earlier_runs_count(self, past: int, left: float | None) -> None:
        """245 s have passed of 300, after runs before evictions."""
        ran = workload(
            RESERVED,
            ADMITTED,
            admission=True,
            spec={"maximumExecutionTimeSeconds": 300},
            more_status={"accumulatedPastExecutionTimeSeconds": past},
        )
        decision = decide("ns/wl", world(ran, local_queue(), cluster_queue()))
        if left is None:
            assert conditions(decision)["DeactivationTarget"][:2] == ("True", "MaximumExecutionTimeExceeded")
            assert status(decision)["accumulatedPastExecutionTimeSeconds"] is None
        else:
            assert decision.actions == [RequeueAfter(left)]

    def test_one_that_is_stopped_is_not_deactivated_too(self) -> None:
        """Its limit has passed while its pods take their time to terminate."""
        evicted = condition("Evicted", "True", "Preempted", "preempted")
        stopping = workload(RESERVED, ADMITTED, evicted, admission=True, spec={"maximumExecutionTimeSeconds": 200})
        assert decide("ns/wl", world(stopping, local_queue(), cluster_queue())).actions == []


class TestOrphan:
    def test_one_made_for_a_job_that_is_gone_is_finished_then_let_go(self) -> None:
        """First Finished OwnerNotFound, then the finalizer goes."""
        labels = {"kueue.x-k8s.io/job-uid": "job-uid"}
        orphan = workload(ownerReferences=[], labels=labels, deletionTimestamp="2026-01-02T03:04:00Z")
        assert patches(decide("ns/wl", world(orphan))) == [{"metadata": {"resourceVersion": "7", "finalizers": []}}]
        orphan = workload(ownerReferences=[], labels=labels)
        assert conditions(decide("ns/wl", world(orphan)))["Finished"][:2] == ("True", "OwnerNotFound")

    def test_one_that_a_manager_of_other_clusters_has_sent_waits_for_its_job(self) -> None:
        """Kueue 0.15 leaves the label with the uid of the job that is there; the copy of the job is made later."""
        labels = {"kueue.x-k8s.io/job-uid": "job-uid", "kueue.x-k8s.io/multikueue-origin": "multikueue"}
        sent = workload(RESERVED, ADMITTED, admission=True, ownerReferences=[], labels=labels)
        assert decide("ns/wl", world(sent, local_queue(), cluster_queue())).actions == []
        gone = workload(ownerReferences=[], labels=labels, deletionTimestamp="2026-01-02T03:04:00Z")
        assert patches(decide("ns/wl", world(gone))) == [{"metadata": {"resourceVersion": "7", "finalizers": []}}]

    def test_one_that_a_person_made_is_left_alone(self) -> None:
        """No owner and no job-uid label: it was never a job's."""
        assert decide("ns/wl", world(workload(ownerReferences=[]), local_queue(), cluster_queue())).actions == []

    def test_one_that_a_person_made_for_a_group_waits_for_its_pods(self) -> None:
        """A Workload is orphaned only if it had an owner: the mark of a group's Workload is none."""
        marks = {"kueue.x-k8s.io/is-group-workload": "true"}
        made_first = workload(ownerReferences=[], finalizers=[], annotations=marks)
        assert decide("ns/wl", world(made_first, local_queue(), cluster_queue())).actions == []


class TestDevices:
    CLAIMS: ClassVar = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    SPEC: ClassVar = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"resourceClaims": CLAIMS}}}]}
    HELD: ClassVar = (
        "spec.podSets[0].template.spec.resourceClaims[0]: Internal error: failed to get claim spec for "
        'ResourceClaimTemplate gpu in podset main: resourceclaimtemplates.resource.k8s.io "gpu" not found'
    )

    def test_a_workload_whose_claim_cannot_be_read_is_held_with_kueues_conditions(self) -> None:
        """The Workload says so, and is not written again."""
        decision = decide("ns/wl", world(workload(spec=self.SPEC), local_queue(), cluster_queue()))
        held = conditions(decision)
        assert held["QuotaReserved"] == ("False", "Misconfigured", self.HELD)
        assert held["Requeued"] == ("False", "Inadmissible", self.HELD)
        again = [condition(kind, *values) for kind, values in held.items()]
        assert patches(decide("ns/wl", world(workload(*again, spec=self.SPEC), local_queue(), cluster_queue()))) == []

    def test_one_that_asks_for_no_devices_any_more_waits_again(self) -> None:
        """The reason and Requeued go."""
        held = (
            condition("QuotaReserved", "False", "Misconfigured", self.HELD),
            condition("Requeued", "False", "Inadmissible", self.HELD),
            NOT_ADMITTED,
        )
        told = conditions(decide("ns/wl", world(workload(*held), local_queue(), cluster_queue())))
        assert told["QuotaReserved"][1] == "PendingEvaluation"
        assert "Requeued" not in told

    def test_one_that_holds_quota_keeps_it(self) -> None:
        """Such as a Workload that Kueue has admitted, and charged for its devices."""
        admitted = workload(RESERVED, ADMITTED, admission=True, spec=self.SPEC)
        assert patches(decide("ns/wl", world(admitted, local_queue(), cluster_queue()))) == []

    @pytest.mark.parametrize(
        ("count", "created", "deactivated"),
        [(3, "2026-01-02T04:00:00Z", True), (2, "2026-01-02T04:00:00Z", False), (3, "2026-01-01T00:00:00Z", False)],
        ids=["more", "as much", "older than the reservation"],
    )
    @pytest.mark.parametrize("named", [False, True], ids=["template", "claim"])
    def test_a_claim_that_was_swapped_for_a_larger_one(
        self, count: int, created: str, deactivated: bool, named: bool
    ) -> None:
        """The Workload is deactivated: its pods may have more devices than it is charged for."""
        field = "resourceClaimName" if named else "resourceClaimTemplateName"
        template_spec = {"spec": {"resourceClaims": [{"name": "gpu", field: "gpu"}]}}
        spec = {"podSets": [{"name": "main", "count": 1, "template": template_spec}]}
        usage = {"name": "main", "flavors": {"gpus": "f"}, "resourceUsage": {"gpus": "2"}, "count": 1}
        held = {"admission": {"clusterQueue": "cq", "podSetAssignments": [usage]}}
        admitted = workload(RESERVED, ADMITTED, more_status=held, spec=spec)
        made = world(admitted, local_queue(), cluster_queue())
        exactly = {"deviceClassName": "gpu", "count": count, "allocationMode": "ExactCount"}
        meta = {"name": "gpu", "namespace": "ns", "creationTimestamp": created, "resourceVersion": "1"}
        asked = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        claim = msgspec.convert({"metadata": meta, "spec": asked}, ResourceClaim)
        template = msgspec.convert({"metadata": meta, "spec": {"spec": asked}}, ResourceClaimTemplate)
        _ = made.claims.observe(claim) if named else made.claim_templates.observe(template)
        mapping = DeviceMapping(resource="gpus", classes=("gpu",))
        made.counting = Surroundings(Options(device_mappings=(mapping,)))
        made.counting.devices.put_claim(claim.KIND if named else template.KIND, "ns/gpu", claim.spec)
        decision = decide("ns/wl", made)
        assert ([patch.get("spec") for patch in patches(decision)] == [{"active": False}]) == deactivated
        assert ("NotCharged" in [each.reason for each in decision.actions if isinstance(each, Emit)]) == deactivated
