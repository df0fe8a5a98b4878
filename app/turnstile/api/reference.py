"""Writes the reference of the API from the structs: `python -m turnstile.api.reference FILE`.

Says in tables what the CRDs say in YAML: fields, types, defaults, limits, rules, columns, and how older versions
differ. The output is the same bytes for the same structs, so a stale page shows in CI. Must never be imported by what
runs: it is a tool of the build.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from turnstile.api import crd
from turnstile.api.kinds import KINDS, Definition
from turnstile.api.schema import LABEL_PATTERN, NODE_KEY_PATTERN, SUBDOMAIN_PATTERN

Schema = dict[str, Any]

_PATTERNS: Final = {
    LABEL_PATTERN: "DNS label",
    SUBDOMAIN_PATTERN: "DNS subdomain",
    NODE_KEY_PATTERN: "label key",
}
_HEADER: Final = """<!-- Generated from app/turnstile/api by `make generate`; do not edit. -->

# API reference

Kinds of group `kueue.x-k8s.io`, as Turnstile serves them: Kueue's kinds, with Kueue's fields, limits and rules. v1beta2
is stored; what older versions say otherwise stands at the end of each kind. Reads of the stored version need none of
Turnstile's pods; older versions of kinds that say _converted_ are converted by its webhook.

A field is optional unless it says _required_, and so is every object above it. `[]` is an item of a list, `{}` a value
of a map. Rules that a schema cannot express (quota that adds up, what may not change while quota is held) are checked
by the webhook and reported with the path of the field.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One field: all texts are Markdown."""

    path: str
    type: str
    default: str
    limits: str
    meaning: str

    def line(self) -> str:
        """The row of the table."""
        cells = (f"`{self.path}`", self.type, self.default, self.limits, self.meaning)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def rows(schema: Schema, path: str = "", *, required: bool = False) -> Iterator[Row]:
    """The fields of a schema, parents before their children."""
    if path:
        yield Row(path, _type(schema), _default(schema), _limits(schema, required=required), _meaning(schema))
    for name, part in schema.get("properties", {}).items():
        if path or name not in {"apiVersion", "kind", "metadata"}:
            here = f"{path}.{name}" if path else name
            yield from rows(part, here, required=name in schema.get("required", ()))
    if "items" in schema:
        yield from _members(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from _members(schema["additionalProperties"], f"{path}{{}}")


def _members(schema: Schema, path: str) -> Iterator[Row]:
    """The fields of objects in a list or map, the limits of other values."""
    whole = list(rows(schema, path))
    yield from whole if whole[0].limits and "properties" not in schema else whole[1:]


def rules(schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    """Where a CEL rule stands, and what the API server says when it does not hold."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path or "the object", rule["message"]
    for name, part in schema.get("properties", {}).items():
        yield from rules(part, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[]")


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in schema:
        kind = schema.get("x-kubernetes-list-type")
        if kind == "map":
            return f"list by {', '.join(schema['x-kubernetes-list-map-keys'])}"
        return f"list of {_type(schema['items'])}{' (set)' if kind == 'set' else ''}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    match schema["type"], schema.get("format"):
        case "integer", str(width):
            return width
        case "string", "date-time":
            return "time"
        case type_, _:
            return str(type_)


def _default(schema: Schema) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _limits(schema: Schema, *, required: bool) -> str:
    limits = ["_required_"] if required else []
    if "enum" in schema:
        limits.append(", ".join(f"`{value}`" if value else "empty" for value in schema["enum"]))
    pattern = schema.get("pattern")
    if pattern is not None and "x-kubernetes-int-or-string" not in schema:
        limits.append(_PATTERNS.get(pattern, f"`{pattern}`"))
    for low, high, what in (
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("", "maxProperties", " entries"),
        ("minimum", "maximum", ""),
    ):
        least, most = schema.get(low), schema.get(high)
        if most is not None:
            limits.append(f"{least}..{most}{what}" if least is not None else f"at most {most}{what}")
        elif least is not None:
            limits.append(f"at least {least}{what}")
    return "; ".join(limits)


def _meaning(schema: Schema) -> str:
    return str(schema.get("description", "")).replace("\n", " ")


def _section(kinds: Definition) -> Iterator[str]:
    definition = crd.definition(kinds)["spec"]
    names = definition["names"]
    stored, *older = definition["versions"]
    schema = stored["schema"]["openAPIV3Schema"]
    yield f"\n## {names['kind']}\n"
    about = schema["description"].removeprefix(f"kueue.x-k8s.io {names['kind']}.").strip()
    yield f"{about or definition['scope'] + '.'}\n"
    facts = [
        f"`kubectl get {names['plural']}`",
        f"short names: {', '.join(f'`{name}`' for name in names['shortNames'])}",
    ]
    if "subresources" in stored:
        facts.append("has a status")
    if columns := stored.get("additionalPrinterColumns"):
        facts.append("columns: " + ", ".join(f"{column['name']} (`{column['jsonPath']}`)" for column in columns))
    if paths := stored.get("selectableFields"):
        facts.append("field selectors: " + ", ".join(f"`{path['jsonPath']}`" for path in paths))
    yield "\n".join(f"- {fact}" for fact in facts) + "\n"
    yield "| Field | Type | Default | Limits | Meaning |\n|---|---|---|---|---|"
    fields = list(rows(schema))
    yield from (row.line() for row in fields)
    if said := list(rules(schema)):
        yield "\nRules:\n"
        yield from (f"- `{path}`: {message}" for path, message in said)
    seen: dict[str, str] = {}
    for version in older:
        text = "\n".join(_differences(schema, version["schema"]["openAPIV3Schema"]))
        marks = [mark for mark, on in (("deprecated", kinds.deprecated), ("converted", kinds.converted)) if on]
        yield f"\n### {names['kind']} in {version['name']}\n"
        yield f"Served{', _' + '_, _'.join(marks) + '_' if marks else ''}." + ("" if text else " Says the same.")
        if text in seen:
            yield f"As in {seen[text]}."
        elif text:
            yield f"\n{text}"
        seen.setdefault(text, version["name"])


def _differences(stored: Schema, older: Schema) -> Iterator[str]:
    """The differences of an older version: fields that it lacks, has besides, or limits otherwise; its rules."""
    now, was = ({row.path: row for row in rows(schema)} for schema in (stored, older))
    gone = _outermost(path for path in now if path not in was)
    if gone:
        yield f"Has not: {', '.join(f'`{path}`' for path in gone)}.\n"
    other = [row for path, row in was.items() if row != now.get(path)]
    if other:
        yield "| Field | Type | Default | Limits | Meaning |\n|---|---|---|---|---|"
        yield from (row.line() for row in other)
    rules_now, rules_was = set(rules(stored)), list(rules(older))
    if missing := [rule for rule in rules(stored) if rule not in rules_was and not _below(rule[0], gone)]:
        yield "\nWithout the rules:\n"
        yield from (f"- `{path}`: {message}" for path, message in missing)
    if added := [rule for rule in rules_was if rule not in rules_now]:
        yield "\nWith the rules:\n"
        yield from (f"- `{path}`: {message}" for path, message in added)


def _outermost(paths: Iterator[str]) -> list[str]:
    """Paths without those below another one of them."""
    found: list[str] = []
    for path in paths:
        if not _below(path, found):
            found.append(path)
    return found


def _below(path: str, parents: list[str]) -> bool:
    return any(path == parent or path.startswith((f"{parent}.", f"{parent}[", f"{parent}{{")) for parent in parents)


def page() -> str:
    """The whole page."""
    contents = "\n" + " · ".join(f"[{kinds.stored.KIND}](#{kinds.stored.KIND.lower()})" for kinds in KINDS)
    return "\n".join([_HEADER.rstrip("\n"), contents, *(line for kinds in KINDS for line in _section(kinds))]) + "\n"


def main(arguments: list[str]) -> int:
    """Entry of `python -m turnstile.api.reference`."""
    match arguments:
        case [file]:
            path = Path(file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page(), encoding="utf-8")
            print(path)
            return 0
        case _:
            print("usage: python -m turnstile.api.reference FILE", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
