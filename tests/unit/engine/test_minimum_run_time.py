"""A Workload runs for the minimum run time of its ClusterQueue or priority class before it may be preempted."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.timeannotations import MINIMUM_RUN_TIME
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import Options, State, cycle
from turnstile.engine.instants import stamp
from turnstile.engine.options import FairSharing
from turnstile.engine.queue.protections import runs_since

LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def queue(name: str, least: str | None = None, *, cpu: int = 4, cohort: str | None = None) -> ClusterQueue:
    """A ClusterQueue that preempts, with a minimum run time."""
    made = b.queue(name, {"default": {"cpu": cpu}}, cohort, preemption=LOWER)
    if least is not None:
        made.metadata.annotations[MINIMUM_RUN_TIME] = least
    return made


def priority_class(name: str, least: str | None = None) -> WorkloadPriorityClass:
    """A WorkloadPriorityClass with a minimum run time."""
    made = WorkloadPriorityClass(value=0)
    made.metadata.name = name
    if least is not None:
        made.metadata.annotations[MINIMUM_RUN_TIME] = least
    return made


def of_class(workload: Workload, name: str) -> Workload:
    """The Workload with a WorkloadPriorityClass."""
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    return b.changed(workload, spec={"priorityClassRef": ref})


def victims_at(state: State, now: float) -> set[str]:
    """The Workloads that cycles preempt at a time, once protections that ended then are over."""
    state.pass_deadlines(now)
    found: set[str] = set()
    for _ in range(100):
        if not state.has_work:
            return found
        found |= {each.key for decision in cycle(state, now) for each in decision.victims if each.new}
    raise AssertionError("no fixed point was reached")


def test_no_workload_is_preempted_before_its_time() -> None:
    """The preemptor waits, is told until when, and has the Workload preempted then and not before."""
    state = b.world(queue("main", "10m"))
    state.put_workload(b.held("low", "main", {"cpu": "4"}), b.NOW)
    state.put_workload(b.workload("high", cpu=4, priority=1), b.NOW)
    assert not victims_at(state, b.NOW + 594)
    assert state.queues.decisions["team/high"].message.endswith(
        ". Workloads that could be preempted are protected by their minimum run time until 2026-01-02T03:14:00Z"
    )
    end = state.deadlines.next
    assert end == b.NOW - 5 + 600
    assert victims_at(state, end) == {"team/low"}
    assert state.deadlines.next is None


def test_quota_that_was_lent_is_not_taken_back_before_the_time_either() -> None:
    """The minimum run time is that of the borrower's ClusterQueue."""
    state = b.world(queue("borrower", "10m", cohort="all"), queue("owner", cohort="all"))
    state.put_workload(b.held("low", "borrower", {"cpu": "8"}), b.NOW)
    state.put_workload(b.workload("mine", "owner", cpu=4), b.NOW)
    assert not victims_at(state, b.NOW + 594)
    assert victims_at(state, b.NOW + 595) == {"team/low"}


def test_the_preemptor_takes_others_meanwhile() -> None:
    """They come later in the order of victims."""
    state = b.world(queue("main"))
    state.put_workload_priority_class(priority_class("kept", "1h"))
    state.put_workload(of_class(b.held("kept", "main", {"cpu": "2"}), "kept"), b.NOW)
    state.put_workload(b.held("other", "main", {"cpu": "2"}, priority=1), b.NOW)
    state.put_workload(b.workload("high", cpu=2, priority=2), b.NOW)
    assert victims_at(state, b.NOW) == {"team/other"}


def test_the_word_of_the_priority_class_counts_before_that_of_the_queue() -> None:
    """In both directions; a class without the annotation leaves it to the ClusterQueue."""
    for least, ends in (("0s", 0), ("1m", 60), (None, 600)):
        state = b.world(queue("main", "10m"))
        state.put_workload_priority_class(priority_class("batch", least))
        state.put_workload(of_class(b.held("low", "main", {"cpu": "4"}), "batch"), b.NOW)
        state.put_workload(b.workload("high", cpu=4, priority=1), b.NOW)
        assert victims_at(state, b.NOW - 5 + ends) == {"team/low"}, least
        if ends:
            assert runs_since(state.cluster_queues["main"].workloads["team/low"]) == b.NOW - 5


def test_the_annotation_of_a_workload_means_nothing() -> None:
    """A tenant may write it."""
    state = b.world(queue("main"))
    low = b.changed(b.held("low", "main", {"cpu": "4"}), metadata={"annotations": {MINIMUM_RUN_TIME: "1h"}})
    state.put_workload(low, b.NOW)
    state.put_workload(b.workload("high", cpu=4, priority=1), b.NOW)
    assert victims_at(state, b.NOW) == {"team/low"}


def test_the_configuration_limits_it() -> None:
    """Whatever the ClusterQueue asks for."""
    state = b.world(queue("main", "1000h"), options=Options(longest_minimum_run_time=60.0))
    state.put_workload(b.held("low", "main", {"cpu": "4"}), b.NOW)
    state.put_workload(b.workload("high", cpu=4, priority=1), b.NOW)
    assert victims_at(state, b.NOW + 55) == {"team/low"}


def test_it_counts_from_when_the_pods_were_ready_first() -> None:
    """A recovery of failed pods does not begin the time anew: the owner of the pods could have them fail."""
    low = b.held("low", "main", {"cpu": "4"})
    for reason, since in (("Started", 30), ("Recovered", 0)):
        ready = b.changed(b.with_conditions(low, PodsReady=("True", reason)))
        next(each for each in ready.status.conditions if each.type == "PodsReady").last_transition_time = b.stamp(30)
        state = b.world(queue("main", "10m"))
        state.put_workload(ready, b.NOW)
        assert runs_since(state.cluster_queues["main"].workloads["team/low"]) == b.NOW - 5 + since


def test_an_edit_of_a_queue_or_class_counts_at_once() -> None:
    """Whoever waits searches again."""
    state = b.world(queue("main", "10m"))
    state.put_workload(b.held("low", "main", {"cpu": "4"}), b.NOW)
    state.put_workload(b.workload("high", cpu=4, priority=1), b.NOW)
    assert not victims_at(state, b.NOW)
    state.put_cluster_queue(queue("main", "not a duration"), b.NOW)
    assert victims_at(state, b.NOW) == {"team/low"}


LEASTS = st.sampled_from([None, "0s", "10s", "45s", "2m"])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(LEASTS, min_size=3, max_size=3),
    LEASTS,
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=9),
    st.booleans(),
)
def test_no_victim_is_protected_when_it_is_chosen(
    leasts: list[str | None], of_the_class: str | None, jobs: list[tuple[int, int, int, bool]], fair: bool
) -> None:
    """Whatever the queues, policies and times; and whoever spared a Workload is woken when its protection ends."""
    options = Options(fair_sharing=FairSharing() if fair else None)
    queues = [queue(f"q{index}", least, cohort="all") for index, least in enumerate(leasts)]
    state = b.world(*queues, options=options)
    state.put_workload_priority_class(priority_class("c", of_the_class))
    now = b.NOW
    for number, (where, cpu, priority, classed) in enumerate(jobs):
        made = b.workload(f"w{number}", f"q{where}", cpu=cpu, priority=priority, second=number)
        state.put_workload(of_class(made, "c") if classed else made, now)
        now += 7
        check(state, now)
    while (end := state.deadlines.next) is not None:
        assert end > now
        now = end
        check(state, now)


def check(state: State, now: float) -> None:
    """Run cycles at a time; what they write is there at once, victims go at once, and none of these is protected."""
    state.pass_deadlines(now)
    for _ in range(100):
        if not state.has_work:
            return
        held = {key: (info, queue) for queue in state.cluster_queues.values() for key, info in queue.workloads.items()}
        for decision in cycle(state, now):
            for victim in decision.victims:
                info, queue = held[victim.key]
                until = state.protections.until(info, queue)
                assert until is None or until <= now
                evicted = b.with_conditions(info.workload, Evicted=("True", "Preempted"))
                state.put_workload(evicted, now)
                state.put_workload(b.released(evicted), now)
        for key in list(state.reservations.assumed):
            admitted = b.reserved(state.workloads[key].workload, state)
            for each in admitted.status.conditions:
                each.last_transition_time = stamp(now)
            state.put_workload(b.with_conditions(admitted, drop=("Evicted",)), now)
    raise AssertionError("no fixed point was reached")
