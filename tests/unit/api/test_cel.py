"""Slips of the pen in CEL expressions are told when a file is read."""

import pytest

from turnstile.api.cel import fault

FIELDS = ("driver", "attributes", "capacity", "name", "list", "flag", "a")


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.example.com'",
        'device.attributes["gpu.nvidia.com"].profile in ["1g.10gb", "2g.20gb"]',
        "device.capacity['x'].memory.compareTo(quantity('10Gi')) >= 0 && !device.flag",
        "device.list.all(x, x > 1 || x.name.startsWith('a'))",
        "has(device.a.b) ? 1 + 2 * -3 : size({'a': 1, 'b': [1, 2u, 0x1F, 1.5e3]})",
        "true // a comment",
        "device.name.matches(r'^a\\d+$')",
        "device.attributes['a'].?b.orValue('c') == 'c'",
    ],
)
def test_expressions_pass(expression: str) -> None:
    """Fields, indexes, calls, macros, literals, operators."""
    assert fault(expression, variables={"device": FIELDS}) == ""


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("device.driver ==", "mismatched input '<EOF>'"),
        ("device.driver == 'a", "token recognition error"),
        ("device.colour == 'red'", "undefined field 'colour'"),
        ("gpu.driver == 'a'", "undeclared reference to 'gpu'"),
        ("device.list.all(x, y)", "undeclared reference to 'y'"),
        ("device.list.all(x, x) && x", "undeclared reference to 'x'"),
        ("(device.a", "expecting ')'"),
        ("device.a device.a", "extraneous input 'device'"),
        ("device.(a)", "expecting a field"),
        ("for", "reserved identifier"),
        ("", "mismatched input '<EOF>'"),
        ("(" * 5000, "nested too deeply"),
        ("device.a = 1", "token recognition error"),
    ],
)
def test_slips_are_told(expression: str, told: str) -> None:
    """What is missing, too much, unknown or unheard of."""
    assert told in fault(expression, variables={"device": FIELDS})
