"""The objects of one attempt of a check: a ProvisioningRequest and its PodTemplates. Pure functions.

Must never decide whether an attempt is made.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import orjson

from turnstile.api import names
from turnstile.api.core import PodTemplate
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, to_plain
from turnstile.api.numbers import parse_int32
from turnstile.api.patch import apply_merge_patch
from turnstile.api.pods import Container, ResourceRequirements
from turnstile.api.podshape import template_digest
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import MergePolicy, ProvisioningRequestConfigSpec
from turnstile.api.quantity import from_int
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import PodSet, PodSetAssignment, Workload
from turnstile.engine.quota.requests import EffectivePod, Exact, amounts
from turnstile.jobs.podsets import Directives, PodSetInfo, changes, flavor_directives, merge

Json = Any
Flavors = Callable[[str], ResourceFlavor | None]

MADE_FOR: Final = "turnstile.dev/made-for"
"""The annotation of a PodTemplate with a digest of the pods, and of the flavors of the nodes, that it was made for."""

_PREFIX: Final = "ppt"
_LONGEST: Final = 247
"""Characters of a name that is not shortened; of a longer name as many stay, before the hash."""
_TRIED: Final = 50
"""Numbers of attempts that are tried for a name that was cut."""
_GATES: Final = (names.ADMISSION_GATE, names.TOPOLOGY_GATE)


def request_name(workload: str, check: str, attempt: int) -> str:
    """Name of the ProvisioningRequest of an attempt, the first of which is 1."""
    return _limited(f"{workload}-{check}-{attempt}")


def attempt_of(name: str, workload: str, check: str, *, near: int) -> int:
    """The attempt of a check whose request has that name; 0 if it is of another check. The number is in the name; of a
    name that was cut, which ends in a hash, the first attempts are tried, and those
    from `near` on."""
    prefix = f"{workload}-{check}-"
    stated = parse_int32(name.removeprefix(prefix)) if name.startswith(prefix) else None
    if stated is not None:
        tries: Iterable[int] = (stated,)
    else:
        tries = chain(range(1, _TRIED), range(near, near + _TRIED)) if len(name) > _LONGEST else ()
    return next((each for each in tries if each > 0 and request_name(workload, check, each) == name), 0)


def template_name(request: str, pod_set: str) -> str:
    """Name of the PodTemplate of a pod set in a request."""
    return _limited(f"{_PREFIX}-{request}-{pod_set}")


def _limited(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:_LONGEST]}-{digest[:5]}"


# --- pod sets ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ask:
    """Pods of one template in a request: the pod set whose template is taken, and the names of all its pod sets."""

    pod_set: PodSet
    assignment: PodSetAssignment
    count: int
    members: list[str] = field(default_factory=list)


def is_needed(workload: Workload, spec: ProvisioningRequestConfigSpec) -> bool:
    """Whether any admitted pod requests a resource that the autoscaler manages. Raises PermanentError."""
    return any(True for _ in _asked(workload, spec))


def asks(workload: Workload, spec: ProvisioningRequestConfigSpec) -> list[Ask]:
    """The pods to ask for. Pod sets are merged as `podSetMergePolicy` says, if they have the same flavors.

    Raises PermanentError.
    """
    found: list[Ask] = []
    for pod_set, assignment, count in _asked(workload, spec):
        same = next((each for each in found if _mergeable(each, pod_set, assignment, spec.pod_set_merge_policy)), None)
        if same is None:
            found.append(Ask(pod_set, assignment, count, [pod_set.name]))
        else:
            same.count += count
            same.members.append(pod_set.name)
    return found


def covered(request: ProvisioningRequest, workload: Workload, spec: ProvisioningRequestConfigSpec | None) -> list[str]:
    """Names of the pod sets whose pods a request is for, those that were merged into another one too."""
    groups = asks(workload, spec) if spec is not None else []
    members = {ask.pod_set.name: ask.members for ask in groups}
    asked = {each.pod_template_ref.name for each in request.spec.pod_sets}
    found = [each.name for each in workload.spec.pod_sets if template_name(request.metadata.name, each.name) in asked]
    whole = {name for first in found for name in members.get(first, [first])}
    return [each.name for each in workload.spec.pod_sets if each.name in whole]


def _asked(workload: Workload, spec: ProvisioningRequestConfigSpec) -> Iterable[tuple[PodSet, PodSetAssignment, int]]:
    admission = workload.status.admission
    assignments = {each.name: each for each in admission.pod_set_assignments} if admission is not None else {}
    for pod_set in workload.spec.pod_sets:
        if pod_set.count == 0:
            continue  # nothing is asked for, so nothing has to be assigned
        assignment = assignments.get(pod_set.name)
        if assignment is None:
            raise PermanentError(f'inconsistent podSet assignments: missing assignment for PodSet "{pod_set.name}"')
        count = pod_set.count if assignment.count is None else assignment.count
        if count > 0 and (not spec.managed_resources or _requests_any(pod_set, spec.managed_resources)):
            yield pod_set, assignment, count


def _requests_any(pod_set: PodSet, resources: Iterable[str]) -> bool:
    spec = pod_set.template.spec
    of_containers = (each.resources for each in (*spec.containers, *spec.init_containers))
    requested = set(spec.overhead).union(*map(_amounts, (spec.resources, *of_containers)))
    return not requested.isdisjoint(resources)


def _amounts(resources: ResourceRequirements | None) -> Mapping[str, Any]:
    """Requests; a limit without a request is the request."""
    return {**resources.limits, **resources.requests} if resources is not None else {}


def _mergeable(ask: Ask, pod_set: PodSet, assignment: PodSetAssignment, policy: MergePolicy | None) -> bool:
    if policy is None or set(ask.assignment.flavors.values()) != set(assignment.flavors.values()):
        return False
    if policy == "IdenticalPodTemplates":
        return template_digest(_template(ask.pod_set)) == template_digest(_template(pod_set))
    return _requirements(ask.pod_set) == _requirements(pod_set)


def _requirements(pod_set: PodSet) -> tuple[object, ...]:
    """The fields of a pod that decide on which nodes it fits, but for its topology, priority and spread."""
    spec = pod_set.template.spec
    containers, init_containers = ([_needs(each) for each in part] for part in (spec.containers, spec.init_containers))
    placement = spec.node_selector, list(spec.tolerations), spec.affinity, list(spec.resource_claims)
    return containers, init_containers, spec.resources, placement


def _needs(container: Container) -> Mapping[str, Any]:
    return container.resources.requests if container.resources is not None else {}


def _template(pod_set: PodSet) -> bytes:
    return pod_set.whole_template or orjson.dumps(to_plain(pod_set.template))


# --- bodies -----------------------------------------------------------------------------------------------------------


def parameters(workload: Workload, spec: ProvisioningRequestConfigSpec) -> dict[str, str]:
    """Parameters of the request: those of the configuration, replaced by the Workload's annotations
    `provreq.kueue.x-k8s.io/…`."""
    given = {
        key.removeprefix(names.PROVISIONING_PREFIX): value
        for key, value in workload.metadata.annotations.items()
        if key.startswith(names.PROVISIONING_PREFIX)
    }
    return {**spec.parameters, **given}


def follows(request: ProvisioningRequest, workload: Workload, spec: ProvisioningRequestConfigSpec) -> bool:
    """Whether a request has the class and the parameters that the configuration has now."""
    wanted = parameters(workload, spec)
    return request.spec.provisioning_class_name == spec.provisioning_class_name and all(
        request.spec.parameters.get(name) == wanted[name] for name in spec.parameters
    )


def serves(
    request: ProvisioningRequest,
    workload: Workload,
    spec: ProvisioningRequestConfigSpec,
    templates: Callable[[str], PodTemplate | None],
) -> bool:
    """Whether a request asks for the pods of the reservation: as many, of the same shape, on nodes of the same flavors.
    It may have been made for an earlier reservation. A template without the annotation is Kueue's, which compares the
    counts only. Raises PermanentError."""
    asked = asks(workload, spec)
    if [each.count for each in request.spec.pod_sets] != [ask.count for ask in asked]:
        return False
    for ask in asked:
        name = template_name(request.metadata.name, ask.pod_set.name)
        template = templates(f"{request.metadata.namespace}/{name}")
        made_for = template.metadata.annotations.get(MADE_FOR) if template is not None else None
        if made_for is not None and made_for != _made_for(ask):
            return False
    return True


def _made_for(ask: Ask) -> str:
    flavors = sorted(set(ask.assignment.flavors.values()))
    pods = orjson.dumps([flavors, to_plain(ask.pod_set.template.spec)])
    return hashlib.blake2b(pods, digest_size=8).hexdigest()


def request_body(name: str, workload: Workload, spec: ProvisioningRequestConfigSpec, wanted: Iterable[Ask]) -> Json:
    """The ProvisioningRequest of an attempt."""
    return {
        "apiVersion": f"{ProvisioningRequest.GROUP}/{ProvisioningRequest.VERSION}",
        "kind": ProvisioningRequest.KIND,
        "metadata": _metadata(name, workload),
        "spec": {
            "provisioningClassName": spec.provisioning_class_name,
            "parameters": parameters(workload, spec),
            "podSets": [
                {"podTemplateRef": {"name": template_name(name, ask.pod_set.name)}, "count": ask.count}
                for ask in wanted
            ],
        },
    }


def template_body(request: str, ask: Ask, workload: Workload, flavors: Flavors, pod: EffectivePod) -> Json:
    """A PodTemplate of an attempt: the pods as the scheduler will see them, with what their flavors add. `pod` is such
    a pod, completed.

    It belongs to the Workload until the request exists. Raises LookupError if the cache does not have a flavor, and
    PermanentError if a flavor contradicts the pods.
    """
    raw = _template(ask.pod_set)
    selector, tolerations = flavor_directives(ask.assignment, flavors)
    directives = Directives.of(ask.pod_set.template)
    added = PodSetInfo(ask.pod_set.name, ask.count, node_selector=selector, tolerations=tolerations)
    merged = merge(directives, added)
    template = apply_merge_patch(orjson.loads(raw), changes(directives, merged))
    spec = template["spec"]
    _complete(spec, pod)
    if gates := [gate for gate in spec.pop("schedulingGates", None) or () if gate.get("name") not in _GATES]:
        spec["schedulingGates"] = gates
    metadata = _metadata(template_name(request, ask.pod_set.name), workload)
    metadata["annotations"] = {MADE_FOR: _made_for(ask)}
    return {"apiVersion": PodTemplate.VERSION, "kind": PodTemplate.KIND, "metadata": metadata, "template": template}


def _complete(spec: Json, pod: EffectivePod) -> None:
    """Write the requests and the overhead of a completed pod into its spec, but for those that the spec states."""
    holders = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    effective = [*pod.containers, *pod.init_containers]
    if pod.resources is not None:
        holders, effective = [*holders, spec], [*effective, pod.resources]
    for holder, completed in zip(holders, effective, strict=True):
        resources = holder.get("resources") or {}
        if whole := {**_quantities(completed.requests), **(resources.get("requests") or {})}:
            holder["resources"] = {**resources, "requests": whole}
    if pod.overhead and not spec.get("overhead"):
        spec["overhead"] = _quantities(pod.overhead)


def _quantities(resources: Exact) -> dict[str, str]:
    return {name: from_int(name, value) for name, value in amounts(resources).items()}


def _metadata(name: str, owner: Kind) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": {names.MANAGED_LABEL: "true"},
        "ownerReferences": [reference(owner)],
    }


def reference(owner: Kind) -> Json:
    """The owner reference that makes an object belong to its owner alone."""
    return {
        "apiVersion": owner.api_version or f"{owner.GROUP}/{owner.VERSION}",
        "kind": owner.KIND,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
