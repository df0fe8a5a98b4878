"""Each rule of the CRDs on a real API server: it refuses what it is for, with Kueue's words, and nothing beside it."""

import itertools
from typing import Any

import pytest

from testbed import Api
from testbed.errors import ApiError
from tests.cluster.schema_server import Json, thing, update

pytestmark = pytest.mark.cluster

NAMES = (f"object-{number}" for number in itertools.count())
TIME = "2026-01-02T03:04:05Z"
EFFECTS = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"
ROOTS = (
    "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice"
)
EXACTLY_ONE = "exactly one of the fields in [universal individual] must be set"


def condition(kind: str, status: str = "True") -> Json:
    """A condition as Turnstile would write it."""
    return {"type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": TIME}


def check(name: str) -> Json:
    """The state of an admission check."""
    return {"name": name, "state": "Ready", "message": "", "lastTransitionTime": TIME}


def pod_set(name: str = "main", **fields: Any) -> Json:
    """A pod set of one pod."""
    return {"name": name, "template": {"spec": {"containers": [{"name": "c"}]}}, **fields}


def quota(*resources: str, **limits: str) -> Json:
    """A resource group of cpu, whose flavor has these resources."""
    entries = [{"name": name, "nominalQuota": "1", **limits} for name in resources]
    return {"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": entries}]}


def assignment(levels: list[str], *slices: Json) -> Json:
    """A status with a topology assignment."""
    topology = {"levels": levels, "slices": list(slices)}
    return {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": topology}]}}


def domains(count: int, values: list[Json], counts: Json) -> Json:
    """A slice of a topology assignment."""
    return {"domainCount": count, "valuesPerLevel": values, "podCounts": counts}


def refused(api: Api, obj: Json) -> str:
    """What the API server says against creating it; empty if it would."""
    try:
        api.create(obj, dry_run=True)
    except ApiError as error:
        if error.code != 422:
            raise
        return error.message
    return ""


def refused_change(api: Api, obj: Json, changes: Json, *, subresource: str = "") -> str:
    """What the API server says against changing it; empty if it would."""
    try:
        update(api, obj, changes, subresource=subresource, dry_run=True)
    except ApiError as error:
        if error.code != 422:
            raise
        return error.message
    return ""


def workload(api: Api, spec: Json | None = None, status: Json | None = None) -> Json:
    """A Workload that exists, with that status."""
    obj = api.create(thing("Workload", next(NAMES), {"podSets": [pod_set()], **(spec or {})}, namespace="default"))
    return update(api, obj, {"status": status}, subresource="status") if status is not None else obj


PRIORITY = {"priority": 1}
QUEUE_CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
RESERVED = {"conditions": [condition("QuotaReserved")]}
ADMITTED = {"conditions": [condition("QuotaReserved"), condition("Admitted")]}
NOT_RESERVED = {"conditions": [condition("QuotaReserved", "False")]}

HOST = {"nodeLabel": "kubernetes.io/hostname"}
RACK = {"nodeLabel": "example.com/rack"}
KUBE_CONFIG = {"kubeConfig": {"location": "secret"}}
PROFILE = {"clusterProfileRef": {"name": "profile"}}

CREATED = [
    # kind, spec refused, spec accepted, what is said
    ("Topology", {"levels": [RACK, RACK]}, {"levels": [RACK, HOST]}, "must be unique"),
    (
        "Topology",
        {"levels": [HOST, RACK]},
        {"levels": [HOST]},
        "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    ),
    ("MultiKueueConfig", {"clusters": ["a", "a"]}, {"clusters": ["b", "a"]}, "must be unique"),
    (
        "MultiKueueCluster",
        {"clusterSource": KUBE_CONFIG | PROFILE},
        {"clusterSource": PROFILE},
        "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
    ),
    (
        "ResourceFlavor",
        {"topologyName": "t"},
        {"topologyName": "t", "nodeLabels": {"a": "b"}},
        "at least one nodeLabel is required when topology is set",
    ),
    (
        "ResourceFlavor",
        {"nodeTaints": [{"key": "a", "effect": "No"}]},
        {"nodeTaints": [{"key": "a", "effect": "PreferNoSchedule"}]},
        EFFECTS,
    ),
    (
        "ResourceFlavor",
        {"tolerations": [{"operator": "Equal"}]},
        {"tolerations": [{"operator": "Exists"}]},
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
    ),
    (
        "ResourceFlavor",
        {"tolerations": [{"key": "a", "tolerationSeconds": 1, "effect": "NoSchedule"}]},
        {"tolerations": [{"key": "a", "tolerationSeconds": 1, "effect": "NoExecute"}]},
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
    ),
    (
        "ResourceFlavor",
        {"tolerations": [{"key": "a", "operator": "In"}]},
        {"tolerations": [{"key": "a", "operator": "Equal"}]},
        "supported toleration values: 'Equal'(default), 'Exists'",
    ),
    (
        "ResourceFlavor",
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        {"tolerations": [{"key": "a", "operator": "Equal", "value": "b"}]},
        "a value must be empty when 'operator' is 'Exists'",
    ),
    (
        "ResourceFlavor",
        {"tolerations": [{"key": "a", "effect": "No"}]},
        {"tolerations": [{"key": "a", "effect": "NoSchedule"}]},
        EFFECTS,
    ),
    (
        "ResourceFlavor",
        {"nodeLabels": {f"l{i}": "" for i in range(9)}},
        {"nodeLabels": {f"l{i}": "" for i in range(8)}},
        "must have at most 8 items",
    ),
    (
        "ClusterQueue",
        {"resourceGroups": [quota("cpu", borrowingLimit="1")]},
        {"resourceGroups": [quota("cpu", borrowingLimit="1")], "cohortName": "c"},
        "borrowingLimit must be nil when cohort is empty",
    ),
    (
        "ClusterQueue",
        {"resourceGroups": [quota("cpu", "memory")]},
        {"resourceGroups": [quota("cpu")]},
        "flavors must have the same number of resources as the coveredResources",
    ),
    (
        "Cohort",
        {"resourceGroups": [quota("cpu", "memory")]},
        {"resourceGroups": [quota("cpu")]},
        "flavors must have the same number of resources as the coveredResources",
    ),
    (
        "ClusterQueue",
        {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}},
        {"flavorFungibility": {"preference": "PreemptionOverBorrowing", "whenCanBorrow": "TryNextFlavor"}},
        "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
    ),
    (
        "ClusterQueue",
        {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
        {"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}},
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
    ),
    (
        "ClusterQueue",
        {"queueingStrategy": "LIFO"},
        {"queueingStrategy": "StrictFIFO"},
        'supported values: "BestEffortFIFO", "StrictFIFO"',
    ),
    (
        "ClusterQueue",
        {"resourceGroups": [quota("cpu", nominalQuota="one")]},
        {"resourceGroups": [quota("cpu", nominalQuota="1.5Gi")]},
        "nominalQuota",
    ),
    (
        "ClusterQueue",
        {"admissionChecksStrategy": {"admissionChecks": []}},
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["b"]}]}},
        "should have at least 1 items",
    ),
    ("ClusterQueue", {"cohortName": ""}, {"cohortName": "a.b"}, "cohortName"),
    (
        "Workload",
        {"podSets": [pod_set()], "priorityClassRef": QUEUE_CLASS},
        {"podSets": [pod_set()], "priorityClassRef": QUEUE_CLASS, **PRIORITY},
        "priority should not be nil when priorityClassRef is set",
    ),
    (
        "Workload",
        {"priorityClassRef": POD_CLASS | {"kind": "WorkloadPriorityClass"}, **PRIORITY},
        {"priorityClassRef": POD_CLASS, **PRIORITY},
        "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
    ),
    (
        "Workload",
        {"priorityClassRef": QUEUE_CLASS | {"kind": "PriorityClass"}, **PRIORITY},
        {"priorityClassRef": QUEUE_CLASS, **PRIORITY},
        "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
    ),
    (
        "Workload",
        {"podSets": [pod_set(count=2, minCount=3)]},
        {"podSets": [pod_set(count=3, minCount=3)]},
        "minCount should be positive and less or equal to count",
    ),
    ("Workload", {"podSets": []}, {"podSets": [pod_set(count=0)]}, "should have at least 1 items"),
    (
        "Workload",
        {"podSets": [pod_set(f"p{i}") for i in range(19)]},
        {"podSets": [pod_set(f"p{i}") for i in range(18)]},
        "must have at most 18 items",
    ),
    ("Workload", {"podSets": [pod_set(), pod_set()]}, {"podSets": [pod_set(), pod_set("b")]}, "Duplicate value"),
    ("Workload", {"podSets": [{"template": {"spec": {}}}]}, {"podSets": [pod_set()]}, "containers: Required value"),
]  # fmt: skip

STATUSES = [
    # status refused, status accepted, what is said
    (
        RESERVED | {"admission": {"clusterQueue": "q"}},
        RESERVED | {"admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]}},
        "podSetAssignments must have the same number of podSets as the spec",
    ),
    (
        {"clusterName": "a", "nominatedClusterNames": ["a"]},
        {"clusterName": "a"},
        "clusterName and nominatedClusterNames are mutually exclusive",
    ),
    (
        assignment(["a", "b"], domains(1, [{"universal": "x"}], {"universal": 1})),
        assignment(["a"], domains(1, [{"universal": "x"}], {"universal": 1})),
        "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
    ),
    (
        assignment(["a"], domains(2, [{"universal": "x"}], {"individual": [1]})),
        assignment(["a"], domains(2, [{"universal": "x"}], {"individual": [1, 2]})),
        "podCounts.individual must have length equal to domainCount",
    ),
    (
        assignment(["a"], domains(2, [{"individual": {"roots": ["1"]}}], {"universal": 1})),
        assignment(["a"], domains(2, [{"individual": {"roots": ["1", "2"], "prefix": "n-"}}], {"universal": 1})),
        ROOTS,
    ),
    (
        assignment(["a"], domains(1, [{}], {"universal": 1})),
        assignment(["a"], domains(1, [{"individual": {"roots": ["x"]}}], {"universal": 1})),
        EXACTLY_ONE,
    ),
    (
        assignment(["a"], domains(1, [{"universal": "x"}], {"universal": 1, "individual": [1]})),
        assignment(["a"], domains(1, [{"universal": "x"}], {"individual": [1]})),
        EXACTLY_ONE,
    ),
    (
        {"admissionChecks": [check(f"c{i}") for i in range(9)]},
        {"admissionChecks": [check(f"c{i}") for i in range(8)]},
        "must have at most 8 items",
    ),
]  # fmt: skip

REF = "priorityClassRef"
KEPT = "is immutable while workload quota reserved"

CHANGES = [
    # spec before, change refused, what is said, change accepted
    ({**PRIORITY, REF: QUEUE_CLASS}, {REF: None}, f"{REF} {KEPT}", {REF: QUEUE_CLASS | {"name": "low"}}),
    (PRIORITY, {REF: QUEUE_CLASS}, f"{REF} {KEPT}", {"priority": 2}),
    ({**PRIORITY, REF: QUEUE_CLASS}, {REF: POD_CLASS}, f"{REF}.group {KEPT}", {"active": False}),
    ({**PRIORITY, REF: QUEUE_CLASS}, {REF: POD_CLASS}, f"{REF}.kind {KEPT}", {"active": False}),
    (
        {**PRIORITY, REF: POD_CLASS},
        {REF: POD_CLASS | {"name": "low"}},
        f"{REF}.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        {"priority": 2},
    ),
    ({"queueName": "a"}, {"queueName": "b"}, f"queueName {KEPT}", {"queueName": "a"}),
    ({"queueName": "a"}, {"queueName": None}, f"queueName {KEPT}", {"active": False}),
    ({}, {"queueName": "a"}, f"queueName {KEPT}", {"active": False}),
    ({}, {"maximumExecutionTimeSeconds": 1}, f"maximumExecutionTimeSeconds {KEPT}", {"active": False}),
    (
        {"maximumExecutionTimeSeconds": 1},
        {"maximumExecutionTimeSeconds": 2},
        f"maximumExecutionTimeSeconds {KEPT}",
        {"maximumExecutionTimeSeconds": 1},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "wrong", "right", "message"), CREATED, ids=[f"{c[0]}-{c[3][:40]}" for c in CREATED])
def test_create(crd_api: Api, kind: str, wrong: Json, right: Json, message: str) -> None:
    """A spec that breaks the rule is refused in Kueue's words, its neighbour passes."""
    assert message in refused(crd_api, thing(kind, "new", wrong))
    assert refused(crd_api, thing(kind, "new", right)) == ""


@pytest.mark.parametrize(("wrong", "right", "message"), STATUSES, ids=[c[2][:40] for c in STATUSES])
def test_status(crd_api: Api, wrong: Json, right: Json, message: str) -> None:
    """A status of a Workload that breaks the rule is refused in Kueue's words, its neighbour passes."""
    obj = workload(crd_api)
    assert message in refused_change(crd_api, obj, {"status": wrong}, subresource="status")
    assert refused_change(crd_api, obj, {"status": right}, subresource="status") == ""


@pytest.mark.parametrize(("spec", "wrong", "message", "right"), CHANGES, ids=[c[2][:40] for c in CHANGES])
def test_change_while_quota_is_held(crd_api: Api, spec: Json, wrong: Json, message: str, right: Json) -> None:
    """What a reservation rests on stays as it is; without one the same change passes, and others pass always."""
    held = workload(crd_api, spec, ADMITTED)
    assert message in refused_change(crd_api, held, {"spec": wrong})
    assert refused_change(crd_api, held, {"spec": right}) == ""
    for status in (None, NOT_RESERVED):
        assert refused_change(crd_api, workload(crd_api, spec, status), {"spec": wrong}) == ""


def test_running_time_of_one_that_waits_for_its_checks(crd_api: Api) -> None:
    """The limit on running time binds only those that run, not those that hold quota."""
    held = workload(crd_api, {}, RESERVED)
    assert refused_change(crd_api, held, {"spec": {"maximumExecutionTimeSeconds": 1}}) == ""


def test_cluster_name(crd_api: Api) -> None:
    """A cluster that took a Workload can be dropped, but not swapped."""
    obj = workload(crd_api, {}, {"clusterName": "a"})
    message = refused_change(crd_api, obj, {"status": {"clusterName": "b"}}, subresource="status")
    assert "clusterName is immutable once set" in message
    assert refused_change(crd_api, obj, {"status": {"clusterName": None}}, subresource="status") == ""


def test_topology_name(crd_api: Api) -> None:
    """The topology of a flavor can be given later, and then neither changed nor taken away."""
    flavor = crd_api.create(thing("ResourceFlavor", next(NAMES), {"nodeLabels": {"a": "b"}}))
    update(crd_api, flavor, {"spec": {"topologyName": "one"}})
    for changed in ("two", None):
        message = refused_change(crd_api, flavor, {"spec": {"topologyName": changed}})
        assert "topologyName is immutable when topologyName is set" in message
    assert refused_change(crd_api, flavor, {"spec": {"nodeLabels": {"a": "c"}}}) == ""


def test_cluster_queue_of_a_local_queue(crd_api: Api) -> None:
    """A LocalQueue stays with its ClusterQueue; one that has none may still get one."""
    queue = crd_api.create(thing("LocalQueue", next(NAMES), {}, namespace="default"))
    update(crd_api, queue, {"spec": {"clusterQueue": "one"}})
    assert "field is immutable" in refused_change(crd_api, queue, {"spec": {"clusterQueue": "two"}})
    assert refused_change(crd_api, queue, {"spec": {"stopPolicy": "Hold"}}) == ""


def test_levels_of_a_topology(crd_api: Api) -> None:
    """Levels may change as long as hosts are the lowest before and after."""
    fixed = crd_api.create(thing("Topology", next(NAMES), {"levels": [RACK]}))
    message = "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change"
    assert message in refused_change(crd_api, fixed, {"spec": {"levels": [RACK, HOST]}})
    assert refused_change(crd_api, fixed, {"metadata": {"labels": {"a": "b"}}}) == ""
    mutable = crd_api.create(thing("Topology", next(NAMES), {"levels": [RACK, HOST]}))
    assert refused_change(crd_api, mutable, {"spec": {"levels": [HOST]}}) == ""
    assert message in refused_change(crd_api, mutable, {"spec": {"levels": [RACK]}})


def test_controller_of_a_check(crd_api: Api) -> None:
    """A check stays with its controller."""
    obj = crd_api.create(thing("AdmissionCheck", next(NAMES), {"controllerName": "example.com/a"}))
    assert "field is immutable" in refused_change(crd_api, obj, {"spec": {"controllerName": "example.com/b"}})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "a"}
    assert refused_change(crd_api, obj, {"spec": {"parameters": parameters}}) == ""
