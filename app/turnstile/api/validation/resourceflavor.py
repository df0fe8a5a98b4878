"""Rules of ResourceFlavor: labels, taints and tolerations that nodes and pods could carry."""

from collections.abc import Sequence

from turnstile.api import names
from turnstile.api.meta import ObjectMeta
from turnstile.api.pods import Taint
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.validation.errors import FieldError, brought, duplicate, invalid
from turnstile.api.validation.labels import label_key_errors, label_value_faults, labels_errors


def default_resource_flavor(meta: ObjectMeta) -> list[str] | None:
    """The finalizers a new ResourceFlavor should have, or None if it has them already."""
    return None if names.RESOURCE_IN_USE in meta.finalizers else [*meta.finalizers, names.RESOURCE_IN_USE]


def validate_resource_flavor(new: ResourceFlavor, old: ResourceFlavor | None = None) -> list[FieldError]:
    """All faults of a ResourceFlavor on create, or those that an update brings."""
    errors = _errors(new)
    return errors if old is None else brought(errors, lambda: _errors(old))


def _errors(new: ResourceFlavor) -> list[FieldError]:
    errors = labels_errors("spec.nodeLabels", new.spec.node_labels)
    errors.extend(_taints_errors("spec.nodeTaints", new.spec.node_taints))
    for index, toleration in enumerate(new.spec.tolerations):
        if toleration.key:
            errors.extend(label_key_errors(f"spec.tolerations[{index}].key", toleration.key))
    return errors


def _taints_errors(path: str, taints: Sequence[Taint]) -> list[FieldError]:
    errors = []
    seen = set()
    for index, taint in enumerate(taints):
        here = f"{path}[{index}]"
        errors.extend(label_key_errors(f"{here}.key", taint.key))
        if faults := label_value_faults(taint.value or ""):
            errors.append(invalid(f"{here}.value", taint.value, ";".join(faults)))
        if (taint.key, taint.effect) in seen:
            errors.append(duplicate(here, taint, "taints must be unique by key and effect pair"))
        seen.add((taint.key, taint.effect))
    return errors
