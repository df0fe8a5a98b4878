"""The formats of names, labels, annotations, selectors and conditions, with Kubernetes' texts.

Functions called `*_faults` return what is wrong with one text; those called `*_errors` say it of a field. Source: the
label, annotation, selector and condition formats of the Kubernetes documentation. Must never know a kind of ours.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from turnstile.api.meta import Condition
from turnstile.api.selectors import LabelSelector, LabelSelectorRequirement
from turnstile.api.validation.errors import (
    NEGATIVE,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1035: Final = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = rf"({_NAME})?"
_HTTP_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_REASON: Final = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"

_MAX_ANNOTATIONS: Final = 256 * 1024


def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch


_is_dns_label, _is_subdomain, _is_name = _matcher(_DNS_LABEL), _matcher(_SUBDOMAIN), _matcher(_NAME)
_is_value, _is_http_path, _is_reason = _matcher(_VALUE), _matcher(_HTTP_PATH), _matcher(_REASON)


def _format_text(rule: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{rule} (regex used for validation is '{pattern}')"
    # Two blanks before each "or": Kubernetes prints them.
    shown = "', " + " or '"
    return f"{rule} (e.g. '{shown.join(examples)}', regex used for validation is '{pattern}')"


_ENDS: Final = "must start and end with an alphanumeric character"
_DNS_LABEL_TEXT: Final = _format_text(
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ENDS}",
    _DNS_LABEL, "my-name", "123-abc",
)  # fmt: skip
_DNS_1035_TEXT: Final = _format_text(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _DNS_1035, "my-name", "abc-123",
)  # fmt: skip
_SUBDOMAIN_TEXT: Final = _format_text(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {_ENDS}",
    _SUBDOMAIN, "example.com",
)  # fmt: skip
_NAME_TEXT: Final = _format_text(
    f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}", _NAME, "MyName", "my.name", "123-abc"
)
_KEY_TEXT: Final = (
    f"a valid label key {_NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_TEXT: Final = _format_text(
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}",
    _VALUE, "MyValue", "my_value", "12345",
)  # fmt: skip
_HTTP_PATH_TEXT: Final = _format_text("Invalid path", _HTTP_PATH)
_REASON_TEXT: Final = _format_text(
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'",
    _REASON, "my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB",
)  # fmt: skip


def _length_fault(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(text.encode(errors="replace")) > limit else []


def dns_label_faults(text: str) -> list[str]:
    """The faults that keep a text from being an RFC 1123 label, such as the name of a pod set or namespace."""
    faults = _length_fault(text, 63)
    if not _is_dns_label(text):
        faults.append("must not contain dots" if _is_subdomain(text) else _DNS_LABEL_TEXT)
    return faults


def dns_1035_label_faults(text: str) -> list[str]:
    """The faults that keep a text from being an RFC 1035 label, such as the name of a Service."""
    return _length_fault(text, 63) + ([] if re.fullmatch(_DNS_1035, text) else [_DNS_1035_TEXT])


def subdomain_faults(text: str) -> list[str]:
    """The faults that keep a text from being an RFC 1123 subdomain, such as the name of most objects."""
    return _length_fault(text, 253) + ([] if _is_subdomain(text) else [_SUBDOMAIN_TEXT])


def label_key_faults(text: str) -> list[str]:
    """The faults that keep a text from being a label key (a qualified name): `[prefix/]name`."""
    prefix, slash, name = text.partition("/")
    faults = []
    if not slash:
        name = prefix
    elif "/" in name:
        return [_KEY_TEXT]
    elif not prefix:
        faults.append("prefix part must be non-empty")
    else:
        faults.extend(f"prefix part {fault}" for fault in subdomain_faults(prefix))
    if not name:
        faults.append("name part must be non-empty")
    else:
        faults.extend(f"name part {fault}" for fault in _length_fault(name, 63))
    if not _is_name(name):
        faults.append(f"name part {_NAME_TEXT}")
    return faults


def label_value_faults(text: str) -> list[str]:
    """The faults that keep a text from being a label value."""
    return _length_fault(text, 63) + ([] if _is_value(text) else [_VALUE_TEXT])


def label_key_errors(path: str, key: str) -> list[FieldError]:
    """The field must be a label key."""
    return [invalid(path, key, fault) for fault in label_key_faults(key)]


def labels_errors(path: str, labels: Mapping[str, str]) -> list[FieldError]:
    """The field must be a map of labels. Errors name the map, in the order of its keys."""
    errors = []
    for key in sorted(labels):
        errors.extend(label_key_errors(path, key))
        errors.extend(invalid(path, labels[key], fault) for fault in label_value_faults(labels[key]))
    return errors


def annotations_errors(path: str, annotations: Mapping[str, str]) -> list[FieldError]:
    """The field must be a map of annotations: keys as of labels in any case, at most 256 KiB in all."""
    errors = [invalid(path, key, fault) for key in sorted(annotations) for fault in label_key_faults(key.lower())]
    size = sum(len(part.encode(errors="replace")) for entry in annotations.items() for part in entry)
    return [*errors, too_long(path, _MAX_ANNOTATIONS)] if size > _MAX_ANNOTATIONS else errors


def domain_path_errors(path: str, text: str) -> list[FieldError]:
    """The field must be a domain-prefixed path, such as `acme.io/foo`."""
    if not text:
        return [required(path, "")]
    host, _, rest = text.partition("/")
    if not host or not rest:
        return [invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [invalid(path, host, fault) for fault in subdomain_faults(host)]
    return errors if _is_http_path(rest) else [*errors, invalid(path, rest, _HTTP_PATH_TEXT)]


def selector_errors(path: str, selector: LabelSelector) -> list[FieldError]:
    """The field must be a label selector that can be evaluated."""
    errors = labels_errors(f"{path}.matchLabels", selector.match_labels)
    for index, requirement in enumerate(selector.match_expressions):
        errors.extend(_requirement_errors(f"{path}.matchExpressions[{index}]", requirement))
    return errors


def _requirement_errors(path: str, requirement: LabelSelectorRequirement) -> list[FieldError]:
    errors = []
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if requirement.values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(forbidden(f"{path}.values", detail))
        case operator:
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    errors.extend(label_key_errors(f"{path}.key", requirement.key))
    for index, value in enumerate(requirement.values):
        errors.extend(invalid(f"{path}.values[{index}]", value, fault) for fault in label_value_faults(value))
    return errors


def conditions_errors(path: str, conditions: Sequence[Condition]) -> list[FieldError]:
    """The field must be a list of conditions, each type once."""
    errors = []
    seen = set()
    for index, condition in enumerate(conditions):
        if condition.type in seen:
            errors.append(duplicate(f"{path}[{index}].type", condition.type))
        seen.add(condition.type)
        errors.extend(_condition_errors(f"{path}[{index}]", condition))
    return errors


def _condition_errors(path: str, condition: Condition) -> list[FieldError]:
    errors = label_key_errors(f"{path}.type", condition.type)
    if condition.status not in {"False", "True", "Unknown"}:
        errors.append(not_supported(f"{path}.status", condition.status, ("False", "True", "Unknown")))
    if (condition.observed_generation or 0) < 0:
        detail = NEGATIVE.replace("0", "zero")
        errors.append(invalid(f"{path}.observedGeneration", condition.observed_generation, detail))
    if not condition.last_transition_time:
        errors.append(required(f"{path}.lastTransitionTime", ""))
    if not condition.reason:
        errors.append(required(f"{path}.reason", ""))
    elif not _is_reason(condition.reason):
        errors.append(invalid(f"{path}.reason", condition.reason, _REASON_TEXT))
    if len(condition.reason.encode(errors="replace")) > 1024:
        errors.append(too_long(f"{path}.reason", 1024))
    if len(condition.message.encode(errors="replace")) > 32768:
        errors.append(too_long(f"{path}.message", 32768))
    return errors
