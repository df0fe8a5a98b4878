"""The webhooks of Workload and of its status: what may not change while quota is held, and an admission that fits."""

from collections.abc import Collection

from app.api.patch import JsonPatch
from app.api.validation import FieldError, default_workload, template_digests, validate_workload
from app.api.workload import Workload
from app.webhooks.handlers import checking, guarded
from app.webhooks.review import CREATE, Answer, Handler, Request, changed


def mutating(gates: Collection[str]) -> Handler:
    """The handler that takes the minimum from the pod sets where partial admission is off."""

    def mutate(request: Request) -> Answer:
        patch = JsonPatch()
        for index in default_workload(request.object, gates=gates):
            patch.remove("spec", "podSets", index, "minCount")
        return changed(patch)

    return guarded(mutate, kind=Workload, operations={CREATE})


def validating(gates: Collection[str]) -> Handler:
    """The handler of the rules; `gates` are the feature gates that are on."""

    def errors(request: Request, new: Workload, old: Workload | None) -> list[FieldError]:
        templates = None
        if old is not None and old.quota_reserved and not request.sub_resource:
            # Only then may no part of a template change; a write of the status cannot change one at all.
            templates = template_digests(bytes(request.object)), template_digests(bytes(request.old_object))
        return validate_workload(new, old, gates=gates, templates=templates)

    return checking(Workload, errors, sub_resources={"", "status"})
