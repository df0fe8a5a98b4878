"""AppWrapper: pod sets of wrapped objects, counted by their own kinds; admissions are written beside the templates."""

import json
from typing import Any

import pytest

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.pods import Toleration
from turnstile.jobs import workload as build
from turnstile.jobs.integration import Change
from turnstile.jobs.kinds.appwrapper.wrapper import AppWrapper
from turnstile.jobs.options import JobOptions
from turnstile.jobs.podsets import PodSetInfo
from turnstile.jobs.registry import ALL

Json = dict[str, Any]
INTEGRATION = next(each for each in ALL if each.kind is AppWrapper)
POD: Json = {"spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]}}


def wrapper(*components: Json, suspend: bool = True, status: Json | None = None, name: str = "aw") -> Any:
    """An AppWrapper as Turnstile sees it."""
    spec = {"suspend": suspend, "components": list(components)}
    body = {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": status or {}}
    return AppWrapper.decoder()(json.dumps(body).encode())


def wrapped(api_version: str, kind: str, spec: Json, **component: Any) -> Json:
    """A component."""
    return {"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": "o"}, "spec": spec}, **component}


def counts(*components: Json) -> list[tuple[str, int]]:
    """Names and counts of the pod sets."""
    return [(each.name, each.count) for each in INTEGRATION.pod_sets(wrapper(*components))]


def errors(*components: Json, name: str = "aw") -> list[str]:
    """The webhook's errors for a new AppWrapper."""
    return [str(each) for each in INTEGRATION.create_errors(wrapper(*components, name=name))]


JOBSET = {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": POD}}}]}
RAY = {
    "headGroupSpec": {"template": POD},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 4, "template": POD}, {"groupName": "v", "template": POD}],
}


@pytest.mark.parametrize(
    ("component", "pods"),
    [
        (wrapped("v1", "Pod", POD["spec"]), [1]),
        (wrapped("batch/v1", "Job", {"parallelism": 4, "completions": 3, "template": POD}), [3]),
        (wrapped("batch/v1", "Job", {"template": POD}), [1]),
        (wrapped("jobset.x-k8s.io/v1alpha2", "JobSet", JOBSET), [6]),
        (wrapped("apps/v1", "Deployment", {"replicas": 5, "template": POD}), [5]),
        (wrapped("apps/v1", "StatefulSet", {"template": POD}), [1]),
        (
            wrapped(
                "kubeflow.org/v1",
                "PyTorchJob",
                {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": POD}, "Master": {"template": POD}}},
            ),
            [1, 2],
        ),
        (wrapped("ray.io/v1", "RayCluster", RAY), [1, 4, 1]),
        (wrapped("ray.io/v1", "RayJob", {"rayClusterSpec": RAY}), [1, 4, 1]),
        (wrapped("v1", "Service", {}), []),
    ],
    ids=lambda each: each["template"]["kind"] if isinstance(each, dict) else "",
)
def test_the_pods_of_a_kind_that_the_controller_knows_need_no_declaration(component: Json, pods: list[int]) -> None:
    """They are counted in the order in which the AppWrapper controller finds their templates."""
    other = wrapped("v1", "Pod", POD["spec"])
    assert counts(component, other) == [(f"aw-{index}", count) for index, count in enumerate([*pods, 1])]


def test_the_pods_of_any_other_kind_are_declared() -> None:
    """A path, and a number that is 1 unless it is given."""
    farm = {"herds": [{"template": POD}, {"template": POD}]}
    declared = [{"path": "template.spec.herds[1].template", "replicas": 7}, {"path": "template.spec.herds[0].template"}]
    assert counts(wrapped("example.com/v1", "Farm", farm, podSets=declared)) == [("aw-0", 7), ("aw-1", 1)]


@pytest.mark.parametrize(
    "component",
    [
        wrapped("batch/v1", "Job", {"parallelism": 9, "template": POD}),
        wrapped("apps/v1", "Deployment", {"replicas": 9, "template": POD}),
        wrapped("apps/v1", "StatefulSet", {"replicas": 9, "template": POD}),
    ],
    ids=lambda each: each["template"]["kind"],
)
@pytest.mark.parametrize("replicas", [0, 1, None])
def test_a_declaration_of_fewer_pods_than_the_object_has_is_not_believed(component: Json, replicas: int | None) -> None:
    """The object says how many pods its controller makes."""
    declared = {"path": "template.spec.template"} | ({} if replicas is None else {"replicas": replicas})
    assert counts({**component, "podSets": [declared]}) == [("aw-0", 9)]


def test_a_declaration_of_more_pods_is_charged() -> None:
    """As in Kueue."""
    job = wrapped("batch/v1", "Job", {"template": POD}, podSets=[{"path": "template.spec.template", "replicas": 3}])
    assert counts(job) == [("aw-0", 3)]


def test_the_template_is_what_the_library_of_appwrapper_computes() -> None:
    """So a running AppWrapper that Kueue admitted is not stopped when Turnstile takes over."""
    (pod_set,) = INTEGRATION.pod_sets(wrapper(wrapped("batch/v1", "Job", {"template": POD})))
    template = json.loads(pod_set.template)
    assert template["spec"]["containers"] == [
        {
            "name": "c",
            "image": "busybox",
            "imagePullPolicy": "Always",
            "resources": {"requests": {"cpu": "1"}},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ]
    assert template["spec"]["restartPolicy"] == "Always"
    assert template["spec"]["terminationGracePeriodSeconds"] == 30


def test_a_grace_period_that_is_given_is_not_copied() -> None:
    """Only the default is written down: the library of AppWrapper leaves out one that the template has."""
    pod = {**POD, "spec": {**POD["spec"], "terminationGracePeriodSeconds": 1}}
    (pod_set,) = INTEGRATION.pod_sets(wrapper(wrapped("batch/v1", "Job", {"template": pod})))
    assert "terminationGracePeriodSeconds" not in json.loads(pod_set.template)["spec"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox:latest", "Always"),
        ("localhost:5000/busybox", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("localhost:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:00", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    """As the API server sets it."""
    pod = {"spec": {"containers": [{"name": "c", "image": image}]}}
    (pod_set,) = INTEGRATION.pod_sets(wrapper(wrapped("batch/v1", "Job", {"template": pod})))
    assert json.loads(pod_set.template)["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_whatever_a_pod_requests_is_charged() -> None:
    """Sidecars, a RuntimeClass and requests of the whole pod too, which Kueue leaves out."""
    spec = {
        "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}],
        "runtimeClassName": "sandboxed",
        "resources": {"requests": {"memory": "1Gi"}},
        **POD["spec"],
    }
    (pod_set,) = INTEGRATION.pod_sets(wrapper(wrapped("v1", "Pod", spec)))
    view = pod_set.view.spec
    assert view.init_containers[0].restart_policy == "Always"
    assert view.runtime_class_name == "sandboxed"
    assert view.resources is not None
    assert view.resources.requests == {"memory": "1Gi"}


@pytest.mark.parametrize(
    ("component", "error"),
    [
        ({"template": {"spec": {}}}, "spec.components[0].template: Invalid value: is no object: it has no kind"),
        (
            wrapped("batch/v1", "Job", {}),
            "spec.components[0].template: Invalid value: there is no pod template at template.spec.template",
        ),
        (
            wrapped("example.com/v1", "Farm", {}, podSets=[{"path": "spec.template"}]),
            "spec.components[0].podSets: Invalid value: spec.template: the path starts with `template`",
        ),
        (
            wrapped("example.com/v1", "Farm", {}, podSets=[{"path": "template.spec[x]"}]),
            "spec.components[0].podSets: Invalid value: template.spec[x]: the path cannot be read from `[x]` on",
        ),
        (
            wrapped("batch/v1", "Job", {"template": POD}, podSets=[{"path": "template.spec.template", "replicas": -1}]),
            "spec.components[0].podSets: Invalid value: template.spec.template: replicas must not be negative",
        ),
        (
            wrapped("batch/v1", "Job", {"template": {"spec": {"containers": "none"}}}),
            "spec.components[0].template: Invalid value: there is no pod template at template.spec.template",
        ),
    ],
)
def test_an_appwrapper_whose_pods_cannot_be_counted_is_refused(component: Json, error: str) -> None:
    """And one that came past the webhook can be stopped, but not started."""
    assert [each[: len(error)] for each in errors(component)] == [error]
    with pytest.raises(PermanentError):
        INTEGRATION.pod_sets(wrapper(component))


def test_an_appwrapper_without_a_pod_template_is_accepted_as_in_kueue() -> None:
    """Nothing of it asks for quota: the field `podSets` of its Workload, which may not be empty, is left out."""
    service = wrapped("v1", "Service", {})
    assert errors(service) == []
    job = wrapper(service)
    body = build.body(INTEGRATION, job, INTEGRATION.pod_sets(job), build.Priority(), JobOptions())
    assert "podSets" not in body["spec"]
    change = INTEGRATION.start(job, [])
    assert isinstance(change, Change)


def test_a_name_that_cannot_name_pod_sets_is_refused() -> None:
    """Kueue leaves such an AppWrapper suspended for ever: the API server refuses its Workload."""
    (error,) = errors(wrapped("v1", "Pod", POD["spec"]), name="a" * 62)
    assert error.startswith("metadata.name: Invalid value: ")
    assert errors(wrapped("v1", "Pod", POD["spec"]), name="a" * 61) == []


def test_what_an_admission_assigns_is_written_beside_the_component_of_each_pod_set() -> None:
    """The wrapped objects stay as they are; components without pods get nothing."""
    job = wrapper(
        wrapped("v1", "Service", {}),
        wrapped("v1", "Pod", POD["spec"]),
        wrapped("v1", "Pod", POD["spec"], podSetInfos=[{"labels": {"stale": "yes"}}]),
    )
    first = PodSetInfo(
        "aw-0",
        1,
        labels={names.PODSET_LABEL: "aw-0"},
        node_selector={"pool": "a"},
        tolerations=(Toleration(key="t", operator="Exists"),),
        scheduling_gates=("g",),
    )
    change = INTEGRATION.start(job, [first, PodSetInfo("aw-1", 1, node_selector={"pool": "b"})])
    assert isinstance(change, Change)
    assert change.fresh
    assert {each["path"]: each["value"] for each in json.loads(change.body.encode())} == {  # type: ignore[union-attr]
        "/spec/components/1/podSetInfos": [
            {
                "labels": {names.PODSET_LABEL: "aw-0"},
                "nodeSelector": {"pool": "a"},
                "tolerations": [{"key": "t", "operator": "Exists"}],
                "schedulingGates": [{"name": "g"}],
            }
        ],
        "/spec/components/2/podSetInfos": [{"nodeSelector": {"pool": "b"}}],
        "/spec/suspend": False,
    }


def test_a_template_that_contradicts_the_admission_cannot_be_started() -> None:
    """The AppWrapper controller would fail for good when it merges both."""
    job = wrapper(wrapped("v1", "Pod", {**POD["spec"], "nodeSelector": {"pool": "mine"}}))
    with pytest.raises(PermanentError, match="conflict for key=pool"):
        INTEGRATION.start(job, [PodSetInfo("aw-0", 1, node_selector={"pool": "other"})])


def condition(kind: str, status: str = "True") -> Json:
    """A condition of the AppWrapper."""
    return {"type": kind, "status": status}


def test_it_is_active_until_all_wrapped_objects_are_deleted() -> None:
    """The controller keeps its condition QuotaReserved until then, and no start is decided before."""
    job = wrapper(wrapped("v1", "Pod", POD["spec"]), status={"conditions": [condition("QuotaReserved")]})
    assert INTEGRATION.active(job)
    assert INTEGRATION.start(job, [PodSetInfo("aw-0", 1)]) is None


def test_it_has_failed_once_its_objects_are_deleted() -> None:
    """Until then it holds its quota; it has succeeded as soon as its pods have."""
    pod = wrapped("v1", "Pod", POD["spec"])
    failing = {"phase": "Failed", "conditions": [condition("ResourcesDeployed")]}
    assert INTEGRATION.finished(wrapper(pod, status=failing)) is None
    failed = INTEGRATION.finished(wrapper(pod, status={"phase": "Failed"}))
    assert failed is not None
    assert (failed.success, failed.message) == (False, "AppWrapper failed")
    ended = INTEGRATION.finished(wrapper(pod, status={"phase": "Succeeded"}))
    assert ended is not None
    assert ended.success


def test_what_was_assigned_cannot_be_edited_while_it_runs() -> None:
    """The controller applies it again whenever it recreates the objects: it would move them to other nodes."""
    admitted = wrapped("v1", "Pod", POD["spec"], podSetInfos=[{"nodeSelector": {"pool": "a"}}])
    edited = wrapped("v1", "Pod", POD["spec"], podSetInfos=[{"nodeSelector": {"pool": "b"}}])

    def refused(old: Any, new: Any) -> list[str]:
        return [str(each) for each in INTEGRATION.update_errors(old, new)]

    assert refused(wrapper(admitted, suspend=False), wrapper(edited, suspend=False)) == [
        "spec.components[0].podSetInfos: Forbidden: field is immutable while the AppWrapper runs"
    ]
    assert refused(wrapper(admitted, suspend=False), wrapper(edited)) == []
    assert refused(wrapper(admitted), wrapper(edited, suspend=False)) == []


def test_an_appwrapper_makes_no_appwrapper() -> None:
    """One that names another as its owner needs quota itself; any other object may be wrapped."""
    assert not INTEGRATION.creates(("workload.codeflare.dev", "AppWrapper"))
    assert INTEGRATION.creates(("ray.io", "RayCluster"))
