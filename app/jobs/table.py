"""The job kinds that can be queued, one line each. A new kind is a module here and a line below."""

from typing import Any, Final

from app.api.meta import Kind, OwnerReference
from app.api.workload import Workload
from app.jobs.base import Integration
from app.jobs.job import BatchJob
from app.jobs.naming import group_of, owner_keys
from app.jobs.options import Options
from app.jobs.pod import PlainPod

INTEGRATIONS: Final[tuple[Integration[Any], ...]] = (
    BatchJob(),
    PlainPod(),
)

_BY_FRAMEWORK: Final = {integration.framework: integration for integration in INTEGRATIONS}
_BY_KIND: Final = {(each.kind.GROUP, each.kind.KIND): each for each in INTEGRATIONS}
_FRAMEWORKS: Final = {key: each.framework for key, each in _BY_KIND.items()}


def kinds(options: Options | None = None) -> list[type[Kind]]:
    """The kinds in the order of the table; with `options` those that are enabled."""
    return [each.kind for each in INTEGRATIONS if options is None or options.enabled(each.framework)]


def by_framework(framework: str) -> Integration[Any]:
    """The integration of that name. Raises KeyError if there is none."""
    return _BY_FRAMEWORK[framework]


def by_kind(kind: type[Kind]) -> Integration[Any]:
    """The integration of a kind. Raises KeyError if there is none."""
    return _BY_KIND[kind.GROUP, kind.KIND]


def by_owner(owner: OwnerReference) -> Integration[Any] | None:
    """The integration of an owner's kind, whatever its version; None if it is not a job kind."""
    return _BY_KIND.get((group_of(owner), owner.kind))


def jobs_of(workload: Workload) -> list[str]:
    """Keys of the jobs that own a Workload, by name."""
    return list(owner_keys(workload, _FRAMEWORKS))
