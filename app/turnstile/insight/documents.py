"""Objects of YAML or JSON text: what `kubectl get -o yaml` prints, and manifests.

Documents one by one, and those of lists; objects of v1beta1 are converted. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import orjson
import yaml

from turnstile.api import yamltext
from turnstile.api.core import Node, PriorityClass
from turnstile.api.errors import InvalidValue
from turnstile.api.kinds import KINDS
from turnstile.api.meta import Kind
from turnstile.api.v1beta1.conversion import convert
from turnstile.engine.intake import FEEDING
from turnstile.insight.snapshot import Snapshot
from turnstile.kube import answers

Plain = dict[str, Any]

_CONVERTED: Final = {definition.stored for definition in KINDS if definition.converted}
"""Kinds whose older versions have another shape."""
ASIDE: Final[tuple[type[Kind], ...]] = (PriorityClass, Node)
"""Kinds that no ledger holds and some questions are about."""
_BY_NAME: Final = {(kind.GROUP, kind.KIND): kind for kind in (*FEEDING, *ASIDE)}


@dataclass(slots=True)
class Documents:
    """The objects that decisions depend on, and the others of a text as they are."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    others: list[Plain] = field(default_factory=list)

    def add(self, more: "Documents") -> None:
        """Take in those of another text."""
        for obj in more.snapshot.all():
            self.snapshot.put(obj)
        self.others += more.others


def parse(text: str, source: str, *, namespace: str = "default") -> Documents:
    """The objects of YAML or JSON text, those of lists one by one; `namespace` is of those that name none. A text with
    aliases of YAML is refused.

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
        return answers.decoder(kind, whole=True)(orjson.dumps(plain))
    except (msgspec.DecodeError, TypeError) as error:
        raise InvalidValue(source, title, f"cannot be read: {error}") from None
    except InvalidValue as error:
        raise InvalidValue(source, title, f"{error.field} {error.value}: {error.cure}") from None


def _documents(text: str, source: str) -> Iterable[Any]:
    try:
        if text.lstrip().startswith("{"):
            return [orjson.loads(text)]
        return yamltext.documents(text)
    except yamltext.Aliased as error:
        raise InvalidValue(source, "text", str(error)) from None
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
