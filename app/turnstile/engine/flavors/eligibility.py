"""Whether pods of a shape may run on the nodes of a flavor: taints, node selectors, required node affinity.

Only the label keys that a flavor sets are looked at: others are for the kube-scheduler. Sources: Kubernetes'
component-helpers, Kueue's flavorassigner. Must never look at quota.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from turnstile.api.numbers import parse_int64
from turnstile.api.pods import NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.causes import Cause

if TYPE_CHECKING:
    from turnstile.engine.quota.podsets import PodShape

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,30}")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes: Toleration.ToleratesTaint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in (None, "", "Equal"):
        return (toleration.value or "") == (taint.value or "")
    return toleration.operator == "Exists"


def _requirement_holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            if not requirement.values:
                raise ValueError("for 'in', 'notin' operators, values set can't be empty")
            return value is not None and value in requirement.values
        case "NotIn":
            if not requirement.values:
                raise ValueError("for 'in', 'notin' operators, values set can't be empty")
            return value is None or value not in requirement.values
        case "Exists" | "DoesNotExist" as operator:
            if requirement.values:
                raise ValueError("values set must be empty for exists and does not exist")
            return (value is not None) == (operator == "Exists")
        case "Gt" | "Lt" as operator:
            if len(requirement.values) != 1:
                raise ValueError("for 'Gt', 'Lt' operators, exactly one value is required")
            bound, number = _whole(requirement.values[0]), _whole(value or "")
            if bound is None:
                raise ValueError("for 'Gt', 'Lt' operators, the value must be an integer")
            if number is None:
                return False
            return number > bound if operator == "Gt" else number < bound
        case operator:
            raise ValueError(f'"{operator}" is not a valid label selector operator')


def _whole(text: str) -> int | None:
    """A decimal number within int64, as Go reads one; None if it is none."""
    return parse_int64(text)


def _term_holds(term: list[NodeSelectorRequirement], labels: Mapping[str, str]) -> bool:
    answers = []
    for requirement in term:
        try:
            answers.append(_requirement_holds(requirement, labels))
        except ValueError as error:
            raise ValueError(f"required node affinity, key {requirement.key!r}: {error}") from None
    return all(answers)


def matches_labels(shape: "PodShape", labels: Mapping[str, str]) -> bool:
    """Node selector and required node affinity, held only against the label keys that the flavor sets: other keys are
    for the kube-scheduler. A term left without a requirement may hold on any node, and without terms there is nothing
    to hold. Raises ValueError if a term is malformed and no other holds."""
    for key, value in shape.node_selector.items():
        if key in labels and labels[key] != value:
            return False
    terms: Sequence[NodeSelectorTerm] | None = shape.terms
    if terms is None:
        return True
    known = [[item for item in term.match_expressions if item.key in labels] for term in terms]
    if not all(known):
        return True
    malformed: ValueError | None = None
    for term in known:
        try:
            if _term_holds(term, labels):
                return True
        except ValueError as error:
            malformed = malformed or error
    if malformed is not None:
        raise malformed
    return not known


def mismatch(shape: "PodShape", flavor: ResourceFlavor) -> str | None:
    """Why pods of this shape cannot run on nodes of the flavor; None if they can. Raises ValueError if malformed."""
    spec = flavor.spec
    name = flavor.metadata.name
    for taint in spec.node_taints:
        if taint.effect in {"NoSchedule", "NoExecute"} and not any(
            tolerates(toleration, taint) for toleration in (*shape.tolerations, *spec.tolerations)
        ):
            added = taint.time_added or "<nil>"
            return Cause.TAINT.says(
                key=taint.key, value=taint.value or "", effect=taint.effect, added=added, flavor=name
            )
    if (shape.node_selector or shape.terms is not None) and not matches_labels(shape, spec.node_labels):
        return Cause.AFFINITY.says(flavor=name)
    return None
