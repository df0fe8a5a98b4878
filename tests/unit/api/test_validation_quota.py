"""Rules of flavors, ClusterQueues and Cohorts beyond their schemas."""

from typing import Any

import msgspec
import pytest

from turnstile.api import gates
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.meta import ObjectMeta
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.validation import (
    default_cluster_queue,
    default_resource_flavor,
    format_errors,
    validate_cluster_queue,
    validate_cohort,
    validate_resource_flavor,
)

Spec = dict[str, Any]
GROUP = "spec.resourceGroups[0]"
QUOTA = f"{GROUP}.flavors[0].resources[0]"
NEGATIVE = "must be greater than or equal to 0"
DEFINED = "when ConcurrentAdmissionPolicy is defined"
CONCURRENT = gates.ON_BY_DEFAULT | {gates.CONCURRENT_ADMISSION}


def flavor(name: str = "a", *resources: str, **quota: Any) -> Spec:
    """Quota of 1 of each resource (cpu unless said otherwise) in one flavor."""
    entries = [{"name": resource, "nominalQuota": "1", **quota} for resource in resources or ("cpu",)]
    return {"name": name, "resources": entries}


def group(*flavors: Spec, covers: tuple[str, ...] = ("cpu",)) -> Spec:
    """A resource group."""
    return {"coveredResources": list(covers), "flavors": list(flavors or (flavor(),))}


def queue(**spec: Any) -> ClusterQueue:
    """A ClusterQueue as it comes from JSON."""
    return msgspec.convert({"spec": spec}, ClusterQueue)


def cohort(**spec: Any) -> Cohort:
    """A Cohort as it comes from JSON."""
    return msgspec.convert({"spec": spec}, Cohort)


class TestResourceFlavor:
    """A flavor holds labels, taints and tolerations that nodes and pods can carry."""

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({}, ""),
            ({"nodeLabels": {"a.io/b": "c"}, "nodeTaints": [{"key": "a", "effect": "NoSchedule"}]}, ""),
            ({"tolerations": [{"operator": "Exists"}]}, ""),
            ({"nodeLabels": {"@": "c"}}, 'spec.nodeLabels: Invalid value: "@": name part must'),
            ({"nodeTaints": [{"key": "@", "effect": "NoSchedule"}]}, 'spec.nodeTaints[0].key: Invalid value: "@"'),
            (
                {"nodeTaints": [{"key": "a", "value": "@", "effect": "NoSchedule"}]},
                'spec.nodeTaints[0].value: Invalid value: "@": a valid label must',
            ),
            ({"tolerations": [{"key": "@"}]}, 'spec.tolerations[0].key: Invalid value: "@"'),
        ],
    )
    def test_rules(self, spec: Spec, text: str) -> None:
        """Each fault is told of its field."""
        told = format_errors(validate_resource_flavor(msgspec.convert({"spec": spec}, ResourceFlavor)))
        assert told.startswith(text) if text else told == ""

    def test_same_taint_twice(self) -> None:
        """A key may be there with two effects, not twice with one."""
        taints = [
            {"key": "a", "value": v, "effect": e}
            for v, e in (("", "NoSchedule"), ("", "NoExecute"), ("b", "NoSchedule"))
        ]
        told = format_errors(
            validate_resource_flavor(msgspec.convert({"spec": {"nodeTaints": taints}}, ResourceFlavor))
        )
        assert told == (
            'spec.nodeTaints[2]: Duplicate value: {"key":"a","value":"b","effect":"NoSchedule"}: '
            "taints must be unique by key and effect pair"
        )


class TestQuota:
    """Quota of a ClusterQueue adds up."""

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({}, ""),
            ({"resourceGroups": [group()]}, ""),
            (
                {"resourceGroups": [group(flavor("a", "memory", "cpu"), covers=("cpu", "memory"))]},
                (
                    f'[{QUOTA}.name: Invalid value: "memory": must match the name in coveredResources, '
                    f'{GROUP}.flavors[0].resources[1].name: Invalid value: "cpu": '
                    "must match the name in coveredResources]"
                ),
            ),
            (
                {"resourceGroups": [group(), group(flavor("b"))]},
                'spec.resourceGroups[1].coveredResources[0]: Duplicate value: "cpu"',
            ),
            (
                {"resourceGroups": [group(), group(flavor("a", "memory"), covers=("memory",))]},
                'spec.resourceGroups[1].flavors[0].name: Duplicate value: "a"',
            ),
            (
                {"resourceGroups": [group(flavor(nominalQuota="-1"))]},
                f'{QUOTA}.nominalQuota: Invalid value: "-1": {NEGATIVE}',
            ),
            (
                {"resourceGroups": [group(flavor(borrowingLimit="-1k"))], "cohortName": "c"},
                f'{QUOTA}.borrowingLimit: Invalid value: "-1k": {NEGATIVE}',
            ),
            (
                {"resourceGroups": [group(flavor(borrowingLimit=1))]},
                f'{QUOTA}.borrowingLimit: Invalid value: "1": must be nil when cohort is empty',
            ),
            (
                {"resourceGroups": [group(flavor(lendingLimit="1"))]},
                f'{QUOTA}.lendingLimit: Invalid value: "1": must be nil when cohort is empty',
            ),
            ({"resourceGroups": [group(flavor(lendingLimit="1000m"))], "cohortName": "c"}, ""),
            (
                {"resourceGroups": [group(flavor(lendingLimit="1001m"))], "cohortName": "c"},
                f'{QUOTA}.lendingLimit: Invalid value: "1001m": must be less than or equal to the nominalQuota',
            ),
            ({"fairSharing": {"weight": "2n"}}, ""),
            ({"fairSharing": {"weight": 0}}, ""),
            (
                {"fairSharing": {"weight": "1n"}},
                'spec.fairSharing: Invalid value: "1n": When not 0, weight must be > 10e-9',
            ),
            ({"fairSharing": {"weight": "-1"}}, f'spec.fairSharing: Invalid value: "-1": {NEGATIVE}'),
            (
                {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
                (
                    'spec.preemption: Invalid value: {"borrowWithinCohort":{"policy":"LowerPriority"}}: '
                    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
                ),
            ),
            (
                {"flavorFungibility": {"preference": "BorrowingOverPreemption"}},
                (
                    'spec.flavorFungibility.preference: Invalid value: "BorrowingOverPreemption": preference '
                    '"BorrowingOverPreemption" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor'
                ),
            ),
            (
                {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
                (
                    "spec.namespaceSelector.matchExpressions[0].values: Required value: "
                    "must be specified when `operator` is 'In' or 'NotIn'"
                ),
            ),
        ],
    )
    def test_rules(self, spec: Spec, text: str) -> None:
        """Each fault is told of its field, all of them at once."""
        assert format_errors(validate_cluster_queue(queue(**spec))) == text

    def test_unreadable_quantity(self) -> None:
        """A quantity that the schema lets pass and nobody can read is refused with the cure."""
        told = format_errors(validate_cluster_queue(queue(resourceGroups=[group(flavor(nominalQuota="1e1.5"))])))
        assert told.startswith(f'{QUOTA}.nominalQuota: Invalid value: "1e1.5": write a Kubernetes quantity')

    def test_resource_name(self) -> None:
        """A covered resource is a label key."""
        (error,) = validate_cluster_queue(queue(resourceGroups=[group(flavor("a", "@cpu"), covers=("@cpu",))]))
        assert (error.path, error.value) == (f"{GROUP}.coveredResources[0]", "@cpu")

    def test_totals(self) -> None:
        """Flavors and resources are limited as a whole, their product in each group."""
        groups = [group(*(flavor(f"f{g}-{f}", f"r{g}") for f in range(52)), covers=(f"r{g}",)) for g in range(5)]
        assert format_errors(validate_cluster_queue(queue(resourceGroups=groups))) == (
            "spec.resourceGroups: Invalid value: 260: "
            "total number of flavors across all resourceGroups must be ≤ 256, got 260"
        )
        resources = tuple(f"r{number}" for number in range(33))
        wide = group(*(flavor(f"f{f}", *resources) for f in range(16)), covers=resources)
        assert format_errors(validate_cluster_queue(queue(resourceGroups=[wide]))) == (
            f"{GROUP}: Invalid value: 528: "
            "number of flavor-resource combinations in a resourceGroup must be ≤ 512, got 528"
        )


class TestCohort:
    """A Cohort's limits need a parent."""

    def test_limits(self) -> None:
        """Limits at the top of the tree say nothing and are refused; below, one may lend more than one has."""
        groups = [group(flavor(lendingLimit="5"))]
        assert format_errors(validate_cohort(cohort(resourceGroups=groups))) == (
            f'{QUOTA}.lendingLimit: Invalid value: "5": must be nil when parent is empty'
        )
        assert validate_cohort(cohort(resourceGroups=groups, parentName="up")) == []

    def test_weight(self) -> None:
        """The weight follows the rules of a ClusterQueue."""
        assert validate_cohort(cohort(fairSharing={"weight": "-1"}))


class TestOnFlavors:
    """Checks may be limited to flavors that the queue has."""

    GHOST = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Unsupported value"

    @staticmethod
    def checked(*flavors: str, on: str, check: str = "c") -> ClusterQueue:
        """A queue of these flavors with one check on one of them."""
        strategy = {"admissionChecks": [{"name": check, "onFlavors": [on]}]}
        groups = [group(*map(flavor, flavors))] if flavors else []
        return queue(resourceGroups=groups, admissionChecksStrategy=strategy)

    def test_create(self) -> None:
        """A flavor that the queue does not have is none of those supported."""
        assert validate_cluster_queue(self.checked("a", on="a")) == []
        told = format_errors(validate_cluster_queue(self.checked("b", "a", on="ghost")))
        assert told == f'{self.GHOST}: "ghost": supported values: "a", "b"'
        assert format_errors(validate_cluster_queue(self.checked(on="ghost"))) == f'{self.GHOST}: "ghost"'

    def test_update(self) -> None:
        """What was wrong before may stay while nothing about it changes."""
        old = self.checked("a", on="ghost")
        assert validate_cluster_queue(self.checked("a", on="ghost"), old) == []
        assert validate_cluster_queue(self.checked("a", on="other"), old)
        assert validate_cluster_queue(self.checked("a", on="ghost", check="d"), old)
        assert validate_cluster_queue(self.checked("b", on="ghost"), old)
        strict = gates.ON_BY_DEFAULT | {gates.REJECT_INVALID_ON_FLAVORS}
        assert validate_cluster_queue(self.checked("a", on="ghost"), old, gates=strict)


class TestConcurrentAdmission:
    """A queue that tries several flavors at once has one group and knows where to stop."""

    @staticmethod
    def policy(mode: str = "TryPreferredFlavors", last: str | None = None) -> Spec:
        """A policy, with constraints if there is a last flavor."""
        constraints = {"constraints": {"lastAcceptableFlavorName": last}} if last else {}
        return {"migration": {"mode": mode, **constraints}}

    @pytest.mark.parametrize(
        ("policy", "spec", "texts"),
        [
            (("TryPreferredFlavors", "a"), {"resourceGroups": [group()]}, []),
            (
                ("TryPreferredFlavors", "x"),
                {"resourceGroups": [group()]},
                ["must be one of the flavors defined in the ClusterQueue: [a]"],
            ),
            (
                ("RetainFirstAdmission", "a"),
                {"resourceGroups": [group()]},
                ['may only be set when migration.mode is "TryPreferredFlavors" (got "RetainFirstAdmission")'],
            ),
            (
                ("RetainFirstAdmission", None),
                {"queueingStrategy": "StrictFIFO"},
                [
                    "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined",
                    "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined",
                ],
            ),
            (
                ("RetainFirstAdmission", None),
                {"resourceGroups": [group(*(flavor(f"f{f}") for f in range(17)))]},
                [f"cannot have more than 16 resource flavors in the ResourceGroup {DEFINED}"],
            ),
        ],
    )
    def test_rules(self, policy: tuple[str, str | None], spec: Spec, texts: list[str]) -> None:
        """The rules hold while the gate is on."""
        subject = queue(concurrentAdmissionPolicy=self.policy(*policy), **spec)
        assert [error.detail for error in validate_cluster_queue(subject, gates=CONCURRENT)] == texts
        assert validate_cluster_queue(subject) == []

    def test_immutable(self) -> None:
        """A policy stays what it was, gate or not."""
        with_policy, without = queue(concurrentAdmissionPolicy=self.policy()), queue()
        for new, old in ((with_policy, without), (without, with_policy)):
            (error,) = validate_cluster_queue(new, old)
            assert (error.path, error.detail) == ("spec.concurrentAdmissionPolicy", "field is immutable")
        assert validate_cluster_queue(with_policy, with_policy) == []


@pytest.mark.parametrize("default", [default_cluster_queue, default_resource_flavor])
def test_finalizer(default: Any) -> None:
    """A new queue or flavor is protected from deletion while in use; one that is already is left alone."""
    assert default(ObjectMeta(finalizers=["other"])) == ["other", "kueue.x-k8s.io/resource-in-use"]
    assert default(ObjectMeta(finalizers=["kueue.x-k8s.io/resource-in-use"])) is None
