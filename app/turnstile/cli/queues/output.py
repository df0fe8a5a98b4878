"""Prints objects as kubectl does: json, yaml, name, jsonpath, or a sentence about what was done."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from turnstile.api.errors import InvalidValue
from turnstile.cli.answers import as_yaml
from turnstile.cli.queues.jsonpath import Template
from turnstile.cli.queues.options import Shown
from turnstile.cli.say import say

Plain = dict[str, Any]

FORMATS: Final = ("json", "yaml", "name", "wide", "jsonpath")


@dataclass(frozen=True, slots=True)
class Format:
    """The format of `-o`, checked. `kind` is empty for a table or a sentence."""

    kind: str
    template: Template | None
    managed_fields: bool

    @classmethod
    def of(cls, shown: Shown, *, wide: bool = False) -> "Format":
        """Read the options. Raises InvalidValue. `wide`: whether the command has a table, which may be wide."""
        kind, equals, text = shown.output.partition("=")
        allowed = [each for each in FORMATS if wide or each != "wide"]
        if kind not in ("", *allowed):
            raise InvalidValue("--output", shown.output, f"give one of {', '.join(allowed)}, as jsonpath='{{.spec}}'")
        if kind == "jsonpath" and not text:
            raise InvalidValue("--output", shown.output, "give a template, as jsonpath='{.metadata.name}'")
        if equals and kind != "jsonpath":
            raise InvalidValue("--output", shown.output, f"{kind} takes no value")
        return cls(kind, Template(text) if text else None, shown.show_managed_fields)

    @property
    def table(self) -> bool:
        """Whether a list is a table."""
        return self.kind in ("", "wide")

    def print(self, obj: Plain, *, done: str = "") -> None:
        """Print an object, or say that it was `done` (created, stopped)."""
        self.print_all([self._shown(obj)], obj, done=done)

    def print_list(self, kind: str, api_version: str, items: Sequence[Plain], version: str) -> None:
        """Print a list of objects of a kind in a format that is no table."""
        shown = [self._shown(each) for each in items]
        listed = {
            "apiVersion": api_version,
            "items": shown,
            "kind": f"{kind}List",
            "metadata": {"resourceVersion": version},
        }
        self.print_all(shown, listed)

    def print_all(self, items: Sequence[Plain], whole: Plain, *, done: str = "") -> None:
        """Print objects: each by its name, or `whole` as a document."""
        if self.kind == "json":
            import json

            say(json.dumps(self._shown(whole), indent=4, ensure_ascii=False, sort_keys=True))
        elif self.kind == "yaml":
            say(as_yaml(self._shown(whole), sort_keys=True), nl=False)
        elif self.template is not None:
            say(self.template.render(self._shown(whole)), nl=False)
        else:
            for each in items:
                say(named(each) + (f" {done}" if done and self.kind != "name" else ""))

    def _shown(self, obj: Plain) -> Plain:
        if self.managed_fields or "managedFields" not in obj.get("metadata", {}):
            return obj
        return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def named(obj: Plain) -> str:
    """`workload.kueue.x-k8s.io/job-a`, as `-o name` prints it."""
    group, slash, _ = obj["apiVersion"].partition("/")
    return f"{obj['kind'].lower()}{'.' + group if slash else ''}/{obj['metadata']['name']}"


def none_found(namespace: str) -> None:
    """Tell on standard error that a list is empty; `namespace` is empty for all of them."""
    say(f"No resources found in {namespace} namespace." if namespace else "No resources found", err=True)


def flush() -> None:
    """Hand on what was printed so far, for a reader of changes."""
    sys.stdout.flush()
