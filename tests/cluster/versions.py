"""The older versions of our kinds: the leader lets them be served, which restarts their storage."""

from typing import TYPE_CHECKING

import pytest

from testbed import Api, ApiError
from testbed.client import wait_until
from tests.cluster.schema_server import DEFINITIONS
from turnstile.api.kinds import KINDS, Definition

if TYPE_CHECKING:
    from tests.turnstile import Turnstile

GROUP = "/apis/kueue.x-k8s.io"


def wait_served(api: Api, *, timeout: float = 30) -> None:
    """Return once every version of every kind is to be served and answers; until then requests may get a 429."""
    missing = list(KINDS)

    def look() -> bool:
        nonlocal missing
        missing = [kinds for kinds in missing if not _served(api, kinds)]
        return not missing

    wait_until(look, timeout=timeout, every=0.2, describe=lambda: f"not served: {[kinds.name for kinds in missing]}")


def _served(api: Api, kinds: Definition) -> bool:
    versions = api.get(f"{DEFINITIONS}/{kinds.name}")["spec"]["versions"]
    return all(version["served"] and _answers(api, path(kinds, version["name"])) for version in versions)


def _answers(api: Api, where: str) -> bool:
    try:
        api.get(where)
    except ApiError:
        return False
    return True


@pytest.fixture
def served(turnstile: "Turnstile", api: Api) -> "Turnstile":
    """Turnstile, with all versions served."""
    wait_served(api)
    return turnstile


def path(kinds: Definition, version: str, name: str = "", namespace: str = "") -> str:
    """Path of an object, or of all of a kind."""
    scope = f"namespaces/{namespace}/" if kinds.stored.NAMESPACED and namespace else ""
    return f"{GROUP}/{version}/{scope}{kinds.stored.PLURAL}{'/' if name else ''}{name}"


def of(kind: str) -> Definition:
    """The kind of that name."""
    return next(kinds for kinds in KINDS if kind == kinds.stored.KIND)
