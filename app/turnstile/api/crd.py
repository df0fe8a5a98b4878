"""Writes the CustomResourceDefinitions from the structs: `python -m turnstile.api.crd DIRECTORY`.

The structs are the one source: types, names and required fields come from them, limits and rules from the `Field`
beside each field, and what older versions say otherwise from their views. The output is the same bytes for the same
structs, so a stale file shows in CI. Must never be imported by a running controller or webhook: it is a tool of the
build.
"""

import sys
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from turnstile.api.kinds import KINDS, Definition
from turnstile.api.meta import Kind
from turnstile.api.schema import Always, Field, Rule, View, Views
from turnstile.api.v1beta1.views import VIEWS

Schema = dict[str, Any]

HEADER: Final = "# Generated from app/turnstile/api by `make generate`; do not edit.\n"

QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}


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
        "metadata": {"name": kinds.name, "labels": {"app.kubernetes.io/part-of": "turnstile"}},
        "spec": {
            "group": stored.GROUP,
            "names": names | ({"shortNames": list(stored.SHORT_NAMES)} if stored.SHORT_NAMES else {}),
            "scope": "Namespaced" if stored.NAMESPACED else "Cluster",
            "versions": [version(stored), *(_older(kinds, name) for name in kinds.older)],
        },
    }


def version(kind: type[Kind], *, views: Views = MappingProxyType({})) -> Schema:
    """One entry of `spec.versions`: the stored version, or an older one as its views say."""
    view = views.get(kind, View())
    entry: Schema = {
        "name": kind.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(kind, views)},
    }
    if "status" in kind.__struct_fields__:
        entry["subresources"] = {"status": {}}
    if columns := kind.COLUMNS if view.columns is None else view.columns:
        entry["additionalPrinterColumns"] = [
            {"name": column.name, "type": column.type, "jsonPath": column.path}
            | ({"priority": column.priority} if column.priority else {})
            for column in columns
        ]
    if paths := kind.SELECTABLE_FIELDS if view.selectable_fields is None else view.selectable_fields:
        entry["selectableFields"] = [{"jsonPath": path} for path in paths]
    return entry


def _older(kinds: Definition, name: str) -> Schema:
    # A kind that needs the conversion webhook gets its older versions served once the leader has configured the webhook
    # at the API server: before, an object would be stored with fields that its stored version does not know.
    entry = version(kinds.stored, views=VIEWS) | {"name": name, "served": not kinds.converted, "storage": False}
    if not kinds.deprecated:
        return entry
    warning = f"This version is deprecated. Use {kinds.stored.VERSION} instead."
    return entry | {"deprecated": True, "deprecationWarning": warning}


def _root(kind: type[Kind], views: Views) -> Schema:
    root = _struct(kind, views)
    # The API server fills these three itself and allows no limits on them.
    root["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return root


def _struct(struct: type[msgspec.Struct], views: Views) -> Schema:
    view = views.get(struct, View())
    hints = get_type_hints(struct, include_extras=True)
    properties: Schema = {}
    required = []
    for field in msgspec.structs.fields(struct):
        name = field.encode_name
        if name in view.dropped or name in view.other:
            continue
        type_, said = _unwrap(hints[field.name])
        _check_written(struct, field, said)
        said = view.said.get(name, Field()).over(said.without(view.silent.get(name, ())))
        name = view.renamed.get(name, name)
        properties[name] = _type(type_, said, views) | _default(field, said)
        if _required(field, said):
            required.append(name)
    for name, hint in view.other.items():
        type_, said = _unwrap(hint)
        properties[name] = _type(type_, said, views) | ({} if said.default is None else {"default": said.default})
        if said.required:
            required.append(name)
    schema: Schema = {"type": "object", "description": _sentence(struct), "properties": properties}
    if required:
        schema["required"] = required
    return _with_rules(schema, getattr(struct, "RULES", ()) if view.rules is None else view.rules)


def _required(field: msgspec.structs.FieldInfo, said: Field) -> bool:
    if said.required is not None:
        return said.required
    return field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT


def _check_written(struct: type[msgspec.Struct], field: msgspec.structs.FieldInfo, said: Field) -> None:
    """The encoder has to write what the stored version requires, even when it is the default."""
    optional = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
    if said.required and optional and field.default is not None and not isinstance(field.default_factory, Always):
        raise TypeError(
            f"{struct.__name__}.{field.name}: a required field needs `always(...)`, or the encoder drops it"
        )


def _default(field: msgspec.structs.FieldInfo, said: Field) -> Schema:
    if said.defaulted:
        own = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        return {"default": own}
    return {} if said.default is None else {"default": said.default}


def _type(type_: Any, said: Field, views: Views) -> Schema:
    """The schema of a type, with what its field says on top."""
    if said.schema is not None:
        schema = dict(said.schema)
    elif type_ in _SCALARS:
        schema = {"type": _SCALARS[type_]}
        if type_ is int:
            schema["format"] = said.format or "int32"
    else:
        schema = _composite(type_, views)
    description = {"description": said.doc} if said.doc else {}
    return _with_rules(schema | description | _limits(said), said.rules or ())


def _composite(type_: Any, views: Views) -> Schema:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _struct(type_, views)
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in {list, Sequence}:
        return {"type": "array", "items": _type(*_unwrap(arguments[0]), views)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(*_unwrap(arguments[1]), views)}
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
    """Entry of `python -m turnstile.api.crd`."""
    match arguments:
        case [directory]:
            for path in write(Path(directory)):
                print(path)
            return 0
        case _:
            print("usage: python -m turnstile.api.crd DIRECTORY", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
