"""The connection of a command, and what it reads and writes: the kubeconfig with the options over it, plain objects."""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from turnstile import __version__
from turnstile.api.errors import InvalidValue, NotServed, WireError
from turnstile.api.numbers import clamped
from turnstile.cli.progress import progress
from turnstile.cli.queues.options import Where
from turnstile.cli.queues.paths import path_of
from turnstile.kube import auth
from turnstile.kube.pages import Pages, Query
from turnstile.kube.transport import Transport

Plain = dict[str, Any]

_GIVEN: Final = "given"
"""The name of the entries of a kubeconfig that the options make."""
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(slots=True)
class Session:
    """An API server as a command sees it. `namespace` is that of the options, or of the context."""

    transport: Transport
    namespace: str
    timeout: float | None
    _resources: dict[str, list[Plain]]

    async def get(self, path: str, *, accept: str = "application/json", **params: str | int) -> Plain:
        """A JSON document."""
        answer = await self.transport.request("GET", path, params=params, accept=accept, timeout=self.timeout)
        found: Plain = orjson.loads(answer)
        return found

    async def list_all(self, path: str, params: Mapping[str, str | int]) -> tuple[list[Plain], str]:
        """All objects of a collection, and the resourceVersion of the list."""

        def fetch(query: Query) -> Awaitable[bytes]:
            return self.transport.request("GET", path, params=query, timeout=self.timeout)

        pages = Pages(fetch, query=params, page_size=_page_size())
        items: list[Plain] = []
        collection = path.rpartition("/")[2]
        with progress(f"reading {collection}") as tell:
            while (found := await pages.next()) is not None:
                first, page = found
                read = [msgspec.json.decode(each) for each in page.items or ()]
                items = read if first else [*items, *read]
                tell(f"reading {collection}: {len(items)}")
        return items, pages.version

    async def write(self, method: str, path: str, body: Plain, *, server_dry_run: bool = False) -> Plain:
        """Create (POST), merge-patch (PATCH) or delete an object; what the API server answers."""
        params: dict[str, str | int] = {} if method == "DELETE" else {"fieldManager": "kubectl-turnstile"}
        if server_dry_run and method == "DELETE":
            body = body | {"dryRun": ["All"]}  # with options in the body, those of the URL do not count
        elif server_dry_run:
            params["dryRun"] = "All"
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await self.transport.request(
            method, path, params=params, body=orjson.dumps(body), content_type=content, timeout=self.timeout
        )
        found: Plain = orjson.loads(answer)
        return found

    async def resources(self, api_version: str) -> list[Plain]:
        """The kinds of an API version: `name` (plural), `singularName` and `kind` of each; nothing if it is not
        served."""
        if api_version not in self._resources:
            try:
                found = (await self.get(path_of(api_version, "").rstrip("/")))["resources"]
            except NotServed:
                found = []
            self._resources[api_version] = [each for each in found if "/" not in each["name"]]
        return self._resources[api_version]

    async def resource(self, api_version: str, kind: str) -> Plain | None:
        """The API server's names for a kind."""
        return next((each for each in await self.resources(api_version) if each["kind"] == kind), None)


@asynccontextmanager
async def session(where: Where, command: str) -> AsyncIterator[Session]:
    """A connection for a command. A WireError of the block names the server."""
    access, namespace = await _access(where)
    agent = f"kubectl-turnstile/{__version__} ({command})"
    async with Transport(access, user_agent=agent) as transport:
        try:
            yield Session(transport, namespace, _seconds(where.request_timeout), {})
        except WireError as error:
            raise WireError(f"no API server answers at {transport.server}: {error}") from error


async def _access(where: Where) -> tuple[auth.Access, str]:
    """The API server and identity, and the namespace."""
    config, namespace = configuration(where)
    return await auth.from_kubeconfig(config), where.namespace or namespace or "default"


def configuration(where: Where) -> tuple[Plain, str]:
    """A kubeconfig of one context, with the options over it, and the namespace of the context. Raises InvalidValue."""
    config = _found(where)
    chosen = where.context or config["current-context"]
    context = _entry(config, "contexts", chosen, "context") if chosen else {}
    cluster_name, user_name = where.cluster or context.get("cluster"), where.user or context.get("user")
    cluster = _entry(config, "clusters", cluster_name, "cluster") if cluster_name else {}
    user = _entry(config, "users", user_name, "user") if user_name else {}
    if where.server:
        cluster["server"] = where.server
    if where.certificate_authority:
        cluster.pop("certificate-authority-data", None)
        cluster["certificate-authority"] = where.certificate_authority
    if where.insecure_skip_tls_verify:
        cluster["insecure-skip-tls-verify"] = True
    if where.token:
        user = {key: value for key, value in user.items() if key.startswith("as")} | {"token": where.token}
    impersonated = {"as": where.act_as, "as-groups": where.as_group, "as-uid": where.as_uid}
    user |= {key: value for key, value in impersonated.items() if value}
    name = chosen or (_GIVEN if cluster else "")
    merged = {
        "clusters": [{"name": _GIVEN, "cluster": cluster}],
        "users": [{"name": _GIVEN, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": _GIVEN, "user": _GIVEN}}],
        "current-context": name,
    }
    return merged, context.get("namespace") or ""


def _found(where: Where) -> Plain:
    """The merged kubeconfig files, or the pod's service account where there are none; nothing if --server is given."""
    named = where.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not named and auth.in_cluster(os.environ):
        mounted = auth.SERVICE_ACCOUNT
        server = auth.service_account(os.environ).server
        cluster = {"server": server, "certificate-authority": str(mounted / "ca.crt")}
        namespace = (mounted / "namespace").read_text().strip() if (mounted / "namespace").exists() else ""
        return {
            "clusters": [{"name": _GIVEN, "cluster": cluster}],
            "users": [{"name": _GIVEN, "user": {"tokenFile": str(mounted / "token")}}],
            "contexts": [{"name": _GIVEN, "context": {"cluster": _GIVEN, "user": _GIVEN, "namespace": namespace}}],
            "current-context": _GIVEN,
        }
    paths = (named or str(Path.home() / ".kube" / "config")).split(os.pathsep)
    if where.server and not any(Path(path).expanduser().is_file() for path in paths):
        return {"clusters": [], "users": [], "contexts": [], "current-context": ""}
    return auth.merge(paths)


def _entry(config: Plain, section: str, name: str, inner: str) -> Plain:
    for entry in config[section]:
        if entry["name"] == name:
            return dict(entry.get(inner) or {})
    known = ", ".join(sorted(str(entry["name"]) for entry in config[section])) or "none"
    raise InvalidValue(f"kubeconfig: {section}", name, f"no such entry; there are: {known}")


def _seconds(text: str) -> float | None:
    """The seconds of a duration such as 30s; None for 0."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text):
        return float(found[1]) * _SECONDS[found[2]] or None
    raise InvalidValue("--request-timeout", text, "give a number with a unit, as 30s or 2m; 0 for the default")


def _page_size() -> int:
    """Objects of one page of a list: kueuectl's variable, or its default."""
    text = os.environ.get("KUEUECTL_LIST_REQUEST_LIMIT") or "100"
    if not (found := clamped(text)):
        raise InvalidValue("KUEUECTL_LIST_REQUEST_LIMIT", text, "give a number of objects above 0")
    return found
