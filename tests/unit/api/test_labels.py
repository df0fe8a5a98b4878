"""Names and labels are judged as Kubernetes judges them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.api.selectors import LabelSelector, LabelSelectorRequirement
from turnstile.api.validation.errors import (
    FieldError,
    format_errors,
    invalid,
    not_supported,
    quote,
    required,
    too_long,
    too_many,
)
from turnstile.api.validation.labels import (
    annotations_errors,
    dns_label_faults,
    domain_path_errors,
    label_key_faults,
    label_value_faults,
    labels_errors,
    selector_errors,
    subdomain_faults,
)


@pytest.mark.parametrize("text", ["a", "a-b", "0", "a" * 63])
def test_dns_label(text: str) -> None:
    """Lower-case letters, digits and dashes inside."""
    assert dns_label_faults(text) == []


@pytest.mark.parametrize(
    ("text", "fault"), [("a.b", "must not contain dots"), ("A", "RFC 1123 label"), ("a" * 64, "no more than 63")]
)
def test_no_dns_label(text: str, fault: str) -> None:
    """What is none says why."""
    assert fault in " ".join(dns_label_faults(text))


@pytest.mark.parametrize("text", ["a", "example.com", "a.b-c.0", "a" * 253])
def test_subdomain(text: str) -> None:
    """Labels with dots between."""
    assert subdomain_faults(text) == []


@pytest.mark.parametrize("text", ["", "A", "a_b", "-a", "a-", "a..b", "a" * 254, "a\n"])
def test_no_subdomain(text: str) -> None:
    """What is none is refused."""
    assert subdomain_faults(text)


@pytest.mark.parametrize("text", ["a", "A_b.c-0", "example.com/a", "x/" + "a" * 63])
def test_label_key(text: str) -> None:
    """A name, with a subdomain before it if one likes."""
    assert label_key_faults(text) == []


NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("@a", [NAME]),
        ("", ["name part must be non-empty", NAME]),
        ("/a", ["prefix part must be non-empty"]),
        ("x/", ["name part must be non-empty", NAME]),
        ("a" * 64, ["name part must be no more than 63 characters"]),
    ],
)
def test_no_label_key(text: str, faults: list[str]) -> None:
    """All that is wrong with a key is said in Kubernetes' words."""
    assert label_key_faults(text) == faults


def test_two_slashes() -> None:
    """A key with two slashes is told the whole format."""
    (fault,) = label_key_faults("a/b/c")
    assert fault.startswith("a valid label key must consist of")
    assert fault.endswith("with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")


@given(st.from_regex(re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII), fullmatch=True))
def test_keys_are_values(text: str) -> None:
    """Every name is a key and a value."""
    assert label_key_faults(text) == label_value_faults(text) == []


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    """Any text is judged, and a value with a fault is no name."""
    if label_value_faults(text):
        assert label_key_faults(text) or "/" in text


def test_labels_in_order() -> None:
    """Faults of a map come in the order of its keys."""
    errors = labels_errors("spec.labels", {"b": "@", "@": "v"})
    assert [error.value for error in errors] == ["@", "@"]
    assert "name part" in errors[0].detail
    assert "valid label" in errors[1].detail


def test_annotations() -> None:
    """Keys may have capitals before the slash; the size is limited as a whole."""
    assert annotations_errors("a", {"EXAMPLE.com/Key": "any text @ all"}) == []
    assert [str(error) for error in annotations_errors("a", {"k": "x" * 262144})] == [
        "a: Too long: may not be more than 262144 bytes"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acme.io/foo", ""),
        ("acme.io/foo/bar", ""),
        ("", "p: Required value"),
        ("foo", 'p: Invalid value: "foo": must be a domain-prefixed path (such as "acme.io/foo")'),
        ("acme.io/", 'p: Invalid value: "acme.io/": must be a domain-prefixed path (such as "acme.io/foo")'),
    ],
)
def test_domain_path(text: str, message: str) -> None:
    """A domain, a slash and a path."""
    assert format_errors(domain_path_errors("p", text)) == message


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        (("a", "In", ["b"]), ""),
        (("a", "Exists", []), ""),
        (("a", "In", []), "values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        (
            ("a", "Exists", ["b"]),
            "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        (("a", "Is", []), 'operator: Invalid value: "Is": not a valid selector operator'),
    ],
)  # fmt: skip
def test_selector(requirement: tuple[str, str, list[str]], message: str) -> None:
    """A requirement needs an operator that is known, and values where they mean something."""
    key, operator, values = requirement
    selector = LabelSelector(match_expressions=[LabelSelectorRequirement(key=key, operator=operator, values=values)])
    assert format_errors(selector_errors("s", selector)) == (message and f"s.matchExpressions[0].{message}")


class TestErrors:
    """Errors read as those of Kubernetes do."""

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (invalid("a", "x", "is bad"), 'a: Invalid value: "x": is bad'),
            (invalid("a", 1, "is bad"), "a: Invalid value: 1: is bad"),
            (invalid("a", True, "is bad"), "a: Invalid value: true: is bad"),
            (invalid("a", None, "is bad"), "a: Invalid value: null: is bad"),
            (invalid("a", {"z": 1, "b": [2]}, "is bad"), 'a: Invalid value: {"b":[2],"z":1}: is bad'),
            (required("a", "is needed"), "a: Required value: is needed"),
            (required("a", ""), "a: Required value"),
            (not_supported("a", "x", ["p", "q"]), 'a: Unsupported value: "x": supported values: "p", "q"'),
            (not_supported("a", "x", []), 'a: Unsupported value: "x"'),
            (too_long("a", 1), "a: Too long: may not be more than 1 byte"),
            (too_many("a", 3, 2), "a: Too many: 3: must have at most 2 items"),
        ],
    )
    def test_text(self, error: FieldError, text: str) -> None:
        """Path, sort, value and detail."""
        assert str(error) == text

    def test_aggregate(self) -> None:
        """One stands bare, several in brackets, each once."""
        one, two = required("a", ""), required("b", "")
        assert format_errors([]) == ""
        assert format_errors([one, one]) == "a: Required value"
        assert format_errors([one, two, one]) == "[a: Required value, b: Required value]"

    @pytest.mark.parametrize(
        ("text", "quoted"),
        [('a"b', r'"a\"b"'), ("a\\b", r'"a\\b"'), ("a\nb\x00", r'"a\nb\x00"'), ("≤é", '"≤é"'), ("\u2028", r'"\u2028"')],
    )
    def test_quote(self, text: str, quoted: str) -> None:
        """Texts are quoted as Go does."""
        assert quote(text) == quoted
