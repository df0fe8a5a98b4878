"""Objects by the ten thousand, written straight into etcd.

One is created through the API server, and what it stored is the pattern of all others, so they are read as if each had
been created like that: with managed fields, defaults and all. A hundred thousand take seconds instead of minutes.
"""

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import aiohttp

from testbed import resource_path
from tests.bench.client import Client
from tests.bench.shape import Planned, workload_body, workload_json
from tests.cluster.scenario import GROUP

AT_ONCE = 100
"""Objects of one transaction; etcd takes 128."""


async def pattern_of(client: Client, etcd: str, namespace: str, workload: Planned) -> dict[str, Any]:
    """Create a Workload, and return what is stored of it without its status. Turnstile's webhooks must be there."""
    await client.create(resource_path(GROUP, "workloads", namespace=namespace), workload_body(workload, namespace))
    async with aiohttp.ClientSession(etcd) as session:
        found = await _call(session, "range", {"key": _text(_prefix(namespace) + workload.name)})
    pattern: dict[str, Any] = json.loads(base64.b64decode(found["kvs"][0]["value"]))
    pattern.pop("status", None)
    managed = pattern["metadata"]["managedFields"]
    pattern["metadata"]["managedFields"] = [each for each in managed if not each.get("subresource")]
    return pattern


async def fill(etcd: str, namespace: str, pattern: dict[str, Any], workloads: Sequence[Planned]) -> None:
    """Make these Workloads stand in the cluster, created a second apart for every hundred, the last one just now."""
    prefix = _prefix(namespace)
    stored = _stored(pattern, namespace, workloads)
    async with aiohttp.ClientSession(etcd) as session:
        await _put_all(session, ((prefix + name, value.encode()) for name, value in stored))


async def copy(etcd: str, key: str, changes: Iterable[Mapping[str, str]]) -> None:
    """Make copies of the object that is stored under a key, one for each set of words in it that are others there.

    Kubernetes' own kinds are stored as protobuf, which counts bytes: raises ValueError for a word of another length.
    """
    async with aiohttp.ClientSession(etcd) as session:
        found = await _call(session, "range", {"key": _text(key)})
        pattern = base64.b64decode(found["kvs"][0]["value"])

        def copies() -> Iterator[tuple[str, bytes]]:
            for words in changes:
                name, value = key, pattern
                for word, other in words.items():
                    if len(word.encode()) != len(other.encode()):
                        raise ValueError(f"{other!r}: is not as long as {word!r}, in whose place it would stand")
                    name, value = name.replace(word, other), value.replace(word.encode(), other.encode())
                yield name, value

        await _put_all(session, copies())


async def _put_all(session: aiohttp.ClientSession, objects: Iterator[tuple[str, bytes]]) -> None:
    while some := list(islice(objects, AT_ONCE)):
        puts = [{"requestPut": {"key": _text(key), "value": _coded(value)}} for key, value in some]
        await _call(session, "txn", {"success": puts})


def _stored(pattern: dict[str, Any], namespace: str, workloads: Sequence[Planned]) -> Iterator[tuple[str, str]]:
    """Names, and what etcd stores of each."""
    now = datetime.now(UTC)
    for number, each in enumerate(workloads):
        created = now - timedelta(seconds=(len(workloads) - number) // 100)
        meta = {
            **pattern["metadata"],
            "name": each.name,
            "uid": str(uuid.UUID(int=number + 1, version=4)),
            "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        spec = {**pattern["spec"], **workload_json(each, namespace)["spec"]}
        yield each.name, json.dumps({**pattern, "metadata": meta, "spec": spec}, separators=(",", ":"))


def _prefix(namespace: str) -> str:
    return f"/registry/kueue.x-k8s.io/workloads/{namespace}/"


async def _call(session: aiohttp.ClientSession, method: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(f"/v3/kv/{method}", json=body) as answer:
        answer.raise_for_status()
        found: dict[str, Any] = await answer.json()
        return found


def _text(plain: str) -> str:
    return _coded(plain.encode())


def _coded(plain: bytes) -> str:
    return base64.b64encode(plain).decode()
