"""Rules, and their findings. Values only."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from turnstile.insight.lint.world import Place, World


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Something that is asked for will never happen."""
    WARNING = "warning"
    """Something that is written has no effect, or not the one that it seems to have."""
    INFO = "info"
    """Worth knowing."""


Found = Iterator[tuple[Place, str]]
"""Objects, and what is wrong with each."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it looks for, and what to do about it."""

    name: str
    severity: Severity
    says: str
    fix: str
    find: Callable[[World], Found]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """The finding of a rule about one object; `file` is empty if the object is of a cluster."""

    file: str
    about: Place
    rule: str
    severity: Severity
    sentence: str
    fix: str
