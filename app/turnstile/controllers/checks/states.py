"""The state of a check that follows from the autoscaler's answer. Pure functions; the time comes from the caller.

The conditions of a request are looked at in a fixed order, and the first that applies decides. Must never write.
"""

from typing import Final

import msgspec

from turnstile.api import provisioningrequest as pr
from turnstile.api.meta import Condition, find_condition
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfigSpec, ProvisioningRequestRetryStrategy
from turnstile.api.workload import AdmissionCheckState, CheckState, PodSetUpdate, Workload
from turnstile.controllers.checks.requests import covered

INACTIVE: Final = "the check is not active"
NOT_NEEDED: Final = "the provisioning request is not needed"


def strategy(spec: ProvisioningRequestConfigSpec | None) -> ProvisioningRequestRetryStrategy:
    """How often and when to try again."""
    return (spec.retry_strategy if spec is not None else None) or ProvisioningRequestRetryStrategy()


def inactive(state: AdmissionCheckState) -> AdmissionCheckState:
    """The state of a check without configuration. Capacity that was provisioned before stays."""
    return state if state.state == "Ready" else _to(state, "Pending", INACTIVE)


def awaiting(state: AdmissionCheckState) -> AdmissionCheckState:
    """The state of a check that was Ready for a reservation which its Workload has lost."""
    return msgspec.structs.replace(_to(state, "Pending", ""), pod_set_updates=[])


def not_needed(state: AdmissionCheckState) -> AdmissionCheckState:
    """The state of a check for pods that request nothing of what the autoscaler manages."""
    if state.state == "Ready":
        return state
    return msgspec.structs.replace(_to(state, "Ready", NOT_NEEDED), pod_set_updates=[])


def ended(request: ProvisioningRequest, workload: Workload) -> Condition | None:
    """The condition with which an attempt has failed. An expired booking matters until the Workload is admitted."""
    if (failed := _true(request, pr.FAILED)) is not None:
        return failed
    if _true(request, pr.CAPACITY_REVOKED) is not None or workload.admitted:
        return None
    return _true(request, pr.BOOKING_EXPIRED)


def answered(
    state: AdmissionCheckState,
    request: ProvisioningRequest,
    attempt: int,
    workload: Workload,
    spec: ProvisioningRequestConfigSpec | None,
) -> AdmissionCheckState:
    """The state after the answer to an attempt."""
    if (failure := ended(request, workload)) is not None:
        return _failed(state, failure, attempt, strategy(spec))
    if (revoked := _true(request, pr.CAPACITY_REVOKED)) is not None:
        return _to(state, "Rejected", revoked.message) if workload.spec.active else state
    if _true(request, pr.BOOKING_EXPIRED) is not None:
        return state
    if (provisioned := _true(request, pr.PROVISIONED)) is not None:
        if state.state == "Ready":
            return state
        updates = _updates(request, workload, spec)
        return msgspec.structs.replace(_to(state, "Ready", provisioned.message), pod_set_updates=updates)
    if _true(request, pr.ACCEPTED) is not None:
        expected = find_condition(request.status.conditions, pr.PROVISIONED)
        return _to(state, "Pending", expected.message) if expected is not None else state
    return _to(state, "Pending", "")


def _failed(
    state: AdmissionCheckState, failure: Condition, attempt: int, retries: ProvisioningRequestRetryStrategy
) -> AdmissionCheckState:
    if attempt > retries.backoff_limit_count:
        return _to(state, "Rejected", failure.message)
    word = "failure" if failure.type == pr.FAILED else "booking expired"
    message = f"Retrying after {word}: {failure.message}"
    done = state.retry_count or 0
    if attempt <= done:  # the failure of an earlier attempt
        return msgspec.structs.replace(state, message=message)
    wait = min(retries.backoff_base_seconds * 2 ** min(done, 31), retries.backoff_max_seconds)
    return msgspec.structs.replace(_to(state, "Retry", message), requeue_after_seconds=max(0, wait))


def _updates(
    request: ProvisioningRequest, workload: Workload, spec: ProvisioningRequestConfigSpec | None
) -> list[PodSetUpdate]:
    """The additions to the pods of each pod set in the request, by which they may use the nodes of the request."""
    annotations = {
        pr.CONSUME_ANNOTATION: request.metadata.name,
        pr.CLASS_ANNOTATION: request.spec.provisioning_class_name,
    }
    details = request.status.provisioning_class_details
    updates = spec.pod_set_updates if spec is not None else None
    selector = {
        each.key: details[each.value_from_provisioning_class_detail]
        for each in (updates.node_selector if updates is not None else ())
        if each.value_from_provisioning_class_detail in details
    }
    return [
        PodSetUpdate(name=name, annotations=annotations, node_selector=selector)
        for name in covered(request, workload, spec)
    ]


def _to(state: AdmissionCheckState, to: CheckState, message: str) -> AdmissionCheckState:
    """The check in a state, since now if that is another one."""
    since = state.last_transition_time if state.state == to else ""
    return msgspec.structs.replace(state, state=to, message=message, last_transition_time=since)


def _true(request: ProvisioningRequest, kind: str) -> Condition | None:
    found = find_condition(request.status.conditions, kind)
    return found if found is not None and found.status == "True" else None
