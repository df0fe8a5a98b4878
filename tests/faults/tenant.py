"""What users of a namespace do to the pods and Jobs in it, so that these outlive their Job or refuse to end."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from testbed.client import Json, resource_path, wait_until
from testbed.components import RUN_FOR, STOP_FOR
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError
from tests.cluster.scenario import Scenario, job_path
from turnstile.api import names

HOLD = "example.com/hold"
"""A finalizer that no controller removes."""
NEVER = "1h"
"""A pod that takes so long to stop does not stop while a history lasts."""
YEAR = 31_536_000
"""Seconds of grace that a tenant asks for."""
STORM_SECONDS = 2.0
"""For so long a tenant writes to one Job as fast as the API server lets it."""
REFUSALS = (403, 404, 409, 422)
LABELS = (names.PODSET_LABEL, "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid")
"""Labels of a Job's pod by which Turnstile and the Job controller know the pod."""


class Tenant:
    """A user with Kubernetes' role `edit` in the namespace of a scenario."""

    def __init__(self, scenario: Scenario, control_plane: ControlPlane, lots: random.Random) -> None:
        self._scenario = scenario
        self._random = lots
        self.done: Counter[str] = Counter()
        """How often each was done."""
        self._storms: list[threading.Thread] = []
        self._made = 0
        self._pods = resource_path("v1", "pods", namespace=scenario.namespace)
        self._jobs = resource_path("batch/v1", "jobs", namespace=scenario.namespace)
        scenario.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "mallory", "namespace": scenario.namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
            }
        )
        self._api = control_plane.api_as("mallory")
        wait_until(self._may_edit, timeout=10, describe=lambda: "the tenant may not edit the namespace")

    def _may_edit(self) -> bool:
        try:
            self._api.find(self._pods)
        except ApiError:
            return False
        return True

    # --- Jobs -----------------------------------------------------------------------------------------------------

    def delete_with_orphan(self, name: str) -> None:
        """Delete a Job and leave its pods running."""
        self._api.delete(job_path(self._scenario.namespace, name), propagation="Orphan")
        self.done["deleted with orphan"] += 1

    def delete_and_hold(self, name: str) -> None:
        """Delete a Job in the foreground or in the background, and have a finalizer hold it."""
        path = job_path(self._scenario.namespace, name)
        self._hold(self._api.get(path))
        self._api.delete(path, propagation=self._random.choice(["Foreground", "Background"]))
        self.done["deleted and held"] += 1

    def end_an_orphan(self) -> None:
        """Let a pod end whose Job was deleted, by itself or by deletion."""
        orphans = [pod for pod in self._running() if not pod["metadata"].get("ownerReferences")]
        if not orphans:
            return
        path = self._path(self._random.choice(orphans))
        if self._random.random() < 0.5:
            self._api.delete(path)
        else:
            self._api.patch(path, {"metadata": {"annotations": {RUN_FOR: "0s"}}})
        self.done["orphans ended"] += 1

    # --- pods -----------------------------------------------------------------------------------------------------

    def _running(self) -> list[Json]:
        return [
            pod
            for pod in self._api.items(self._pods)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def strip_a_label(self) -> None:
        """Try to take a label off a running pod, by which the pod would be lost. The API server refuses it."""
        running = self._running()
        if not running:
            return
        pod, label = self._random.choice(running), self._random.choice(LABELS)
        if label not in pod["metadata"].get("labels", {}):
            return
        try:
            self._api.patch(self._path(pod), {"metadata": {"labels": {label: None}}})
        except ApiError as error:
            if error.code not in (403, 404, 409, 422):
                raise
            self.done["labels refused"] += error.code == 403
            return
        raise AssertionError(f"the label {label} was taken off pod {pod['metadata']['name']}")

    def hold_a_pod(self) -> None:
        """Have a finalizer hold a running pod, which stays as an object after it has stopped."""
        if running := self._running():
            self._hold(self._random.choice(running))
            self.done["pods held"] += 1

    def refuse_to_die(self) -> None:
        """Have a running pod go on running when it is deleted: a victim that does not die."""
        if running := self._running():
            path = self._path(self._random.choice(running))
            self._api.patch(path, {"metadata": {"annotations": {STOP_FOR: NEVER}}})
            self.done["pods do not die"] += 1

    def delete_slowly(self) -> None:
        """Delete a running pod with a year to stop."""
        if running := self._running():
            self._api.delete(self._path(self._random.choice(running)), grace_seconds=YEAR)
            self.done["pods deleted with a year to stop"] += 1

    # --- claims -----------------------------------------------------------------------------------------------------

    def storm(self, job: str) -> None:
        """Write to a Job for a while, so that whoever writes what was read before is refused."""
        thread = threading.Thread(target=self._write_to, args=(job_path(self._scenario.namespace, job),), daemon=True)
        self._storms.append(thread)
        thread.start()
        self.done["storms"] += 1

    def _write_to(self, path: str) -> None:
        until, number = time.monotonic() + STORM_SECONDS, 0
        while time.monotonic() < until:
            number += 1
            try:
                self._api.patch(path, {"metadata": {"annotations": {"example.com/storm": str(number)}}})
            except ApiError:
                return

    def be_a_stranger(self, workload: str) -> None:
        """Create a pod without a queue that says it is of a Workload, and needs a year to stop."""
        made = self._stranger(annotations={names.WORKLOAD: workload})
        self._tried("strangers", lambda: self._api.create(made))

    def mark_later(self, job: Json) -> None:
        """Create a pod without a queue, and then say that a Job made it."""
        made = self._api.create(self._stranger(annotations={RUN_FOR: "0s"}))
        uid = job["metadata"]["uid"]
        labels = dict(zip(LABELS, ("main", job["metadata"]["name"], uid), strict=True))
        meta = {"labels": labels, "finalizers": ["batch.kubernetes.io/job-tracking"]}
        self._tried("late marks", lambda: self._api.patch(self._path(made), {"metadata": meta}))

    def _tried(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except ApiError as error:
            if error.code not in REFUSALS:
                raise
            self.done[f"{what} refused"] += error.code in (403, 422)
        else:
            self.done[what] += 1

    def _stranger(self, *, annotations: dict[str, str]) -> Json:
        """A pod without requests, so that what it says is all that can count."""
        self._made += 1
        container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "0"}}}
        meta = {"name": f"stranger-{self._made}", "namespace": self._scenario.namespace, "annotations": annotations}
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": YEAR, "containers": [container]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _hold(self, obj: Json) -> None:
        self._change_finalizers(obj, [*obj["metadata"].get("finalizers", ()), HOLD])

    # --- the end of resistance ------------------------------------------------------------------------------------

    def let_one_go(self) -> None:
        """Take back what was done to one object."""
        if held := self._held():
            self._let_go(self._random.choice(held))

    def let_all_go(self) -> None:
        """Take back whatever was done, so that all that was deleted can go. Strangers stay: they decide nothing."""
        for thread in self._storms:
            thread.join()
        self._storms.clear()

        def none_left() -> bool:
            for obj in self._held():
                try:
                    self._let_go(obj)
                except ApiError as error:
                    if error.code not in (404, 409):
                        raise
            return not self._held()

        wait_until(none_left, timeout=10, describe=lambda: f"held still: {self._held()}")

    def _held(self) -> list[Json]:
        """Objects that refuse to go; as an administrator sees them, for the tenant's rights do not matter here."""
        found = [*self._scenario.api.items(self._jobs), *self._scenario.api.items(self._pods)]
        return [obj for obj in found if HOLD in obj["metadata"].get("finalizers", ()) or _refuses(obj)]

    def _let_go(self, obj: Json) -> None:
        if _refuses(obj):
            self._api.patch(self._path(obj), {"metadata": {"annotations": {STOP_FOR: "0s"}}})
        else:
            self._change_finalizers(obj, [each for each in obj["metadata"]["finalizers"] if each != HOLD])

    def _change_finalizers(self, obj: Json, finalizers: list[str]) -> None:
        """Unless the object has changed since: other controllers have finalizers there too."""
        meta = {"finalizers": finalizers, "resourceVersion": obj["metadata"]["resourceVersion"]}
        self._api.patch(self._path(obj), {"metadata": meta})

    def _path(self, obj: Json) -> str:
        """The path of a pod or a Job; items of a list do not name their kind."""
        collection = self._pods if "containers" in obj["spec"] else self._jobs
        return f"{collection}/{obj['metadata']['name']}"


def _refuses(obj: Json) -> bool:
    return bool(obj["metadata"].get("annotations", {}).get(STOP_FOR) == NEVER)
