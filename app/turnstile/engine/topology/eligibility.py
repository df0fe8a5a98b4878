"""Whether pods may run on a node: its taints and its labels.

Sources: Kubernetes' component-helpers. Must never look at amounts.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from turnstile.api.numbers import parse_int64
from turnstile.api.pods import NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration

KEEPS_AWAY: Final = frozenset(("NoSchedule", "NoExecute"))
"""Effects of taints that keep pods from a node."""
_NODE_NAME: Final = "metadata.name"


class Pods(Protocol):
    """The nodes that pods of one kind may run on."""

    @property
    def node_selector(self) -> Mapping[str, str]:
        """Labels that a node has to have."""

    @property
    def terms(self) -> Sequence[NodeSelectorTerm] | None:
        """Required node affinity."""

    @property
    def tolerations(self) -> Sequence[Toleration]:
        """Taints that they tolerate."""

    @property
    def preferred(self) -> Sequence[tuple[int, NodeSelectorTerm]]:
        """Preferred node affinity, with weights."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes: Toleration.ToleratesTaint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in (None, "", "Equal"):
        return (toleration.value or "") == (taint.value or "")
    return toleration.operator == "Exists"


def requirement_holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Kubernetes: whether labels meet a requirement. Raises ValueError if it is malformed."""
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


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that keeps pods away which tolerate no more than that."""
    for taint in taints:
        if taint.effect in KEEPS_AWAY and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def _term_holds(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(requirement_holds(each, labels) for each in term.match_expressions) and all(
        requirement_holds(each, {_NODE_NAME: name}) for each in term.match_fields
    )


def matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node matches a term; a malformed term matches none."""
    try:
        return _term_holds(term, labels, name)
    except ValueError:
        return False


def exclusion(
    pods: Pods, flavor: Sequence[Toleration], labels: Mapping[str, str], name: str, taints: Sequence[Taint]
) -> str | None:
    """Why a node takes none of these pods, who have the tolerations of their flavor too; None if it does."""
    if taints and (taint := untolerated(taints, (*pods.tolerations, *flavor))) is not None:
        return f'taint "{taint.key}={taint.value or ""}:{taint.effect}"'
    if any(labels.get(key) != value for key, value in pods.node_selector.items()):
        return "nodeSelector"
    if pods.terms is not None and not any(matches(term, labels, name) for term in pods.terms):
        return "affinity"
    return None


def liking(pods: Pods, labels: Mapping[str, str], name: str) -> int:
    """Sum of the weights of preferences that a node meets."""
    return sum(weight for weight, term in pods.preferred if matches(term, labels, name))
