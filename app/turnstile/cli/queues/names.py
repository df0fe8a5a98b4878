"""Names of objects, for the completion of a shell: none if the API server does not answer in time."""

from collections.abc import Callable
from typing import Any, Final

import typer

from turnstile.cli.queues.paths import VERSION, path_of

LIMIT: Final = 100
"""Names that are asked for at most."""
SECONDS: Final = "3s"
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


Complete = Callable[[typer.Context, str], list[str]]
Plain = dict[str, Any]


def _asking(
    collection: str, *, namespaced: bool, version: str = VERSION, keep: Callable[[Plain], bool] | None = None
) -> Complete:
    """A completion with the names of a collection, or of those of its objects that `keep` chooses."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        import asyncio

        from turnstile.api.errors import TurnstileError
        from turnstile.cli.connection import Where
        from turnstile.cli.queues.session import session

        given: dict[str, Any] = {name: ctx.params.get(name) for name in Where.__dataclass_fields__}
        where = Where(**{name: value for name, value in given.items() if value} | {"request_timeout": SECONDS})

        async def names() -> list[str]:
            async with session(where, "completion") as at:
                path = path_of(version, collection, namespace=at.namespace if namespaced else "")
                listed = await at.get(path, accept=METADATA if keep is None else "application/json", limit=LIMIT)
                return [each["metadata"]["name"] for each in listed["items"] if keep is None or keep(each)]

        try:
            found = asyncio.run(names())
        except TurnstileError:
            return []
        given_already = ctx.params.get("names") or ()
        return [name for name in found if name.startswith(incomplete) and name not in given_already]

    return complete


def _goes_on(obj: Plain) -> bool:
    """Whether a queue is not stopped, or a Workload is active."""
    spec = obj.get("spec", {})
    return bool(spec.get("active", True)) and spec.get("stopPolicy", "None") == "None"


def _is_stopped(obj: Plain) -> bool:
    return not _goes_on(obj)


namespaces: Final = _asking("namespaces", namespaced=False, version="v1")
cluster_queues: Final = _asking("clusterqueues", namespaced=False)
local_queues: Final = _asking("localqueues", namespaced=True)
workloads: Final = _asking("workloads", namespaced=True)
cohorts: Final = _asking("cohorts", namespaced=False)
# What can be stopped, and what can be resumed.
running_cluster_queues: Final = _asking("clusterqueues", namespaced=False, keep=_goes_on)
stopped_cluster_queues: Final = _asking("clusterqueues", namespaced=False, keep=_is_stopped)
running_local_queues: Final = _asking("localqueues", namespaced=True, keep=_goes_on)
stopped_local_queues: Final = _asking("localqueues", namespaced=True, keep=_is_stopped)
active_workloads: Final = _asking("workloads", namespaced=True, keep=_goes_on)
inactive_workloads: Final = _asking("workloads", namespaced=True, keep=_is_stopped)
