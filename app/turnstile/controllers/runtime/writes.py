"""Makes the resourceVersion of an object the precondition of a patch; no other module does.

The API server refuses (409) such a patch if the object has changed since it was read, and the object is decided about
again. Must never decide what is written.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from turnstile.api.meta import Kind, ObjectMeta
from turnstile.api.patch import JsonPatch
from turnstile.controllers.runtime.actions import Claim, Patch


def fresh_patch(
    seen: Kind,
    body: Mapping[str, Any],
    *,
    subresource: Literal["", "status"] = "",
    deferrable: bool = False,
    claim: Claim | None = None,
) -> Patch:
    """A merge patch of an object, refused if the object has changed since it was read."""
    meta = seen.metadata
    whole = fresh(meta, body)
    content = encode(whole) if claim is None else whole
    return Patch(
        type(seen), meta.namespace, meta.name, content, subresource=subresource, deferrable=deferrable, claim=claim
    )


def fresh(meta: ObjectMeta, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a merge patch, with the resourceVersion as precondition."""
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": meta.resource_version}}


def fresh_operations(meta: ObjectMeta, patch: JsonPatch) -> JsonPatch:
    """A JSON Patch, with the resourceVersion as precondition.

    The version is set with `replace`, not `test`: a stale version is then a conflict, as with a merge patch, and not an
    invalid patch.
    """
    versioned = JsonPatch().replace("metadata", "resourceVersion", value=meta.resource_version)
    versioned.operations += patch.operations
    return versioned


def encode(value: Any) -> bytes:
    """Structs or plain values as JSON. Not by orjson, whose bytes use 4 KB more memory for each deferred body."""
    return msgspec.json.encode(value)
