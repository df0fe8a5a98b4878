"""Names of the Workloads that Turnstile creates for jobs, keys of jobs across all kinds, and paths of their webhooks.

Workload names follow Kueue (pkg/controller/jobframework/workload_names.go), so that a cluster that moves between Kueue
and Turnstile keeps its objects. Must never depend on anything that can change during a job's lifetime.
"""

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha1

from turnstile.api.meta import Kind, OwnerReference
from turnstile.api.workload import Workload

MAX_NAME = 253
SHORT_NAME = 63
"""The longest name with the gate ShortWorkloadNames, so that it may be the value of a label."""
_HASH = 5
_GROUP = "group/"


def workload_name(kind: type[Kind], name: str, uid: str, *, extra: str = "", longest: int = MAX_NAME) -> str:
    """`job-train-0a1b2`: kind and owner's name, truncated, and a hash of kind, group, name and uid; at most `longest`
    characters.

    `extra` distinguishes several Workloads of one owner. The API version is left out, so that an upgrade keeps the
    name.
    """
    digest = workload_digest(kind.KIND, kind.GROUP, name, uid, *([extra] if extra else []))
    prefix = f"{kind.KIND.lower()}-{name}"[: longest - _HASH - 1]
    return f"{prefix}-{digest}"


def workload_digest(kind: str, group: str, name: str, uid: str, *extra: str) -> str:
    """The hash with which the name of a Workload ends."""
    parts = (kind, group, name, uid, *extra)
    return sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH]


def variant_name(
    parent: str, uid: str, flavor: str, *, kind: str = "", group: str = "", longest: int = MAX_NAME
) -> str:
    """`job-train-variant-spot-0a1b2`: the name of the Workload by which a parent competes for a flavor. Kueue reads the
    kind and the group of the parent from an object that has none."""
    parts = [kind, group, parent, uid, flavor]
    digest = sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH]
    prefix = f"{parent.rpartition('-')[0] or parent}-variant-{flavor}"[: longest - _HASH - 1]
    return f"{prefix}-{digest}"


def webhook_path(kind: type[Kind]) -> str:
    """The suffix of a kind's webhook paths, as in Kueue: `batch-v1-job`, `-v1-pod`."""
    return f"{kind.GROUP.replace('.', '-')}-{kind.VERSION}-{kind.KIND.lower()}"


def job_key(framework: str, namespace: str, name: str) -> str:
    """The key of a job in the work queue and in the index of Workloads by job: `batch/job:team-a/train`."""
    return f"{framework}:{namespace}/{name}"


def split_job_key(key: str) -> tuple[str, str]:
    """Framework and `namespace/name` of a job's key."""
    framework, _, name = key.partition(":")
    return framework, name


def group_key(framework: str, namespace: str, name: str) -> str:
    """The key of a group of objects that form one job: `pod:team-a/group/train`. Object names never contain a slash."""
    return job_key(framework, namespace, f"{_GROUP}{name}")


def group_in(name: str) -> str:
    """The group's name in the `namespace/name` of a key; empty if the key names a single object."""
    _, _, rest = name.partition("/")
    return rest.removeprefix(_GROUP) if rest.startswith(_GROUP) else ""


def owner_keys(
    workload: Workload, frameworks: Mapping[tuple[str, str], str], *, grouping: Collection[str] = ()
) -> Iterator[str]:
    """Keys of the jobs that own a Workload; `frameworks` maps (group, kind) to framework names.

    By name, not uid: a deleted job is known by name only. For a framework in `grouping`, owners that are not the
    Workload's controller form a group with the Workload's name.
    """
    meta = workload.metadata
    for owner in meta.owner_references:
        framework = frameworks.get((group_of(owner), owner.kind))
        if framework is None:
            continue
        if framework in grouping and not owner.controller:
            yield group_key(framework, meta.namespace, meta.name)
        else:
            yield job_key(framework, meta.namespace, owner.name)


def group_of(owner: OwnerReference) -> str:
    """API group of an owner; empty for the core group."""
    group, slash, _ = owner.api_version.partition("/")
    return group if slash else ""
