"""Decides about one AdmissionCheck of this controller: whether it is active, which its ClusterQueues need."""

from typing import Any

from turnstile.api.admissioncheck import AdmissionCheck, AdmissionCheckParametersReference
from turnstile.api.conditions import set_condition
from turnstile.api.errors import PermanentError
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig
from turnstile.controllers.runtime.actions import ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Watch, every, itself
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.status.draft import condition_body
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.provisioning import CHECKS_BY_CONFIG, is_ours
from turnstile.kube.store import Store

CHECK_CONTROLLER = "ProvisioningAdmissionCheck"

_BAD = "bad parameters reference"
_ABSENT = f"the kind {ProvisioningRequest.KIND} of {ProvisioningRequest.GROUP} is not installed in the cluster"


def config_of(
    parameters: AdmissionCheckParametersReference | None, configs: Store[ProvisioningRequestConfig]
) -> ProvisioningRequestConfig:
    """The configuration that a check names. Raises PermanentError with what is wrong."""
    if parameters is None:
        raise PermanentError("missing parameters reference")
    for word, have, want in (
        ("group", parameters.api_group, ProvisioningRequestConfig.GROUP),
        ("kind", parameters.kind, ProvisioningRequestConfig.KIND),
    ):
        if have != want:
            raise PermanentError(f'wrong {word} "{have}", expecting "{want}": {_BAD}')
    if not parameters.name:
        raise PermanentError(f"empty name: {_BAD}")
    found = configs.get(parameters.name)
    if found is None:
        resource = f"{ProvisioningRequestConfig.PLURAL}.{ProvisioningRequestConfig.GROUP}"
        raise PermanentError(f'{resource} "{parameters.name}" not found')
    return found


def decide(name: str, cluster: ClusterView) -> ReconcileResult:
    """Set the condition Active of a check of this controller."""
    check = cluster.admission_checks.get(name)
    if check is None or check.spec is None or not is_ours(check):
        return ReconcileResult(why="gone, or the check of another controller")
    problem = ("", "")
    try:
        config_of(check.spec.parameters, cluster.provisioning.configs)
    except PermanentError as error:
        problem = ("BadParametersRef", str(error))
    if not problem[0] and not cluster.provisioning.served():
        problem = ("ProvisioningRequestNotInstalled", _ABSENT)
    reason, message = problem if problem[0] else ("Active", "The admission check is active")
    conditions = set_condition(
        check.status.conditions,
        type="Active",
        status="False" if problem[0] else "True",
        reason=reason,
        message=message,
        now=cluster.now,
        observed_generation=check.metadata.generation or None,
    )
    if conditions == check.status.conditions:
        return ReconcileResult(why=message)
    status: dict[str, Any] = {"conditions": [condition_body(each) for each in conditions]}
    return ReconcileResult([fresh_patch(check, {"status": status}, subresource="status")], why=message)


def check_controller(cluster: ClusterView) -> Controller:
    """The controller that reconciles AdmissionChecks when they or their configurations change."""
    checks = cluster.admission_checks

    def config_changed(name: str, _: object, __: object) -> list[str]:
        return checks.keys_by_index(CHECKS_BY_CONFIG, name)

    return Controller(
        name=CHECK_CONTROLLER,
        kind=AdmissionCheck,
        decide=lambda name: decide(name, cluster),
        watches=[Watch(checks, itself), Watch(cluster.provisioning.configs, config_changed)],
        initial=lambda: every(checks),
    )
