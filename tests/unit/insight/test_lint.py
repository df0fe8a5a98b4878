"""Each rule tells of what is wrong, and of nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.documents import ROOT
from tests.unit.engine import builders as b
from turnstile.advice.submission import LARGE, Asked, Part
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.pods import PodSpec
from turnstile.api.timeannotations import MINIMUM_RUN_TIME
from turnstile.api.waitforroom import WAIT_FOR_ROOM
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import Options
from turnstile.engine.options import Gates
from turnstile.insight.lint.findings import Finding
from turnstile.insight.lint.rules import NAMES, RULES, lint
from turnstile.insight.lint.world import Place, World, world
from turnstile.insight.snapshot import Snapshot

GPU = "nvidia.com/gpu"
JOB = Place("Job", "team/train")
TAINT = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}


def named(kind: type[Kind], name: str, **fields: Any) -> Kind:
    """An object of a kind of which the name matters."""
    metadata = {"name": name, "labels": fields.pop("labels", {})}
    return msgspec.convert({"metadata": metadata, **fields}, kind)


def job(requests: dict[str, Any] | None = None, *, queue: str = "main", high: str = "") -> Asked:
    """A job of one pod."""
    asked = {key: str(value) for key, value in (requests or {"cpu": 1}).items()}
    spec = msgspec.convert({"containers": [{"name": "c", "resources": {"requests": asked}}]}, PodSpec)
    return Asked("team", queue, (Part("main", 1, spec),), (WorkloadPriorityClass, high) if high else None)


def of(
    *objects: Kind,
    asked: Asked | None = None,
    nodes: Sequence[dict[str, str]] | None = None,
    gates: Gates | None = None,
) -> World:
    """The world of a cluster with these objects."""
    snapshot = Snapshot()
    for each in objects:
        snapshot.put(each)
    jobs = [(JOB, asked)] if asked is not None else []
    return world(snapshot, Options(gates=gates or Gates()), jobs=jobs, nodes=nodes, whole=True)


TEAM = named(Namespace, "team")
CLAIM = {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
CLAIMING = replace(job(), parts=(Part("main", 1, msgspec.convert(CLAIM, PodSpec)),))
HIGH = named(WorkloadPriorityClass, "high", value=100)
FLAVOR = b.flavor()
LOCAL = b.local("main", "main")
MAIN = b.queue("main")
LOWER = {"withinClusterQueue": "LowerPriority"}
SOUND = (TEAM, FLAVOR, MAIN, LOCAL)


def running_for(least: str, obj: Kind) -> Kind:
    """The object with a minimum run time before preemption."""
    annotated = msgspec.structs.replace(obj.metadata, annotations={MINIMUM_RUN_TIME: least})
    return msgspec.structs.replace(obj, metadata=annotated)


def asking_for_room(says: str, obj: Kind) -> Kind:
    """The object with the annotation that asks for room on nodes."""
    annotated = msgspec.structs.replace(obj.metadata, annotations={WAIT_FOR_ROOM: says})
    return msgspec.structs.replace(obj, metadata=annotated)


def mixed(cpu: dict[str, str], *gpus: dict[str, str]) -> list[Kind]:
    """ClusterQueues without a LocalQueue that lend: for each flavor of cpus with these node labels, and those of GPUs
    that there are besides."""
    flavors = {f"gpu-{number}": labels for number, labels in enumerate(gpus)}
    groups = b.groups({"cpus": {"cpu": 4}}, {name: {GPU: 4} for name in flavors})
    labelled = [b.flavor(name, nodeLabels=labels) for name, labels in {"cpus": cpu, **flavors}.items()]
    queue = b.queue("mixed", resourceGroups=groups)
    return [*labelled, queue, b.local("mixed", "mixed")]


def sharing(*limits: tuple[Any, Any]) -> list[Kind]:
    """ClusterQueues of one cohort with these borrowing and lending limits, each with a LocalQueue."""
    made: list[Kind] = [TEAM, FLAVOR]
    for number, (borrowing, lending) in enumerate(limits):
        made.append(b.queue(f"q{number}", {"default": {"cpu": (4, borrowing, lending)}}, "all"))
        made.append(b.local(f"q{number}", f"q{number}"))
    return made


def tainted() -> Kind:
    """The flavor, with a taint."""
    return b.flavor(nodeTaints=[TAINT])


def replacing(*others: Kind) -> tuple[Kind, ...]:
    """A sound cluster with others in the place of its objects of the same kind and name, or beside them."""
    keys = {(type(each), each.metadata.key) for each in others}
    return (*(each for each in SOUND if (type(each), each.metadata.key) not in keys), *others)


CASES: dict[str, tuple[World, World]] = {
    "LocalQueueNotFound": (of(*SOUND, asked=job(queue="typo")), of(*SOUND, asked=job())),
    "LocalQueueStopped": (
        of(*replacing(b.local("main", "main", stopPolicy="Hold")), asked=job()),
        of(*SOUND, asked=job()),
    ),
    "ClusterQueueNotFound": (of(TEAM, LOCAL, asked=job()), of(*SOUND, asked=job())),
    "ClusterQueueStopped": (
        of(*replacing(b.queue("main", stopPolicy="HoldAndDrain")), asked=job()),
        of(*SOUND, asked=job()),
    ),
    "ClusterQueueInactive": (of(TEAM, MAIN, LOCAL, asked=job()), of(*SOUND, asked=job())),
    "NamespaceNotSelected": (
        of(*replacing(b.queue("main", namespaceSelector={"matchLabels": {"a": "b"}})), asked=job()),
        of(*SOUND, asked=job()),
    ),
    "PriorityClassNotFound": (of(*SOUND, asked=job(high="hihg")), of(*SOUND, HIGH, asked=job(high="high"))),
    "ResourceNotCovered": (of(*SOUND, asked=job({GPU: 1})), of(*SOUND, asked=job({GPU: 0}))),
    "NoMatchingFlavor": (of(*replacing(tainted()), asked=job()), of(*SOUND, asked=job())),
    "NeverFits": (of(*SOUND, asked=job({"cpu": 11})), of(*SOUND, asked=job({"cpu": 10}))),
    "LargeTemplate": (
        of(*SOUND, asked=replace(job(), size=LARGE + 1)),
        of(*SOUND, asked=replace(job(), size=LARGE)),
    ),
    "DevicesNotCounted": (
        of(*SOUND, asked=CLAIMING, gates=Gates(kueue_dra_integration=False)),
        of(*SOUND, asked=CLAIMING),
    ),
    "UnreadableAmount": (of(*replacing(b.queue("main", {"default": {"cpu": "many"}}))), of(*SOUND)),
    "MissingClusterQueue": (of(TEAM, LOCAL), of(*SOUND)),
    "MissingFlavor": (of(TEAM, MAIN, LOCAL), of(*SOUND)),
    "CohortCycle": (
        of(*SOUND, b.cohort("a", parent="c"), b.cohort("c", parent="a")),
        of(*SOUND, b.cohort("a", parent="c"), b.cohort("c")),
    ),
    "LimitWithoutCohort": (
        of(*replacing(b.queue("main", preemption={"reclaimWithinCohort": "Any"}))),
        of(*sharing((2, None), (None, 2))),
    ),
    "UnreachableQuota": (
        of(*replacing(b.queue("main", {"default": {"cpu": 0}}))),
        of(*sharing((None, None)), b.queue("poor", {"default": {"cpu": 0}}, "all")),
    ),
    "UnreachableClusterQueue": (of(TEAM, FLAVOR, MAIN), of(*sharing((None, None)), b.queue("lender", cohort="all"))),
    "UnreachableCohort": (
        of(*SOUND, b.cohort("alone", {"default": {"cpu": 4}})),
        of(*sharing((None, None)), b.cohort("all", {"default": {"cpu": 4}})),
    ),
    "UnreachableBorrowingLimit": (of(*sharing((5, None), (None, None))), of(*sharing((4, None), (None, None)))),
    "SelectsNoNamespace": (
        of(*replacing(b.queue("main", namespaceSelector={"matchLabels": {"tier": "gold"}}))),
        of(*replacing(b.queue("main", namespaceSelector={"matchLabels": {"tier": "gold"}})),
           named(Namespace, "rich", labels={"tier": "gold"})),
    ),
    "CohortLendsNothing": (of(*sharing((None, 0), (None, 0))), of(*sharing((None, 0), (None, 1)))),
    "CohortOfOne": (of(*sharing((None, None))), of(*sharing((None, None), (None, None)))),
    "FlavorWithoutNodes": (
        of(*SOUND, b.flavor("spot", nodeLabels={"size": "s"}), nodes=[{"size": "l"}]),
        of(*SOUND, b.flavor("spot", nodeLabels={"size": "s"}), nodes=[{"size": "l"}, {"size": "s", "zone": "a"}]),
    ),
    "ContradictingFlavors": (
        of(*SOUND, *mixed({"pool": "general"}, {"pool": "fast"})),
        of(*SOUND, *mixed({"pool": "general"}, {"disk": "ssd"}, {"pool": "general"})),
    ),
    "UnusedFlavor": (
        of(*SOUND, b.flavor("spot")),
        of(*SOUND, b.flavor("spot"), b.cohort("all", {"spot": {"cpu": 4}})),
    ),
    "UnusedResource": (
        of(*replacing(b.queue("main", {"default": {"cpu": 1, "gpu": 1}})), b.workload("w")),
        of(*SOUND, b.workload("w")),
    ),
    "AnnotatedDuration": (
        of(*SOUND, running_for("a while", HIGH)),
        of(*SOUND, running_for("30m", HIGH)),
    ),
    "AnnotatedSwitch": (
        of(*replacing(asking_for_room("yes", MAIN))),
        of(*replacing(asking_for_room("true", MAIN))),
    ),
    "AnnotatedDurationIgnored": (
        of(*SOUND, running_for("30m", b.workload("w"))),
        of(*SOUND, b.workload("w")),
    ),
    "QuotaSetElsewhere": (
        of(*replacing(b.orchestrated(MAIN, {"default": {"cpu": 8}})), gates=Gates(dynamic_quota_orchestration=True)),
        of(*replacing(b.orchestrated(MAIN, {"default": {"cpu": 8}}))),
    ),
    "PriorityNeverDiffers": (
        of(*replacing(b.queue("main", preemption=LOWER))),
        of(*replacing(b.queue("main", preemption=LOWER)), named(PriorityClass, "pods", value=5)),
    ),
    "PriorityOnlyOrders": (of(*SOUND, HIGH), of(*replacing(b.queue("main", preemption=LOWER)), HIGH)),
    "EqualPriorityClasses": (
        of(*SOUND, HIGH, named(WorkloadPriorityClass, "urgent", value=100)),
        of(*SOUND, HIGH, named(WorkloadPriorityClass, "urgent", value=200)),
    ),
}  # fmt: skip
"""By rule a world of which it tells, and one of which it does not."""


def by_rule(found: list[Finding]) -> set[str]:
    """The names of the rules that found something."""
    return {each.rule for each in found}


def test_a_priority_that_a_workload_has() -> None:
    """It counts though its class was not given, as in a dump of the kinds that decisions depend on."""
    snapshot = of(*replacing(b.queue("main", preemption=LOWER)), b.workload("w", priority=50))
    assert "PriorityNeverDiffers" not in by_rule(lint(snapshot))


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_tells_what_is_wrong(name: str) -> None:
    """And is silent where nothing is, or where it is switched off."""
    wrong, right = CASES[name]
    assert name in by_rule(lint(wrong))
    assert name not in by_rule(lint(wrong, off=[name]))
    assert name not in by_rule(lint(right))


def test_a_sound_cluster_is_sound() -> None:
    """Nothing is found."""
    assert lint(of(*SOUND, asked=job())) == []


@pytest.mark.parametrize(
    ("limits", "told"),
    [([(0, None), (0, None)], True), ([(0, None), (1, None)], False), ([(None, None), (None, None)], False)],
)
def test_a_cohort_in_which_nobody_borrows(limits: list[tuple[Any, Any]], told: bool) -> None:
    """Nothing that is lent is taken."""
    assert ("CohortLendsNothing" in by_rule(lint(of(*sharing(*limits))))) is told


def test_a_minimum_run_time_above_the_limit() -> None:
    """The finding names the field, the value and how it counts."""
    (finding,) = lint(of(*replacing(running_for("48h", MAIN))))
    assert finding.sentence == (
        "metadata.annotations[turnstile.dev/minimum-run-time] is '48h': it counts as 24h0m0s, the limit of the"
        " configuration"
    )


def test_an_annotation_for_room_that_says_neither_yes_nor_no() -> None:
    """It counts as if it were not there."""
    (finding,) = lint(of(*replacing(asking_for_room("yes", MAIN))))
    assert finding.sentence == (
        'metadata.annotations[turnstile.dev/wait-for-room] is \'yes\': must be "true" or "false"'
    )


def test_nodes_that_were_not_read() -> None:
    """Nothing is told of them."""
    assert lint(of(*replacing(b.flavor(nodeLabels={"size": "s"})))) == []


class TestFilesAlone:
    """What else there is is not known."""

    @staticmethod
    def found(*objects: Kind, asked: Asked | None = None) -> set[str]:
        """What is told of files."""
        seen = of(*objects, asked=asked)
        return by_rule(lint(world(seen.snapshot, Options(), jobs=seen.jobs)))

    def test_of_kinds_without_an_object_nothing_is_missing(self) -> None:
        """A job, or a LocalQueue, may find the rest in the cluster."""
        assert self.found(asked=job(high="high")) == set()
        assert self.found(LOCAL, asked=job()) == set()
        assert self.found(MAIN) == set()

    def test_who_keeps_some_keeps_all(self) -> None:
        """Of the kinds that the files have."""
        assert self.found(LOCAL, asked=job(queue="typo")) == {"LocalQueueNotFound"}
        assert self.found(MAIN, FLAVOR, LOCAL, asked=job({"cpu": 11})) == {"NeverFits"}


def test_a_kind_that_may_not_be_read() -> None:
    """What is missing of it is not told."""
    seen = of(TEAM, LOCAL, asked=job())
    seen.snapshot.unread[ClusterQueue] = "forbidden"
    assert lint(world(seen.snapshot, Options(), jobs=seen.jobs, whole=True)) == []


def test_pending_workloads_are_judged_too() -> None:
    """Like the jobs that they are for."""
    (finding,) = lint(of(*SOUND, b.workload("big", cpu=11)))
    assert (finding.rule, finding.about) == ("NeverFits", Place("Workload", "team/big"))


def test_only_of_the_files() -> None:
    """Objects of the cluster are looked at, and not told of."""
    seen = of(*SOUND, b.flavor("spot"), asked=job({"cpu": 11}))
    (finding,) = lint(seen, files={JOB: "train.yaml"})
    assert (finding.file, finding.rule) == ("train.yaml", "NeverFits")


def test_every_rule_is_in_the_manual() -> None:
    """With its severity and what it looks for."""
    page = (ROOT / "docs" / "tasks" / "lint.md").read_text()
    rows = [f"| `{each.name}` | {each.severity} | {each.says} | {each.fix} |" for each in RULES]
    assert [row for row in rows if row not in page.splitlines()] == []
