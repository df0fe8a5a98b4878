"""One fault of one field, in the words and the format of Kubernetes.

Texts are part of the API: people match on them. Source: the documentation of apimachinery's `util/validation/field`.
Must never decide what is a fault.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

ErrorType = Literal[
    "FieldValueNotFound",
    "FieldValueRequired",
    "FieldValueDuplicate",
    "FieldValueInvalid",
    "FieldValueNotSupported",
    "FieldValueForbidden",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "InternalError",
]

IMMUTABLE: Final = "field is immutable"
NEGATIVE: Final = "must be greater than or equal to 0"

_HEADINGS: Final[dict[ErrorType, str]] = {
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "InternalError": "Internal error",
}
_WITHOUT_VALUE: Final = frozenset(("FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"))

OMITTED: Final = msgspec.UNSET
"""A value that is left out of the text."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """A fault: where (`spec.a[0].b`), of what sort (the machine word that a Status cause carries), which value, why."""

    path: str
    type: ErrorType
    value: Any
    detail: str

    def __str__(self) -> str:
        """`path: Type: value: detail`, as `kubectl` shows it."""
        parts = [self.path, _HEADINGS[self.type]]
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            parts.append(show(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)


def format_errors(errors: Iterable[FieldError]) -> str:
    """The text of a denial: one error bare, several as `[e1, e2]`, repetitions left out, nothing as the empty text."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def brought(errors: list[FieldError], before: Callable[[], Iterable[FieldError]]) -> list[FieldError]:
    """The errors that an update brings; `before` finds those of the object as it was, by the same rules.

    An object may have come past a rule: made while no webhook answered, or before the rule. An older fault is no
    reason to refuse an update of something else, or it could neither be labelled, nor run, nor finish.
    """
    if not errors:
        return errors
    known = {str(error) for error in before()}
    return [error for error in errors if str(error) not in known]


def invalid(path: str, value: object, detail: str) -> FieldError:
    """The value is malformed or out of bounds."""
    return FieldError(path, "FieldValueInvalid", value, detail)


def required(path: str, detail: str) -> FieldError:
    """The field has to be set."""
    return FieldError(path, "FieldValueRequired", "", detail)


def forbidden(path: str, detail: str) -> FieldError:
    """The field may not be set here."""
    return FieldError(path, "FieldValueForbidden", "", detail)


def duplicate(path: str, value: object, detail: str = "") -> FieldError:
    """The value stands elsewhere too, and may not."""
    return FieldError(path, "FieldValueDuplicate", value, detail)


def not_found(path: str, value: object) -> FieldError:
    """The value names something that is not there."""
    return FieldError(path, "FieldValueNotFound", value, "")


def not_supported(path: str, value: object, supported: Iterable[str]) -> FieldError:
    """The value is none of those that are known."""
    known = ", ".join(quote(name) for name in supported)
    return FieldError(path, "FieldValueNotSupported", value, f"supported values: {known}" if known else "")


def too_long(path: str, limit: int) -> FieldError:
    """The text has more than `limit` bytes."""
    return FieldError(
        path, "FieldValueTooLong", "<value omitted>", f"may not be more than {limit} byte{'s'[: limit != 1]}"
    )


def too_many(path: str, value: int, limit: int) -> FieldError:
    """The list has more than `limit` items."""
    return FieldError(path, "FieldValueTooMany", value, f"must have at most {limit} item{'s'[: limit != 1]}")


def show(value: object) -> str:
    """A value as it stands in an error: text in Go's quotes, all else as JSON."""
    return quote(value) if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()


_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def quote(text: str) -> str:
    """Text as Go's `%q` prints it."""
    return f'"{"".join(_ESCAPES.get(character) or _escape(character) for character in text)}"'


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
