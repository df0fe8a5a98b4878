"""Takes an operator's rendered kustomization apart. Pure: text and documents in, documents out."""

import base64
import copy
from dataclasses import dataclass

from testbed.client import Json
from testbed.manifests import documents


@dataclass(frozen=True, slots=True)
class Manifests:
    """An operator's objects: CRDs, all else that is applied, and the Deployment, which is not."""

    definitions: tuple[Json, ...]
    others: tuple[Json, ...]
    deployment: Json

    @property
    def namespace(self) -> str:
        """Where the operator lives."""
        namespace: str = self.deployment["metadata"].get("namespace", "default")
        return namespace

    @property
    def service_account(self) -> str:
        """Whose rights it has."""
        name: str = self.deployment["spec"]["template"]["spec"]["serviceAccountName"]
        return name

    def webhook_paths(self) -> list[str]:
        """The paths at which the API server has the operator review objects."""
        return sorted({_path(caller) for document in self.others for caller in _callers(document)})


def read(text: str) -> Manifests:
    """Sort the documents of a rendered kustomization, which has exactly one Deployment."""
    found = documents(text)
    (deployment,) = [document for document in found if document["kind"] == "Deployment"]
    definitions = [document for document in found if document["kind"] == "CustomResourceDefinition"]
    taken = [id(document) for document in (deployment, *definitions)]
    others = [document for document in found if id(document) not in taken]
    return Manifests(tuple(definitions), tuple(others), deployment)


def at_loopback(document: Json, *, port: int, authority: bytes) -> Json:
    """The same document, with webhooks called at that port of 127.0.0.1 and trusted by that authority."""
    document = copy.deepcopy(document)
    for caller in _callers(document):
        caller["clientConfig"] = {
            "url": f"https://127.0.0.1:{port}{_path(caller)}",
            "caBundle": base64.b64encode(authority).decode(),
        }
    return document


def _callers(document: Json) -> list[Json]:
    """What has a `clientConfig`: the entries of a webhook configuration, a CRD's conversion."""
    if document["kind"] == "CustomResourceDefinition":
        conversion: Json | None = document["spec"].get("conversion", {}).get("webhook")
        return [conversion] if conversion else []
    callers: list[Json] = document.get("webhooks", [])
    return callers


def _path(caller: Json) -> str:
    path: str = caller["clientConfig"]["service"].get("path", "/")
    return path
