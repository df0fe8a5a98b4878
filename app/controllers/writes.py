"""The one place where the resourceVersion becomes the precondition of a patch.

A patch that carries the resourceVersion it was decided from is refused (409) if the object has changed since, and is
decided about again. Must never decide what is written.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from app.api.meta import Kind, ObjectMeta
from app.api.patch import JsonPatch
from app.controllers.actions import Patch


def fresh_patch(
    seen: Kind, body: Mapping[str, Any], *, subresource: Literal["", "status"] = "", deferrable: bool = False
) -> Patch:
    """A merge patch of an object as it was seen, refused if it has changed since."""
    meta = seen.metadata
    encoded = encode(fresh(meta, body))
    return Patch(type(seen), meta.namespace, meta.name, encoded, subresource=subresource, deferrable=deferrable)


def fresh(meta: ObjectMeta, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a merge patch, with the resourceVersion as precondition."""
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": meta.resource_version}}


def fresh_operations(meta: ObjectMeta, patch: JsonPatch) -> JsonPatch:
    """A JSON Patch, with the resourceVersion as precondition.

    Set and not tested: a wrong version is then a conflict, as with a merge patch, and not an invalid patch.
    """
    versioned = JsonPatch().replace("metadata", "resourceVersion", value=meta.resource_version)
    versioned.operations += patch.operations
    return versioned


def encode(value: Any) -> bytes:
    """Structs or plain values as JSON. Bytes of their own size: orjson leaves 4 KB behind a body that has to wait."""
    return msgspec.json.encode(value)
