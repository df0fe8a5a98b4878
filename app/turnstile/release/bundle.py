"""Collects what a bug report needs into one archive, with the names of other tenants replaced.

Objects are in it as Turnstile reads them: of pods only what decides about quota, so neither images nor environments nor
commands. `about.json` names what could not be read. Must never write to the cluster, nor contain a Secret.
"""

import io
import platform
import secrets
import sqlite3
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
import yaml

from turnstile import __version__
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace
from turnstile.api.errors import ApiError, InvalidValue, WireError
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import to_plain
from turnstile.api.workload import Workload
from turnstile.insight.snapshot import Snapshot
from turnstile.kube.transport import Transport
from turnstile.process import snapshots
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, Recorded, reading
from turnstile.release.pseudonyms import Pseudonyms
from turnstile.release.reading import Reading

MOST_TIMELINES: Final = 1000
"""Workloads of the namespace whose timelines are in a bundle, the newest first."""


@dataclass(slots=True)
class Parts:
    """The collected files."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    configuration: Any = None
    deployments: list[Any] = field(default_factory=list)
    metrics: str = ""
    timelines: list[Any] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    recorded_queues: list[str] = field(default_factory=list)
    server: Any = None
    salt: str = ""
    missing: dict[str, str] = field(default_factory=dict)
    """Files that could not be collected, and why."""


async def collect(transport: Transport, *, release: str, release_namespace: str, namespace: str) -> Parts:
    """All that the cluster shows to the caller. Raises WireError without an API server, and NotServed without
    Turnstile's kinds."""
    parts, cluster = Parts(), Reading(transport)
    parts.snapshot = await snapshots.read(transport, namespace)
    parts.missing |= {f"objects: {kind.PLURAL}": why for kind, why in parts.snapshot.unread.items()}
    for kind, where in parts.snapshot.hidden.items():
        parts.missing[f"objects: {kind.PLURAL}"] = f"may be listed in namespace {where} only" if where else "forbidden"
    parts.server = await cluster.get("/version")
    system = await cluster.get("/api/v1/namespaces/kube-system", metadata_only=True)
    parts.salt = system["metadata"]["uid"] if system is not None else ""
    own = f"/namespaces/{release_namespace}"
    config = await cluster.get(f"/api/v1{own}/configmaps/{release}-config")
    if config is not None:
        parts.configuration = yaml.safe_load(next(iter(config.get("data", {}).values()), ""))
    else:
        parts.missing["configuration"] = f"no ConfigMap {release}-config is there or may be read: defaults may hold"
    for role in ("controller", "webhook"):
        found = await cluster.get(f"/apis/apps/v1{own}/deployments/{release}-{role}")
        if found is not None:
            parts.deployments.append({key: found[key] for key in ("metadata", "spec", "status") if key in found})
            parts.deployments[-1]["metadata"] = {"name": found["metadata"]["name"]}
    if not parts.deployments:
        parts.missing["deployments"] = f"those of release {release} are not in {release_namespace}, or may not be read"
    await _add_metrics(parts, transport, f"/api/v1{own}/services/%s{release}-controller-metrics:metrics/proxy/metrics")
    parts.missing |= dict.fromkeys(cluster.failures, "you may not read it")
    return parts


async def _add_metrics(parts: Parts, transport: Transport, path: str) -> None:
    """Through the API server, which presents no token: they are shown to everybody, or not here."""
    for scheme in ("https:", ""):
        try:
            parts.metrics = (await transport.request("GET", path % scheme, accept="text/plain")).decode(
                errors="replace"
            )
        except (ApiError, WireError) as error:
            parts.missing["metrics"] = f"{error}; docs/reference/metrics.md says how to read them"
        else:
            parts.missing.pop("metrics", None)
            return


def record(parts: Parts, location: Location, namespace: str) -> None:
    """Add the timelines of a namespace. Raises InvalidValue for a store that is not the recorder's."""
    with reading(location) as reader:
        parts.recorded = reader.newest(at_most=1_000_000)
        parts.recorded_queues = sorted({quota.name for quota in reader.quotas() if quota.kind == "ClusterQueue"})
        mine = reader.newest(namespace=namespace, at_most=MOST_TIMELINES)
        parts.timelines = [_timeline(reader, workload) for workload in mine]


def _timeline(reader: Reader, workload: Recorded) -> Any:
    return msgspec.to_builtins({"workload": workload, "entries": reader.timeline(workload.uid)})


def pseudonyms(parts: Parts, namespace: str) -> Pseudonyms:
    """Those of all other namespaces and what is in them, and of the ClusterQueues that no LocalQueue of the namespace
    leads to."""
    snapshot = parts.snapshot
    mine, others = _split(snapshot, namespace)
    leading = (queue for queue in snapshot.of(LocalQueue) if queue.metadata.namespace == namespace)
    led_to = {queue.spec.cluster_queue or "" for queue in leading}
    shown = {kind for kind in snapshot.objects if not kind.NAMESPACED and kind not in (Namespace, ClusterQueue)}
    cluster = {obj.metadata.name for kind in shown for obj in snapshot.of(kind)}
    made = Pseudonyms(parts.salt or secrets.token_hex(16), kept={namespace, *mine, *led_to, *cluster, "kube-system"})
    made.add("namespace", (obj.metadata.name for obj in snapshot.of(Namespace)))
    made.add("namespace", (workload.namespace for workload in parts.recorded))
    made.add("queue", (obj.metadata.name for obj in snapshot.of(ClusterQueue)))
    made.add("queue", parts.recorded_queues)
    made.add("name", others)
    for workload in parts.recorded:
        if workload.namespace != namespace:
            made.add("name", (workload.name, workload.owner_name, workload.local_queue))
    made.add("value", (value for obj in snapshot.of(Namespace) for value in obj.metadata.labels.values()))
    made.add("name", _mentioned(parts.timelines))
    return made


def _split(snapshot: Snapshot, namespace: str) -> tuple[set[str], set[str]]:
    """The names of objects, jobs and labels of a namespace, and those of all others."""
    mine: set[str] = set()
    others: set[str] = set()
    for held in snapshot.objects.values():
        for obj in held.values():
            meta = obj.metadata
            if not meta.namespace:
                continue
            names = mine if meta.namespace == namespace else others
            names.add(meta.name)
            names.update(owner.name for owner in meta.owner_references)
            names.update(meta.labels.values())
            if isinstance(obj, Workload) and obj.spec.queue_name:
                names.add(obj.spec.queue_name)
    for space in snapshot.of(Namespace):
        if space.metadata.name == namespace:
            mine.update(space.metadata.labels.values())
    return mine, others


def _mentioned(timelines: Iterable[Any]) -> Iterable[str]:
    """The names of Workloads that timelines mention as victims: they may be gone since."""
    for timeline in timelines:
        for entry in timeline["entries"]:
            for _, key, _ in entry["detail"].get("preempts", ()):
                space, _, name = key.partition("/")
                if space != timeline["workload"]["namespace"]:
                    yield from (space, name)


def archive(parts: Parts, namespace: str, now: datetime, *, with_other_tenants: bool) -> bytes:
    """The bundle as a gzipped tar archive."""
    hide = Pseudonyms("") if with_other_tenants else pseudonyms(parts, namespace)
    objects = [
        _object(obj, namespace, whole=with_other_tenants)
        for held in parts.snapshot.objects.values()
        for obj in held.values()
    ]
    about = {
        "turnstile": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "sqlite": sqlite3.sqlite_version,
        "kubernetes": parts.server,
        "made": now.isoformat(timespec="seconds"),
        "namespace": namespace,
        "pseudonyms": len(hide),
        "missing": parts.missing,
    }
    files = {
        "about.json": _json(hide.of(about)),
        "objects.json": _json({"apiVersion": "v1", "kind": "List", "items": hide.of(objects)}),
        "configuration.json": _json(hide.of(parts.configuration)),
        "deployments.json": _json(hide.of(parts.deployments)),
        "timelines.json": _json(hide.of(parts.timelines)),
        "metrics.txt": hide.text(parts.metrics).encode(),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"turnstile-bundle/{name}")
            info.size, info.mtime = len(data), int(now.timestamp())
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _object(obj: Any, namespace: str, *, whole: bool) -> Any:
    """An object as it is read back by `--state`; of other namespaces without what decides nothing."""
    plain: dict[str, Any] = to_plain(obj)
    kind = type(obj)
    plain |= {"apiVersion": f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION, "kind": kind.KIND}
    if not whole and obj.metadata.namespace not in ("", namespace):
        kept = {key: text for key, text in obj.metadata.annotations.items() if "kueue.x-k8s.io/" in key}
        plain["metadata"] = {**plain["metadata"], "annotations": kept}
        for pod_set in plain.get("spec", {}).get("podSets", ()):
            pod_set.get("template", {}).pop("metadata", None)
            for container in pod_set.get("template", {}).get("spec", {}).get("containers", ()):
                container.pop("name", None)
    return plain


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=_as_text)


def _as_text(value: Any) -> str:
    """Values that JSON has no word for, such as the digest of a pod template."""
    return value.hex() if isinstance(value, bytes) else str(value)


def write(path: Path, data: bytes) -> None:
    """Write the archive to a file that nobody else may read. Raises InvalidValue."""
    try:
        path.touch(mode=0o600)
        path.write_bytes(data)
    except OSError as error:
        raise InvalidValue("--output", str(path), f"cannot be written: {error.strerror}") from None
