"""Sentences about the quota of ClusterQueues and Cohorts that another controller has written into their status."""


def set_elsewhere(kind: str, name: str, set_by: str) -> str:
    """The quota of the spec does not hold."""
    return f"the quota of {kind} {name} is set by {set_by}, in the place of its spec"


def spec_without_effect(kind: str, name: str, set_by: str) -> str:
    """A changed spec changes no quota."""
    return f"{set_elsewhere(kind, name, set_by)}: spec.resourceGroups of the manifest has no effect now"
