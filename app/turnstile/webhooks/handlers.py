"""Builds handlers: the checks that all handlers share, and the two kinds of handler for Turnstile's own kinds."""

from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from turnstile.api.meta import Kind, Object, ObjectMeta
from turnstile.api.patch import JsonPatch
from turnstile.api.validation import FieldError, format_errors
from turnstile.webhooks.lookups import Undecided
from turnstile.webhooks.review import (
    ALLOWED,
    CREATE,
    UPDATE,
    Answer,
    Handler,
    Request,
    changed,
    decoder,
    denied,
    failed,
    undecodable,
)

K = TypeVar("K", bound=Kind)


class _Metadata(Object):
    metadata: ObjectMeta


def guarded(
    handler: Handler, *, kind: type[Kind], operations: Collection[str], sub_resources: Collection[str] = ("",)
) -> Handler:
    """Calls `handler` only for `operations` and `sub_resources`; every other review is allowed unchanged.

    An object that does not decode is refused with the reason. If the handler raises Undecided, the review fails with an
    error that makes the client retry.
    """

    def guard(request: Request) -> Answer:
        if request.operation not in operations or request.sub_resource not in sub_resources:
            return ALLOWED
        if request.kind.kind != kind.KIND or request.kind.group != kind.GROUP:
            return undecodable(f"this path reviews {kind.KIND} of group {kind.GROUP!r}, not {request.kind.kind}")
        try:
            return handler(request)
        except Undecided as error:
            return failed(str(error))
        except RecursionError:
            return undecodable(f"{kind.KIND}: nested too deeply")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return undecodable(f"{kind.KIND}: {error}")

    return guard


def finalizing(kind: type[Kind], default: Callable[[ObjectMeta], list[str] | None]) -> Handler:
    """A handler that sets the finalizers of new objects to those that `default` returns; None means no change.

    Decodes metadata only: the API server validates an object's schema after the mutating webhooks.
    """
    decode = decoder(_Metadata)

    def mutate(request: Request) -> Answer:
        patch = JsonPatch()
        finalizers = default(decode(request.object).metadata)
        if finalizers is not None:
            patch.add("metadata", "finalizers", value=finalizers)
        return changed(patch)

    return guarded(mutate, kind=kind, operations={CREATE})


def checking(
    kind: type[K],
    validate: Callable[[Request, K, K | None], list[FieldError]],
    *,
    sub_resources: Collection[str] = ("",),
    warnings: Callable[[K, K | None], tuple[str, ...]] | None = None,
) -> Handler:
    """A handler that refuses an object if `validate(request, new, old)` returns errors, and else passes on the warnings
    of `warnings(new, old)`; `old` is None on create.

    An object that is being deleted is allowed, so that nothing blocks the removal of its finalizers.
    """
    decode = decoder(kind)

    def check(request: Request) -> Answer:
        new = decode(request.object)
        if new.metadata.deletion_timestamp is not None:
            return ALLOWED
        old = decode(request.old_object) if request.operation == UPDATE else None
        errors = validate(request, new, old)
        if errors:
            return denied(format_errors(errors))
        advice_texts = warnings(new, old) if warnings is not None else ()
        return Answer(warnings=advice_texts) if advice_texts else ALLOWED

    return guarded(check, kind=kind, operations={CREATE, UPDATE}, sub_resources=sub_resources)
