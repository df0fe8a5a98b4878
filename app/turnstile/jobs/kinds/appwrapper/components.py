"""The pod templates inside an object of any kind, as the AppWrapper controller finds them: by the kind, or as declared.

The controller adds to each of these templates what an admission gives, in this order; so the order must be the
controller's, also for kinds whose integration lists their templates in another one. Must never decide how many pods a
template is charged for: `turnstile.jobs.kinds.appwrapper.wrapper` does.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from turnstile.jobs.topologyrequest import PodIndex

Json = Any
Path = tuple[str | int, ...]

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class Part(NamedTuple):
    """A pod template (or a Pod) inside an object, the number of pods made from it, and how they are numbered."""

    path: Path
    pods: int
    numbered: PodIndex | None = None


def path_of(text: str) -> Path:
    """`template.spec.replicatedJobs[0].template` as a path of the object. Raises ValueError."""
    if not text.startswith("template"):
        raise ValueError("the path starts with `template`")
    rest, path, end = text.removeprefix("template"), [], 0
    for step in _STEP.finditer(rest):
        if step.start() != end:
            break
        path.append(step[1] if step[1] is not None else int(step[2]))
        end = step.end()
    if end != len(rest):
        raise ValueError(f"the path cannot be read from `{rest[end:]}` on")
    return tuple(path)


def at(value: Json, path: Path) -> Json:
    """The value at a path of an object. Raises ValueError if there is none."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"{part!r} is not there") from None
    return value


def inferred(obj: Json) -> list[Part]:
    """The pod templates of an object of a kind that the AppWrapper controller knows; empty for any other kind."""
    find = _KNOWN.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    return list(find(obj)) if find is not None else []


def _number(value: Json, path: Path, default: int = 1) -> int:
    """The whole number at a path; the default if there is none."""
    try:
        found = at(value, path)
    except ValueError:
        return default
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def _pod(obj: Json) -> Iterator[Part]:
    yield Part((), 1)


def _replicas(obj: Json) -> Iterator[Part]:
    yield Part(("spec", "template"), _number(obj, ("spec", "replicas")))


def _job(obj: Json) -> Iterator[Part]:
    yield Part(("spec", "template"), _pods_of_job(obj, ("spec",)))


def _pods_of_job(obj: Json, spec: Path) -> int:
    parallelism = _number(obj, (*spec, "parallelism"))
    return min(parallelism, _number(obj, (*spec, "completions"), parallelism))


def _jobset(obj: Json) -> Iterator[Part]:
    for place in _each(obj, ("spec", "replicatedJobs")):
        if _has(obj, (*place, "template")):
            pods = _pods_of_job(obj, (*place, "template", "spec"))
            yield Part((*place, "template", "spec", "template"), _number(obj, (*place, "replicas")) * pods)


def _pytorchjob(obj: Json) -> Iterator[Part]:
    for role in ("Master", "Worker"):
        place = ("spec", "pytorchReplicaSpecs", role)
        if _has(obj, (*place, "template")):
            yield Part((*place, "template"), _number(obj, (*place, "replicas")))


def _raycluster(obj: Json) -> Iterator[Part]:
    yield from _ray(obj, ("spec",))


def _rayjob(obj: Json) -> Iterator[Part]:
    yield from _ray(obj, ("spec", "rayClusterSpec"))


def _ray(obj: Json, spec: Path) -> Iterator[Part]:
    yield Part((*spec, "headGroupSpec", "template"), 1)
    for place in _each(obj, (*spec, "workerGroupSpecs")):
        if _has(obj, (*place, "template")):
            yield Part((*place, "template"), _number(obj, (*place, "replicas")))


def _each(obj: Json, path: Path) -> Iterator[Path]:
    if _has(obj, path) and isinstance(items := at(obj, path), list):
        yield from ((*path, index) for index in range(len(items)))


def _has(obj: Json, path: Path) -> bool:
    try:
        return at(obj, path) is not None
    except ValueError:
        return False


_KNOWN: Final = {
    ("v1", "Pod"): _pod,
    ("apps/v1", "Deployment"): _replicas,
    ("apps/v1", "StatefulSet"): _replicas,
    ("batch/v1", "Job"): _job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _jobset,
    ("kubeflow.org/v1", "PyTorchJob"): _pytorchjob,
    ("ray.io/v1", "RayCluster"): _raycluster,
    ("ray.io/v1", "RayJob"): _rayjob,
}
