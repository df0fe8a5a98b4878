"""The audit that tests run, on objects that are read from the API server for it and not from any cache of Turnstile."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from testbed.client import Api, wait_until
from testbed.errors import ApiError
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.pace import finish
from turnstile.insight.audit import Finding, Problem, audit
from turnstile.insight.evidence import Evidence
from turnstile.jobs.registry import Registry

T = TypeVar("T", bound=Kind)

UNUSED_SECONDS = 5.0
"""For so long a Workload of a test may hold quota that nothing uses."""


def findings(api: Api, *namespaces: str) -> set[Finding]:
    """What an audit finds in these namespaces, all of which are managed."""
    registry = Registry()
    pods = _read(api, Pod, namespaces)
    jobs: dict[tuple[type[Kind], str], Kind] = {
        (each.kind, job.metadata.key): job
        for each in registry.watched
        for job in (pods if each.kind is Pod else _read(api, each.kind, namespaces))
    }
    evidence = Evidence(
        now=datetime.now(UTC),
        pods=pods,
        workloads=_read(api, Workload, namespaces),
        cluster_queues=_read(api, ClusterQueue),
        cohorts=_read(api, Cohort),
        local_queues=_read(api, LocalQueue, namespaces),
        flavors=_read(api, ResourceFlavor),
        find=lambda kind, key: jobs.get((kind, key)),
        managed=lambda namespace: namespace in namespaces,
        manage_jobs_without_queue_name=False,
        registry=registry,
        options=Options(),
        grace_seconds=UNUSED_SECONDS,
    )
    return set(finish(audit(evidence)))


def assert_passes(
    api: Api, *namespaces: str, timeout: float = 10, apart_from: Collection[Problem] = (), about: str = ""
) -> None:
    """Audit again and again until each finding was missing once; those that stay until the deadline are wrong.

    Objects of several kinds cannot be read at one moment, so a finding that another reading does not have is none.
    """
    standing: set[Finding] | None = None

    def passed() -> bool:
        nonlocal standing
        found = {each for each in findings(api, *namespaces) if each.problem not in apart_from}
        standing = found if standing is None else standing & found
        return not standing

    wait_until(passed, timeout=timeout, describe=lambda: f"the audit finds{about}: {told(standing or ())}")


def told(found: Collection[Finding]) -> str:
    """Findings for people."""
    return "\n".join(f"{each.problem}: {each.message}" for each in sorted(found))


def _read(api: Api, kind: type[T], namespaces: Collection[str] = ("",)) -> list[T]:
    """All objects of a kind, none if the API server does not know the kind."""
    decode: Callable[[bytes], Any] = kind.decoder()
    try:
        return [
            decode(msgspec.json.encode(item))
            for namespace in namespaces
            for item in api.items(kind.collection_path(namespace))
        ]
    except ApiError as error:
        if error.code == 404:
            return []
        raise
