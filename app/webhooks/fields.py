"""Field errors in the words of Kubernetes, and the formats of names they speak about."""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

ErrorType = Literal[
    "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "FieldValueDuplicate"
]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of one field."""

    path: str
    type: ErrorType
    value: Any
    detail: str


NO_VALUE: Final[dict[str, Any]] = {}
"""A value that Kubernetes leaves out of the text, as for a whole map."""

_HEADS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueDuplicate": "Duplicate value",
}


def format_errors(errors: list[FieldError]) -> str:
    """All errors as one text."""
    texts = list(dict.fromkeys(_format(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _format(error: FieldError) -> str:
    text = f"{error.path}: {_HEADS[error.type]}"
    if error.type in {"FieldValueInvalid", "FieldValueDuplicate"} and error.value is not NO_VALUE:
        value = quoted(error.value) if isinstance(error.value, str) else msgspec.json.encode(error.value).decode()
        text = f"{text}: {value}"
    return f"{text}: {error.detail}" if error.detail else text


def invalid(path: str, value: object, detail: str) -> FieldError:
    """The value is not acceptable."""
    return FieldError(path, "FieldValueInvalid", value, detail)


def required(path: str, detail: str) -> FieldError:
    """The value is missing."""
    return FieldError(path, "FieldValueRequired", "", detail)


def forbidden(path: str, detail: str) -> FieldError:
    """The value may not be set here."""
    return FieldError(path, "FieldValueForbidden", "", detail)


def too_long(path: str, limit: int) -> FieldError:
    """The value has more than `limit` bytes; it is not repeated."""
    return FieldError(path, "FieldValueTooLong", "<value omitted>", f"may not be more than {limit} bytes")


def duplicate(path: str, value: object) -> FieldError:
    """The value is there already."""
    return FieldError(path, "FieldValueDuplicate", value, "")


_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAME_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_name = re.compile(_NAME).fullmatch
_is_path = re.compile(_PATH).fullmatch


def subdomain_faults(value: str) -> list[str]:
    """What keeps a value from being an RFC 1123 subdomain."""
    faults = []
    if len(value.encode()) > 253:
        faults.append("must be no more than 253 bytes")
    if not _is_subdomain(value):
        faults.append(_SUBDOMAIN_TEXT)
    return faults


def label_key_faults(value: str) -> list[str]:
    """What keeps a value from being a label key (Kubernetes' qualified name)."""
    faults = []
    prefix, slash, name = value.partition("/")
    if not slash:
        name = value
    elif "/" in name:
        return [
            f"a qualified name {_NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    elif not prefix:
        faults.append("prefix part must be non-empty")
    else:
        faults.extend(f"prefix part {fault}" for fault in subdomain_faults(prefix))
    if not name:
        faults.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        faults.append("name part must be no more than 63 bytes")
    if not _is_name(name):
        faults.append(f"name part {_NAME_TEXT}")
    return faults


def domain_path_errors(path: str, value: str) -> list[FieldError]:
    """What keeps a value from being a domain-prefixed path such as `acme.io/foo`."""
    if not value:
        return [required(path, "")]
    prefix, slash, rest = value.partition("/")
    if not slash or not prefix or not rest:
        return [invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    faults = [invalid(path, prefix, fault) for fault in subdomain_faults(prefix)]
    if not _is_path(rest):
        faults.append(invalid(path, rest, f"Invalid path (regex used for validation is '{_PATH}')"))
    return faults


_INT = re.compile(r"[+-]?[0-9]+").fullmatch
_INT64: Final = 1 << 63
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def quoted(value: str) -> str:
    """A string as Go's `%q` shows it; enough for what a label or annotation may hold."""
    import json

    return json.dumps(value, ensure_ascii=False)


def parse_int(value: str) -> int | str:
    """The integer a string stands for, or the sentence with which Go refuses it."""
    if not _INT(value):
        return f"strconv.Atoi: parsing {quoted(value)}: invalid syntax"
    number = int(value) if len(value) <= 20 else _INT64
    if not -_INT64 <= number < _INT64:
        return f"strconv.Atoi: parsing {quoted(value)}: value out of range"
    return number


def parse_bool(value: str) -> bool | str:
    """The boolean a string stands for, or the sentence with which Go refuses it."""
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    return f"strconv.ParseBool: parsing {quoted(value)}: invalid syntax"
