"""`kubectl turnstile get`, `edit`, `describe` and `patch`: kubectl's own, for the kinds of Turnstile."""

import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import urlsplit

import typer

from turnstile.api.errors import InvalidValue, WireError
from turnstile.cli.cluster import explained
from turnstile.cli.connection import Connection, configuration
from turnstile.cli.groups import PassedOn
from turnstile.cli.queues.options import NAME_OF
from turnstile.cli.queues.paths import GROUP

KINDS: Final = {
    "workload": "workloads",
    "clusterqueue": "clusterqueues",
    "localqueue": "localqueues",
    "resourceflavor": "resourceflavors",
    "cohort": "cohorts",
    "admissioncheck": "admissionchecks",
    "topology": "topologies",
    "workloadpriorityclass": "workloadpriorityclasses",
}
"""Types that may be passed on, with the plural that kubectl gets."""
ANSWERS_SECONDS: Final = 10.0
"""An API server that accepts no connection for so long does not answer."""
_PORTS: Final = {"https": 443, "http": 80}
SETTINGS: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
"""Settings of a command whose options kubectl reads."""
COMMANDS: Final = {
    "get": "Print queues, flavors or Workloads, as kubectl get.",
    "describe": "Print them in full with their events, as kubectl describe.",
    "edit": "Change one in an editor, as kubectl edit.",
    "patch": "Change fields of one, as kubectl patch.",
}


def kubectl(*arguments: str) -> NoReturn:
    """Become kubectl, with these arguments. Raises InvalidValue without a kubectl."""
    program = shutil.which("kubectl")
    if program is None:
        raise InvalidValue("PATH", os.environ.get("PATH", ""), "has no kubectl, which does this: install it")
    os.execv(program, ["kubectl", *arguments])  # noqa: S606 -- kubectl is to take this process over


def pass_on(*arguments: str) -> NoReturn:
    """Become kubectl, after a look whether there is an API server: without one it prints lines about its cache. Raises
    InvalidValue and WireError as other commands do."""
    from turnstile.kube import auth

    config, _ = configuration(connection(arguments))
    server, cluster = auth.server_of(config, config["current-context"])
    at = urlsplit(server)
    if not auth.proxy_of(server, cluster) and at.hostname:
        try:
            socket.create_connection((at.hostname, at.port or _PORTS[at.scheme]), timeout=ANSWERS_SECONDS).close()
        except OSError as error:
            raise WireError(f"no API server answers at {server}: {error}") from None
    kubectl(*arguments)


def connection(arguments: Sequence[str]) -> Connection:
    """The options of the connection among kubectl's arguments."""
    names = {Connection.option(each.name): each.name for each in fields(Connection)} | {"-s": "server"}
    given: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option == "--":
            break
        if (name := names.get(option)) == "insecure_skip_tls_verify":
            given[name] = value != "false"
        elif name == "as_group":
            given.setdefault(name, []).append(value if equals else next(words, ""))
        elif name is not None:
            given[name] = value if equals else next(words, "")
    return Connection(**given)


def resource(word: str) -> str:
    """The full name of a kind, which no other API group can have. Raises InvalidValue."""
    kind, slash, name = word.partition("/")
    kind = kind.lower().removesuffix(f".{GROUP}")
    plural = kind if kind in KINDS.values() else KINDS.get(NAME_OF.get(kind, kind))
    if plural is None:
        raise InvalidValue("TYPE", kind, f"give one of {', '.join(KINDS)}")
    return f"{plural}.{GROUP}{slash}{name}"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""

    def add(name: str, text: str) -> None:
        @app.command(name, help=text, cls=PassedOn, context_settings=SETTINGS)
        def _passed_on(
            ctx: typer.Context,
            kind: Annotated[str, typer.Argument(metavar="TYPE", help="workload, clusterqueue, localqueue, ...")],
        ) -> None:
            with explained():
                pass_on(name, resource(kind), *ctx.args)

    for name, text in COMMANDS.items():
        add(name, text)
