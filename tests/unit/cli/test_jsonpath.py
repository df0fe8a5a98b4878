"""Templates of `-o jsonpath=` print what kubectl prints."""

from typing import Any

import pytest

from turnstile.api.errors import InvalidValue
from turnstile.cli.queues.jsonpath import Template

QUEUES: dict[str, Any] = {
    "items": [
        {"name": "a", "labels": {"x.io/team": "one"}, "pending": 3, "active": True, "tags": ["p", "q", "r"]},
        {"name": "b", "labels": {"x.io/team": "two"}, "pending": 0, "active": False, "tags": []},
    ]
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].name}", "a b"),
        (".items[0].name", "a"),
        ("{.items[-1].name}", "b"),
        ("{.items[0,1].pending}", "3 0"),
        ("{.items[0].tags[1:]}", "q r"),
        ("{.items[0].tags[0:3:2]}", "p r"),
        ("{.items[0].tags}", '["p","q","r"]'),
        ("{.items[0].active}", "true"),
        ("{.items[0].labels}", '{"x.io/team":"one"}'),
        (r"{.items[0].labels.x\.io/team}", "one"),
        ("{.items[0].labels['x.io/team']}", "one"),
        ("{..name}", "a b"),
        ("{.items[?(@.pending>0)].name}", "a"),
        ('{.items[?(@.name=="b")].pending}', "0"),
        ("{.items[?(@.name!='b')].name}", "a"),
        ("{.items[?(@.active==true)].name}", "a"),
        ("{.items[?(@.tags[0])].name}", "a"),
        (r'{range .items[*]}{.name}={.pending}{"\n"}{end}', "a=3\nb=0\n"),
        (r"{range .items[*]}{range .tags[*]}{@}{','}{end}{';'}{end}", "p,q,r,;;"),
        ("there are {.items[*].name}!", "there are a b!"),
        ("{.nothing.here}", ""),
        ("{$.items[1].name}", "b"),
    ],
)
def test_what_a_template_prints(template: str, text: str) -> None:
    """Paths, filters, ranges and text."""
    assert Template(template).render(QUEUES) == text


@pytest.mark.parametrize(
    "template", ["{.items[}", "{.items", "{range .items[*]}{.name}", "{.name}{end}", "{.items[x]}", "a}b{.c}"]
)
def test_what_is_no_template(template: str) -> None:
    """The error has the template, and one that would do."""
    with pytest.raises(InvalidValue, match=r"jsonpath=.* for example"):
        Template(template)
