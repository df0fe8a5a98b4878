"""The health checks for Argo CD in examples/gitops, run as Argo CD runs them: Lua, with the object as `obj`."""

from typing import Any

import lupa
import pytest
import yaml

from tests.documents import ROOT

CHECKS: dict[str, str] = yaml.safe_load((ROOT / "examples/gitops/argocd-health.yaml").read_text())["data"]
PREFIX = "resource.customizations.health.kueue.x-k8s.io_"
QUEUES = ("ClusterQueue", "LocalQueue", "AdmissionCheck")


def health(kind: str, obj: dict[str, Any]) -> tuple[str, str]:
    """Status and message of an object."""
    lua = lupa.LuaRuntime()
    lua.globals().obj = lua.table_from(obj, recursive=True)
    found = lua.execute(CHECKS[PREFIX + kind])
    return found.status, found.message


def thing(*conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """An object of generation 2 with these conditions."""
    return {"metadata": {"generation": 2}, "spec": spec, "status": {"conditions": list(conditions)}}


def condition(kind: str, status: str, **fields: Any) -> dict[str, Any]:
    """A condition, seen at generation 2 if not said otherwise."""
    return {"type": kind, "status": status, "reason": "R", "message": "m", "observedGeneration": 2, **fields}


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize(
    ("obj", "status"),
    [
        ({"metadata": {"generation": 1}, "spec": {}}, "Progressing"),
        (thing(), "Progressing"),
        (thing(condition("Active", "True")), "Healthy"),
        (thing(condition("Active", "True", observedGeneration=1)), "Progressing"),
        (thing(condition("Active", "False")), "Degraded"),
        (thing(condition("Active", "False"), stopPolicy="None"), "Degraded"),
        (thing(condition("Active", "False"), stopPolicy="Hold"), "Suspended"),
    ],
)
def test_a_queue(kind: str, obj: dict[str, Any], status: str) -> None:
    """As its condition Active of the present generation says, and its stopPolicy."""
    assert health(kind, obj)[0] == status


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({"metadata": {}, "spec": {}}, ("Progressing", "Turnstile has not looked at it yet")),
        (thing(condition("QuotaReserved", "False")), ("Progressing", "m")),
        (thing(condition("QuotaReserved", "True"), condition("Admitted", "True")), ("Healthy", "m")),
        (thing(active=False), ("Suspended", "It is deactivated")),
        (thing(condition("Finished", "True", reason="Succeeded")), ("Healthy", "m")),
        (thing(condition("Finished", "True", reason="Failed")), ("Degraded", "m")),
    ],
)
def test_a_workload(obj: dict[str, Any], expected: tuple[str, str]) -> None:
    """Waiting is progress; with quota it is healthy; failed is degraded."""
    assert health("Workload", obj) == expected
