"""Reads a snapshot of what decisions depend on: from a cluster with the asker's own rights, or from a dump of objects.

A dump is what `kubectl get -o yaml` (or `-o json`) prints, in one or several documents; objects of v1beta1 are
converted. Must never write.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import orjson
import yaml

from app.api.clusterqueue import ClusterQueue
from app.api.core import Node, PriorityClass
from app.api.errors import ApiError, Forbidden, InvalidValue, NotFound, WireError
from app.api.kinds import KINDS
from app.api.meta import Kind
from app.api.v1beta1.conversion import convert
from app.api.workloadpriorityclass import WorkloadPriorityClass
from app.insight.feeding import FEEDING
from app.insight.snapshot import Snapshot
from app.kube import answers
from app.kube.transport import Transport

Plain = dict[str, Any]

_CONVERTED: Final = {definition.stored for definition in KINDS if definition.converted}
"""Kinds whose older versions have another shape."""
ASIDE: Final[tuple[type[Kind], ...]] = (WorkloadPriorityClass, PriorityClass, Node)
"""Kinds that no ledger holds and some questions are about."""
_BY_NAME: Final = {(kind.GROUP, kind.KIND): kind for kind in (*FEEDING, *ASIDE)}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


async def read(transport: Transport, namespace: str = "", *, also: Iterable[type[Kind]] = ()) -> Snapshot:
    """The objects of a cluster that the caller may list, and those of kinds that no ledger holds and that the question
    is about `also`. A kind that may be listed only in `namespace` is read there; what cannot be listed at all is in
    `Snapshot.unread`.

    Raises NotFound if the cluster has none of Turnstile's kinds, and WireError without an API server.
    """
    snapshot = Snapshot()

    async def take(kind: type[Kind]) -> None:
        try:
            objects = await transport.list_all(kind)
        except Forbidden as error:
            snapshot.unread[kind] = str(error)
            if not (kind.NAMESPACED and namespace):
                return
            try:
                objects = await transport.list_all(kind, namespace)
            except Forbidden:
                return
        except NotFound as error:
            if kind is ClusterQueue:
                raise
            snapshot.unread[kind] = str(error)
            return
        for obj in objects:
            snapshot.put(obj)

    try:
        async with asyncio.TaskGroup() as group:
            for kind in (*FEEDING, *also):
                group.create_task(take(kind))
    except* (ApiError, WireError) as errors:
        raise errors.exceptions[0] from None
    return snapshot


@dataclass(slots=True)
class Documents:
    """The objects that decisions depend on, and the others of a text as they are."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    others: list[Plain] = field(default_factory=list)


def parse(text: str, source: str, *, namespace: str = "default") -> Documents:
    """The objects of YAML or JSON text, those of lists one by one; `namespace` is of those that name none.

    Raises InvalidValue, naming `source` and the object, for a text or an object that cannot be read.
    """
    found = Documents()
    for plain in _objects(_documents(text, source), source):
        group = str(plain["apiVersion"]).rpartition("/")[0]
        kind = _BY_NAME.get((group, plain["kind"]))
        if kind is None or kind.NAMESPACED:
            plain["metadata"].setdefault("namespace", namespace)
        if kind is None:
            found.others.append(plain)
        else:
            found.snapshot.put(decode(kind, plain, source))
    return found


def decode(kind: type[Kind], plain: Plain, source: str) -> Kind:
    """A plain object of a kind. Raises InvalidValue if a field has the wrong type, or the version is unknown."""
    title = f"{plain['kind']} {plain['metadata'].get('name', '')}"
    try:
        if kind in _CONVERTED:
            plain = convert(plain, kind.VERSION)
        return answers.decoder(kind)(orjson.dumps(plain))
    except (msgspec.DecodeError, TypeError) as error:
        raise InvalidValue(source, title, f"cannot be read: {error}") from None
    except InvalidValue as error:
        raise InvalidValue(source, title, f"{error.field} {error.value}: {error.cure}") from None


def _documents(text: str, source: str) -> Iterable[Any]:
    try:
        if text.lstrip().startswith("{"):
            return [orjson.loads(text)]
        return list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, orjson.JSONDecodeError) as error:
        raise InvalidValue(source, "text", f"is neither YAML nor JSON: {' '.join(str(error).split())}") from None


def _objects(documents: Iterable[Any], source: str) -> Iterator[Plain]:
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        if not isinstance(document, Mapping) or not document.get("kind") or not document.get("apiVersion"):
            raise InvalidValue(source, f"document {number}", "is no object: give it apiVersion and kind")
        items = document.get("items")
        if isinstance(items, list) and str(document["kind"]).endswith("List"):
            kind = str(document["kind"]).removesuffix("List")
            yield from _objects(
                ({"apiVersion": document["apiVersion"], "kind": kind, **each} for each in items), source
            )
            continue
        if not isinstance(document.get("metadata"), Mapping) or not document["metadata"].get("name"):
            raise InvalidValue(source, f"document {number}, {document['kind']}", "give it metadata.name")
        yield {**document, "metadata": {key: value for key, value in document["metadata"].items() if value is not None}}
