"""The health checks for Flux in examples/gitops, evaluated by the CEL of an API server."""

import re
from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from testbed import Api, ControlPlane
from testbed.client import resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.schema_server import Json, thing, update
from tests.documents import ROOT

pytestmark = pytest.mark.cluster

CHECKS: list[Json] = yaml.safe_load((ROOT / "examples/gitops/flux-queues.yaml").read_text())["spec"]["healthCheckExprs"]
ADMISSION = "admissionregistration.k8s.io/v1"
STATES = ("inProgress", "failed", "current")
SPECS: dict[str, Json] = {
    "ClusterQueue": {},
    "LocalQueue": {"clusterQueue": "main"},
    "AdmissionCheck": {"controllerName": "example.com/check"},
}
TIME = "2026-01-02T03:04:05Z"


def policy(check: Json) -> Json:
    """Refuses every status of the kind with the first state whose expression holds, as Flux asks for one by one."""

    def bound(expression: str) -> str:
        for part in ("metadata", "spec", "status"):
            expression = f"[object.{part}].all({part}, {expression})"
        return expression

    states = " : ".join(f"({bound(check[state])}) ? '{state}'" for state in STATES)
    plural = "admissionchecks" if check["kind"] == "AdmissionCheck" else f"{check['kind'].lower()}s"
    rule = {"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["v1beta2"], "resources": [f"{plural}/status"]}
    return {
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"flux-{check['kind'].lower()}"},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "operations": ["UPDATE"]}]},
            "validations": [{"expression": "false", "messageExpression": f"'state=' + ({states} : 'unknown')"}],
        },
    }


@pytest.fixture(scope="module")
def flux(schema_server: ControlPlane) -> Iterator[Api]:
    """An API server that answers each write of a status with the state in which Flux sees the object."""
    api = schema_server.api
    for check in CHECKS:
        made = policy(check)
        api.create(made)
        name = made["metadata"]["name"]
        spec = {"policyName": name, "validationActions": ["Deny"]}
        binding = {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicyBinding"}
        api.create({**binding, "metadata": {"name": name}, "spec": spec})
    yield api
    for check in CHECKS:  # other modules write statuses to the same API server
        name = policy(check)["metadata"]["name"]
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            api.delete(resource_path(ADMISSION, plural, name))
    for kind in SPECS:
        wait_until(partial(_is_free, api, kind), timeout=30, describe=lambda: "the policies are still in force")


def _is_free(api: Api, kind: str) -> bool:
    return not state(api, kind, "True")


def state(api: Api, kind: str, active: str | None, *, generation: int = 1, **spec: str) -> str:
    """What Flux makes of an object with this condition Active; "" while the policy is not in force yet."""
    name = re.sub(r"\W", "", f"{kind}-{active}-{generation}-{spec}").lower()
    namespace = "" if kind != "LocalQueue" else "default"
    obj = thing(kind, name, {**SPECS[kind], **spec}, namespace=namespace)
    if api.find(api.path_of(obj)) is None:
        api.create(obj)
    condition = {"type": "Active", "status": active, "reason": "R", "message": "m", "lastTransitionTime": TIME}
    conditions = [{**condition, "observedGeneration": generation}] if active else []
    try:
        update(api, obj, {"status": {"conditions": conditions}}, subresource="status", dry_run=True)
    except ApiError as error:
        if found := re.search(r"state=(\w+)", str(error)):
            return found[1]
        raise
    return ""


@pytest.mark.parametrize("kind", SPECS)
def test_a_queue(flux: Api, kind: str) -> None:
    """In progress until the condition is that of the present generation; then as it says, and as stopPolicy says."""
    wait_until(lambda: state(flux, kind, "True"), timeout=30, describe=lambda: "the policy is not in force")
    assert state(flux, kind, None) == "inProgress"
    assert state(flux, kind, "True", generation=0) == "inProgress"
    assert state(flux, kind, "True") == "current"
    assert state(flux, kind, "False") == "failed"
    if kind != "AdmissionCheck":
        assert state(flux, kind, "False", stopPolicy="Hold") == "current"
