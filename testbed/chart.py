"""Renders of Turnstile's chart by the test bed, which has no image to name."""

from collections.abc import Sequence
from pathlib import Path

VALUES = Path(__file__).with_name("values.yaml")


def with_image(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments of helm, with the test bed's image before all other values if they render Turnstile's chart."""
    charts = (Path(each) / "Chart.yaml" for each in arguments)
    if any(each.is_file() and "\nname: turnstile\n" in each.read_text() for each in charts):
        return (arguments[0], "--values", str(VALUES), *arguments[1:])
    return tuple(arguments)
