"""Findings of preflight: values with a level and a cure, namespaces with their jobs, and changes. Values only."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    DANGER = "danger"
    WARNING = "warning"


class Check(StrEnum):
    """A check; also the word for `--accept`."""

    SERVER = "server"
    SERVED = "served"
    CONFIGURATION = "configuration"
    KUEUE = "kueue"
    RELEASES = "releases"
    OWNERS = "owners"
    CRDS = "crds"
    RIGHTS = "rights"
    SCOPE = "scope"
    JOBS = "jobs"
    UNBUILT = "unbuilt"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an administrator should know; `cure` is what to do about it."""

    level: Level
    check: StrEnum
    says: str
    cure: str


def danger(check: StrEnum, says: str, cure: str) -> Finding:
    """A finding for which preflight fails."""
    return Finding(Level.DANGER, check, says, cure)


def warning(check: StrEnum, says: str, cure: str) -> Finding:
    """A finding for which preflight does not fail."""
    return Finding(Level.WARNING, check, says, cure)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs of one kind in one namespace: `unfinished` of all, `taken` of those that will be managed, `stopped` of those
    that run now and will be stopped until they are admitted."""

    resource: str
    unfinished: int = 0
    taken: int = 0
    stopped: int = 0


@dataclass(frozen=True, slots=True)
class ManagedNamespace:
    """A namespace whose jobs are managed before or after, with its unfinished jobs."""

    name: str
    before: bool
    after: bool
    jobs: tuple[Jobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that the installation or upgrade changes; an empty text stands for absent."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that preflight has to say. `installed` is the chart of the release that is upgraded; empty for a new one."""

    release: str
    namespace: str
    server: str
    version: str
    installed: str = ""
    findings: tuple[Finding, ...] = ()
    namespaces: tuple[ManagedNamespace, ...] = ()
    changes: tuple[Change, ...] = field(default=())

    @property
    def dangerous(self) -> bool:
        """Whether there is a danger that was not accepted."""
        return any(each.level is Level.DANGER for each in self.findings)

    def accepting(self, accepted: Collection[Check]) -> "Report":
        """The report with the dangers of these checks as warnings."""
        findings = (replace(each, level=Level.WARNING) if each.check in accepted else each for each in self.findings)
        return replace(self, findings=tuple(sorted(findings, key=lambda each: each.level is not Level.DANGER)))


def listed(names: Iterable[str], *, most: int = 5) -> str:
    """Names for a sentence: the first ones, and the number of the rest."""
    found: Sequence[str] = sorted(names)
    rest = len(found) - most
    return ", ".join(found[:most]) + (f" and {rest} more" if rest > 0 else "")
