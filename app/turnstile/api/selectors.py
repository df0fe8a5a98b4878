"""metav1.LabelSelector and what it matches."""

from collections.abc import Mapping
from typing import Annotated

from turnstile.api.meta import Object
from turnstile.api.schema import Field


class LabelSelectorRequirement(Object):
    """metav1.LabelSelectorRequirement. Operators: In, NotIn, Exists, DoesNotExist."""

    key: Annotated[str, Field("Label key.")]
    operator: Annotated[str, Field("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[list[str], Field("Values for In and NotIn.", list_type="atomic")] = []


class LabelSelector(Object):
    """metav1.LabelSelector: all requirements must hold; an empty selector matches everything."""

    match_labels: Annotated[dict[str, str], Field("Labels that must be there with these values.")] = {}
    match_expressions: Annotated[
        list[LabelSelectorRequirement], Field("Requirements that must all hold.", list_type="atomic")
    ] = []

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected. An unknown operator selects nothing."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _holds(requirement, labels) for requirement in self.match_expressions
        )


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    present = requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case _:
            return False
