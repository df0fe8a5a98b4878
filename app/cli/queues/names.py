"""Names of objects, for the completion of a shell: none if the API server does not answer in time."""

from collections.abc import Callable
from typing import Any, Final

import typer

from app.cli.queues.paths import VERSION, path_of

LIMIT: Final = 100
"""Names that are asked for at most."""
SECONDS: Final = "3s"


def _asking(collection: str, *, namespaced: bool, version: str = VERSION) -> Callable[[typer.Context, str], list[str]]:
    """A completion with the names of a collection."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        import asyncio

        from app.api.errors import TurnstileError
        from app.cli.queues.options import Where
        from app.cli.queues.session import session

        given: dict[str, Any] = {name: ctx.params.get(name) for name in Where.__dataclass_fields__}
        where = Where(**{name: value for name, value in given.items() if value} | {"request_timeout": SECONDS})

        async def names() -> list[str]:
            async with session(where, "completion") as at:
                path = path_of(version, collection, namespace=at.namespace if namespaced else "")
                accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
                listed = await at.get(path, accept=accept, limit=LIMIT)
                return [each["metadata"]["name"] for each in listed["items"]]

        try:
            found = asyncio.run(names())
        except TurnstileError:
            return []
        given_already = ctx.params.get("names") or ()
        return [name for name in found if name.startswith(incomplete) and name not in given_already]

    return complete


namespaces: Final = _asking("namespaces", namespaced=False, version="v1")
cluster_queues: Final = _asking("clusterqueues", namespaced=False)
local_queues: Final = _asking("localqueues", namespaced=True)
resource_flavors: Final = _asking("resourceflavors", namespaced=False)
workloads: Final = _asking("workloads", namespaced=True)
cohorts: Final = _asking("cohorts", namespaced=False)
