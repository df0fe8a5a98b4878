"""The client itself, for programs with an event loop."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from turnstile import __version__
from turnstile.api import names
from turnstile.api.errors import ApiError, InvalidValue, NotFound, WireError
from turnstile.client.logs import read_log
from turnstile.client.standing import Standing, State, standing
from turnstile.client.submitted import Submitted
from turnstile.kube import auth
from turnstile.kube.transport import Transport

_WORKLOADS: Final = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
_READ_SECONDS: Final = 10
"""Seconds after which a job is read again at the latest: one without a Workload changes unseen."""
_PAUSE: Final = 1.0
"""Seconds between two looks for pods that have started."""
_STARTED: Final = frozenset({"Running", "Succeeded", "Failed"})


class AsyncClient:
    """A connection to a cluster, opened by `async with`. Raises errors of `turnstile.api.errors`.

    `kubeconfig` and `context` are those of kubectl; by default $KUBECONFIG, the pod's service account, ~/.kube/config.
    `namespace` is by default that of the context.
    """

    def __init__(
        self, *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self.namespace = namespace or ""
        self._plurals: dict[tuple[str, str], str] = {}

    @classmethod
    def over(cls, transport: Transport, *, namespace: str) -> Self:
        """A client over an open connection, which its caller closes."""
        client = cls(namespace=namespace)
        client._wire = transport
        return client

    async def __aenter__(self) -> Self:
        self.namespace = self.namespace or _namespace(self._kubeconfig, self._context)
        agent = f"turnstile/{__version__} (client)"
        self._wire = Transport(await auth.connect(self._kubeconfig, self._context), user_agent=agent)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wire.close()

    async def submit(self, manifest: Mapping[str, Any], *, queue: str = "") -> Submitted:
        """Create a job from its manifest (see `container_job`), in `queue` if one is given."""
        for name in ("apiVersion", "kind", "metadata"):
            if name not in manifest:
                raise InvalidValue(f"manifest: {name}", None, "missing: give the manifest of a job")
        metadata = dict(manifest["metadata"])
        if queue:
            metadata["labels"] = {**(metadata.get("labels") or {}), names.QUEUE_LABEL: queue}
        namespace = metadata.setdefault("namespace", self.namespace)
        path = await self._collection(manifest["apiVersion"], manifest["kind"], namespace)
        body = orjson.dumps({**manifest, "metadata": metadata})
        made = await self._wire.request("POST", path, body=body, params={"fieldManager": "turnstile-client"})
        return Submitted.of(orjson.loads(made))

    async def standing(self, job: Submitted) -> Standing:
        """How the job stands now."""
        return (await self._read(job))[0]

    async def explain(self, job: Submitted) -> str:
        """Why the job waits, or how it ended, in a sentence. `turnstile explain` says more, with more rights."""
        found = await self.standing(job)
        return found.message or found.state

    async def watch(self, job: Submitted) -> AsyncGenerator[Standing, None]:
        """How the job stands, each time that this changes, until it has ended."""
        last: Standing | None = None
        while True:
            now, version = await self._read(job)
            if now != last:
                last = now
                yield now
            if now.ended:
                return
            await self._change([job], version)

    async def follow(self, jobs: Iterable[Submitted]) -> AsyncGenerator[dict[Submitted, Standing], None]:
        """How several jobs stand, each time that this changes for one of them, until all have ended."""
        standings = dict.fromkeys(jobs, Standing(State.WAITING))
        last: dict[Submitted, Standing] = {}
        while standings:
            version = ""
            for job in [job for job, known in standings.items() if not known.ended]:
                standings[job], seen = await self._read(job)
                version = version or seen
            if standings != last:
                last = dict(standings)
                yield last
            going_on = [job for job, known in standings.items() if not known.ended]
            if not going_on:
                return
            await self._change(going_on, version)

    async def wait(self, job: Submitted, *, until: State | None = None, timeout: float | None = None) -> Standing:
        """Wait until the job has ended, or is admitted with `until=State.ADMITTED`. Raises TimeoutError after `timeout`
        seconds."""
        async with asyncio.timeout(timeout):
            async with contextlib.aclosing(self.watch(job)) as changes:
                async for now in changes:
                    if now.ended or now.state is until:
                        return now
        raise AssertionError("a watch ends with a job that has ended")

    async def cancel(self, job: Submitted) -> None:
        """Delete the job with its pods. One that is gone already is none to complain about."""
        path = await self._collection(job.api_version, job.kind, job.namespace)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        body["preconditions"] = {"uid": job.uid}  # type: ignore[assignment]
        with contextlib.suppress(NotFound):
            await self._wire.request("DELETE", f"{path}/{job.name}", body=orjson.dumps(body))

    async def logs(self, job: Submitted, *, follow: bool = True) -> AsyncGenerator[str, None]:
        """The lines that the pods of a batch Job write, pod after pod; with `follow` until the job has ended, or some
        seconds later if a log does not end with it. A line is held in memory until its end."""
        read: set[str] = set()
        while True:
            ended = not follow or (await self.standing(job)).ended
            for pod in await self._pods(job):
                name = pod["metadata"]["name"]
                if name not in read and (pod.get("status") or {}).get("phase") in _STARTED:
                    read.add(name)
                    async with contextlib.aclosing(self._lines(job, name, follow=follow)) as lines:
                        async for line in lines:
                            yield line
            if ended:
                return
            await asyncio.sleep(_PAUSE)

    async def exit_code(self, job: Submitted) -> int | None:
        """The exit code of the pods of a batch Job that have ended: the largest of all containers. None if none has."""
        codes = [
            status["state"]["terminated"]["exitCode"]
            for pod in await self._pods(job)
            for status in (pod.get("status") or {}).get("containerStatuses") or ()
            if "terminated" in (status.get("state") or {})
        ]
        return max(codes, default=None)

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _collection(self, api_version: str, kind: str, namespace: str) -> str:
        """The path of the objects of a kind in a namespace."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._plurals:
            try:
                served = orjson.loads(await self._wire.request("GET", root))
            except NotFound:
                raise InvalidValue("manifest: apiVersion", api_version, "the cluster does not serve it") from None
            for each in served["resources"]:
                if "/" not in each["name"]:
                    self._plurals[api_version, each["kind"]] = each["name"]
            if (api_version, kind) not in self._plurals:
                raise InvalidValue("manifest: kind", kind, f"the cluster has no such kind in {api_version}")
        return f"{root}/namespaces/{namespace}/{self._plurals[api_version, kind]}"

    async def _read(self, job: Submitted) -> tuple[Standing, str]:
        """How the job stands, and the version of the Workloads that say so."""
        params = {"labelSelector": f"{names.JOB_UID_LABEL}={job.uid}"}
        found = orjson.loads(await self._wire.request("GET", _WORKLOADS.format(job.namespace), params=params))
        path = await self._collection(job.api_version, job.kind, job.namespace)
        obj: dict[str, Any] | None
        try:
            obj = orjson.loads(await self._wire.request("GET", f"{path}/{job.name}"))
        except NotFound:
            obj = None
        if obj is not None and obj["metadata"]["uid"] != job.uid:
            obj = None  # a later job has its name
        workloads = found["items"]
        return standing(obj, workloads[-1] if workloads else None), found["metadata"]["resourceVersion"]

    async def _change(self, jobs: Sequence[Submitted], version: str) -> None:
        """Wait for a change of the jobs' Workloads in the namespace of the first, or for some seconds."""
        params: dict[str, str | int] = {
            "watch": "true",
            "labelSelector": f"{names.JOB_UID_LABEL} in ({','.join(job.uid for job in jobs)})",
            "resourceVersion": version,
            "timeoutSeconds": _READ_SECONDS,
        }
        try:
            changes = self._wire.watch(
                _WORKLOADS.format(jobs[0].namespace), params=params, idle_timeout=2.0 * _READ_SECONDS
            )
            async with contextlib.aclosing(changes):
                async for _ in changes:
                    return
        except (ApiError, WireError):  # the next reading says what is wrong, if it lasts
            await asyncio.sleep(1)

    async def _lines(self, job: Submitted, pod: str, *, follow: bool) -> AsyncGenerator[str, None]:
        """The lines of a log, empty ones too; the last one need not be ended."""
        rest: list[bytes] = []
        path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/log"
        over = partial(self._over, job, pod) if follow else None
        async with contextlib.aclosing(read_log(self._wire, path, over=over)) as pieces:
            async for piece in pieces:
                *lines, end = piece.split(b"\n")
                for line in lines:
                    yield b"".join((*rest, line)).decode(errors="replace")
                    rest.clear()
                rest.append(end)
        if any(rest):
            yield b"".join(rest).decode(errors="replace")

    async def _over(self, job: Submitted, pod: str) -> bool:
        """Whether a job or a pod of it has ended, as far as that can be asked."""
        try:
            running = {
                each["metadata"]["name"]
                for each in await self._pods(job)
                if (each.get("status") or {}).get("phase") == "Running"
            }
            return pod not in running or (await self.standing(job)).ended
        except (ApiError, WireError):
            return False

    async def _pods(self, job: Submitted) -> list[dict[str, Any]]:
        params = {"labelSelector": f"batch.kubernetes.io/controller-uid={job.uid}"}
        answer = await self._wire.request("GET", f"/api/v1/namespaces/{job.namespace}/pods", params=params)
        found: list[dict[str, Any]] = orjson.loads(answer)["items"]
        return found


def _namespace(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of the context, or of the pod; `default` if there is none."""
    paths = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not paths and auth.in_cluster(os.environ):
        return (auth.SERVICE_ACCOUNT / "namespace").read_text().strip()
    config = auth.merge((paths or str(Path.home() / ".kube" / "config")).split(os.pathsep))
    chosen = context or config["current-context"]
    for entry in config["contexts"]:
        if entry["name"] == chosen:
            return (entry.get("context") or {}).get("namespace") or "default"
    return "default"
