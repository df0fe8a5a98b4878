"""The webhooks of Workload and its status: fields immutable while quota is reserved, and a consistent admission."""

from collections.abc import Collection

from turnstile.api.patch import JsonPatch
from turnstile.api.validation import FieldError, default_workload, template_digests, validate_workload
from turnstile.api.workload import Workload
from turnstile.webhooks.handlers import checking, guarded
from turnstile.webhooks.review import CREATE, Answer, Handler, Request, changed


def mutating(gates: Collection[str]) -> Handler:
    """The handler that removes `minCount` from the pod sets if partial admission is off."""

    def mutate(request: Request) -> Answer:
        patch = JsonPatch()
        for index in default_workload(request.object, gates=gates):
            patch.remove("spec", "podSets", index, "minCount")
        return changed(patch)

    return guarded(mutate, kind=Workload, operations={CREATE})


def validating(gates: Collection[str]) -> Handler:
    """The validating handler; `gates` are the feature gates that are on."""

    def errors(request: Request, new: Workload, old: Workload | None) -> list[FieldError]:
        templates = None
        if old is not None and old.quota_reserved and not request.sub_resource:
            # Templates are immutable only while quota is reserved; a status write cannot change a template.
            templates = template_digests(bytes(request.object)), template_digests(bytes(request.old_object))
        return validate_workload(new, old, gates=gates, templates=templates)

    return checking(Workload, errors, sub_resources={"", "status"})
