"""The connection of a command: kubectl's options for it, over those of the kubeconfig, the same for every command."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnstile import __version__
from turnstile.api.errors import InvalidValue, WireError
from turnstile.cli.cluster import Context, Kubeconfig
from turnstile.cli.queues import names

if TYPE_CHECKING:
    from turnstile.kube.transport import Transport

Plain = dict[str, Any]

_GIVEN: Final = "given"
"""The name of the entries of a kubeconfig that the options make."""
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The API server and the identity: kubectl's options for them, over those of the kubeconfig."""

    kubeconfig: Kubeconfig = None
    context: Context = None
    cluster: Annotated[str | None, typer.Option(help="Cluster of the kubeconfig.")] = None
    user: Annotated[str | None, typer.Option(help="User of the kubeconfig.")] = None
    server: Annotated[str | None, typer.Option("--server", "-s", help="URL of the API server.")] = None
    token: Annotated[str | None, typer.Option(help="Bearer token.")] = None
    act_as: Annotated[str | None, typer.Option("--as", help="User to impersonate.")] = None
    as_group: Annotated[list[str] | None, typer.Option(help="Group to impersonate. Repeatable.")] = None
    as_uid: Annotated[str | None, typer.Option(help="UID to impersonate.")] = None
    certificate_authority: Annotated[str | None, typer.Option(help="File of the API server's CA.")] = None
    insecure_skip_tls_verify: Annotated[
        bool, typer.Option("--insecure-skip-tls-verify", help="Do not check the API server's certificate.")
    ] = False
    request_timeout: Annotated[
        str, typer.Option(help="Time for one request, such as 30s or 2m; 0 for Turnstile's default.")
    ] = "0"

    def arguments(self) -> list[str]:
        """The options as kubectl takes them."""
        found: list[str] = []
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            given = value if isinstance(value, list) else [value]
            option = self.option(name)
            found += [option if each is True else f"{option}={each}" for each in given if each]
        return found

    @staticmethod
    def option(name: str) -> str:
        """The option that a field is given by."""
        return "--as" if name == "act_as" else f"--{name.replace('_', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where(Connection):
    """The connection, and the namespace that a command is about."""

    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace; by default that of the context.",
            autocompletion=names.namespaces,
        ),
    ] = None


def namespace_of(where: Where) -> str:
    """The namespace of the options, or else of the context; `default` where no kubeconfig names one."""
    if where.namespace:
        return where.namespace
    try:
        _, namespace = configuration(where)
    except InvalidValue:  # a command that needs a cluster says so when it connects
        return "default"
    return namespace or "default"


@asynccontextmanager
async def connected(where: Connection, command: str, *, program: str = "turnstile") -> "AsyncIterator[Transport]":
    """A connection to the cluster for a command. A WireError of the block names the server."""
    from turnstile.kube import auth  # half a second of imports, for commands that have a cluster to ask
    from turnstile.kube.transport import Transport

    config, _ = configuration(where)
    limit = _seconds(where.request_timeout)
    options = {} if limit is None else {"timeout": limit}
    agent = f"{program}/{__version__} ({command})"
    async with Transport(await auth.from_kubeconfig(config), user_agent=agent, **options) as transport:
        try:
            yield transport
        except WireError as error:
            raise WireError(f"no API server answers at {transport.server}: {error}") from error


def configuration(where: Connection) -> tuple[Plain, str]:
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


def contexts(where: Connection) -> list[str]:
    """The names of the contexts of the kubeconfig. Raises InvalidValue."""
    return [str(entry["name"]) for entry in _found(where)["contexts"]]


def _found(where: Connection) -> Plain:
    """The merged kubeconfig files, or the pod's service account where there are none; nothing if --server is given."""
    from turnstile.kube import auth

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
