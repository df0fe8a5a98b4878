"""From the text of a file to a configuration that holds: read, checked, defaulted, converted, judged.

All faults of a file are reported together, with its path, its line and what would do. Must never read the file itself.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError

from turnstile.api.config import built, defaults, features, v1beta1, v1beta2, validation
from turnstile.api.config.conversion import to_hub
from turnstile.api.config.defaults import Installation
from turnstile.api.config.document import Document, Problem, Unreadable, dotted, read, split
from turnstile.api.config.v1beta2 import KIND, Configuration
from turnstile.api.errors import InvalidConfiguration
from turnstile.api.nearest import nearest
from turnstile.api.validation.errors import FieldError

_VERSIONS: Final[dict[str, type[v1beta2.Configuration] | type[v1beta1.Configuration]]] = {
    v1beta2.API_VERSION: v1beta2.Configuration,
    v1beta1.API_VERSION: v1beta1.Configuration,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration that holds. `gates` names the feature gates that are on; `warnings` are for people."""

    configuration: Configuration
    gates: frozenset[str]
    warnings: tuple[Problem, ...]
    document: Document

    def given(self, *path: str) -> bool:
        """Whether the file itself says something at this path, rather than a default."""
        return self.document.given(*path)

    def effective(self) -> dict[str, Any]:
        """The effective configuration, in v1beta2, without the sections that nothing depends on yet."""
        plain = self.configuration.plain()
        for path in built.hidden_sections(self.configuration, self.document):
            section = plain
            for key in path[:-1]:
                section = section.get(key, {})
            section.pop(path[-1], None)
        return {"apiVersion": v1beta2.API_VERSION, "kind": KIND, **plain}

    def text(self) -> str:
        """The effective configuration, as YAML."""
        return yaml.safe_dump(self.effective(), sort_keys=False, allow_unicode=True)


def load(text: str, *, installation: Installation, frameworks: Collection[str], feature_gates: str = "") -> Loaded:
    """The configuration in `text`. `frameworks` are those built here, `feature_gates` the flag of that name.

    Raises InvalidConfiguration with every fault.
    """
    return judge(parse(text), installation=installation, frameworks=frameworks, feature_gates=feature_gates)


def parse(text: str) -> Document:
    """The document in `text`. Raises InvalidConfiguration if it is none."""
    try:
        return read(text)
    except Unreadable as error:
        raise InvalidConfiguration([error.problem]) from None


def judge(
    document: Document, *, installation: Installation, frameworks: Collection[str], feature_gates: str = ""
) -> Loaded:
    """As `load`, of a document that was read."""
    problems = list(document.problems)
    model = _model(document, problems)
    if model is None:
        raise InvalidConfiguration(problems)
    try:
        parsed = model.model_validate(document.data)
    except ValidationError as error:
        problems.extend(type_problems(error, document, model))
        raise InvalidConfiguration(_in_order(problems)) from None
    if isinstance(parsed, v1beta1.Configuration):
        defaults.set_defaults_v1beta1(parsed, installation)
        config = to_hub(parsed)
    else:
        assert isinstance(parsed, Configuration)
        config = parsed
        defaults.set_defaults(config, installation)
    faults = features.setting_errors(config.feature_gates, flag=feature_gates)
    problems.extend(_problem(fault, document) for fault in faults)
    if not faults:
        gates = features.enabled(features.parse_flag(feature_gates) if feature_gates else config.feature_gates or {})
        problems.extend(_problem(fault, document) for fault in validation.validate(config, gates))
        problems.extend(built.refusals(config, document, gates, frameworks=frameworks, flag=feature_gates))
    if problems:
        reported = [each for each in problems if not _is_about_an_unknown_framework(each, problems)]
        raise InvalidConfiguration(_in_order(reported))
    found = tuple(built.warnings(config, document, gates, installation))
    return Loaded(configuration=config, gates=gates, warnings=found, document=document)


def _in_order(problems: list[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.line)


def _is_about_an_unknown_framework(problem: Problem, problems: list[Problem]) -> bool:
    """A framework that Kueue does not know either is reported once."""
    return "cannot be queued yet" in problem.message and any(
        other.path == problem.path and other != problem for other in problems
    )


def _model(
    document: Document, problems: list[Problem]
) -> type[v1beta2.Configuration] | type[v1beta1.Configuration] | None:
    version, kind = document.data.get("apiVersion"), document.data.get("kind")
    known = " or ".join(_VERSIONS)
    if kind != KIND:
        what = "is missing" if kind is None else f"is {kind!r}"
        problems.append(Problem("kind", document.line(("kind",)), what, f"write kind: {KIND}"))
    if not isinstance(version, str) or version not in _VERSIONS:
        what = "is missing" if version is None else f"{version!r} is not known"
        problems.append(Problem("apiVersion", document.line(("apiVersion",)), what, f"write {known}"))
        return None
    return _VERSIONS[version] if kind == KIND else None


def _problem(fault: FieldError, document: Document) -> Problem:
    text = str(fault).removeprefix(f"{fault.path}: ")
    return Problem(fault.path, document.line(split(fault.path)), text)


_WORDS: Final = {
    "bool_type": ("must be true or false", "without quotes"),
    "string_type": ("must be text", "put it in quotes"),
    "int_type": ("must be a whole number", "without quotes"),
    "float_type": ("must be a number", "without quotes"),
    "finite_number": ("must be a number", ""),
    "list_type": ("must be a list", "write - before each item"),
    "dict_type": ("must be a mapping", "write key: value"),
    "model_type": ("must be a mapping", "write key: value"),
    "model_attributes_type": ("must be a mapping", "write key: value"),
}


def type_problems(error: ValidationError, document: Document, model: type[BaseModel]) -> Iterator[Problem]:
    """The faults that pydantic found, in words for people."""
    for each in error.errors(include_url=False):
        path = each["loc"]
        if each["type"] == "extra_forbidden":
            yield _unknown_field(path, document, model)
            continue
        message, cure = _WORDS.get(each["type"], (each["msg"].removeprefix("Value error, "), ""))
        shown = each["input"]
        if isinstance(shown, (str, int, float)):
            message = f"{message}, not {'true' if shown is True else 'false' if shown is False else repr(shown)}"
        yield Problem(dotted(path), document.line(path), message, cure)


def _unknown_field(path: tuple[str | int, ...], document: Document, model: type[BaseModel]) -> Problem:
    section = _section(model, path[:-1])
    known = [field.alias or name for name, field in section.model_fields.items()] if section is not None else []
    name = str(path[-1])
    near = nearest(name, known)
    cure = f"did you mean {near}?" if near else f"known here: {', '.join(known)}"
    return Problem(dotted(path), document.line(path), "unknown field", cure)


def _section(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The section of a model that holds at a path."""
    at: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):
            continue
        if at is None:
            return None
        field = next((field for name, field in at.model_fields.items() if (field.alias or name) == part), None)
        at = _inner(field.annotation) if field is not None else None
    return at


def _inner(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part)) is not None), None)


def differences(old: Loaded, new: Loaded) -> list[str]:
    """Paths, two levels deep, at which what holds differs."""
    before, after = old.effective(), new.effective()
    before["featureGates"], after["featureGates"] = (dict.fromkeys(sorted(each.gates), True) for each in (old, new))
    found = []
    for key in sorted({*before, *after}):
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            found += [f"{key}.{name}" for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
        else:
            found.append(key)
    return found
