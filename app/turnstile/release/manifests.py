"""Reads what `helm template` renders of Turnstile's chart, and the same objects as a cluster has them.

Preflight is given rendered manifests instead of values: what they say is what the cluster will get, whatever the values
of the chart are called. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from turnstile.api import names, yamltext
from turnstile.api.errors import InvalidValue

Plain = Mapping[str, Any]

CHART_LABEL: Final = "helm.sh/chart"
RELEASE_LABEL: Final = "app.kubernetes.io/instance"
OWNER_NAME: Final = "meta.helm.sh/release-name"
OWNER_NAMESPACE: Final = "meta.helm.sh/release-namespace"
_HOOK: Final = "helm.sh/hook"
_CHART: Final = "turnstile-"
_COMMAND: Final = (
    "give what `helm template RELEASE charts/turnstile --namespace NAMESPACE` prints, with the values of the release"
)


def labels(obj: Plain) -> Mapping[str, str]:
    """The labels of an object."""
    return obj.get("metadata", {}).get("labels") or {}


def annotations(obj: Plain) -> Mapping[str, str]:
    """The annotations of an object."""
    return obj.get("metadata", {}).get("annotations") or {}


def is_of_our_chart(obj: Plain) -> bool:
    """Whether some release of Turnstile's chart made the object."""
    return labels(obj).get(CHART_LABEL, "").startswith(_CHART)


def owner(obj: Plain) -> tuple[str, str]:
    """Name and namespace of the Helm release that owns an object of a cluster; empty if none does."""
    found = annotations(obj)
    return found.get(OWNER_NAME, ""), found.get(OWNER_NAMESPACE, "")


def show(obj: Plain) -> str:
    """An object by kind and name, for people."""
    meta = obj["metadata"]
    namespace = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{obj['kind']} {namespace}{meta['name']}"


def registers_for_kueues_kinds(configuration: Plain) -> bool:
    """Whether a webhook configuration is about Kueue's kinds: it is Kueue's, or that of a release of Turnstile."""
    return any(
        names.GROUP in (rule.get("apiGroups") or ())
        for entry in configuration.get("webhooks") or ()
        for rule in entry.get("rules") or ()
    )


def release_name(mutating: Plain) -> str:
    """The full name of the release whose MutatingWebhookConfiguration this is: it prefixes the names of all objects."""
    return str(mutating["metadata"]["name"]).removesuffix(f"-{names.MUTATING_CONFIGURATION}")


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of one release, without those that Helm creates for its hooks only, and CRDs."""

    objects: tuple[Plain, ...]
    release: str
    namespace: str
    name: str
    """The full name, which prefixes the names of all objects."""

    @classmethod
    def parse(cls, text: str, source: str) -> "Manifests":
        """Read rendered manifests. Raises InvalidValue if they are not those of Turnstile's chart."""
        try:
            documents = [each for each in yamltext.documents(text) if each]
        except yamltext.Aliased as error:
            raise InvalidValue("--file", source, str(error)) from None
        except yaml.YAMLError as error:
            raise InvalidValue("--file", source, f"is not YAML: {' '.join(str(error).split())}") from None
        if not all(isinstance(each, dict) and each.get("kind") and each.get("metadata") for each in documents):
            raise InvalidValue("--file", source, f"has a document that is no object: {_COMMAND}")
        objects = tuple(
            each for each in documents if _HOOK not in annotations(each) and each["kind"] != "CustomResourceDefinition"
        )
        mutating = next((each for each in objects if each["kind"] == "MutatingWebhookConfiguration"), None)
        account = next((each for each in objects if each["kind"] == "ServiceAccount"), None)
        if mutating is None or account is None or not is_of_our_chart(mutating):
            raise InvalidValue("--file", source, f"is not Turnstile's chart: {_COMMAND}")
        release = labels(mutating).get(RELEASE_LABEL, "")
        return cls(objects, release, account["metadata"]["namespace"], release_name(mutating))

    def of_kind(self, *kinds: str) -> Iterator[Plain]:
        """The objects of these kinds."""
        return (each for each in self.objects if each["kind"] in kinds)

    @property
    def chart(self) -> str:
        """Name and version of the chart."""
        return next((labels(each)[CHART_LABEL] for each in self.objects if CHART_LABEL in labels(each)), "")

    def owns(self, obj: Plain) -> bool:
        """Whether Helm counts an object of the cluster to this release."""
        return owner(obj) == (self.release, self.namespace)


def configuration(objects: Iterator[Plain]) -> str:
    """The configuration file among objects of a release; empty if there is none."""
    for each in objects:
        if each["kind"] == "ConfigMap" and "config.yaml" in (each.get("data") or {}):
            return str(each["data"]["config.yaml"])
    return ""
