"""Follows the access to a worker cluster that its MultiKueueCluster names: a kubeconfig in a Secret or in a file, or a
ClusterProfile.

Each change of the access is passed on, and the reason where there is none. Must never connect to the cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from turnstile.api.clusterprofile import ClusterProfile
from turnstile.api.core import Secret
from turnstile.api.errors import ApiError, Forbidden
from turnstile.api.meta import Kind
from turnstile.api.multikueue import ClusterSource
from turnstile.controllers.multikueue import profiles
from turnstile.controllers.multikueue.kubeconfigs import Standing, access_by, in_file, in_secret, refused
from turnstile.jobs.options import AccessProvider
from turnstile.kube.auth import Access
from turnstile.kube.reflector import Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

K = TypeVar("K", bound=Kind)

CHECK_SECONDS: Final = 0.5
"""Between two looks at whether an object can be read."""
FILE_SECONDS: Final = 2.0
"""Between two looks at a kubeconfig file."""

By = Callable[[bytes], Awaitable[Access]]
"""Makes the access to a cluster from what is known of it. Raises BadKubeConfig."""
Says = Callable[[bytes | Standing], None]
"""Is called with what is known of the access, or why there is none."""


@dataclass(frozen=True, slots=True)
class Follower:
    """Follows one source of access. Secrets and profiles are read in `namespace`; `safe_paths`: only files below the
    folder of kubeconfigs are read."""

    source: ClusterSource
    transport: Transport
    namespace: str
    safe_paths: bool
    providers: Sequence[AccessProvider]

    @property
    def by(self) -> By:
        """How access is made from what is passed on."""
        return (
            access_by if self.source.kube_config is not None else partial(profiles.access_by, providers=self.providers)
        )

    async def run(self, says: Says) -> None:
        """Pass on what is known, and each change of that, until cancelled."""
        config, profile = self.source.kube_config, self.source.cluster_profile_ref
        if config is not None and config.location_type == "Path":
            await self._file(config.location, says)
        elif config is not None:
            name, cure = config.location, "; name it in the chart's value multiKueue.secrets"
            await self._object(
                Secret,
                name,
                lambda found: says(in_secret(name, self.namespace, found)),
                lambda error: says(refused("BadKubeConfig", _unread(Secret, name, error, cure))),
            )
        elif profile is not None:
            name = profile.name
            await self._object(
                ClusterProfile,
                name,
                lambda found: says(profiles.in_profile(name, found, self.providers)),
                lambda error: says(refused(profiles.BAD, _unread(ClusterProfile, name, error))),
            )

    async def _object(
        self, kind: type[K], name: str, found: Callable[[K | None], None], failed: Callable[[ApiError], None]
    ) -> None:
        """Follow one object, also while there is none of that name."""
        store, key = Store[K](), f"{self.namespace}/{name}"
        store.subscribe(lambda *_: found(store.get(key)))
        params = {"fieldSelector": f"metadata.name={name}"}
        reflector = Reflector(self.transport, store, kind, namespace=self.namespace, params=params)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run(), name=f"{kind.KIND} {name}")
            while not reflector.synced.is_set():
                if isinstance(error := reflector.error, ApiError):
                    failed(error)
                await asyncio.sleep(CHECK_SECONDS)
            if store.get(key) is None:
                found(None)

    async def _file(self, location: str, says: Says) -> None:
        before: bytes | Standing | None = None
        while True:
            found = await asyncio.to_thread(in_file, location, safe=self.safe_paths)
            if found != before:
                before = found
                says(found)
            await asyncio.sleep(FILE_SECONDS)


def _unread(kind: type[Kind], name: str, error: ApiError, cure: str = "") -> str:
    return f'{kind.KIND} "{name}" cannot be read: {error.message}{cure if isinstance(error, Forbidden) else ""}'
