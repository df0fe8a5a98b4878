"""Both versions on a real API server, with Turnstile's conversion behind it, and without."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed import Api, ControlPlane
from testbed.client import wait_until
from tests.cluster.schema_server import CRDS, DEFINITIONS, Json
from tests.cluster.versions import of, path, served, wait_served
from tests.turnstile import Turnstile
from turnstile.api.kinds import KINDS, Definition

__all__ = ["served"]

pytestmark = pytest.mark.cluster

WARNING = "This version is deprecated. Use v1beta2 instead."
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
CHECKS = ("admissionChecksStrategy", {"admissionChecks": [{"name": "a"}]})


SPECS: dict[str, Json] = {
    "AdmissionCheck": {"spec": {"controllerName": "example.com/check"}},
    "ClusterQueue": {
        "spec": {"cohort": "all", "admissionChecks": ["a"], "flavorFungibility": {"whenCanBorrow": "Borrow"}}
    },
    "Cohort": {"spec": {"parentName": "root"}},
    "LocalQueue": {"spec": {"clusterQueue": "queue"}},
    "MultiKueueCluster": {"spec": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}},
    "MultiKueueConfig": {"spec": {"clusters": ["b", "a"]}},
    "ProvisioningRequestConfig": {"spec": {"provisioningClassName": "class"}},
    "ResourceFlavor": {"spec": {"nodeLabels": {"a": "b"}}},
    "Topology": {"spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}},
    "Workload": {
        "spec": {
            "podSets": [{"name": "main", "count": 1, "template": TEMPLATE}],
            "priority": 1,
            "priorityClassName": "high",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        }
    },
    "WorkloadPriorityClass": {"value": 1},
}


class Objects:
    """One object of every kind, written as v1beta1."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.name = namespace
        for kinds in KINDS:
            self.create(kinds, "v1beta1", SPECS[kinds.stored.KIND])

    def create(self, kinds: Definition, version: str, body: Json) -> Json:
        """Create the object of a kind."""
        metadata = {"name": self.name} | ({"namespace": self.namespace} if kinds.stored.NAMESPACED else {})
        head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kinds.stored.KIND, "metadata": metadata}
        return self.api.create(head | body)

    def get(self, kinds: Definition, version: str) -> Json:
        """The object of a kind in a version."""
        return self.api.get(path(kinds, version, self.name, self.namespace))

    def remove(self) -> None:
        """Delete all of them, finalizers or not."""
        for kinds in KINDS:
            where = path(kinds, "v1beta2", self.name, self.namespace)
            if self.api.find(where) is not None:
                self.api.patch(where, {"metadata": {"finalizers": None}})
                self.api.delete(where)


@pytest.fixture
def objects(served: Turnstile, api: Api, namespace: str) -> Iterator[Objects]:
    """One object of every kind, written as v1beta1."""
    made = Objects(api, namespace)
    yield made
    made.remove()


def test_every_kind_in_both_versions(objects: Objects) -> None:
    """What was written as v1beta1 reads as v1beta2 with its new names, and as v1beta1 as it was, less what is lost."""
    for kinds in KINDS:
        kind = kinds.stored.KIND
        old, new = objects.get(kinds, "v1beta1"), objects.get(kinds, "v1beta2")
        assert (old["apiVersion"], new["apiVersion"]) == ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2")
        if kind != "ClusterQueue":
            assert contains(old, SPECS[kind]), kind
    queue = objects.get(of("ClusterQueue"), "v1beta2")["spec"]
    assert (queue["cohortName"], queue["flavorFungibility"]["whenCanBorrow"]) == ("all", "MayStopSearch")
    assert queue["admissionChecksStrategy"] == {"admissionChecks": [{"name": "a"}]}
    queue = objects.get(of("ClusterQueue"), "v1beta1")["spec"]
    assert queue["cohort"] == "all"
    assert queue["admissionChecksStrategy"] == {"admissionChecks": [{"name": "a"}]}
    workload = objects.get(of("Workload"), "v1beta2")["spec"]
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    assert workload["priorityClassRef"] == reference
    cluster = objects.get(of("MultiKueueCluster"), "v1beta2")["spec"]
    assert cluster == {"clusterSource": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}}


def contains(whole: Any, part: Any) -> bool:
    """Whether all of one JSON value is in another."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(contains(whole.get(key), value) for key, value in part.items())
    return bool(whole == part)


def test_stored_versions_without_us(objects: Objects, turnstile: Turnstile, control_plane: ControlPlane) -> None:
    """With all of Turnstile gone every kind reads in its stored version, and those that share a schema in both."""
    turnstile.crash()
    try:
        for kinds in KINDS:
            plural = kinds.stored.PLURAL
            shown = control_plane.kubectl("get", f"{plural}.v1beta2.kueue.x-k8s.io", "--all-namespaces", "-o", "name")
            assert objects.name in shown, plural
            assert objects.name in control_plane.kubectl("get", plural, "--all-namespaces", "-o", "name"), plural
            assert objects.get(kinds, "v1beta2")["kind"] == kinds.stored.KIND
            if not kinds.converted:
                assert objects.get(kinds, "v1beta1")["kind"] == kinds.stored.KIND
    finally:
        turnstile.start()


def test_served_as_wanted(served: Turnstile, api: Api) -> None:
    """Older versions can be left unserved, and then nothing is converted; what undoes the settings is undone."""
    served.stop()
    process = served.installation.start(arguments=("--no-serve-v1beta1",))
    try:
        wait_until(lambda: none_served(api), timeout=60, describe=lambda: f"v1beta1 is served\n{process.tail(20)}")
        strategies = {api.get(f"{DEFINITIONS}/{kinds.name}")["spec"]["conversion"]["strategy"] for kinds in KINDS}
        assert strategies == {"None"}
    finally:
        process.terminate()
        served.start()
    wait_served(api)
    for manifest in sorted(CRDS.glob("*.yaml")):
        api.apply_yaml(manifest)
    wait_served(api)


def test_served_but_for_workloads(served: Turnstile, api: Api) -> None:
    """The kind that changes most can be left out alone."""
    served.stop()
    process = served.installation.start(arguments=("--no-serve-v1beta1-workloads",))
    definition = f"{DEFINITIONS}/workloads.kueue.x-k8s.io"
    try:
        api.wait_for(definition, lambda crd: not crd["spec"]["versions"][1]["served"], describe="unserved")
        assert api.get(f"{DEFINITIONS}/clusterqueues.kueue.x-k8s.io")["spec"]["versions"][1]["served"]
    finally:
        process.terminate()
        served.start()
    wait_served(api)


def none_served(api: Api) -> bool:
    """Whether the API server serves v1beta2 alone."""
    return all(
        version["served"] == (version["name"] == "v1beta2")
        for kinds in KINDS
        for version in api.get(f"{DEFINITIONS}/{kinds.name}")["spec"]["versions"]
    )


@pytest.fixture
def kubectl_apply(control_plane: ControlPlane) -> Iterator[Callable[[Json], str]]:
    """What `kubectl apply` of an object says, warnings included; the objects are deleted in the end."""
    tool = [str(control_plane.tools["kubectl"]), "--kubeconfig", str(control_plane.kubeconfig())]
    made: list[Json] = []

    def apply(obj: Json) -> str:
        made.append(obj | {"apiVersion": "kueue.x-k8s.io/v1beta2"})
        command = [*tool, "apply", "-f", "-"]
        done = subprocess.run(command, input=json.dumps(obj), capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    yield apply
    for obj in made:
        where = control_plane.api.path_of(obj)
        control_plane.api.patch(where, {"metadata": {"finalizers": None}})
        control_plane.api.delete(where)


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
def test_old_versions_warn(
    served: Turnstile, api: Api, namespace: str, version: str, kubectl_apply: Callable[[Json], str]
) -> None:
    """Whoever writes an old version is told which one to use; MultiKueueConfig is not deprecated."""
    queue = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "ClusterQueue", "metadata": {"name": namespace}}
    assert WARNING in kubectl_apply(queue | {"spec": {"cohort": "all"}})
    assert api.get(path(of("ClusterQueue"), "v1beta2", namespace))["spec"]["cohortName"] == "all"
    assert api.get(path(of("ClusterQueue"), version, namespace))["spec"]["cohort"] == "all"
    config = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "MultiKueueConfig", "metadata": {"name": namespace}}
    assert WARNING not in kubectl_apply(config | {"spec": {"clusters": ["a"]}})
