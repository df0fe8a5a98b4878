"""Counts what runs in a namespace from its pods alone, at every version of each pod; knows nothing of Turnstile.

A watch of the API server delivers every change in the order in which it happened, so usage above the quota is seen
however short it was. The arithmetic is this module's own.
"""

import threading
import time
from fractions import Fraction

from testbed.client import Api, Json, Watch, resource_path

_FOLLOWED = {"pods": "v1", "jobs": "batch/v1", "workloads": "kueue.x-k8s.io/v1beta2"}


class Sentry:
    """Watches one namespace, which is empty when it begins; `end` when the test is over."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.namespace = namespace
        self.most = Fraction(0)
        """The highest number of CPUs that ran at any time."""
        self.story: list[str] = []
        """Each change of the number of CPUs that run."""
        self.pods: dict[str, Json] = {}
        self._charges: dict[str, Fraction] = {}
        self._changed = time.monotonic()
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        for plural, api_version in _FOLLOWED.items():
            path = resource_path(api_version, plural, namespace=namespace)
            listed = api.get(path)
            watch = api.watch(path, resource_version=listed["metadata"]["resourceVersion"])
            self._watches.append(watch)
            threading.Thread(target=self._follow, args=(watch, plural), daemon=True).start()

    def end(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.close()

    @property
    def runs(self) -> Fraction:
        """CPUs that run now: requests of pods that are bound and have not ended."""
        with self._lock:
            return sum(self._charges.values(), Fraction(0))

    @property
    def runs_or_will(self) -> Fraction:
        """CPUs of pods that run, or that the scheduler may bind at any time."""
        with self._lock:
            return sum((cpus(pod) for pod in self.pods.values() if not _ended(pod) and not _gated(pod)), Fraction(0))

    def quiet_for(self, seconds: float) -> bool:
        """Whether no pod, Job or Workload of the namespace has changed for so long."""
        return time.monotonic() - self._changed >= seconds

    def _follow(self, watch: Watch, plural: str) -> None:
        for event in watch:
            self._changed = time.monotonic()
            if plural == "pods":
                self._take(event)

    def _take(self, event: Json) -> None:
        pod = event["object"]
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        with self._lock:
            before = sum(self._charges.values(), Fraction(0))
            if event["type"] == "DELETED":
                self.pods.pop(uid, None)
                self._charges.pop(uid, None)
            else:
                self.pods[uid] = pod
                self._charges[uid] = cpus(pod) if pod["spec"].get("nodeName") and not _ended(pod) else Fraction(0)
            after = sum(self._charges.values(), Fraction(0))
            self.most = max(self.most, after)
            if before != after:
                self.story.append(f"{float(after):g} CPUs run: {event['type']} {name}")


def cpus(pod: Json) -> Fraction:
    """What the scheduler counts for a pod: the larger of what its containers request together and what starting them
    takes, with overhead; requests of the whole pod come first. What the kubelet has allocated counts if it is more."""
    spec = pod["spec"]
    statuses = {each["name"]: each for each in pod.get("status", {}).get("containerStatuses", ())}
    steady = sum((_container(each, statuses) for each in spec["containers"]), Fraction(0))
    sidecars = most = Fraction(0)
    for each in spec.get("initContainers", ()):
        if each.get("restartPolicy") == "Always":
            sidecars += _container(each, {})
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + _container(each, {}))
    whole = spec.get("resources", {}).get("requests", {}).get("cpu")
    requested = _amount(whole) if whole is not None else max(steady + sidecars, most)
    return requested + _amount(spec.get("overhead", {}).get("cpu", "0"))


def _container(container: Json, statuses: dict[str, Json]) -> Fraction:
    resources = container.get("resources", {})
    wanted = resources.get("requests", {}).get("cpu", resources.get("limits", {}).get("cpu", "0"))
    allocated = statuses.get(container["name"], {}).get("allocatedResources", {}).get("cpu", "0")
    return max(_amount(wanted), _amount(allocated))


def _amount(quantity: str) -> Fraction:
    return Fraction(quantity[:-1]) / 1000 if quantity.endswith("m") else Fraction(quantity)


def _ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _gated(pod: Json) -> bool:
    return bool(pod["spec"].get("schedulingGates"))
