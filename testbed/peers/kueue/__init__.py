"""Kueue's manager and `kueuectl`.

The manager is started with the file of its own ConfigMap `kueue-manager-config`, in which only addresses and
certificates are changed. Three things cannot be configured and are edited: the visibility API has a fixed port, takes
the credentials of a pod, and its certificate, like that of the metrics, comes from a fixed folder. It is registered
with the API server as on a cluster, through a Service that is another name of this host.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from testbed.build import Carried, Edit, Module, Tool
from testbed.client import Json
from testbed.operators.description import Operator, Places

VERSION: Final = "v0.15.0"
"""As go.mod pins it."""
CONFIGURATION: Final = "components/manager/controller_manager_config.yaml"
"""The file of `kueue-manager-config`, below the manifests."""
CHART: Final = "chart"
"""The carried folder with Kueue's Helm chart."""
_MODULE: Final = "sigs.k8s.io/kueue"
_SERVER: Final = "pkg/visibility/server.go"
_KUBECONFIG: Final = (
    'for _, file := range []*string{&o.CoreAPI.CoreAPIKubeconfigPath, &o.Authentication.RemoteKubeConfigFile, '
    '&o.Authorization.RemoteKubeConfigFile} {\n\t\t*file = os.Getenv("KUBECONFIG")\n\t}\n\t'
)  # fmt: skip
_ADDRESS: Final = (
    "o.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)\n\t"
    'if _, err := fmt.Sscan(os.Getenv("VISIBILITY_PORT"), &o.SecureServing.BindPort); err != nil {\n\t\treturn err\n\t}'
)


@dataclass(frozen=True, slots=True)
class Peer(Operator):
    """An operator with command line tools beside its processes; `link` are flags for the linker."""

    commands: tuple[Tool, ...] = ()
    link: str = ""

    @property
    def go_module(self) -> Module:
        """What pins it, with its command line tools: the folder of its name beside the other peers."""
        module = super(Peer, self).go_module  # slots=True makes a new class, which a bare super() does not know
        directory = Path(__file__).parent.with_name(self.name)
        return replace(
            module,
            directory=directory,
            tools=(*module.tools, *self.commands),
            carried=(*module.carried, Carried(CHART, self.module, f"charts/{self.name}")),
            link=self.link,
        )


def configured(**changes: object) -> Peer:
    """Kueue, with sections of its configuration replaced; None leaves a section out."""
    return replace(KUEUE, arguments=lambda places: _arguments(places, changes))


def _arguments(places: Places, changes: Mapping[str, object]) -> Sequence[str]:
    document: Json = yaml.safe_load((KUEUE.manifests(KUEUE.ensure()) / CONFIGURATION).read_text())
    document |= {
        "health": {"healthProbeBindAddress": f"127.0.0.1:{places.health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": places.webhook_port, "certDir": str(places.certificates)},
        "internalCertManagement": {"enable": False},
        # Outside a cluster the manager cannot tell in which namespace it runs.
        "leaderElection": document["leaderElection"] | {"resourceNamespace": "kueue-system"},
    }
    document |= changes
    file = places.directory / "configuration.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
    return [f"--config={file}", "--zap-log-level=2"]


def _kustomization(places: Places) -> Json:
    """The manifests of a release, but for how the API server reaches the visibility API."""
    host = [{"op": "replace", "path": "/spec", "value": {"type": "ExternalName", "externalName": "localhost"}}]
    port = [{"op": "add", "path": "/spec/service/port", "value": places.api_port}]
    return {
        "resources": ["default"],
        "patches": [
            {"target": {"kind": "Service", "name": "kueue-visibility-server"}, "patch": json.dumps(host)},
            {"target": {"kind": "APIService"}, "patch": json.dumps(port)},
        ],
    }


KUEUE: Final = Peer(
    name="kueue",
    module=_MODULE,
    package=f"{_MODULE}/cmd/kueue",
    folder="config",
    kustomization=_kustomization,
    arguments=lambda places: _arguments(places, {}),
    environment=lambda places: {"VISIBILITY_PORT": str(places.api_port), "CERT_DIR": str(places.certificates)},
    edits=(
        Edit(_MODULE, "cmd/kueue/main.go", '"/etc/kueue/metrics/certs"', "cfg.Webhook.CertDir"),
        Edit(_MODULE, _SERVER, '\t"net"\n', '\t"net"\n\t"os"\n'),
        Edit(_MODULE, _SERVER, 'certDir = "/visibility"', 'certDir = os.Getenv("CERT_DIR")'),
        Edit(_MODULE, _SERVER, "o.SecureServing.BindPort = 8082", _KUBECONFIG + _ADDRESS),
    ),
    commands=(Tool("kueuectl", f"{_MODULE}/cmd/kueuectl"),),
    link=f"-X {_MODULE}/pkg/version.GitVersion={VERSION}",
)
