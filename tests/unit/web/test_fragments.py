"""Which parts of a page are sent when it has changed."""

from turnstile.web.fragments import MAIN, Rendered, event


def rendered(frame: str = "<b>\x020\x03</b><i>\x021\x03</i>", **parts: str) -> Rendered:
    """A page with parts `one` and `other`."""
    return Rendered(frame, {"one": "1", "other": "2", **parts})


def test_html() -> None:
    """The parts stand in the frame."""
    assert rendered().html == "<b>1</b><i>2</i>"


def test_nothing_for_a_reader_who_has_it() -> None:
    """Whether the reader has it is known by the page before, or by its digest."""
    assert rendered().since(rendered()) == {}
    assert rendered().since(rendered().digest) == {}


def test_what_changed_alone() -> None:
    """One part of two."""
    assert rendered(other="3").since(rendered()) == {"other": "3"}


def test_everything_if_the_frame_changed() -> None:
    """Or if what the reader has is not known."""
    after = rendered("<p>\x020\x03\x021\x03</p>")
    assert after.since(rendered()) == {MAIN: "<p>12</p>"}
    assert after.since("something else") == {MAIN: "<p>12</p>"}


def test_an_event_is_one_line() -> None:
    """A line break would end the data of the event."""
    sent = event({"one": "a\nb"}, "digest", "/")
    assert sent == b'id: digest\ndata: {"one":"a\\nb"}\n\n'
    assert event(rendered().since(""), "digest", "/") == b'id: digest\ndata: {"main":"<b>1</b><i>2</i>"}\n\n'
