"""The raw parts of objects, wherever they are."""

from typing import ClassVar

import msgspec

from turnstile.api.core import Job, Namespace, Pod
from turnstile.api.meta import Kind, Object
from turnstile.kube import answers, raws


class Part(Object):
    """One of several."""

    name: str = ""
    template: msgspec.Raw = msgspec.Raw(b"{}")


class Whole(Kind):
    """Raw parts in a list, a map, an optional struct and by themselves."""

    GROUP: ClassVar = "example.com"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Whole"
    PLURAL: ClassVar = "wholes"
    NAMESPACED: ClassVar = True

    listed: list[Part] = msgspec.field(default_factory=list)
    named: dict[str, Part] = msgspec.field(default_factory=dict)
    one: Part | None = None
    top: msgspec.Raw = msgspec.Raw(b"{}")
    count: int = 0


BODY = b"""{"metadata": {"name": "a"}, "listed": [{"name": "x", "template": {"a": 1}}], "count": 3,
"named": {"k": {"template": [2]}}, "one": {"template": 3}, "top": {"b": 4}}"""


def parts(whole: Whole) -> list[bytes]:
    """All raw parts."""
    assert whole.one is not None
    return [
        bytes(each) for each in (whole.listed[0].template, whole.named["k"].template, whole.one.template, whole.top)
    ]


def test_an_object_that_is_wanted_whole_has_all_of_them() -> None:
    """Copies of their own, equal to what came."""
    whole, held = answers.selecting_decoder(Whole, lambda value: raws.Keep.WHOLE)(BODY)
    assert held
    assert parts(whole) == [b'{"a": 1}', b"[2]", b"3", b'{"b": 4}']
    assert not raws.stripped(whole)


def test_one_that_is_not_has_none_and_says_so() -> None:
    """What is no raw part stays."""
    whole, held = answers.selecting_decoder(Whole, lambda value: raws.Keep.STRIPPED)(BODY)
    assert held
    assert parts(whole) == [b""] * 4
    assert (whole.metadata.name, whole.listed[0].name, whole.count) == ("a", "x", 3)
    assert raws.stripped(whole)


def test_an_object_without_its_fields_was_not_stripped() -> None:
    """Absent is not left out."""
    for kind in (Job, Pod, Namespace):
        assert not raws.stripped(answers.decoder(kind)(b"{}"))
    assert not raws.stripped(answers.metadata_decoder(Job)(b"{}"))
    assert raws.stripped(answers.selecting_decoder(Job, lambda job: raws.Keep.STRIPPED)(b"{}")[0])


def test_one_that_is_not_wanted_at_all_says_so() -> None:
    """No store holds it."""
    _, held = answers.selecting_decoder(Whole, lambda value: raws.Keep.NOTHING)(BODY)
    assert not held
