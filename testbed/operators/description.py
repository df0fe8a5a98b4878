"""How an operator is built and started, as data. Pure but for the configuration file that some are started with."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from testbed.build import Carried, Edit, Module, Report, Tool, Toolbox
from testbed.client import Json

_MANIFESTS = "manifests"


@dataclass(frozen=True, slots=True)
class Places:
    """What a process of an operator is given: a directory, its ports of 127.0.0.1, and `tls.crt` and `tls.key`.

    The processes of an operator share all of it but the port that says whether they are healthy. `api_port` is for an
    API that the operator serves through the API server.
    """

    directory: Path
    certificates: Path
    webhook_port: int
    health_port: int
    api_port: int


def _nothing(_: Places) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Program:
    """A process of an operator. `package` is its main package, `deployment` the Deployment in whose place it runs (may
    be left out when there is only one). `ready` is the path that answers 200 when it is ready."""

    name: str
    package: str
    arguments: Callable[[Places], Sequence[str]]
    environment: Callable[[Places], Mapping[str, str]] = _nothing
    deployment: str = ""
    ready: str = "/readyz"


@dataclass(frozen=True, slots=True)
class Operator:
    """A program and the manifests that belong to it, both from one Go module; see `Program`.

    `kustomization` is a folder below `folder`, which is kept whole: a kustomization refers to its neighbours. Or it is
    what makes a kustomization of our own at the top of `folder`. `beside` are the processes that run with the program.

    `edits` change what cannot be set from outside: fixed ports, and the operator's own management of certificates.
    With `own_certificates` that management stays, and webhooks are called through the operator's Service, as on a
    cluster: for those who insist on writing their own authority into their webhook configurations.
    """

    name: str
    module: str
    package: str
    folder: str
    kustomization: str | Callable[[Places], Json]
    arguments: Callable[[Places], Sequence[str]]
    environment: Callable[[Places], Mapping[str, str]] = _nothing
    deployment: str = ""
    ready: str = "/readyz"
    beside: tuple[Program, ...] = ()
    edits: tuple[Edit, ...] = ()
    own_certificates: bool = False

    @property
    def programs(self) -> tuple[Program, ...]:
        """All its processes, the one that is named like it first."""
        first = Program(self.name, self.package, self.arguments, self.environment, self.deployment, self.ready)
        return (first, *self.beside)

    @property
    def go_module(self) -> Module:
        """What pins it: the folder of its name beside this file."""
        tools: dict[str, Tool] = {}
        for program in self.programs:
            tools.setdefault(program.package, Tool(program.name, program.package))
        return Module(
            Path(__file__).with_name(self.name),
            tuple(tools.values()),
            (Carried(_MANIFESTS, self.module, self.folder),),
            edits=self.edits,
        )

    def ensure(self, report: Report | None = None) -> Toolbox:
        """Build what is missing; see `testbed.build.Module.ensure`."""
        return self.go_module.ensure(report)

    def binary(self, program: Program, toolbox: Toolbox) -> Path:
        """The file of a program: programs of the same package share one."""
        return next(toolbox[tool.name] for tool in self.go_module.tools if tool.package == program.package)

    def manifests(self, toolbox: Toolbox) -> Path:
        """The folder of the operator's module that its kustomization is in."""
        return toolbox.folder(_MANIFESTS)


@dataclass(frozen=True, slots=True)
class StandIn(Operator):
    """A program in Python in place of an operator that cannot be had, with manifests of its own in the folder of its
    name: nothing is built."""

    def ensure(self, report: Report | None = None) -> Toolbox:
        """Nothing is missing."""
        return Toolbox(Path(__file__).with_name(self.name), {})

    def binary(self, program: Program, toolbox: Toolbox) -> Path:
        """Python."""
        return Path(sys.executable)

    def manifests(self, toolbox: Toolbox) -> Path:
        """The folder that its kustomization is in."""
        return toolbox.directory


def python_environment() -> Mapping[str, str]:
    """With it a process finds the packages of this tree."""
    return {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])}


def configuration_file(places: Places, api_version: str, **changes: Json | None) -> str:
    """The flag that names a `Configuration` such as operators of kubernetes-sigs read; `changes` replace what others
    call otherwise, None leaves it out.

    Management of certificates is off, as it is where cert-manager does that: the operator would make one for the name
    of its Service, and the API server calls an address of this host. So is leader election: there is one replica, and
    a new process would wait for the Lease of the last to run out.
    """
    document = {
        "apiVersion": api_version,
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": places.webhook_port, "certDir": str(places.certificates)},
        **changes,
    }
    file = places.directory / "configuration.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
    return f"--config={file}"
