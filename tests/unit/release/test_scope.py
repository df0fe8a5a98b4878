"""What a release manages, and whether an upgrade can manage more."""

import pytest

from turnstile.api.selectors import LabelSelector, LabelSelectorRequirement
from turnstile.release.scope import Scope, changes, shown, widening, widens


def selector(*expressions: tuple[str, str, list[str]], **labels: str) -> LabelSelector:
    """A selector of these labels and `(key, operator, values)`."""
    made = [
        LabelSelectorRequirement(key=key, operator=operator, values=values) for key, operator, values in expressions
    ]
    return LabelSelector(match_labels=labels, match_expressions=made)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (selector(team="x"), selector(team="x")),
        (selector(team="x"), selector(team="x", more="y")),
        (selector(team="x"), selector(("team", "In", ["x"]))),
        (selector(("name", "NotIn", ["a"])), selector(("name", "NotIn", ["a", "b"]))),
        (selector(("name", "NotIn", ["a"])), selector(name="b")),
        (selector(("name", "In", ["a", "b"])), selector(name="b")),
        (selector(("name", "Exists", [])), selector(name="b")),
        (selector(("name", "DoesNotExist", [])), selector(("name", "DoesNotExist", []))),
        (selector(), selector(team="x")),
    ],
)
def test_at_least_as_narrow(before: LabelSelector, after: LabelSelector) -> None:
    """Whatever the second selects, the first one did."""
    assert not widens(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (selector(team="x"), selector()),
        (selector(team="x"), selector(team="y")),
        (selector(("name", "NotIn", ["a", "b"])), selector(("name", "NotIn", ["a"]))),
        (selector(("name", "NotIn", ["a"])), selector(name="a")),
        (selector(name="b"), selector(("name", "In", ["a", "b"]))),
        (selector(name="b"), selector(("name", "Exists", []))),
        (selector(("name", "DoesNotExist", [])), selector(("name", "Exists", []))),
    ],
)
def test_wider(before: LabelSelector, after: LabelSelector) -> None:
    """Some labels are selected by the second only."""
    assert widens(before, after)


def test_a_selector_is_shown_as_kubectl_takes_it() -> None:
    """Each operator, and none."""
    every = selector(
        ("a", "In", ["x", "y"]), ("b", "NotIn", ["z"]), ("c", "Exists", []), ("d", "DoesNotExist", []), e="1"
    )
    assert shown(every) == "e=1,a in (x,y),b notin (z),c,!d"
    assert shown(selector()) == "all"


def test_kinds_of_one_change_are_named_together() -> None:
    """One change for all kinds whose namespaces change in the same way."""
    before = Scope({"jobs.batch": selector(team="x"), "pods": selector(team="x")})
    after = Scope({"jobs.batch": selector(team="y"), "pods": selector(team="y")}, without_queue_name=True)
    found = [(each.what, each.before, each.after) for each in changes(before, after)]
    assert found == [
        ("namespaces of jobs.batch, pods", "team=x", "team=y"),
        ("jobs without a queue name", "left alone", "managed"),
    ]
    assert [each.says for each in widening(before, after, ["a"])] == [
        "namespaces that are managed from now on: a",
        "jobs without a queue name are managed from now on",
    ]
