"""metav1.LabelSelector and what it matches."""

from collections.abc import Mapping

from app.api.meta import Object


class LabelSelectorRequirement(Object):
    """metav1.LabelSelectorRequirement. Operators: In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Object):
    """metav1.LabelSelector: all requirements must hold; an empty selector matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []

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
