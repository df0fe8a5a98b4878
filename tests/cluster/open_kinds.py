"""Kinds of others whose schemas take every field, for tests that need them served and nothing more."""

from testbed.client import Json


def open_definition(group: str, plural: str, kind: str) -> Json:
    """A definition of a namespaced kind that takes every field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups of Kubernetes' own want to know who approved of the kind.
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }
