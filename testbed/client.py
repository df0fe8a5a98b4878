"""A small synchronous JSON client of the API server, for tests that look at the cluster from outside.

kubectl costs 60 to 100 ms a call, this one or two. It is independent of Turnstile's own transport on purpose: a fault
there must not hide itself here. Retries only what the API server has not executed and asks to be sent again, a 429 with
`Retry-After`, as kubectl does; a test wants to see all other errors. Never used by `turnstile`.
"""

import contextlib
import functools
import http.client
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import yaml

from testbed.errors import ApiError, TestbedError, WaitTimeout
from testbed.manifests import documents
from testbed.patience import Patience

Json = dict[str, Any]
T = TypeVar("T")

_CONTENT_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@functools.cache
def unverified_tls() -> ssl.SSLContext:
    """Accepts any certificate, as a kubelet's probe does. `ssl.create_default_context` would read the authorities of
    this machine first, which takes 40 ms of processor time, too long for what is asked every 50 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def resource_path(
    api_version: str,
    plural: str,
    name: str | None = None,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
) -> str:
    """The URL path of a collection or an object: `resource_path("batch/v1", "jobs", "a", namespace="team")`."""
    parts = ["/apis" if "/" in api_version else "/api", api_version]
    if namespace is not None:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, subresource) if part is not None]
    return "/".join(parts)


class Api:
    """Objects in, objects out, as plain JSON; safe for threads (each keeps its own connection).

    Every method raises `ApiError` when the server refuses, `OSError` or `http.client.HTTPException` when the wire
    breaks.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, *, headers: Mapping[str, str] | None = None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._headers = dict(headers or {})
        self._local = threading.local()
        self._open: list[http.client.HTTPSConnection] = []
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    # ---------------------------------------------------------------- raw

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        timeout: float = 30,
    ) -> Any:
        """One request; `body` is sent as JSON (bytes as they are). Returns the decoded JSON, or text if it is none.

        The API server answers 429 with `Retry-After` for about a second while the storage of a kind begins: after its
        restart, and when a CRD was changed. For `timeout` seconds such a request is sent again.
        """
        if params:
            path = f"{path}?{urlencode({key: value for key, value in params.items() if value is not None})}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": "application/json", **self._headers}
        deadline = time.monotonic() + timeout
        while True:
            connection = self._connection(timeout)
            try:
                connection.request(method, path, body=data, headers=headers)
                answer = connection.getresponse()
                payload = answer.read()
            except BaseException:
                connection.close()
                raise
            pause = answer.headers.get("Retry-After") if answer.status == 429 else None
            if pause is None or time.monotonic() + int(pause) > deadline:
                break
            time.sleep(int(pause))
        is_json = answer.headers.get_content_type() == "application/json"
        decoded = json.loads(payload) if is_json and payload else payload.decode(errors="replace")
        if answer.status >= 400:
            status = decoded if isinstance(decoded, dict) else {"message": decoded}
            raise ApiError(answer.status, status.get("reason") or answer.reason, status.get("message") or answer.reason)
        return decoded

    def _connection(self, timeout: float) -> http.client.HTTPSConnection:
        kept: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if kept is not None:
            if kept.sock is not None:
                readable = select.poll()  # select() takes no descriptors from 1024 on
                readable.register(kept.sock, select.POLLIN)
                if not readable.poll(0):
                    kept.sock.settimeout(timeout)
                    return kept
                kept.close()  # readable while idle: the server has closed it, say by a restart
            kept.timeout = timeout  # http.client connects anew by itself
            return kept
        fresh = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=timeout)
        self._local.connection = fresh
        self._open.append(fresh)
        return fresh

    def close(self) -> None:
        """Close the connections of all threads; the next request opens one again."""
        for connection in self._open:
            connection.close()

    def watch(self, path: str, *, resource_version: str) -> "Watch":
        """The changes of a collection after that version, on a connection of their own."""
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        query = urlencode({"watch": "true", "resourceVersion": resource_version})
        connection.request("GET", f"{path}?{query}", headers={"Accept": "application/json", **self._headers})
        answer = connection.getresponse()
        if answer.status >= 400:
            connection.close()
            raise ApiError(answer.status, answer.reason, answer.read().decode(errors="replace"))
        return Watch(connection, answer)

    # ---------------------------------------------------------------- by path

    def get(self, path: str) -> Any:
        """Read one object (or any path, `/version`)."""
        return self.request("GET", path)

    def find(self, path: str) -> Json | None:
        """Read one object, None when it does not exist."""
        try:
            found: Json = self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found

    def items(self, path: str, *, labels: str | None = None, fields: str | None = None) -> list[Json]:
        """The items of a collection, by namespace and name as etcd sorts them."""
        items: list[Json] = self.request("GET", path, params={"labelSelector": labels, "fieldSelector": fields})[
            "items"
        ]
        return items

    def patch(
        self, path: str, patch: object, *, kind: str = "merge", params: Mapping[str, object] | None = None
    ) -> Json:
        """Patch an object; `kind` is merge, json or strategic. For a subresource put it at the end of the path."""
        answer: Json = self.request("PATCH", path, patch, content_type=_CONTENT_TYPES[kind], params=params)
        return answer

    def replace(self, path: str, obj: Json) -> Json:
        """PUT an object (with its resourceVersion to fail on a conflict)."""
        answer: Json = self.request("PUT", path, obj)
        return answer

    def delete(
        self, path: str, *, propagation: str = "Background", grace_seconds: int | None = None, timeout: float = 30
    ) -> bool:
        """Delete an object, or all of a kind in a namespace; False when there was none."""
        options: Json = {"propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", path, options, timeout=timeout)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    # ---------------------------------------------------------------- by object

    def path_of(self, obj: Json, *, collection: bool = False) -> str:
        """The path of an object from its apiVersion, kind, namespace (`default` if it has none) and name."""
        api_version, kind = obj["apiVersion"], obj["kind"]
        plural, namespaced = self._resource(api_version, kind)
        metadata = obj["metadata"]
        return resource_path(
            api_version,
            plural,
            None if collection else metadata["name"],
            namespace=metadata.get("namespace", "default") if namespaced else None,
        )

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        patience = Patience(2)  # a CRD may be established a moment before discovery shows it
        while (api_version, kind) not in self._kinds:
            self._discover(api_version)
            if (api_version, kind) not in self._kinds:
                if patience.over:
                    raise TestbedError(f"kind: {kind!r} is not served in {api_version}: is its CRD installed?")
                time.sleep(0.1)
        return self._kinds[api_version, kind]

    def _discover(self, api_version: str) -> None:
        root = "/apis/" if "/" in api_version else "/api/"
        try:
            resources = self.get(root + api_version)["resources"]
        except ApiError as error:
            if error.code != 404:
                raise
            return
        for resource in resources:
            if "/" not in resource["name"]:
                self._kinds[api_version, resource["kind"]] = (resource["name"], resource["namespaced"])

    def create(self, obj: Json, *, dry_run: bool = False) -> Json:
        """Create an object where its metadata says; returns it as stored."""
        answer: Json = self.request(
            "POST", self.path_of(obj, collection=True), obj, params={"dryRun": "All"} if dry_run else None
        )
        return answer

    def create_when_known(self, obj: Json, *, refusal: str, timeout: float = 30) -> Json:
        """Create an object when the webhook of its operator has heard of what the object refers to. Until then that
        webhook, which has a watch of its own, answers 403 with a message that contains `refusal`."""

        def created() -> Json | None:
            try:
                return self.create(obj)
            except ApiError as error:
                if error.code == 403 and refusal in str(error):
                    return None
                raise

        return wait_until(created, timeout=timeout, describe=lambda: f"{obj['kind']} is refused: {refusal}")

    def apply(self, obj: Json, *, field_manager: str = "testbed", force: bool = True, subresource: str = "") -> Json:
        """Server-side apply."""
        path = self.path_of(obj) + (f"/{subresource}" if subresource else "")
        params = {"fieldManager": field_manager, "force": str(force).lower()}
        answer: Json = self.request("PATCH", path, obj, content_type=_CONTENT_TYPES["apply"], params=params)
        return answer

    def apply_yaml(self, source: str | Path, *, namespace: str | None = None) -> list[Json]:
        """Apply every document of a YAML text or file in order; `namespace` goes to namespaced ones that name none."""
        text = source.read_text() if isinstance(source, Path) else source
        applied = []
        for document in documents(text):
            if namespace is not None and self._resource(document["apiVersion"], document["kind"])[1]:
                document["metadata"].setdefault("namespace", namespace)
            applied.append(self.apply(document))
        return applied

    # ---------------------------------------------------------------- waiting

    def wait_for(
        self, path: str, predicate: Callable[[Json], object], *, timeout: float = 15, describe: str = "the condition"
    ) -> Json:
        """Read `path` until the predicate holds and return what was read; a missing object does not hold.

        Raises `WaitTimeout` with the object as last seen.
        """
        seen: Json | None = None

        def look() -> Json | None:
            nonlocal seen
            seen = self.find(path)
            return seen if seen is not None and predicate(seen) else None

        return wait_until(
            look, timeout=timeout, describe=lambda: f"{path}: {describe} did not come true; last seen:\n{_show(seen)}"
        )

    def wait_gone(self, path: str, *, timeout: float = 15) -> None:
        """Wait until `path` answers 404."""
        seen: Json | None = None

        def look() -> bool:
            nonlocal seen
            seen = self.find(path)
            return seen is None

        wait_until(look, timeout=timeout, describe=lambda: f"{path} is still there:\n{_show(seen)}")


class Watch:
    """Events as the server sends them: `type` and `object`. Ends when the server ends the stream or `close` does."""

    def __init__(self, connection: http.client.HTTPSConnection, answer: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._answer = answer
        self._closed = False

    def __iter__(self) -> Iterator[Json]:
        try:
            for line in self._answer:
                yield json.loads(line)
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            if not self._closed:
                raise
        finally:
            self._connection.close()

    def close(self) -> None:
        """End the stream, also for a thread that waits for its next event."""
        self._closed = True
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)


def wait_until(look: Callable[[], T | None], *, timeout: float, describe: Callable[[], str], every: float = 0.05) -> T:
    """Call `look` until it returns something true, and return that; after `timeout` seconds, or longer on a
    machine that is not free, raise `WaitTimeout`. A look that starts a program is for seldom: at most `every` seconds
    lie between two looks."""
    patience = Patience(timeout)
    pause = every / 10
    while True:
        found = look()
        if found:
            return found
        if patience.over:
            raise WaitTimeout(f"after {patience.waited:.3g} s: {describe()}")
        time.sleep(pause)
        pause = min(pause * 1.5, every)


def _show(seen: Json | None) -> str:
    return "nothing" if seen is None else yaml.safe_dump(_without_managed_fields(seen), sort_keys=False)


def _without_managed_fields(obj: Json) -> Json:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def condition(obj: Json, kind: str) -> Json:
    """The condition of a type in an object's status, empty when it has none."""
    conditions: Iterable[Json] = obj.get("status", {}).get("conditions") or ()  # a new CRD has null
    return next((found for found in conditions if found["type"] == kind), {})
