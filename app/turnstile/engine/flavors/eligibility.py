"""Whether pods of a shape may run on the nodes of a flavor: taints, node selectors, required node affinity.

Only the label keys that a flavor sets are looked at: others are for the kube-scheduler. Sources: Kubernetes'
component-helpers, Kueue's flavorassigner. Must never look at quota.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turnstile.api.pods import NodeSelectorRequirement, NodeSelectorTerm
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.causes import Cause
from turnstile.engine.topology.eligibility import KEEPS_AWAY, requirement_holds, tolerates

if TYPE_CHECKING:
    from turnstile.engine.quota.podsets import PodShape


def _term_holds(term: list[NodeSelectorRequirement], labels: Mapping[str, str]) -> bool:
    answers = []
    for requirement in term:
        try:
            answers.append(requirement_holds(requirement, labels))
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
        if taint.effect in KEEPS_AWAY and not any(
            tolerates(toleration, taint) for toleration in (*shape.tolerations, *spec.tolerations)
        ):
            added = taint.time_added or "<nil>"
            return Cause.TAINT.says(
                key=taint.key, value=taint.value or "", effect=taint.effect, added=added, flavor=name
            )
    if (shape.node_selector or shape.terms is not None) and not matches_labels(shape, spec.node_labels):
        return Cause.AFFINITY.says(flavor=name)
    return None
