"""A cluster autoscaler as far as ProvisioningRequests go: its definition, and the answers that the real one gives.

The definition comes from the Go module of the real autoscaler. A request is accepted when its pod templates can be
read, and provisioned when the nodes have the cpu for its pods; until then the answer says when it may be. Bookings
expire, capacity is revoked and requests fail when a test says so. Conditions, reasons and their order are those of
cluster-autoscaler/provisioningrequest.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml

from testbed.build import Carried, Module
from testbed.client import Api, Json, resource_path, wait_until
from testbed.errors import ApiError

CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
MODULE: Final = Module(
    Path(__file__).parent, (), (Carried("crd", "k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd"),)
)
_PLURAL: Final = "provisioningrequests"
_ENDED: Final = ("Failed", "BookingExpired", "CapacityRevoked")
_MESSAGES: Final = {
    "Accepted": ("Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler"),
    "Provisioned": ("CapacityIsFound", "Capacity is found in the cluster"),
    "Failed": ("Expired", "ProvisioningRequest is expired"),
    "BookingExpired": ("CapacityReservationTimeExpired", "Capacity reservation time is expired"),
    "CapacityRevoked": ("CapacityRevoked", "The nodes of the request are gone"),
}


class Autoscaler:
    """`details` are written to each request that is provisioned, such as the name of a pool of nodes. Only `version` is
    served."""

    def __init__(self, api: Api, *, details: Mapping[str, str] | None = None, version: str = "v1") -> None:
        self._api = api
        self._version = version
        self._group = f"autoscaling.x-k8s.io/{version}"
        self._details = dict(details or {})

    @property
    def definition(self) -> Json:
        """The CustomResourceDefinition of the kind."""
        [file] = MODULE.ensure().folder("crd").glob("*.yaml")
        found: Json = yaml.safe_load(file.read_text())
        for each in found["spec"]["versions"]:
            each["served"] = each["storage"] = each["name"] == self._version
        return found

    def install(self) -> None:
        """The definition; returns when the kind is served."""
        self._api.apply(self.definition)
        wait_until(self._served, timeout=20, describe=lambda: "ProvisioningRequests are not served")

    def remove(self) -> None:
        """Delete the definition with all requests."""
        path = self._api.path_of(self.definition)
        self._api.delete(path)
        self._api.wait_gone(path)

    def _served(self) -> bool:
        try:
            self._api.get(resource_path(self._group, _PLURAL))
        except ApiError:
            return False
        return True

    # ---------------------------------------------------------------- answers

    def requests(self, namespace: str) -> dict[str, Json]:
        """The requests of a namespace by name."""
        return {
            each["metadata"]["name"]: each
            for each in self._api.items(resource_path(self._group, _PLURAL, namespace=namespace))
        }

    def answer(self, namespace: str, name: str, kind: str, *, status: str = "True", message: str = "") -> None:
        """Set a condition of a request, and those that the real autoscaler sets before it."""
        before = ("Accepted", "Provisioned") if kind in ("BookingExpired", "CapacityRevoked") else ("Accepted",)
        path = resource_path(self._group, _PLURAL, name, namespace=namespace)
        conditions = {each["type"]: each for each in self._api.get(path).get("status", {}).get("conditions", ())}
        for each in before:
            conditions.setdefault(each, _condition(each))
        conditions[kind] = _condition(kind, status=status, message=message)
        found: Json = {"conditions": list(conditions.values())}
        if kind == "Provisioned" and status == "True":
            found["provisioningClassDetails"] = self._details
        self._api.patch(f"{path}/status", {"status": found})

    # ---------------------------------------------------------------- by itself

    @contextmanager
    def playing(self, *namespaces: str, every: float = 0.2) -> Iterator[None]:
        """Answer all requests of these namespaces for as long as the block lasts."""
        over = threading.Event()

        def play() -> None:
            while not over.wait(every):
                for namespace in namespaces:
                    self.play(namespace)

        thread = threading.Thread(target=play, name="autoscaler", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def play(self, namespace: str) -> None:
        """One step: accept what is new, then provision what has room."""
        for name, request in self.requests(namespace).items():
            true = {
                each["type"] for each in request.get("status", {}).get("conditions", ()) if each["status"] == "True"
            }
            if "Provisioned" in true or true.intersection(_ENDED):
                continue
            try:
                fits = self._fits(request)
                if fits is None:
                    self.answer(namespace, name, "Failed", message="a pod template of the request is missing")
                elif fits:
                    self.answer(namespace, name, "Provisioned")
                elif "Accepted" not in true:
                    self.answer(namespace, name, "Provisioned", status="False", message="Capacity is not found")
            except ApiError:
                continue  # deleted, or changed by its writer: the next step looks again

    def _fits(self, request: Json) -> bool | None:
        """Whether the nodes have the cpu for all pods of a request; None if a template is missing."""
        wanted = 0.0
        namespace = request["metadata"]["namespace"]
        selector: dict[str, str] = {}
        for pod_set in request["spec"]["podSets"]:
            path = resource_path("v1", "podtemplates", pod_set["podTemplateRef"]["name"], namespace=namespace)
            template = self._api.find(path)
            if template is None:
                return None
            spec = template["template"]["spec"]
            selector |= spec.get("nodeSelector", {})
            cpus = (each.get("resources", {}).get("requests", {}).get("cpu", "0") for each in spec["containers"])
            wanted += pod_set["count"] * sum(_cpu(each) for each in cpus)
        nodes = self._api.items(resource_path("v1", "nodes"))
        fitting = (each for each in nodes if selector.items() <= each["metadata"].get("labels", {}).items())
        return wanted <= sum(_cpu(each["status"]["allocatable"]["cpu"]) for each in fitting)


def _condition(kind: str, *, status: str = "True", message: str = "") -> Json:
    reason, text = _MESSAGES[kind]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if status != "True":
        reason, text = "CapacityIsNotFound", "Capacity is not found"
    return {"type": kind, "status": status, "reason": reason, "message": message or text, "lastTransitionTime": now}


def _cpu(quantity: str) -> float:
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
