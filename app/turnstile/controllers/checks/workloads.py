"""Decides about the provisioning checks of one Workload: its requests to the autoscaler, and the states of its checks.

An attempt of a check is one ProvisioningRequest, whose name ends in the number of the attempt: one more than the
retries that the state of the check counts. So what is there and what is missing follows from names and owners alone,
whichever process created it, and at whatever point that process was stopped.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import orjson

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.conditions import set_check_state, truncate_note
from turnstile.api.core import PodTemplate
from turnstile.api.errors import PermanentError
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig, ProvisioningRequestConfigSpec
from turnstile.api.workload import AdmissionCheckState, Workload
from turnstile.controllers import wakes
from turnstile.controllers.checks import requests, states
from turnstile.controllers.checks.checks import CHECK_CONTROLLER, check_controller, config_of
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Dispatch, Target, Watch
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.provisioning import (
    CHECKS_BY_CONFIG,
    REQUESTS_BY_WORKLOAD,
    WORKLOADS_BY_CHECK,
    is_ours,
    workloads_of,
)
from turnstile.kube.slices import ordered

Keys = Generator[str | None, None, None]

CONTROLLER: Final = ProvisioningRequest.KIND
GOING_SECONDS: Final = 1.0
"""Seconds until a Workload is reconciled again that waits for the garbage collector."""

_NAME: Final = f"{ProvisioningRequest.PLURAL}.{ProvisioningRequest.GROUP}"


def decide(key: str, cluster: ClusterView) -> ReconcileResult:
    """The next writes for the provisioning checks of one Workload."""
    workload = cluster.workloads.get(key)
    if workload is None:
        return ReconcileResult(why="gone")
    view = cluster.provisioning
    if not view.complete:
        return ReconcileResult(why="its requests were not read yet")
    named = view.requests.by_index(REQUESTS_BY_WORKLOAD, key)
    uid = workload.metadata.uid
    owned = [each for each in named if any(owner.uid == uid for owner in each.metadata.owner_references)]
    if workload.metadata.deletion_timestamp:
        return ReconcileResult(why="being deleted: its requests go with it")
    if workload.evicted and not workload.finished:
        deleted = _deleted(owned) if cluster.options.provisioning_cleanup else []
        return ReconcileResult(deleted, why="evicted")
    if workload.finished:
        return ReconcileResult(_deleted(owned), why="finished")
    if not workload.quota_reserved:
        return _Attempts(workload, cluster, owned).pause()
    return _Attempts(workload, cluster, owned).decide()


def _deleted(owned: list[ProvisioningRequest]) -> list[Action]:
    metas = [each.metadata for each in owned if not each.metadata.deletion_timestamp]
    return [Delete(ProvisioningRequest, meta.namespace, meta.name, uid=meta.uid) for meta in metas]


@dataclass(slots=True)
class _Check:
    """A check of this Workload; without `spec` its configuration cannot be used."""

    state: AdmissionCheckState
    spec: ProvisioningRequestConfigSpec | None
    request: ProvisioningRequest | None = None
    attempt: int = 0


@dataclass(slots=True)
class _Attempts:
    """One reconcile of a Workload that holds quota, or has lost it without an eviction."""

    workload: Workload
    cluster: ClusterView
    owned: list[ProvisioningRequest]
    creates: list[Action] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def decide(self) -> ReconcileResult:
        """Follow the answers of the autoscaler, then make the attempts that are due."""
        checks = [self._check(each) for each in self.workload.status.admission_checks if self._is_ours(each.name)]
        used = {check.request.metadata.name for check in checks if check.request is not None}
        actions = _deleted([each for each in self.owned if each.metadata.name not in used])
        draft = self.cluster.draft(self.workload)
        try:
            followed = [self._followed(check) for check in checks]
            for check, state in zip(checks, followed, strict=True):
                self._make(check, state)
        except PermanentError as error:
            return ReconcileResult(actions, why=str(error))
        except LookupError as error:
            return ReconcileResult([*actions, RequeueAfter(RETRY_SECONDS)], why=str(error))
        events: list[Action] = []
        for check, state in zip(checks, followed, strict=True):
            draft.checks = set_check_state(draft.checks, state, now=self.cluster.now)
            if state.state != check.state.state:
                events.append(self._changed(check.state, state))
        if draft.changed:
            actions += [draft.patch(), *events]
        actions += self.creates
        if self.waits:
            actions.append(RequeueAfter(min(self.waits)))
        return ReconcileResult(actions, why=_message(followed))

    def pause(self) -> ReconcileResult:
        """Keep the requests of a Workload that has lost its reservation for the next one. A check that is Ready by a
        request is Pending until then: the next reservation may need other nodes, and a Workload whose checks are Ready
        is admitted in the write that reserves its quota."""
        draft = self.cluster.draft(self.workload)
        for state in self.workload.status.admission_checks:
            if state.state == "Ready" and self._is_ours(state.name) and self._check(state).request is not None:
                draft.checks = set_check_state(draft.checks, states.awaiting(state), now=self.cluster.now)
        return ReconcileResult([draft.patch()] if draft.changed else [], why="holds no quota")

    def _is_ours(self, name: str) -> bool:
        return is_ours(self.cluster.admission_checks.get(name))

    def _check(self, state: AdmissionCheckState) -> _Check:
        found = _Check(state, self._spec(state.name))
        own, done = self.workload.metadata.name, state.retry_count or 0
        for request in self.owned:
            attempt = requests.attempt_of(request.metadata.name, own, state.name, near=done)
            if attempt > found.attempt and self._counts(request, found):
                found.request, found.attempt = request, attempt
        return found

    def _counts(self, request: ProvisioningRequest, check: _Check) -> bool:
        """Whether a request is one that the check asks for. One that was answered is not replaced after an edit."""
        if request.metadata.deletion_timestamp:
            return False
        if check.state.state == "Ready":
            return True
        if check.spec is None or not requests.follows(request, self.workload, check.spec):
            return False
        return self._serves(request, check.spec)

    def _serves(self, request: ProvisioningRequest, spec: ProvisioningRequestConfigSpec) -> bool:
        try:
            return requests.is_needed(self.workload, spec) and requests.serves(
                request, self.workload, spec, self.cluster.provisioning.templates.get
            )
        except PermanentError:
            return True  # reported when the request is built

    def _spec(self, name: str) -> ProvisioningRequestConfigSpec | None:
        if not self.cluster.provisioning.served():
            return None
        check = self.cluster.admission_checks.get(name)
        try:
            parameters = check.spec.parameters if check is not None and check.spec is not None else None
            return config_of(parameters, self.cluster.provisioning.configs).spec
        except PermanentError:
            return None

    def _followed(self, check: _Check) -> AdmissionCheckState:
        if check.request is not None:
            return states.answered(check.state, check.request, check.attempt, self.workload, check.spec)
        if check.spec is None:
            return states.inactive(check.state)
        if not requests.is_needed(self.workload, check.spec):
            return states.not_needed(check.state)
        return check.state

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _make(self, check: _Check, state: AdmissionCheckState) -> None:
        """Add what is missing of the attempt that is due."""
        if check.request is not None:
            self._adopt(check.request)
        if check.spec is None or "Ready" in (check.state.state, state.state):
            return
        if state.state != "Pending" or not requests.is_needed(self.workload, check.spec):
            return
        done = check.state.retry_count or 0
        if check.request is None:
            attempt = done + 1
        elif states.ended(check.request, self.workload) is not None and check.attempt <= done:
            attempt = check.attempt + 1
        else:
            self._templates(check.request.metadata.name, check, check.request)
            return
        name = requests.request_name(self.workload.metadata.name, check.state.name, attempt)
        if self._is_free(name, check) and self._templates(name, check, None):
            self._request(name, check)

    def _is_free(self, name: str, check: _Check) -> bool:
        """Whether no request has the name; else the Workload waits until that one is gone, or its check says why."""
        meta = self.workload.metadata
        there = self.cluster.provisioning.requests.get(f"{meta.namespace}/{name}")
        if there is None:
            return True
        if there.metadata.deletion_timestamp or f"{meta.namespace}/{meta.name}" in workloads_of(there):
            self.waits.append(GOING_SECONDS)  # deleted by this decision, or with an earlier Workload of the same name
            return False
        self.creates += self._refusal(check, ProvisioningRequest.KIND, name, f'{_NAME} "{name}" already exists')
        self.waits.append(RETRY_SECONDS)
        return False

    def _templates(self, request: str, check: _Check, owner: ProvisioningRequest | None) -> bool:
        """Add the PodTemplates that a request lacks. Returns False if those of an earlier request are in the way."""
        assert check.spec is not None
        cluster, meta = self.cluster, self.workload.metadata
        completed = cluster.completed_in(meta.namespace)
        free = True
        for ask in requests.asks(self.workload, check.spec):
            name = requests.template_name(request, ask.pod_set.name)
            there = cluster.provisioning.templates.get(f"{meta.namespace}/{name}")
            if there is not None and self._belongs(there, owner):
                continue
            if there is not None:
                self.creates.append(Delete(PodTemplate, meta.namespace, name, uid=there.metadata.uid))
                self.waits.append(GOING_SECONDS)
                free = False
                continue
            pod = completed(ask.pod_set.template.spec)
            body = requests.template_body(request, ask, self.workload, cluster.flavors.get, pod)
            self._create(check, PodTemplate, name, body)
        return free

    def _belongs(self, template: PodTemplate, owner: ProvisioningRequest | None) -> bool:
        controller = template.metadata.controller
        if template.metadata.deletion_timestamp or controller is None:
            return False
        return controller.uid in (self.workload.metadata.uid, owner.metadata.uid if owner is not None else None)

    def _request(self, name: str, check: _Check) -> None:
        assert check.spec is not None
        asked = requests.asks(self.workload, check.spec)
        self._create(check, ProvisioningRequest, name, requests.request_body(name, self.workload, check.spec, asked))
        note = f'Created ProvisioningRequest: "{name}"'
        self.creates.append(Emit(self.workload, "Normal", "ProvisioningRequestCreated", note))

    def _create(self, check: _Check, kind: type[ProvisioningRequest] | type[PodTemplate], name: str, body: Any) -> None:
        def refused(message: str) -> list[Action]:
            return self._refusal(check, kind.KIND, name, message)

        namespace = self.workload.metadata.namespace
        self.creates.append(Create(kind, namespace, name, orjson.dumps(body), refused=refused))

    def _refusal(self, check: _Check, kind: str, name: str, message: str) -> list[Action]:
        """Write to the check that an object cannot be created; nothing if that is written already."""
        note = f'Error creating {kind} "{name}": {message}'
        latest = self.cluster.workloads.get(self.workload.metadata.key) or self.workload
        draft = self.cluster.draft(latest)
        draft.checks = [
            set_check_state([each], _with_message(each, note), now=self.cluster.now)[0]
            if each.name == check.state.name
            else each
            for each in draft.checks
        ]
        if not draft.changed:
            return []
        return [draft.patch(), Emit(self.workload, "Warning", "FailedCreate", truncate_note(note))]

    def _adopt(self, request: ProvisioningRequest) -> None:
        """Let the PodTemplates of a request go with the request."""
        templates = self.cluster.provisioning.templates
        for each in request.spec.pod_sets:
            template = templates.get(f"{request.metadata.namespace}/{each.pod_template_ref.name}")
            controller = template.metadata.controller if template is not None else None
            if template is not None and controller is not None and controller.uid == self.workload.metadata.uid:
                owners = [requests.reference(request)]
                self.creates.append(fresh_patch(template, {"metadata": {"ownerReferences": owners}}))

    def _changed(self, before: AdmissionCheckState, after: AdmissionCheckState) -> Emit:
        note = f"Admission check {after.name} updated state from {before.state} to {after.state}"
        if after.message:
            note += f" with message: {after.message}"
        return Emit(self.workload, "Normal", "AdmissionCheckUpdated", truncate_note(note))


def _with_message(state: AdmissionCheckState, message: str) -> AdmissionCheckState:
    return msgspec.structs.replace(state, message=message)


def _message(followed: list[AdmissionCheckState]) -> str:
    return ", ".join(f"{each.name} is {each.state}" for each in followed) or "no check of this controller"


# --- what is reconciled, and when -------------------------------------------------------------------------------------


def controllers(cluster: ClusterView) -> list[Controller]:
    """The controllers of this package: of AdmissionChecks, and of the Workloads that have such checks."""
    return [check_controller(cluster), _controller(cluster)]


def _controller(cluster: ClusterView) -> Controller:
    workloads, view = cluster.workloads, cluster.provisioning

    def concerned(workload: Workload | None) -> bool:
        return workload is not None and any(
            is_ours(cluster.admission_checks.get(each.name)) for each in workload.status.admission_checks
        )

    def workload_changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
        return (key,) if new is not None and (concerned(old) or concerned(new)) else ()

    def request_changed(_: str, old: ProvisioningRequest | None, new: ProvisioningRequest | None) -> list[str]:
        return list(dict.fromkeys(key for each in (old, new) if each is not None for key in workloads_of(each)))

    def template_changed(_: str, old: PodTemplate | None, new: PodTemplate | None) -> list[str]:
        return [key for key in (owner_of(old or new),) if key]

    def owner_of(template: PodTemplate | None) -> str:
        """The key of the Workload that a template was made for; empty if its request is gone."""
        owner = template.metadata.controller if template is not None else None
        if template is None or owner is None:
            return ""
        key = f"{template.metadata.namespace}/{owner.name}"
        if owner.kind == Workload.KIND:
            return key
        request = view.requests.get(key) if owner.kind == ProvisioningRequest.KIND else None
        return next(workloads_of(request), "") if request is not None else ""

    def check_changed(name: str, old: AdmissionCheck | None, new: AdmissionCheck | None) -> Keys | None:
        return with_check(name) if wakes.spec_concerned(old, new) else None

    def config_changed(name: str, old: ProvisioningRequestConfig | None, new: ProvisioningRequestConfig | None) -> Keys:
        for check in cluster.admission_checks.keys_by_index(CHECKS_BY_CONFIG, name):
            yield from with_check(check)

    def with_check(name: str) -> Keys:
        yield from (yield from ordered(workloads.keys_by_index(WORKLOADS_BY_CHECK, name, ordered=False)))

    return Controller(
        name=CONTROLLER,
        kind=Workload,
        decide=lambda key: decide(key, cluster),
        watches=[
            Watch(workloads, workload_changed),
            Watch(view.requests, request_changed),
            Watch(view.templates, template_changed),
            Watch(cluster.admission_checks, many=check_changed),
            Watch(view.configs, many=config_changed),
        ],
        workers=4,
    )


def dispatch(cluster: ClusterView) -> Dispatch:
    """Reconcile everything when a term begins, and whenever the requests were read: the autoscaler's definition may be
    installed at any time."""
    workloads, checks, view = cluster.workloads, cluster.admission_checks, cluster.provisioning

    def everything() -> Iterator[Target | None]:
        for name in list(checks.keys()):
            if is_ours(checks.get(name)):
                yield CHECK_CONTROLLER, name
                for key in workloads.keys_by_index(WORKLOADS_BY_CHECK, name, ordered=False):
                    yield CONTROLLER, key
            yield None
        for request in view.requests.values():
            for key in workloads_of(request):
                yield CONTROLLER, key
            yield None

    return Dispatch(initial=everything, complete=dict.fromkeys((view.requests, view.templates), everything))
