"""A ResourceClaim that several Workloads name: its devices are charged once to their ClusterQueue, and for as long as
any of them holds quota for it."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from turnstile.api.resourceclaim import ResourceClaim
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.intake import FEEDING
from turnstile.engine.options import DeviceMapping

MAPPED = (DeviceMapping(resource="gpus", classes=("gpu.example.com",)),)
PREEMPTS = {"withinClusterQueue": "LowerPriority"}
QUOTA = {"one": {"cpu": 9, "gpus": 4}, "two": {"cpu": 9, "gpus": 4}}


def claim(state: State, devices: int, name: str = "mine", namespace: str = "team") -> None:
    """A ResourceClaim for so many devices."""
    exactly = {"deviceClassName": "gpu.example.com", "count": devices, "allocationMode": "ExactCount"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    FEEDING[ResourceClaim].put(state, msgspec.convert(body, ResourceClaim), b.NOW)


def world(*queues: Any, devices: int = 2) -> State:
    """Queues with quota for CPUs and devices in two flavors, and the claim `mine`."""
    state = b.world(
        *(queues or (b.queue("a", QUOTA),)), options=Options(device_mappings=MAPPED), flavors=("one", "two")
    )
    claim(state, devices)
    return state


def naming(name: str, line: str = "main", *, of: str = "mine", **more: Any) -> Workload:
    """A Workload whose pods name a claim."""
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": of}], **more.pop("spec", {})}
    return b.workload(name, line, spec=spec, **more)


def admit(state: State, *workloads: Workload) -> list[Workload]:
    """The Workloads as they are once they were admitted, one after the other, and that was seen."""
    found = []
    for each in workloads:
        state.put_workload(each, b.NOW)
        b.settle(state)
        found.append(b.reserved(each, state))
        state.put_workload(found[-1], b.NOW)
    return found


def used(state: State, queue: str = "a", flavor: str = "one", resource: str = "gpus") -> int:
    """The usage of a ClusterQueue, which its LocalQueues together have too."""
    pair = state.surroundings.catalog.pair(flavor, resource)
    found = state.cluster_queues[queue]
    amount = found.node.usage.get(pair, 0)
    assert found.held().get(pair, 0) == amount
    return amount


class TestWhoIsCharged:
    """The first of those that hold quota for a claim, and then the next."""

    def test_two_jobs_that_name_a_claim_are_charged_for_it_once(self) -> None:
        """Both statuses state the charge; quota for another claim is left."""
        state = world()
        claim(state, 2, "other")
        first, second, _ = admit(state, naming("a"), naming("b"), naming("c", of="other"))
        assert (used(state), used(state, resource="cpu")) == (4, 3000)
        for each in (first, second):
            assert each.status.admission is not None
            assert each.status.admission.pod_set_assignments[0].resource_usage["gpus"] == "2"

    def test_the_charge_stays_until_the_last_of_them_is_gone(self) -> None:
        """Whichever goes first."""
        for order in ("abc", "cba", "bac"):
            state = world()
            admit(state, naming("a"), naming("b"), naming("c"))
            for left, name in zip((2, 2, 0), order, strict=True):
                state.drop_workload(f"team/{name}")
                assert used(state) == left

    def test_a_new_leader_counts_the_same(self) -> None:
        """The one who is charged is known from the statuses, in whatever order they are read."""
        state = world(b.queue("a", QUOTA), b.queue("b", QUOTA))
        state.put_local_queue(b.local("other", "a"), b.NOW)
        workloads = admit(state, naming("a"), naming("b", "other"), naming("c", "other", priority=1))
        figures = {key: line.usage for key, line in state.cluster_queues["a"].holders.items()}
        assert [str(pair) for pair in figures["team/main"]] == ["one/cpu"]
        for order in (workloads, workloads[::-1]):
            again = world(b.queue("a", QUOTA), b.queue("b", QUOTA))
            again.put_local_queue(b.local("other", "a"), b.NOW)
            for each in order:
                again.put_workload(each, b.NOW)
            assert used(again) == 2
            found = {key: line.usage for key, line in again.cluster_queues["a"].holders.items()}
            assert {key: {str(pair): amount for pair, amount in value.items()} for key, value in found.items()} == {
                key: {str(pair): amount for pair, amount in value.items()} for key, value in figures.items()
            }

    def test_a_cluster_queue_that_comes_after_its_workloads(self) -> None:
        """It is charged once too."""
        state = world()
        workloads = admit(state, naming("a"), naming("b"))
        again = world(b.queue("other", QUOTA))
        for each in workloads:
            again.put_workload(each, b.NOW)
        again.put_cluster_queue(b.queue("a", QUOTA), b.NOW)
        assert used(again) == 2
        again.drop_cluster_queue("a")
        again.put_cluster_queue(b.queue("a", QUOTA), b.NOW)
        again.drop_workload("team/a")
        assert used(again) == 2
        again.drop_workload("team/b")
        assert used(again) == 0

    def test_each_cluster_queue_is_charged(self) -> None:
        """Otherwise the devices would pass to a ClusterQueue that may have no quota for them."""
        state = world(b.queue("a", QUOTA), b.queue("b", QUOTA))
        admit(state, naming("a"), naming("b", "b"))
        assert (used(state), used(state, "b")) == (2, 2)

    def test_a_claim_made_anew_with_other_devices_is_another(self) -> None:
        """The first job may still have the devices of the claim that is gone."""
        state = world()
        admit(state, naming("a"))
        claim(state, 1)
        admit(state, naming("b"))
        assert used(state) == 3

    def test_claims_of_two_namespaces_are_two(self) -> None:
        """Although they have one name, and their jobs ask for the same."""
        state = world()
        state.put_namespace("other", {})
        state.put_local_queue(b.local("main", "a", "other"), b.NOW)
        claim(state, 2, namespace="other")
        admit(state, naming("a"))
        blocker = b.workload("cpus", cpu=8)
        admit(state, blocker)
        for name, namespace in (("x", "other"), ("b", "team")):
            state.put_workload(naming(name, namespace=namespace), b.NOW)
        b.settle(state)
        assert (used(state), used(state, flavor="two")) == (2, 2)

    def test_pods_that_have_devices_from_elsewhere_too_are_charged_for_all_of_them(self) -> None:
        """The record of an admission does not tell the devices of the claim from the others."""
        state = world()
        claim(state, 1, "other")
        both = [{"name": "gpu", "resourceClaimName": "mine"}, {"name": "more", "resourceClaimName": "other"}]
        admit(state, naming("a"), b.workload("b", spec={"resourceClaims": both}))
        assert (used(state), used(state, flavor="two")) == (2, 3)

    def test_a_job_of_higher_priority_takes_the_charge_over(self) -> None:
        """So a preemptor that may preempt the one who is charged may preempt all."""
        state = world()
        admit(state, naming("low"), naming("high", priority=5))
        assert state.cluster_queues["a"].workloads["team/low"].held.get("gpus") == 2
        pair = state.surroundings.catalog.pair("one", "gpus")
        found = {key: info.usage.of(pair) for key, info in state.cluster_queues["a"].workloads.items()}
        assert found == {"team/low": 0, "team/high": 2}
        assert used(state) == 2


class TestWhoMayJoin:
    """A job is admitted beside those that have the devices of its claim already."""

    def test_it_needs_no_quota_for_the_devices(self) -> None:
        """But for whatever else its pods ask for."""
        state = world(devices=4)
        admit(state, naming("a"), naming("b", cpu=7))
        state.put_workload(naming("c", cpu=2), b.NOW)
        (decision,) = cycle(state, b.NOW)
        assert "insufficient unused quota for cpu in flavor one, 1 more needed" in decision.message
        assert (
            "could not assign two flavor since the devices of ResourceClaim mine are of flavor one" in decision.message
        )
        assert used(state) == 4

    def test_a_job_that_waits_for_devices_has_those_of_its_claim_once_another_has(self) -> None:
        """Nothing else changed."""
        state = world(b.queue("a", {"one": {"cpu": 9, "gpus": 2}}))
        claim(state, 2, "other")
        (other,) = admit(state, naming("o", of="other"))
        state.put_workload(naming("waits", cpu=2), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/o"}
        state.drop_workload(other.metadata.key)
        admit(state, naming("first", priority=3))
        b.settle(state)
        assert b.admitted(state) == {"team/first", "team/waits"}

    def test_nobody_joins_those_that_are_evicted(self) -> None:
        """Their quota is for whoever they were evicted for."""
        state = world(b.queue("a", {"one": {"cpu": 9, "gpus": 2}}))
        (first,) = admit(state, naming("a"))
        state.put_workload(b.with_conditions(first, Evicted=("True", "Preempted")), b.NOW)
        state.put_workload(naming("b"), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/a"}

    def test_jobs_that_name_a_claim_do_not_keep_it_from_a_preemptor(self) -> None:
        """All that have the claim are preempted, and nobody joins them once the first was, however many ask to."""
        lender = b.queue("p", {"one": {"cpu": 9, "gpus": 2}}, "all", preemption={"reclaimWithinCohort": "Any"})
        state = world(lender, b.queue("a", {"one": {"cpu": 9, "gpus": 0}}, "all"))
        claim(state, 2, "urgent")
        held = {each.metadata.key: each for each in admit(state, naming("a", "a"), naming("b", "a"))}
        state.put_workload(naming("urgent", of="urgent"), b.NOW)
        evicted: list[str] = []
        for turn in range(9):
            joins = naming(f"joins-{turn}", "a", second=turn)
            state.put_workload(joins, b.NOW)
            for decision in b.settle(state):
                evicted += [each.key for each in decision.victims if each.new]
            if joins.metadata.key in state.reservations.assumed:
                held[joins.metadata.key] = b.reserved(joins, state)
                state.put_workload(held[joins.metadata.key], b.NOW)
            for key in evicted:
                if (left := held.pop(key, None)) is not None:
                    state.put_workload(b.with_conditions(left, Evicted=("True", "Preempted")), b.NOW)
                    state.put_workload(b.released(left), b.NOW)
        assert b.admitted(state) == {"team/urgent"}
        assert evicted == ["team/a", "team/b", "team/joins-0"]

    def test_a_preemptor_that_is_gone_lets_others_join_again(self) -> None:
        """Those who were kept from it are tried again."""
        state = world(b.queue("a", {"one": {"cpu": 3, "gpus": 2}}, preemption=PREEMPTS))
        first, second = admit(state, naming("a"), naming("b", priority=5))
        del second
        state.put_workload(b.workload("urgent", cpu=2, priority=9), b.NOW)
        targets = [each.key for decision in cycle(state, b.NOW) for each in decision.victims]
        assert targets == ["team/a"]
        state.put_workload(b.with_conditions(first, Evicted=("True", "Preempted")), b.NOW)
        state.put_workload(b.released(first), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/b", "team/urgent"}
        state.put_workload(b.reserved(b.workload("urgent", cpu=2, priority=9), state), b.NOW)
        state.drop_workload("team/urgent")
        b.settle(state)
        assert b.admitted(state) == {"team/a", "team/b"}


STEP = st.tuples(st.sampled_from("abcdef"), st.sampled_from(["admit", "drop", "evict", "release", "raise", "queue"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=24))
def test_the_usage_is_always_that_of_the_claims_in_use(steps: list[tuple[str, str]]) -> None:
    """Whatever comes in whatever order: each claim counts once for the Workloads that hold quota for it, and a state
    that is fed anew with the statuses has the same usage."""
    state = world(b.queue("a", {"one": {"cpu": 99, "gpus": 9}}), devices=2)
    claim(state, 3, "other")
    names = dict(zip("abcdef", ["mine", "mine", "mine", "other", "other", "mine"], strict=True))
    seen: dict[str, Workload] = {}
    raised: dict[str, int] = {}
    for name, step in steps:
        given_ = naming(name, of=names[name], priority=raised.get(name, 0))
        if step == "admit" and name not in seen:
            state.put_workload(given_, b.NOW)
            b.settle(state)
            if f"team/{name}" in state.reservations.assumed:
                seen[name] = b.reserved(given_, state)
                state.put_workload(seen[name], b.NOW)
        elif step == "queue":
            state.drop_cluster_queue("a")
            state.put_cluster_queue(b.queue("a", {"one": {"cpu": 99, "gpus": 9}}), b.NOW)
        elif name in seen and step == "drop":
            state.drop_workload(f"team/{name}")
            del seen[name]
        elif name in seen and step == "evict":
            seen[name] = b.with_conditions(seen[name], Evicted=("True", "Preempted"))
            state.put_workload(seen[name], b.NOW)
        elif name in seen and step == "release":
            state.put_workload(b.changed(b.released(seen.pop(name)), spec={"active": False}), b.NOW)
        elif name in seen and step == "raise":
            raised[name] = raised.get(name, 0) + 1
            seen[name] = b.changed(seen[name], spec={"priority": raised[name]})
            state.put_workload(seen[name], b.NOW)
        expected = sum({"mine": 2, "other": 3}[each] for each in {names[key] for key in seen})
        assert used(state) == expected
        again = world(b.queue("a", {"one": {"cpu": 99, "gpus": 9}}))
        for each in seen.values():
            again.put_workload(each, b.NOW)
        assert used(again) == expected
        assert used(again, resource="cpu") == used(state, resource="cpu") == 1000 * len(seen)
