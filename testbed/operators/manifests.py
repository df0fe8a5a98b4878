"""Takes an operator's rendered kustomization apart. Pure: text and documents in, documents out."""

import base64
import copy
from dataclasses import dataclass

from testbed.client import Json
from testbed.manifests import documents


@dataclass(frozen=True, slots=True)
class Manifests:
    """An operator's objects: CRDs, objects of these kinds, all else that is applied, and the Deployments, which are
    not."""

    definitions: tuple[Json, ...]
    objects: tuple[Json, ...]
    others: tuple[Json, ...]
    deployments: tuple[Json, ...]

    @property
    def namespace(self) -> str:
        """Where the operator lives."""
        namespace: str = self.deployments[0]["metadata"].get("namespace", "default")
        return namespace

    def service_account(self, deployment: str = "") -> str:
        """Whose rights the process in place of that Deployment has."""
        found = {made["metadata"]["name"]: made for made in self.deployments}
        made = found[deployment] if deployment else self.deployments[0]
        name: str = made["spec"]["template"]["spec"]["serviceAccountName"]
        return name

    def webhook_paths(self) -> list[str]:
        """The paths at which the API server has the operator review objects."""
        return sorted({_path(caller) for document in self.others for caller in callers(document)})

    def services(self) -> set[str]:
        """The names of the Services that webhooks are called through."""
        all_callers = [caller for document in (*self.definitions, *self.others) for caller in callers(document)]
        return {caller["clientConfig"]["service"]["name"] for caller in all_callers}


def read(text: str) -> Manifests:
    """Sort the documents of a rendered kustomization."""
    found = documents(text)
    definitions = tuple(document for document in found if document["kind"] == "CustomResourceDefinition")
    kinds = {(made["spec"]["group"], made["spec"]["names"]["kind"]) for made in definitions}
    deployments = tuple(document for document in found if document["kind"] == "Deployment")
    objects = tuple(made for made in found if (made["apiVersion"].partition("/")[0], made["kind"]) in kinds)
    taken = [id(document) for document in (*definitions, *deployments, *objects)]
    others = tuple(document for document in found if id(document) not in taken)
    return Manifests(definitions, objects, others, deployments)


def at_loopback(document: Json, *, port: int, authority: bytes) -> Json:
    """The same document, with webhooks called at that port of 127.0.0.1 and trusted by that authority."""
    document = copy.deepcopy(document)
    for caller in callers(document):
        caller["clientConfig"] = {
            "url": f"https://127.0.0.1:{port}{_path(caller)}",
            "caBundle": base64.b64encode(authority).decode(),
        }
    return document


def through_services(document: Json, *, port: int, services: set[str]) -> Json:
    """The same document, with these Services another name of this host, and webhooks called at that port of them."""
    document = copy.deepcopy(document)
    if document["kind"] == "Service" and document["metadata"]["name"] in services:
        document["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    for caller in callers(document):
        caller["clientConfig"]["service"]["port"] = port
    return document


def callers(document: Json) -> list[Json]:
    """What has a `clientConfig`: the entries of a webhook configuration, a CRD's conversion."""
    if document["kind"] == "CustomResourceDefinition":
        conversion: Json | None = document["spec"].get("conversion", {}).get("webhook")
        return [conversion] if conversion else []
    found: list[Json] = document.get("webhooks", [])
    return found


def _path(caller: Json) -> str:
    path: str = caller["clientConfig"]["service"].get("path", "/")
    return path
