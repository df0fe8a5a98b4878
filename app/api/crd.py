"""Writes the CustomResourceDefinitions from the structs: `python -m app.api.crd DIRECTORY`.

The structs are the one source: types, names and required fields come from them, limits and rules from the `Field`
beside each field. `KINDS` is the one list of what is written. The output is the same bytes for the same structs, so a
stale file shows in CI. Must never be imported by a running controller or webhook: it is a tool of the build.
"""

import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from app.api.admissioncheck import AdmissionCheck
from app.api.clusterqueue import ClusterQueue
from app.api.cohort import Cohort
from app.api.localqueue import LocalQueue
from app.api.meta import Kind
from app.api.multikueue import MultiKueueCluster, MultiKueueConfig
from app.api.provisioningrequestconfig import ProvisioningRequestConfig
from app.api.resourceflavor import ResourceFlavor
from app.api.schema import Always, Field, Rule
from app.api.topology import Topology
from app.api.workload import Workload
from app.api.workloadpriorityclass import WorkloadPriorityClass

Schema = dict[str, Any]

HEADER: Final = "# Generated from app/api by `make generate`; do not edit.\n"

QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}


@dataclass(frozen=True, slots=True)
class Definition:
    """One CRD: the kinds of its served versions, the stored one first."""

    versions: tuple[type[Kind], ...]

    @property
    def stored(self) -> type[Kind]:
        """The version in which etcd keeps it."""
        return self.versions[0]

    @property
    def name(self) -> str:
        """metadata.name of the CRD."""
        return f"{self.stored.PLURAL}.{self.stored.GROUP}"


KINDS: Final = (
    Definition((AdmissionCheck,)),
    Definition((ClusterQueue,)),
    Definition((Cohort,)),
    Definition((LocalQueue,)),
    Definition((MultiKueueCluster,)),
    Definition((MultiKueueConfig,)),
    Definition((ProvisioningRequestConfig,)),
    Definition((ResourceFlavor,)),
    Definition((Topology,)),
    Definition((Workload,)),
    Definition((WorkloadPriorityClass,)),
)


def definition(kinds: Definition) -> Schema:
    """The CustomResourceDefinition as plain JSON."""
    stored = kinds.stored
    names = {
        "kind": stored.KIND,
        "listKind": f"{stored.KIND}List",
        "plural": stored.PLURAL,
        "singular": stored.KIND.lower(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kinds.name},
        "spec": {
            "group": stored.GROUP,
            "names": names | ({"shortNames": list(stored.SHORT_NAMES)} if stored.SHORT_NAMES else {}),
            "scope": "Namespaced" if stored.NAMESPACED else "Cluster",
            "versions": [version(kind, storage=kind is stored) for kind in kinds.versions],
        },
    }


def version(kind: type[Kind], *, storage: bool) -> Schema:
    """One entry of `spec.versions`."""
    entry: Schema = {
        "name": kind.VERSION,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": _root(kind)},
    }
    if "status" in kind.__struct_fields__:
        entry["subresources"] = {"status": {}}
    if kind.COLUMNS:
        entry["additionalPrinterColumns"] = [
            {"name": column.name, "type": column.type, "jsonPath": column.path}
            | ({"priority": column.priority} if column.priority else {})
            for column in kind.COLUMNS
        ]
    if kind.SELECTABLE_FIELDS:
        entry["selectableFields"] = [{"jsonPath": path} for path in kind.SELECTABLE_FIELDS]
    return entry


def _root(kind: type[Kind]) -> Schema:
    root = _struct(kind)
    # The API server fills these three itself and allows no limits on them.
    root["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return root


def _struct(struct: type[msgspec.Struct]) -> Schema:
    hints = get_type_hints(struct, include_extras=True)
    properties: Schema = {}
    required = []
    for field in msgspec.structs.fields(struct):
        type_, said = _unwrap(hints[field.name])
        properties[field.encode_name] = _type(type_, said) | _default(field, said)
        if _required(struct, field, said):
            required.append(field.encode_name)
    schema: Schema = {"type": "object", "description": _sentence(struct), "properties": properties}
    if required:
        schema["required"] = required
    return _with_rules(schema, getattr(struct, "RULES", ()))


def _required(struct: type[msgspec.Struct], field: msgspec.structs.FieldInfo, said: Field) -> bool:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return True
    if said.required and field.default is not None and not isinstance(field.default_factory, Always):
        raise TypeError(
            f"{struct.__name__}.{field.name}: a required field needs `always(...)`, or the encoder drops it"
        )
    return bool(said.required)


def _default(field: msgspec.structs.FieldInfo, said: Field) -> Schema:
    if said.defaulted:
        own = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        return {"default": own}
    return {} if said.default is None else {"default": said.default}


def _type(type_: Any, said: Field) -> Schema:
    """The schema of a type, with what its field says on top."""
    if said.schema is not None:
        schema = dict(said.schema)
    elif type_ in _SCALARS:
        schema = {"type": _SCALARS[type_]}
        if type_ is int:
            schema["format"] = said.format or "int32"
    else:
        schema = _composite(type_)
    description = {"description": said.doc} if said.doc else {}
    return _with_rules(schema | description | _limits(said), said.rules or ())


def _composite(type_: Any) -> Schema:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _struct(type_)
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _type(*_unwrap(arguments[0]))}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(*_unwrap(arguments[1]))}
    if _is_union(origin) and set(arguments) == {str, int, float}:
        return dict(QUANTITY)
    raise TypeError(f"{type_}: no schema for this type; say one with Field(schema=...)")


_SCALARS: Final = {str: "string", int: "integer", bool: "boolean"}
_LIMITS: Final = {
    "format": "format",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
    "minimum": "minimum",
    "maximum": "maximum",
    "min_items": "minItems",
    "max_items": "maxItems",
    "max_properties": "maxProperties",
    "list_type": "x-kubernetes-list-type",
    "map_type": "x-kubernetes-map-type",
}


def _limits(said: Field) -> Schema:
    limits = {name: value for word, name in _LIMITS.items() if (value := getattr(said, word)) is not None}
    if said.map_keys:
        limits["x-kubernetes-list-map-keys"] = list(said.map_keys)
    return limits


def _unwrap(hint: Any) -> tuple[Any, Field]:
    """The bare type, and all that was said of it on the way in; the outermost word counts."""
    if get_origin(hint) is Annotated:
        inner, *words = get_args(hint)
        type_, said = _unwrap(inner)
        for word in words:
            if isinstance(word, Field):
                said = word.over(said)
        return type_, said
    if _is_union(get_origin(hint)):
        arguments = [argument for argument in get_args(hint) if argument is not types.NoneType]
        if len(arguments) == 1:
            return _unwrap(arguments[0])
        return Union[tuple(arguments)], Field()  # noqa: UP007
    return hint, Field()


def _is_union(origin: Any) -> bool:
    return origin is Union or origin is types.UnionType


def _with_rules(schema: Schema, rules: Iterable[Rule]) -> Schema:
    entries = [{"rule": rule.rule, "message": rule.message} for rule in rules]
    return schema | ({"x-kubernetes-validations": entries} if entries else {})


def _sentence(struct: type[msgspec.Struct]) -> str:
    return (struct.__doc__ or "").split("\n\n")[0].strip()


class _Dumper(yaml.SafeDumper):
    """Plain YAML: indented lists, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def render(kinds: Definition) -> str:
    """The file of one CRD."""
    text = yaml.dump(definition(kinds), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return HEADER + text


def write(directory: Path) -> list[Path]:
    """Write one file a kind, and remove generated files of kinds that are gone. Returns what stands there now."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {directory / f"{kinds.name}.yaml": render(kinds) for kinds in KINDS}
    for stale in sorted(set(directory.glob("*.yaml")) - set(files)):
        if stale.read_text().startswith(HEADER):
            stale.unlink()
    for path, text in files.items():
        path.write_text(text)
    return sorted(files)


def main(arguments: list[str]) -> int:
    """Entry of `python -m app.api.crd`."""
    match arguments:
        case [directory]:
            for path in write(Path(directory)):
                print(path)
            return 0
        case _:
            print("usage: python -m app.api.crd DIRECTORY", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
