"""Each cause for which a Workload waits or loses its quota, or a ClusterQueue admits nothing, has a sentence of its
own; it is read back from Kueue's."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Formatter

import pytest

from tests.unit.insight.pending_worlds import preempting, world
from turnstile import controllers, engine
from turnstile.engine import Options, cycle
from turnstile.engine.causes import Cause, Eviction, Inactive, Sentence
from turnstile.engine.reasons import PREEMPTION_TEXT
from turnstile.wording import causes, evictions, inactivity
from turnstile.wording.causes import lacking, said, waiting
from turnstile.wording.evictions import evicted
from turnstile.wording.inactivity import inactive
from turnstile.wording.reading import Words, read

DATA = {
    "more": "2",
    "asked": "3",
    "assumed": "1",
    "most": "2",
    "count": "1",
    "value": "spot",
    "error": "operator Foo",
    "violations": "spec: too much",
    "victim": "Workload team/victim",
    "flavors": "one, other",
    "at": "2026-01-31T09:00:00Z",
    "added": "<nil>",
    "excluded": "nodeSelector: 2, resource cpu: 1",
    "pods": "3",
    "layers": "1/2 slice(s) fit on level rack; 3/4 slice(s) fit on level host",
    "unit": "pod",
    "kind": "ClusterQueue",
    "state": "Retry",
    "answers": '"quota" (no nodes)',
    "missing": "one,other",
    "named": "one,other",
    "others": "third,fourth",
    "cohorts": "a -> b -> a",
    "hosts": "node-1,node-2",
    "gates": "one,other",
    "why": next(iter(PREEMPTION_TEXT.values())),
}
SENTENCES: dict[type[Sentence], tuple[Callable[[str], str], Mapping[Sentence, Words]]] = {
    Cause: (waiting, causes.WORDS),
    Eviction: (evicted, evictions.WORDS),
    Inactive: (inactive, inactivity.WORDS),
}
"""The translator of each kind of causes, and its words."""
ALL = [cause for kind in SENTENCES for cause in kind]
LONGEST = 32768
"""Most characters of a condition's message."""
CPU_SECONDS = 0.3
JARGON = re.compile(r"<nil>|couldn't assign|pod ?set|insufficient|uid|TAS|[{}]", re.IGNORECASE)


def data_of(cause: Sentence) -> dict[str, str]:
    """Data for each place of a sentence."""
    names = [name for _, name, _, _ in Formatter().parse(cause.value) if name]
    return {name: DATA.get(name, f"the-{name.replace('_', '-')}") for name in names} | (
        {"resource": "cpu"} if "resource" in names else {}
    )


def in_words(cause: Sentence) -> str:
    """The sentence for people."""
    return SENTENCES[type(cause)][0](cause.says(**data_of(cause)))


@pytest.mark.parametrize("cause", ALL, ids=str)
def test_it_is_read_back_with_its_data(cause: Sentence) -> None:
    """From Kueue's sentence, to the letter."""
    (given,) = read(type(cause), cause.says(**data_of(cause)))
    assert given.cause is cause
    assert given.data == data_of(cause)


@pytest.mark.parametrize("cause", ALL, ids=str)
def test_it_has_a_sentence_in_plain_words(cause: Sentence) -> None:
    """Without Kueue's words for its own insides."""
    text = in_words(cause)
    assert re.fullmatch(r"[A-Z].*\.", text)
    assert not JARGON.search(text)


@pytest.mark.parametrize("kind", SENTENCES)
def test_no_two_causes_have_one_sentence(kind: type[Sentence]) -> None:
    """A reader can tell them apart."""
    texts = [in_words(cause) for cause in kind]
    assert len(set(texts)) == len(texts)


def messages(source: str) -> list[str]:
    """Texts that a module of the engine gives a condition, and that are no causes."""
    given = re.findall(
        r"""(?:\bmessage\s*\+?=|\.refuse\(|skip\(entry,|Why\(\w+,|Stop\(word,|\.evict\([^,]+,)\s*f?["']([^"']+)""",
        source,
    )
    return [text for text in given if "Cause." not in text]


NO_REASONS = {
    "Can",
    "Can admit new workloads",
    "ClusterQueue not found",
    "PendingEvaluation",
    "The workload was reactivated",
    "The workload backoff was finished",
    "Evicted due to {retried}",
    "The variant {variant.metadata.name} is admitted",
    "{Eviction.DEACTIVATED.says()}{detail}",
}
"""Texts around causes (`Can't admit new workloads: `), a reason, and why a Workload waits no more."""


def test_the_engine_says_nothing_else() -> None:
    """Every sentence about a Workload or ClusterQueue is one of the causes, and every stop of a controller is too."""
    places = [
        *Path(engine.__file__).parent.rglob("*.py"),
        *(Path(controllers.__file__).parent / "workloads").rglob("*.py"),
        Path(controllers.__file__).parent / "topology" / "failures.py",
    ]
    found = [text for path in places for text in messages(path.read_text())]
    assert [text for text in found if text not in NO_REASONS] == []


@pytest.mark.parametrize("make", [world, preempting])
def test_every_decision_is_understood(make: object) -> None:
    """In drawn clusters, no message of a decision is passed on as it is."""
    for seed in range(60):
        snapshot, _ = make(seed)  # type: ignore[operator]
        state, _ = snapshot.state(Options(), 1000.0)
        while state.has_work:
            cycle(state, 1000.0)
        for key in state.queues.waiting:
            why = state.questions.why(key)
            assert why is not None
            assert list(read(Cause, why.message)), why.message
            assert not JARGON.search(waiting(why.message))


class TestWhatPeopleRead:
    """Sentences of whole conditions."""

    ASSIGN = "couldn't assign flavors to pod set main: "

    def test_the_amount_that_is_short(self) -> None:
        """With the unit that people say."""
        message = self.ASSIGN + "insufficient unused quota for cpu in flavor on-demand, 2 more needed"
        assert waiting(message) == "Waits for 2 more CPUs on on-demand nodes."

    def test_accelerators_come_first(self) -> None:
        """However the condition orders them."""
        lacking = "insufficient unused quota for memory in flavor a100, 512Gi more needed"
        message = f"{self.ASSIGN}{lacking}, insufficient unused quota for nvidia.com/gpu in flavor a100, 4 more needed"
        assert waiting(message) == "Waits for 4 more GPUs and 512Gi more memory on a100 nodes."

    def test_a_flavor_that_does_not_suit_is_not_what_it_waits_for(self) -> None:
        """Where another one does."""
        taint = "untolerated taint {capacity spot NoSchedule <nil>} in flavor spot"
        message = f"{self.ASSIGN}insufficient unused quota for cpu in flavor on-demand, 500m more needed, {taint}"
        assert waiting(message) == "Waits for 0.5 more CPUs on on-demand nodes."

    def test_what_no_pod_can_have(self) -> None:
        """A Workload that asks for more than there is can never start."""
        asked = "previously considered podsets requests (0) + current podset request (40) > maximum capacity (32)"
        message = f"{self.ASSIGN}insufficient quota for cpu in flavor spot, {asked}"
        assert waiting(message) == (
            "Can never start as it is: it asks for 40 CPUs on spot nodes, where its queue can have 32 at most."
        )

    def test_a_preemptor(self) -> None:
        """It waits for its victims, not for the amount that they hold."""
        lacking = "insufficient unused quota for cpu in flavor default, 2 more needed"
        message = f"{self.ASSIGN}{lacking}. Pending the preemption of 2 workload(s)"
        assert waiting(message) == "Preempts 2 Workloads, and starts when they have ended."

    def test_a_sentence_of_others_is_passed_on(self) -> None:
        """Of an operator, or of a later version of Kueue."""
        assert waiting("the operator is on holiday") == "The operator is on holiday."

    def test_a_name_that_looks_like_a_cause_is_no_cause(self) -> None:
        """A tenant writes the keys of an affinity."""
        key = "LocalQueue x doesn't exist"
        (given,) = read(Cause, Cause.AFFINITY_MALFORMED.says(pod_set="main", error=f"key {key!r}"))
        assert given.cause is Cause.AFFINITY_MALFORMED
        assert said(given).startswith("Its node affinity cannot be read")


def test_what_is_wrong_with_a_pod_set_besides_its_affinity() -> None:
    """Kueue's sentence begins in the same way."""
    message = Cause.AFFINITY_MALFORMED.says(pod_set="main", error=Cause.TOPOLOGY_NO_FLAVOR.says())
    assert waiting(message) == "Its pods ask for a topology, and got no flavor that has one."


def test_places_that_are_too_few_and_why() -> None:
    """Both are said."""
    few = Cause.PLACES_FEW.says(topology="default", fit=1, needed=2, unit="pod")
    excluded = Cause.NODES_EXCLUDED.says(total=3, excluded="nodeSelector: 2")
    assert waiting(f"couldn't assign flavors to pod set main: {few}. {excluded}") == (
        "Topology default has places for 1 of its 2 pods. Nodes that take none of its pods, out of 3: nodeSelector: 2."
    )


def test_each_cause_says_what_helps() -> None:
    """The reference has a cure for each."""
    assert [cause for cause in ALL if not SENTENCES[type(cause)][1][cause].helps] == []


@pytest.mark.parametrize(
    "part",
    [
        "x",
        "1/",
        "a ",
        "untolerated taint {",
        "failed to assign flavors to pod set a: ",
        "more than one TAS flavor assigned: ",
        'topology "',
        "Total nodes: 1; excluded: a: 1",
        Cause.QUOTA_IN_USE.says(resource="cpu", flavor="spot", more="1") + "; ",
        "Preempted to accommodate a workload (UID: ",
        "Evicted on manager: ",
        "AdmissionCheck in ",
        "references missing ResourceFlavor(s): a,",
        "is stopped, ",
    ],
)
@pytest.mark.parametrize("read_by", [waiting, lacking, evicted, inactive])
def test_a_long_message_is_read_in_little_time(read_by: Callable[[str], object], part: str) -> None:
    """Whoever writes a message, and however often it begins like a cause: a page reads those of many Workloads."""
    message = (part * LONGEST)[:LONGEST]
    began = time.thread_time()
    read_by(message)
    assert time.thread_time() - began < CPU_SECONDS


class TestWhyItLostItsQuota:
    """Sentences of whole conditions."""

    def test_a_deactivation_and_its_reason(self) -> None:
        """The reason is the sentence."""
        message = f"{Eviction.DEACTIVATED.says()} due to {Eviction.TIME_USED_UP.says()}"
        assert evicted(message) == "Deactivated: it ran for as long as its maximum execution time."

    def test_a_check_that_asks_for_another_attempt(self) -> None:
        """With its own message."""
        message = 'Evicted due to AdmissionCheck in Retry state: "nodes" (no capacity.)'
        assert evicted(message) == 'Admission check "nodes" (no capacity.) asks to try again later.'

    def test_a_copy_in_another_cluster(self) -> None:
        """Why the manager stopped it."""
        drained = Eviction.QUEUE_DRAINED.says(kind="ClusterQueue")
        message = f"{Eviction.DEACTIVATED.says()} due to {Eviction.ON_MANAGER.says()}: {drained}"
        assert evicted(message) == (
            "Stopped by the cluster that sent it here. Its ClusterQueue was stopped and drained."
        )

    def test_the_reason_stays_until_it_is_tried_again(self) -> None:
        """The condition QuotaReserved has the message of the eviction."""
        late = Eviction.PODS_LATE.says(workload="team/job")
        assert waiting(late) == evicted(late) == "Its pods were not ready in time."

    def test_a_sentence_of_others_is_passed_on(self) -> None:
        """A person's, or that of a later version of Kueue."""
        assert evicted("made room by hand") == "Made room by hand."


def test_several_reasons_why_a_cluster_queue_admits_nothing() -> None:
    """All are said."""
    missing = Inactive.FLAVORS_MISSING.says(missing="spot,a100")
    message = f"Can't admit new workloads: {Inactive.STOPPED.says()}, {missing}."
    assert inactive(message) == "It is stopped. There is no ResourceFlavor spot or a100."
