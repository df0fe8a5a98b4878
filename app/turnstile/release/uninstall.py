"""Takes Turnstile out of a cluster, so that everything can be created, run and deleted without it.

`helm uninstall` then deletes what the chart made; CustomResourceDefinitions, queues and Workloads stay.

The order keeps any step from undoing another: webhooks and policies first, so that nothing is refused or suspended any
more; then objects in older versions, while they can be converted; then the controller, which would suspend again; then
definitions, gates, suspensions and finalizers, in passes until a pass finds nothing left. Each pass reads the cluster
anew, so the command may be run again at any time.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import orjson

from turnstile.api import names
from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.config import load, of_release
from turnstile.api.core import Namespace, Pod
from turnstile.api.errors import (
    ApiError,
    Conflict,
    InvalidConfiguration,
    NotFound,
    PermanentError,
    TurnstileError,
    WireError,
)
from turnstile.api.kinds import KINDS, Definition
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.installation import definitions
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import queue_name
from turnstile.jobs.registry import ALL, Registry
from turnstile.kube.lease import Lease
from turnstile.kube.transport import Transport
from turnstile.process.configured import job_kinds
from turnstile.release.findings import listed
from turnstile.release.leaving import (
    FINALIZED,
    Pending,
    can_be_held,
    held,
    is_gated,
    pod_released,
    started,
    without_finalizer,
)
from turnstile.release.manifests import CHART_LABEL, Plain, configuration, owner, registers_for_kueues_kinds, show
from turnstile.release.reading import ADMISSION, Reading
from turnstile.release.scope import Scope, resource_name

_API_SERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
FREE_SECONDS: Final = 2.5
"""Seconds for which no controller process may take the Lease: a standby tries about every second."""
_CHECK_SECONDS: Final = 0.25
_PASS_SECONDS: Final = 1.0
"""Between two passes: the API server heeds a policy that was deleted for about so long."""


class StillLeading(TurnstileError):
    """A controller does not stop."""


class StillManaged(TurnstileError):
    """Another program manages the jobs of the cluster."""


class Uninstall:
    """One removal of the release `name` in `namespace`. `say` gets a line about each thing that is done.

    With `dry_run` nothing is written, and the lines say what would be done.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        namespace: str,
        pending: Pending,
        dry_run: bool,
        say: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._reading = Reading(transport)
        self._name = name
        self._mutating = f"{name}-{names.MUTATING_CONFIGURATION}"
        self._validating = f"{name}-{names.VALIDATING_CONFIGURATION}"
        self._namespace = namespace
        self._pending = pending
        self._dry_run = dry_run
        self._say = say
        self._did = "would be " if dry_run else ""
        self._scope = Scope()
        self._registry = Registry()
        self._done: Counter[str] = Counter()
        self._left: list[str] = []
        self._unclear: set[str] = set()
        """Suspended jobs of which it is not known any more whether Turnstile suspended them."""

    async def run(self, seconds: float) -> list[str]:
        """Remove everything within `seconds`; what is left, each with the reason.

        Raises StillManaged before anything is changed, StillLeading, and the errors of `Transport`.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        await self._require_no_other()
        await self._learn()
        for path in [each async for each in self._interceptors()]:
            await self._delete(path)
        unread = [*self._reading.failures]
        await self._migrate()
        await self._stop_controller(deadline)
        while True:
            self._left = []
            self._reading.failures.clear()
            before = self._done.total()
            await self._pass()
            self._left += [f"{each}: cannot be read" for each in dict.fromkeys(self._reading.failures)]
            finished = self._dry_run or (not self._left and self._done.total() == before)
            if finished or asyncio.get_running_loop().time() > deadline:
                break
            if self._left:
                await asyncio.sleep(_PASS_SECONDS)
        for what, count in sorted(self._done.items()):
            self._say(f"{count} {what}")
        if self._unclear:
            said = "are suspended, name a queue and have no Workload: see whether their users suspended them"
            self._say(f"{listed(self._unclear)} {said}")
        await self._delete(Lease.path(f"{self._name}-controller", self._namespace))
        return [*(f"{each}: cannot be read" for each in unread), *self._left]

    async def owner(self) -> str:
        """The Helm release that made the controller's account; empty if none did."""
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{self._name}-controller"
        account = await self._reading.get(path)
        return owner(account)[0] if account is not None else ""

    # --- the installation

    async def _require_no_other(self) -> None:
        """Kueue, and a release of another name, have the same gates and finalizers."""
        ours = (self._mutating, self._validating)
        others = [
            show(each)
            for each in await self._reading.webhook_configurations()
            if registers_for_kueues_kinds(each) and each["metadata"]["name"] not in ours
        ]
        if others:
            raise StillManaged(f"jobs are managed with {listed(others)}: give --name of that release, or delete these")

    async def _learn(self) -> None:
        """Which jobs are managed, while the objects that say so are still there."""
        found = [
            await self._reading.get(f"{ADMISSION}/mutatingwebhookconfigurations/{self._mutating}"),
            await self._reading.get(f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{self._name}-controller"),
            await self._reading.get(f"/api/v1/namespaces/{self._namespace}/configmaps/{self._name}-config"),
        ]
        kinds = ("MutatingWebhookConfiguration", "Deployment", "ConfigMap")
        objects = [{**each, "kind": kind} for each, kind in zip(found, kinds, strict=True) if each is not None]
        self._scope = Scope.of(objects)
        if text := configuration(iter(objects)):
            installation = of_release(self._name, self._namespace)
            try:
                loaded = load(text, installation=installation, frameworks=[each.framework for each in ALL])
            except InvalidConfiguration as error:
                self._say(f"jobs of customKinds are left as they are: {error}")
            else:
                self._registry = job_kinds(loaded)

    async def _interceptors(self) -> AsyncIterator[str]:
        """Paths of all by which the API server asks Turnstile, or refuses in its place."""
        yield f"{ADMISSION}/mutatingwebhookconfigurations/{self._mutating}"
        yield f"{ADMISSION}/validatingwebhookconfigurations/{self._validating}"
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            for name in await self._reading.names(f"{ADMISSION}/{plural}", labels=CHART_LABEL):
                if name.startswith(f"{self._name}-"):
                    yield f"{ADMISSION}/{plural}/{name}"
        for name in names.API_SERVICES:
            path = f"{_API_SERVICES}/{name}"
            found = await self._reading.get(path)
            if found is not None and _serves(found).get("namespace") == self._namespace:
                yield path

    async def _delete(self, path: str) -> None:
        if await self._reading.get(path, metadata_only=True) is None:
            return
        self._say(f"{self._did}deleted: {path.rpartition('/v1/')[2]}")
        if not self._dry_run:
            try:
                await self._transport.request("DELETE", path)
            except NotFound:
                return

    async def _stop_controller(self, deadline: float) -> None:
        """Stop the controller's pods, and wait until no process holds the Lease, or takes it."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{self._name}-controller"
        deployment = await self._reading.get(path)
        if deployment is not None and deployment["spec"].get("replicas", 1):
            self._say(f"{self._did}stopped: deployments/{self._name}-controller")
            if not self._dry_run:
                body = orjson.dumps({"spec": {"replicas": 0}})
                await self._transport.request("PATCH", path, body=body, content_type="application/merge-patch+json")
        if self._dry_run:
            return
        loop = asyncio.get_running_loop()
        seen: tuple[str, str] | None = None
        since = loop.time()
        while True:
            lease = await self._lease()
            if lease is None:
                return
            holder = lease.spec.holder_identity or ""
            state = holder, lease.spec.renew_time or ""
            if state != seen:
                seen, since = state, loop.time()
            wanted = (lease.spec.lease_duration_seconds or 0) + FREE_SECONDS if holder else FREE_SECONDS
            if loop.time() - since > wanted:
                return
            if loop.time() > deadline:
                raise StillLeading(
                    f"{holder or 'a controller'} holds the Lease {lease.metadata.key}: stop that process"
                )
            await asyncio.sleep(_CHECK_SECONDS)

    async def _lease(self) -> Lease | None:
        try:
            return await self._transport.get(Lease, f"{self._name}-controller", self._namespace)
        except NotFound:
            return None

    # --- what is left on objects

    async def _pass(self) -> None:
        """Undo what is found now."""
        if not self._dry_run:
            await self._migrate()  # what could not be written before the controller stopped
        await self._restore_definitions()
        namespaces = {each.metadata.name: each.metadata.labels async for each in self._reading.objects(Namespace)}
        workloads: dict[str, list[Workload]] = {}
        async for workload in self._reading.objects(Workload):
            for key in self._registry.jobs_of(workload):
                workloads.setdefault(key, []).append(workload)
        for integration in self._registry.followed if self._pending is Pending.START else ():
            if can_be_held(integration):
                labelled = {
                    name for name, labels in namespaces.items() if _resource(integration) in self._scope.manages(labels)
                }
                await self._start(integration, workloads, labelled)
        await self._release_pods()
        for kind in FINALIZED:
            found = [patch async for each in self._reading.objects(kind) if (patch := without_finalizer(each))]
            await self._write(found, f"finalizers of {kind.PLURAL} {self._did}removed")

    async def _definitions(self) -> AsyncIterator[tuple[Definition, CustomResourceDefinition]]:
        """Turnstile's definitions; not Kueue's, which converts them itself."""
        for kinds in KINDS:
            try:
                found = await self._transport.get(CustomResourceDefinition, kinds.name)
            except NotFound:
                continue
            if definitions.is_ours(found):
                yield kinds, found

    async def _migrate(self) -> None:
        """Have every object stored in the present version of its kind, while what converts older ones still runs.

        An empty patch has the API server write an object as it is.
        """
        async for kinds, definition in self._definitions():
            kind, missed = kinds.stored, len(self._left) + len(self._reading.failures)
            if all(version == kind.VERSION for version in definition.status.stored_versions):
                continue
            found = [
                Patch(kind, each.metadata.namespace, each.metadata.name, b"{}")
                async for each in self._reading.objects(kind)
            ]
            await self._write(found, f"{kind.PLURAL} {self._did}stored as {kind.VERSION}")
            if len(self._left) + len(self._reading.failures) == missed:
                body = {"status": {"storedVersions": [kind.VERSION]}}
                patch = fresh_patch(definition, body, subresource="status")
                await self._write([patch], f"definitions {self._did}stripped of older stored versions")

    async def _restore_definitions(self) -> None:
        """Serve no version any more that Turnstile's webhook would have to convert."""
        async for kinds, definition in self._definitions():
            result = definitions.decide(definition, kinds, None, serve_older=False)
            patches = [each for each in result.actions if isinstance(each, Patch)]
            await self._write(patches, f"definitions {self._did}left with their stored version alone")

    async def _start(
        self, integration: Integration[Any], workloads: dict[str, list[Workload]], managed: Iterable[str]
    ) -> None:
        """Resume the jobs of a kind that wait."""
        patches: list[Patch] = []
        within = frozenset(managed)
        async for job in self._reading.objects(integration.kind):
            queued = bool(self._scope.without_queue_name or queue_name(job)) and job.metadata.namespace in within
            own = workloads.get(self._registry.key_of(job), ())
            by_itself = not self._registry.made(job)
            if not held(integration, job, own, managed=queued and by_itself):
                if not self._scope.selectors and queue_name(job) and held(integration, job, own, managed=by_itself):
                    self._unclear.add(f"{integration.kind.KIND} {job.metadata.key}")
                continue
            try:
                steps = started(integration, await self._joined(integration, job))
            except PermanentError as error:
                self._left.append(f"{integration.kind.KIND} {job.metadata.key} is suspended: {error}")
                continue
            if not steps:
                self._left.append(f"{integration.kind.KIND} {job.metadata.key} is suspended: pods of it still end")
            patches += steps
        await self._write(patches, f"{_resource(integration)} {self._did}resumed")

    async def _joined(self, integration: Integration[Any], job: Kind) -> Kind:
        """The job with the object that has its pod templates."""
        if (rendering := integration.rendering) is None:
            return job
        meta = job.metadata
        try:
            made = await self._transport.get(rendering.templates_in, meta.name, meta.namespace)
        except NotFound:
            raise PermanentError(f"its {rendering.templates_in.KIND} does not exist") from None
        joined: Kind = rendering.joined(job, made)
        return joined

    async def _release_pods(self) -> None:
        gated: list[Patch] = []
        finalized: list[Patch] = []
        async for pod in self._reading.objects(Pod):
            patch = pod_released(pod, self._pending)
            if patch is not None:
                (gated if is_gated(pod) and self._pending is Pending.START else finalized).append(patch)
        await self._write(gated, f"pods {self._did}released from their gates")
        await self._write(finalized, f"finalizers of pods {self._did}removed")

    async def _write(self, patches: Iterable[Patch], what: str) -> None:
        """Send patches, and count those that took effect; others are left, for the next pass."""

        async def send(patch: Patch) -> None:
            if not self._dry_run and not await self._send(patch):
                return
            self._done[what] += 1

        await self._reading.each(send, patches)

    async def _send(self, patch: Patch) -> bool:
        try:
            await self._transport.patch(
                patch.kind, patch.name, patch.namespace, patch.body, type=patch.type, subresource=patch.subresource
            )
        except NotFound:
            return False
        except Conflict:
            self._left.append(f"{patch.kind.KIND} {patch.namespace}/{patch.name} changed")
            return False
        except (ApiError, WireError) as error:
            self._left.append(f"{patch.kind.KIND} {patch.namespace}/{patch.name}: {error}")
            return False
        return True


def _serves(api_service: Plain) -> Plain:
    service: Plain = api_service.get("spec", {}).get("service") or {}
    return service


def _resource(integration: Integration[Any]) -> str:
    return resource_name(integration.kind.GROUP, integration.kind.PLURAL)
