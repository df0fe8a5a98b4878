"""The webhooks of Workload and of its status: what may not change while quota is held, and an admission that fits."""

from typing import Final

from app.api.validation import FieldError, default_workload, template_digests, validate_workload
from app.api.workload import Workload
from app.kube.patch import JsonPatch
from app.webhooks.handlers import checking, guarded
from app.webhooks.review import CREATE, Answer, Request, changed


def _mutate(request: Request) -> Answer:
    """Take the minimum from the pod sets where partial admission is off."""
    patch = JsonPatch()
    for index in default_workload(request.object):
        patch.remove("spec", "podSets", index, "minCount")
    return changed(patch)


def _errors(request: Request, new: Workload, old: Workload | None) -> list[FieldError]:
    templates = None
    if old is not None and old.quota_reserved and not request.sub_resource:
        # Only then may no part of a template change; a write of the status cannot change one at all.
        templates = template_digests(bytes(request.object)), template_digests(bytes(request.old_object))
    return validate_workload(new, old, templates=templates)


MUTATE: Final = guarded(_mutate, kind=Workload, operations={CREATE})
VALIDATE: Final = checking(Workload, _errors, sub_resources={"", "status"})
