"""A tenant with the right to edit all jobs of its namespace, in a trial of a kind."""

from testbed import ApiError, ControlPlane
from testbed.client import Json, wait_until
from tests.attacks.conftest import EDIT, QUIET_SECONDS
from tests.cluster.scenario import Scenario
from tests.operators.rows import ROWS, Row
from tests.operators.trial import Trial

TENANT = "eve"
OPERATED = {row.api_version.rpartition("/")[0] for row in ROWS if row.operators}
"""The API groups of kinds with an operator."""


def at_rest(trial: Trial) -> bool:
    """Whether nothing changes any more, within the quota, and no quota is reserved for what does not run."""
    will = trial.sentry.runs_or_will
    return trial.sentry.quiet_for(QUIET_SECONDS) and trial.sentry.runs <= trial.quota and trial.reserved <= will


def tenant_in(trial: Trial, control_plane: ControlPlane) -> Scenario:
    """The namespace as a tenant may change it: Kubernetes' `edit`, and all objects of the operators."""
    namespace = trial.scenario.namespace
    rbac = "rbac.authorization.k8s.io"
    role = {"name": TENANT, "namespace": namespace}
    rules = [
        {"apiGroups": sorted(OPERATED), "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
    ]
    objects: list[Json] = [{"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": role, "rules": rules}]
    objects += [
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{TENANT}-{name}".lower(), "namespace": namespace},
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": TENANT}],
        }
        for kind, name in (("ClusterRole", EDIT), ("Role", TENANT))
    ]
    for each in objects:
        control_plane.api.create(each)
    made = Scenario(control_plane.api_as(TENANT), namespace)
    wait_until(lambda: _may_list(trial.row, made), timeout=10, describe=lambda: "the tenant has no rights")
    return made


def _may_list(row: Row, scenario: Scenario) -> bool:
    try:
        scenario.api.get(row.path(scenario, "").rstrip("/"))
        row.pods_of(scenario, "")
    except ApiError as error:
        if error.code == 403:
            return False
        raise
    return True
