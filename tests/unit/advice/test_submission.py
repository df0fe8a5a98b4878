"""What is told of a job that is submitted: never a word that the engine would not stand by."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from turnstile.advice.offer import Offer
from turnstile.advice.submission import LARGE, Asked, Notice, Part, notices
from turnstile.api.core import Namespace, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.pods import PodSpec
from turnstile.api.submission import BY_QUEUE, About
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import Options, State, cycle
from turnstile.engine.intake import FEEDING
from turnstile.engine.options import Gates

WORLDS = examples(300)
RESOURCES = ("cpu", "memory")
NEVER = {About.NEVER_FITS, About.NO_MATCHING_FLAVOR, About.RESOURCE_NOT_COVERED}
TAINT = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
GPU = "nvidia.com/gpu"


def team(**labels: str) -> Namespace:
    """The namespace of all jobs."""
    return msgspec.convert({"metadata": {"name": "team", "labels": labels}}, Namespace)


def offered(*objects: Kind, options: Options | None = None) -> Offer:
    """A cluster."""
    offer = Offer(options or Options())
    for each in objects:
        offer.put(each)
    return offer


def asks(*parts: Part, queue: str = "main", priority_class: tuple[type[Kind], str] | None = None) -> Asked:
    """A job of namespace `team`."""
    return Asked("team", queue, parts, priority_class)


def part(requests: dict[str, Any], least: int = 1, name: str = "main", **spec: Any) -> Part:
    """A pod set whose pods ask for so much."""
    containers = [{"name": "c", "resources": {"requests": {key: str(value) for key, value in requests.items()}}}]
    return Part(name, least, msgspec.convert({"containers": containers, **spec}, PodSpec))


def told(offer: Offer, asked: Asked) -> list[Notice]:
    """All notices."""
    return list(notices(offer, asked))


@pytest.mark.parametrize(("size", "large"), [(LARGE, False), (LARGE + 1, True)])
def test_a_large_template_is_told_of(size: int, large: bool) -> None:
    """Whether or not the queue exists; it may be refused by its ClusterQueue."""
    asked = Asked("team", "main", size=size)
    assert (About.LARGE_TEMPLATE in {each.about for each in told(offered(), asked)}) == large
    assert About.LARGE_TEMPLATE in BY_QUEUE


CLAIM = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]


@pytest.mark.parametrize(
    ("spec", "requests", "warned", "warned_without"),
    [
        ({"resourceClaims": CLAIM}, {}, False, True),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}, {}, False, True),
        ({}, {"deviceclass.resource.kubernetes.io/gpu": 1}, False, False),
        ({}, {"example.com/gpu": 1}, False, False),
    ],
)
def test_devices_that_no_quota_counts(
    spec: dict[str, Any], requests: dict[str, int], warned: bool, warned_without: bool
) -> None:
    """Without the gate of devices a job with claims is held, so its user is warned."""
    asked = asks(part(requests, **spec))
    assert (About.DEVICES_NOT_COUNTED in {each.about for each in told(offered(), asked)}) == warned
    without = Options(gates=Gates(kueue_dra_integration=False))
    told_without = {each.about for each in told(offered(options=without), asked)}
    assert (About.DEVICES_NOT_COUNTED in told_without) == warned_without
    gates = Gates(kueue_dra_integration=False, kueue_dra_reject_workloads_when_dra_disabled=False)
    off = Options(gates=gates)
    assert About.DEVICES_NOT_COUNTED not in {each.about for each in told(offered(options=off), asked)}


def one(*objects: Kind, asked: Asked) -> Notice:
    """The only notice."""
    (notice,) = told(offered(team(), *objects), asked)
    return notice


def quota(lots: random.Random, *, cohort: bool) -> Any:
    """A nominal quota, with limits in a cohort."""
    if not cohort:
        return lots.randint(0, 8)
    return lots.randint(0, 8), lots.choice([None, 0, 1, 4]), lots.choice([None, 0, 1, 4])


def world(lots: random.Random) -> tuple[list[Kind], Workload]:
    """Two queues with one or two flavors in a tree of cohorts, and a Workload of one or two pod sets."""
    flavors = lots.sample(["small", "large"], lots.randint(1, 2))
    objects: list[Kind] = [team()]
    for name in ("small", "large"):
        taints = [TAINT] if lots.random() < 0.5 else []
        objects.append(b.flavor(name, nodeLabels={"size": name}, nodeTaints=taints))
    cohorts = lots.choice([[], ["root"], ["root", "half"]])
    for name in cohorts:
        own = {flavors[0]: {each: lots.randint(0, 8) for each in RESOURCES}} if lots.random() < 0.5 else None
        objects.append(b.cohort(name, own, "root" if name == "half" else None))
    for name in ("main", "other"):
        cohort = lots.choice([None, *cohorts])
        covered = RESOURCES[: lots.randint(1, 2)]
        held = {flavor: {each: quota(lots, cohort=cohort is not None) for each in covered} for flavor in flavors}
        objects += [b.queue(name, held, cohort), b.local(name, name)]
    pod_sets = []
    for name in ("main", "workers")[: lots.randint(1, 2)]:
        requests = {each: str(lots.randint(0, 4)) for each in RESOURCES[: lots.randint(1, 2)]}
        spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        if lots.random() < 0.3:
            spec["nodeSelector"] = {"size": lots.choice(["small", "large"])}
        if lots.random() < 0.5:
            spec["tolerations"] = [{"operator": "Exists"}]
        count = lots.randint(1, 4)
        pod_set: dict[str, Any] = {"name": name, "count": count, "template": {"spec": spec}}
        if lots.random() < 0.5:
            pod_set["minCount"] = lots.randint(1, count)
        pod_sets.append(pod_set)
    meta = {"name": "w", "namespace": "team", "uid": "uid-w", "creationTimestamp": b.STAMP}
    body = {"metadata": meta, "spec": {"queueName": "main", "podSets": pod_sets}}
    return objects, msgspec.convert(body, Workload)


def asked_by(workload: Workload) -> Asked:
    """What a Workload asks for."""
    parts = [
        Part(each.name, each.count if each.min_count is None else each.min_count, each.template.spec)
        for each in workload.spec.pod_sets
    ]
    return asks(*parts, queue=workload.spec.queue_name or "")


def admitted(objects: list[Kind], workload: Workload) -> bool:
    """Whether the engine admits a Workload to a cluster in which nothing else is."""
    state = State(Options())
    for kind, feed in FEEDING.items():
        for each in objects:
            if isinstance(each, kind):
                feed.put(state, each, b.NOW)
    state.put_workload(workload, b.NOW)
    for _ in range(20):
        if not state.has_work:
            break
        cycle(state, b.NOW)
    return workload.metadata.key in state.reservations.assumed


@settings(max_examples=WORLDS)
@given(st.integers(min_value=0))
def test_what_never_fits_is_never_admitted(seed: int) -> None:
    """Not even by a cluster in which nothing else runs; and of one pod set nothing is left untold."""
    objects, workload = world(random.Random(seed))
    found = {each.about for each in told(offered(*objects), asked_by(workload))}
    assert found <= NEVER
    if found:
        assert not admitted(objects, workload)
    elif len(workload.spec.pod_sets) == 1:
        assert admitted(objects, workload)


class TestQueues:
    """Queues that are missing, stopped or inactive."""

    FLAVOR = b.flavor()

    def test_a_local_queue_that_does_not_exist(self) -> None:
        """In the namespace of the job."""
        notice = one(b.queue("main"), b.local("main", "main", "other"), asked=asks())
        assert notice.about is About.LOCAL_QUEUE_NOT_FOUND
        assert notice.sentence == "LocalQueue main does not exist in namespace team: the job waits until it does"

    def test_a_cluster_queue_that_does_not_exist(self) -> None:
        """The LocalQueue names it."""
        notice = one(b.local("main", "gone"), asked=asks())
        assert notice == Notice(
            About.CLUSTER_QUEUE_NOT_FOUND,
            "ClusterQueue gone does not exist: the job waits until it does",
            "gone",
        )

    @pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
    def test_queues_that_are_stopped(self, policy: str) -> None:
        """Either of the two, or both."""
        objects = (self.FLAVOR, b.queue("main", stopPolicy=policy), b.local("main", "main", stopPolicy=policy))
        found = told(offered(team(), *objects), asks())
        assert [each.about for each in found] == [About.LOCAL_QUEUE_STOPPED, About.CLUSTER_QUEUE_STOPPED]
        assert all(f"stopPolicy {policy}" in each.sentence for each in found)

    def test_a_flavor_that_does_not_exist(self) -> None:
        """The ClusterQueue admits nothing then."""
        notice = one(b.queue("main"), b.local("main", "main"), asked=asks(part({"cpu": 99})))
        assert notice.about is About.CLUSTER_QUEUE_INACTIVE
        assert notice.sentence == "ClusterQueue main admits nothing: there is no ResourceFlavor default"

    def test_cohorts_in_a_circle(self) -> None:
        """Their quota cannot be computed."""
        notice = one(
            self.FLAVOR, b.queue("main", cohort="a"), b.cohort("a", parent="c"), b.cohort("c", parent="a"),
            b.local("main", "main"), asked=asks(part({"cpu": 99})),
        )  # fmt: skip
        assert notice.about is About.CLUSTER_QUEUE_INACTIVE
        assert "cohorts form a cycle: a -> c -> a" in notice.sentence

    def test_a_namespace_that_is_not_selected(self) -> None:
        """By the labels of the namespace."""
        queue = b.queue("main", namespaceSelector={"matchLabels": {"tier": "gold"}})
        notice = one(self.FLAVOR, queue, b.local("main", "main"), asked=asks())
        assert notice.about is About.NAMESPACE_NOT_SELECTED

    def test_all_is_well(self) -> None:
        """Nothing is told."""
        objects = (team(), self.FLAVOR, b.queue("main"), b.local("main", "main"))
        assert told(offered(*objects), asks(part({"cpu": 10}))) == []
        assert told(offered(*objects), asks(queue="")) == []


class TestClasses:
    """Priority classes that do not exist."""

    @pytest.mark.parametrize("kind", [WorkloadPriorityClass, PriorityClass])
    def test_of_a_workload_or_of_pods(self, kind: type[Kind]) -> None:
        """Whichever decides the priority."""
        offer = offered(
            team(), b.flavor(), b.queue("main"), b.local("main", "main"),
            msgspec.convert({"metadata": {"name": "high"}, "value": 1}, kind),
        )  # fmt: skip
        assert told(offer, asks(priority_class=(kind, "high"))) == []
        sentence = f"{kind.KIND} low does not exist: the job waits until it does"
        assert told(offer, asks(priority_class=(kind, "low"))) == [
            Notice(About.PRIORITY_CLASS_NOT_FOUND, sentence, "main")
        ]


class TestAmounts:
    """What is asked, beside the most that there can be."""

    LINE = b.local("main", "main")

    def never(self, queue: Kind, *parts: Part, more: tuple[Kind, ...] = ()) -> str:
        """The sentence about a job that never fits."""
        notice = one(b.flavor(), b.flavor("spot"), queue, self.LINE, *more, asked=asks(*parts))
        assert notice.about is About.NEVER_FITS
        return notice.sentence

    def test_of_a_pod(self) -> None:
        """The largest flavor is named."""
        queue = b.queue("main", {"spot": {GPU: 4}, "default": {GPU: 8}})
        assert self.never(queue, part({GPU: 9}, 2)) == (
            "the job can never start as it is: each of its pods asks for 9 GPUs on default nodes, where ClusterQueue"
            " main can have 8 at most"
        )

    def test_of_all_pods(self) -> None:
        """A single one would fit."""
        assert "its 4 pods ask for 12 CPUs on default nodes" in self.never(b.queue("main"), part({"cpu": 3}, 4))

    def test_borrowing_counts(self) -> None:
        """Up to the limit."""
        lender = b.queue("lender", {"default": {"cpu": 10}}, "all")
        assert "can have 7 at most" in self.never(
            b.queue("main", {"default": {"cpu": (4, 3, None)}}, "all"), part({"cpu": 8}), more=(lender,)
        )

    def test_of_several_resources_together(self) -> None:
        """Each flavor has enough of one of them."""
        queue = b.queue("main", {"default": {"cpu": 8, GPU: 1}, "spot": {"cpu": 1, GPU: 8}})
        sentence = self.never(queue, part({"cpu": 4, GPU: 4}))
        assert sentence == (
            "the job can never start as it is: its pod asks for 4 GPUs and 4 CPUs, and no flavor of ClusterQueue main"
            " has that together"
        )

    def test_of_several_pod_sets_together(self) -> None:
        """Each of them fits."""
        sentence = self.never(b.queue("main"), part({"cpu": 6}), part({"cpu": 6}, name="workers"))
        assert sentence == (
            "the job can never start as it is: its pod sets ask for 12 CPUs together, and ClusterQueue main can have"
            " 10 at most"
        )

    def test_of_the_number_of_pods(self) -> None:
        """Where a ClusterQueue has a quota of pods."""
        queue = b.queue("main", {"default": {"cpu": 10, "pods": 2}})
        assert "its 3 pods ask for 3 pods on default nodes" in self.never(queue, part({"cpu": 1}, 3))

    def test_a_resource_without_quota(self) -> None:
        """No flavor covers it."""
        notice = one(b.flavor(), b.queue("main"), self.LINE, asked=asks(part({"cpu": 1, GPU: 2})))
        assert notice.about is About.RESOURCE_NOT_COVERED
        assert notice.sentence == (
            "the job can never start as it is: its pod asks for 2 GPUs, and ClusterQueue main has no quota for"
            " nvidia.com/gpu"
        )

    def test_resources_without_quota_may_be_let_pass(self) -> None:
        """By the configuration."""
        offer = offered(
            b.flavor(), b.queue("main"), self.LINE, options=Options(quota_check_strategy="IgnoreUndeclared")
        )
        assert told(offer, asks(part({"cpu": 1, GPU: 2}))) == []

    def test_a_taint_that_is_not_tolerated(self) -> None:
        """The reason of the first flavor is told."""
        objects = (b.flavor(nodeTaints=[TAINT]), b.queue("main"), self.LINE)
        notice = one(*objects, asked=asks(part({"cpu": 1})))
        assert notice.about is About.NO_MATCHING_FLAVOR
        assert notice.sentence == (
            "no flavor of ClusterQueue main suits its pods: its pods do not tolerate the taint reserved=yes of default"
            " nodes"
        )
        tolerated = part({"cpu": 1}, tolerations=[{"operator": "Exists"}])
        assert told(offered(team(), *objects), asks(tolerated)) == []

    def test_what_cannot_be_read_is_not_told(self) -> None:
        """An amount that is no quantity."""
        assert told(offered(team(), b.flavor(), b.queue("main"), self.LINE), asks(part({"cpu": "many"}))) == []
