"""Which Workloads belong to one rollout, as an annotation of the Workload says; Turnstile's own, not Kueue's.

While a set of serving pods is rolled out, pods of the new revision run beside those of the old one, for which there may
be no quota. `deployment/web:3:replaces` is the third template of a Deployment `web` whose rollout cannot go on
otherwise than by taking the quota of an older pod. Must never be read from an object that a tenant may write, other
than to decide between pods of that tenant.
"""

from typing import Final, NamedTuple

from turnstile.api.numbers import parse_int32

WORKLOAD: Final = "turnstile.dev/rollout"
"""Annotation of a Workload."""
TEMPLATE: Final = "turnstile.dev/revision"
"""Annotation of the pod template of a Deployment, which its webhook counts up: `3:replaces`."""
_REPLACES: Final = "replaces"


class Rollout(NamedTuple):
    """A place in a rollout: the set, a number that grows with each revision, and whether a pod of this revision may
    take the quota of one of an older revision."""

    owner: str
    revision: int
    replaces: bool

    @property
    def text(self) -> str:
        """The value of the annotation of a Workload."""
        return f"{self.owner}:{self.stamp}"

    @property
    def stamp(self) -> str:
        """The value of the annotation of a template."""
        return f"{self.revision}:{_REPLACES}" if self.replaces else str(self.revision)


def of_workload(text: str) -> Rollout | None:
    """The rollout that a Workload's annotation names; None if it says nothing."""
    owner, _, stamp = text.partition(":")
    return of_template(owner, stamp) if owner else None


def of_template(owner: str, stamp: str) -> Rollout:
    """The revision in a template's annotation; the first revision if there is none."""
    number, _, rest = stamp.partition(":")
    return Rollout(owner, max(parse_int32(number) or 0, 0), rest == _REPLACES)
