"""How an operator is built and started, as data. Pure but for the configuration file that some are started with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from testbed.build import Carried, Module, Report, Tool, Toolbox

_MANIFESTS = "manifests"


@dataclass(frozen=True, slots=True)
class Places:
    """What an operator is given: a directory of its own, its ports of 127.0.0.1, and `tls.crt` and `tls.key`."""

    directory: Path
    certificates: Path
    webhook_port: int
    health_port: int


@dataclass(frozen=True, slots=True)
class Operator:
    """A program and the manifests that belong to it, both from one Go module.

    `package` is its main package. `kustomization` is a folder below `folder`, which is kept whole: a kustomization
    refers to its neighbours. `ready` is the path that answers 200 when the program is ready.
    """

    name: str
    module: str
    package: str
    folder: str
    kustomization: str
    arguments: Callable[[Places], Sequence[str]]
    ready: str = "/readyz"

    @property
    def go_module(self) -> Module:
        """What pins it: the folder of its name beside this file."""
        return Module(
            Path(__file__).with_name(self.name),
            (Tool(self.name, self.package),),
            (Carried(_MANIFESTS, self.module, self.folder),),
        )

    def ensure(self, report: Report | None = None) -> Toolbox:
        """Build what is missing; see `testbed.build.Module.ensure`."""
        return self.go_module.ensure(report)

    def manifests(self, toolbox: Toolbox) -> Path:
        """The kustomization, built."""
        return toolbox.folder(_MANIFESTS) / self.kustomization


def configuration_file(places: Places, api_version: str) -> str:
    """The flag that names a `Configuration` such as operators of kubernetes-sigs read.

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
    }
    file = places.directory / "configuration.yaml"
    file.write_text(yaml.safe_dump(document))
    return f"--config={file}"
