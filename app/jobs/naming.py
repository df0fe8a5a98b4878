"""Names: of the Workload made for a job, and of a job among all kinds.

Kueue's rule for Workload names (pkg/controller/jobframework/workload_names.go), so that a cluster that moves between
Kueue and Turnstile keeps its objects. Must never depend on anything that can change while a job lives.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha1

from app.api.meta import Kind, OwnerReference
from app.api.workload import Workload

MAX_NAME = 253
_HASH = 5


def workload_name(kind: type[Kind], name: str, uid: str, *, extra: str = "") -> str:
    """`job-train-0a1b2`: kind and owner's name, cut to fit, and a hash of kind, group, name and uid.

    `extra` tells several Workloads of one owner apart. The API version is left out, so that an upgrade keeps the name.
    """
    parts = [kind.KIND, kind.GROUP, name, uid, *([extra] if extra else [])]
    digest = sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH]
    prefix = f"{kind.KIND.lower()}-{name}"[: MAX_NAME - _HASH - 1]
    return f"{prefix}-{digest}"


def job_key(framework: str, namespace: str, name: str) -> str:
    """The key of a job in the work queue and in the index of Workloads by job: `batch/job:team-a/train`."""
    return f"{framework}:{namespace}/{name}"


def split_job_key(key: str) -> tuple[str, str]:
    """Framework and `namespace/name` of a job's key."""
    framework, _, name = key.partition(":")
    return framework, name


def owner_keys(workload: Workload, frameworks: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Keys of the jobs that a Workload is owned by; `frameworks` maps (group, kind) to framework names.

    By name, not uid: a job that is gone is known by name alone.
    """
    for owner in workload.metadata.owner_references:
        framework = frameworks.get((group_of(owner), owner.kind))
        if framework is not None:
            yield job_key(framework, workload.metadata.namespace, owner.name)


def group_of(owner: OwnerReference) -> str:
    """API group of an owner; empty for the core group."""
    group, slash, _ = owner.api_version.partition("/")
    return group if slash else ""
