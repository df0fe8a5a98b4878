"""Targets of questions, in the words of their askers: the name of a job, or `KIND/NAME`, as kubectl takes it."""

import re
from collections.abc import Callable
from typing import Any, Final

from turnstile.api import names
from turnstile.api.errors import InvalidValue, TurnstileError
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.engine.intake import FEEDING
from turnstile.insight.snapshot import Snapshot
from turnstile.wording.workloads import job_of

CURE: Final = "give the name of a job, or KIND/NAME as workload/job-train-4f2a1, job/train or pod/worker-0"

_SHORT: Final = {
    "ClusterQueue": ("cq",),
    "LocalQueue": ("lq", "queue", "queues"),
    "ResourceFlavor": ("rf", "flavor", "flavors"),
    "Workload": ("wl",),
    "Namespace": ("ns",),
}


def target_of(text: str) -> tuple[str, str]:
    """Kind (lower case) and name of a target; a name alone has an empty kind. Raises InvalidValue."""
    return named(text, CURE) if "/" in text or not text else ("", text)


def named(text: str, cure: str) -> tuple[str, str]:
    """Kind (lower case) and name of `KIND/NAME`. Raises InvalidValue."""
    kind, slash, name = text.partition("/")
    if not (slash and kind and name):
        raise InvalidValue("TARGET", text, cure)
    return kind.lower(), name


def workload_of(
    snapshot: Snapshot,
    target: tuple[str, str],
    namespace: str,
    get: Callable[[str], dict[str, Any] | None],
    why: Callable[[str, str], str],
) -> str:
    """The key of the Workload that `KIND/NAME` means: itself, or the newest that is for the job or pod.

    A name alone means the newest job of that name, or the Workload. `get` reads an object of the cluster by its path,
    `why` tells why there is no Workload for a kind and name. Raises TurnstileError if there is none.
    """
    kind, name = target
    if kind in ("workload", "workloads", "wl"):
        return f"{namespace}/{name}"
    owners = {(kind, name)}
    if kind in ("pod", "pods", "po"):
        pod = get(f"/api/v1/namespaces/{namespace}/pods/{name}") or {"metadata": {}}
        meta = pod["metadata"]
        if of := (meta.get("annotations") or {}).get(names.WORKLOAD):
            return f"{namespace}/{of}"
        owners = {("pod", name), *((each["kind"].lower(), each["name"]) for each in meta.get("ownerReferences") or ())}
    found = [each for each in snapshot.of(Workload) if each.metadata.namespace == namespace and _is_for(each, owners)]
    if not found:
        raise TurnstileError(why(kind, name))
    return max(found, key=_newest).metadata.key


def _newest(workload: Workload) -> tuple[bool, str, bool, str]:
    """Sorts Workloads of a job: those that are not finished last, the newest of them at the end. A slice that waits to
    take the place of another one may be as old."""
    meta = workload.metadata
    replaces = names.SLICE_REPLACEMENT_FOR in meta.annotations
    return not workload.finished, meta.creation_timestamp or "", replaces, meta.name


def _is_for(workload: Workload, owners: set[tuple[str, str]]) -> bool:
    """Whether a Workload has one of these owners, by kind (also in the plural, and with a group) and name."""
    if any(not kind and name in (workload.metadata.name, job_of(workload)[1]) for kind, name in owners):
        return True
    return any(
        owner.name == name and re.fullmatch(rf"{owner.kind.lower()}(e?s)?(\..*)?", kind) is not None
        for owner in workload.metadata.owner_references
        for kind, name in owners
    )


def dropped(text: str, namespace: str, key_of: Callable[[str], str]) -> tuple[type[Kind], str]:
    """Kind and key of an object that would be deleted, given as `KIND/NAME`; of a job its Workload, which `key_of`
    finds."""
    word, name = named(text, "give KIND/NAME, as job/train or clusterqueue/team-a")
    for kind in FEEDING:
        if word in (kind.KIND.lower(), kind.PLURAL, *kind.SHORT_NAMES, *_SHORT.get(kind.KIND, ())):
            return kind, f"{namespace}/{name}" if kind.NAMESPACED else name
    return Workload, key_of(text)
