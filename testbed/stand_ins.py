"""Stands in for the operators of JobSet and Ray in the tour, where to build them would take minutes.

The CustomResourceDefinitions take any field. `StandIns.play`, called again and again, does the little that the tour
shows: an object that is not suspended has its pods, one that is suspended has none, and the object has ended when its
pods have. Tests use the real operators (`testbed.operators`).
"""

from collections.abc import Iterator

from testbed.client import Api, Json, resource_path, wait_until
from testbed.components import RUN_FOR
from testbed.errors import ApiError

JOBSET = "jobset.x-k8s.io/v1alpha2"
RAY = "ray.io/v1"
SECONDS = 10
"""How long a head of Ray runs."""
_KINDS = ((JOBSET, "JobSet", "jobsets"), (RAY, "RayJob", "rayjobs"), (RAY, "RayCluster", "rayclusters"))
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class StandIns:
    """The kinds JobSet, RayJob and RayCluster on a control plane, without their operators."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def install(self) -> None:
        """Their definitions; returns when they are served."""
        for version, kind, plural in _KINDS:
            self._api.apply(_definition(version, kind, plural))
        wait_until(self._served, timeout=10, describe=lambda: "the definitions are not served")

    def _served(self) -> bool:
        try:
            return isinstance(self.objects, list)
        except ApiError:
            return False

    @property
    def objects(self) -> list[Json]:
        """All objects of the three kinds, each with its kind."""
        return [
            {"apiVersion": version, "kind": kind, **each}
            for version, kind, plural in _KINDS
            for each in self._api.items(resource_path(version, plural))
        ]

    def play(self) -> None:
        """One step of both operators."""
        found = self.objects
        jobs = self._api.items(resource_path("batch/v1", "jobs"))
        pods = self._api.items(resource_path("v1", "pods"))
        for each in found:
            if each["kind"] == "JobSet":
                self._jobset(each, _owned(each, jobs, "batch/v1", "Job"))
            elif each["kind"] == "RayJob":
                clusters = _owned(each, found, RAY, "RayCluster")
                self._rayjob(each, clusters, [pod for one in clusters for pod in _owned(one, pods, "v1", "Pod")])

    def _jobset(self, jobset: Json, children: list[Json]) -> None:
        if jobset["spec"].get("suspend"):
            self._delete(children)
        elif not children:
            for each in jobset["spec"]["replicatedJobs"]:
                for index in range(each.get("replicas", 1)):
                    child = _child(jobset, "batch/v1", "Job", f"{each['name']}-{index}")
                    self._api.create({**child, "spec": each["template"]["spec"]})
        elif all(_is(child, "Complete") for child in children):
            ended = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "jobset completed"}
            ended["lastTransitionTime"] = jobset["metadata"]["creationTimestamp"]
            self._report(jobset, {"conditions": [ended]})

    def _rayjob(self, rayjob: Json, clusters: list[Json], pods: list[Json]) -> None:
        state = rayjob.get("status", {}).get("jobDeploymentStatus", "")
        if state == "Complete" or rayjob["spec"].get("suspend"):
            self._delete([*pods, *clusters])
            if state not in ("Complete", "Suspended") and not pods:
                self._report(rayjob, {"jobDeploymentStatus": "Suspended"})
        elif not clusters:
            self._report(rayjob, {"jobDeploymentStatus": "Initializing"})
            child = _child(rayjob, RAY, "RayCluster", "cluster")
            self._api.create({**child, "spec": rayjob["spec"]["rayClusterSpec"]})
        elif not pods:
            for name, template in _ray_pods(clusters[0]["spec"]):
                child = _child(clusters[0], "v1", "Pod", name)
                child["metadata"] |= template.get("metadata", {})
                child["metadata"].setdefault("annotations", {})[RUN_FOR] = f"{SECONDS}s"
                self._api.create({**child, "spec": template["spec"]})
        elif all(pod["status"].get("phase") == "Succeeded" for pod in pods):
            self._report(rayjob, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})

    def _report(self, obj: Json, status: Json) -> None:
        self._api.patch(f"{self._api.path_of(obj)}/status", {"status": status})

    def _delete(self, objects: list[Json]) -> None:
        for each in objects:
            if "deletionTimestamp" not in each["metadata"]:
                self._api.delete(self._api.path_of(each))


def _definition(version: str, kind: str, plural: str) -> Json:
    group, _, name = version.partition("/")
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANY, "status": _ANY}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {"name": name, "served": True, "storage": True, "subresources": {"status": {}}, "schema": schema}
            ],
        },
    }


def _child(owner: Json, version: str, kind: str, suffix: str) -> Json:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": f"{meta['name']}-{suffix}",
            "namespace": meta["namespace"],
            "ownerReferences": [{**reference, "controller": True}],
        },
    }


def _owned(owner: Json, objects: list[Json], version: str, kind: str) -> list[Json]:
    uid = owner["metadata"]["uid"]
    return [
        {**each, "apiVersion": version, "kind": kind}
        for each in objects
        if any(found["uid"] == uid for found in each["metadata"].get("ownerReferences", ()))
    ]


def _ray_pods(spec: Json) -> Iterator[tuple[str, Json]]:
    yield "head", spec["headGroupSpec"]["template"]
    for group in spec.get("workerGroupSpecs", ()):
        for index in range(group.get("replicas", 0)):
            yield f"{group['groupName']}-{index}", group["template"]


def _is(obj: Json, condition: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)
