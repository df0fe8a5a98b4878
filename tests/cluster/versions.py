"""Turnstile with all versions of its kinds served."""

import pytest

from app.api.kinds import KINDS, Definition
from testbed import Api
from testbed.client import wait_until
from tests.cluster.schema_server import DEFINITIONS
from tests.turnstile import Turnstile

GROUP = "/apis/kueue.x-k8s.io"


def all_served(api: Api) -> bool:
    """Whether the API server serves all versions of all kinds."""
    return all(
        version["served"] for kinds in KINDS for version in api.get(f"{DEFINITIONS}/{kinds.name}")["spec"]["versions"]
    ) and all(
        kinds.stored.PLURAL in {resource["name"] for resource in api.get(f"{GROUP}/{version}")["resources"]}
        for kinds in KINDS
        for version in kinds.older
    )


@pytest.fixture
def served(turnstile: Turnstile, api: Api) -> Turnstile:
    """Turnstile, with all versions served."""
    wait_until(lambda: all_served(api), timeout=20, describe="every version is served")
    return turnstile


def path(kinds: Definition, version: str, name: str = "", namespace: str = "") -> str:
    """Path of an object, or of all of a kind."""
    scope = f"namespaces/{namespace}/" if kinds.stored.NAMESPACED and namespace else ""
    return f"{GROUP}/{version}/{scope}{kinds.stored.PLURAL}{'/' if name else ''}{name}"


def of(kind: str) -> Definition:
    """The kind of that name."""
    return next(kinds for kinds in KINDS if kind == kinds.stored.KIND)
