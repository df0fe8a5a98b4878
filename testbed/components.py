"""Which processes make up the control plane and with which flags. Pure: paths and ports in, command lines out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from testbed.build import Toolbox

ALL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
RUN_FOR = "testbed.turnstile.dev/run-for"
EXIT_CODE = "testbed.turnstile.dev/exit-code"
FRONT_PROXY_NAME = "front-proxy-client"
STOP_FOR = "testbed.turnstile.dev/stop-for"
KILLED_IN_TIME = "testbed.turnstile.dev/killed-in-time"

_OWN_STAGES = Path(__file__).parent / "kwok"
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
)
"""Of the Stages that the kwok module carries."""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user of the bed may choose; see `ControlPlane` for the meaning of each."""

    components: Sequence[str] = ALL
    pod_seconds: float | None = None
    kube_api_qps: int | None = 200
    event_ttl: str = "1h"
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    audit: bool = False
    logs: bool = False
    extra_arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Places:
    """Files and ports that the components share."""

    directory: Path
    tools: Toolbox
    etcd_port: int
    etcd_peer_port: int
    api_port: int
    kubelet_port: int
    """The port at which kwok answers for the kubelets of all nodes, if it serves logs."""
    authority: Path
    authority_key: Path
    serving: tuple[Path, Path]
    front_proxy_authority: Path
    front_proxy: tuple[Path, Path]
    kubelet_client: tuple[Path, Path]
    service_account_keys: tuple[Path, Path]
    kubeconfigs: Mapping[str, Path]

    @property
    def container_log(self) -> Path:
        """The log of every container, as kwok serves it."""
        return self.directory / "container.log"

    @property
    def audit_log(self) -> Path:
        """Where the API server writes one JSON line a request when `audit` is on."""
        return self.directory / "audit.log"


def command_line(name: str, settings: Settings, places: Places) -> list[str]:
    """The whole command line of a component."""
    arguments = {
        "etcd": _etcd,
        "kube-apiserver": _api_server,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
        "kwok": _kwok,
    }[name](settings, places)
    return [str(places.tools[name]), *arguments, *settings.extra_arguments.get(name, ())]


def _etcd(settings: Settings, places: Places) -> list[str]:
    client, peer = f"http://127.0.0.1:{places.etcd_port}", f"http://127.0.0.1:{places.etcd_peer_port}"
    return [
        "--name=testbed",
        f"--data-dir={places.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=testbed={peer}",
        "--socket-reuse-port",  # the port is held for us, see ports.py
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _api_server(settings: Settings, places: Places) -> list[str]:
    private, public = places.service_account_keys
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{places.etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={places.api_port}",
        "--permit-port-sharing",  # the port is held for us, see ports.py
        f"--tls-cert-file={places.serving[0]}",
        f"--tls-private-key-file={places.serving[1]}",
        f"--client-ca-file={places.authority}",
        "--authorization-mode=RBAC",
        # How an aggregated API server knows the API server, and whom it calls for.
        f"--requestheader-client-ca-file={places.front_proxy_authority}",
        f"--requestheader-allowed-names={FRONT_PROXY_NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={places.front_proxy[0]}",
        f"--proxy-client-key-file={places.front_proxy[1]}",
        f"--kubelet-client-certificate={places.kubelet_client[0]}",
        f"--kubelet-client-key={places.kubelet_client[1]}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={private}",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--endpoint-reconciler-type=none",  # a loopback address is not valid in the Endpoints of service "kubernetes"
        "--allow-privileged",
        f"--event-ttl={settings.event_ttl}",
        *_feature_gates(settings),
    ]
    if settings.audit:
        policy = places.directory / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        arguments += [f"--audit-policy-file={policy}", f"--audit-log-path={places.audit_log}"]
    return arguments


def _controller_manager(settings: Settings, places: Places) -> list[str]:
    return [
        f"--kubeconfig={places.kubeconfigs['kube-controller-manager']}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials",  # each controller with its own least role, as kubeadm has it
        f"--root-ca-file={places.authority}",
        f"--service-account-private-key-file={places.service_account_keys[0]}",
        f"--cluster-signing-cert-file={places.authority}",
        f"--cluster-signing-key-file={places.authority_key}",
        *_qps(settings),
        *_feature_gates(settings),
    ]


def _scheduler(settings: Settings, places: Places) -> list[str]:
    return [
        f"--kubeconfig={places.kubeconfigs['kube-scheduler']}",
        "--secure-port=0",
        "--leader-elect=false",
        *_qps(settings),
        *_feature_gates(settings),
    ]


def _kwok(settings: Settings, places: Places) -> list[str]:
    carried = places.tools.folder("kwok-stage")
    stages = [*(carried / name for name in _STAGES), *sorted(_OWN_STAGES.glob("*.yaml"))]
    if settings.pod_seconds is not None:
        default = places.directory / "pod-complete-default.yaml"
        default.write_text(default_stage(settings.pod_seconds))
        stages.append(default)
    return [
        f"--kubeconfig={places.kubeconfigs['kwok']}",
        "--manage-all-nodes",
        "--cidr=10.64.0.0/12",
        *(f"--config={stage}" for stage in stages),
        *(_log_server(places) if settings.logs else ()),
    ]


def _log_server(places: Places) -> list[str]:
    """Have kwok answer as the kubelet of its nodes, for logs alone: a file is the log of every container."""
    places.container_log.touch()
    spec = {"logs": [{"logsFile": str(places.container_log), "follow": True}]}
    found = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterLogs", "metadata": {"name": "all"}, "spec": spec}
    file = places.directory / "cluster-logs.yaml"
    file.write_text(yaml.safe_dump(found))
    return [
        f"--config={file}",
        f"--server-address=127.0.0.1:{places.kubelet_port}",
        "--node-ip=127.0.0.1",
        f"--node-port={places.kubelet_port}",
        f"--tls-cert-file={places.serving[0]}",
        f"--tls-private-key-file={places.serving[1]}",
    ]


def default_stage(seconds: float) -> str:
    """The Stage that ends a Job's pod that says nothing about how long it runs: pod-complete.yaml turned round."""
    stage = yaml.safe_load((_OWN_STAGES / "pod-complete.yaml").read_text())
    stage["metadata"]["name"] = "testbed-pod-complete-default"
    rules = stage["spec"]["selector"]["matchExpressions"]
    annotated = next(rule for rule in rules if RUN_FOR in rule["key"])
    annotated["operator"] = "DoesNotExist"
    rules.append({"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]})
    stage["spec"]["delay"] = {"durationMilliseconds": round(seconds * 1000)}
    text: str = yaml.safe_dump(stage, sort_keys=False)
    return text


def _qps(settings: Settings) -> list[str]:
    if settings.kube_api_qps is None:
        return []
    return [f"--kube-api-qps={settings.kube_api_qps}", f"--kube-api-burst={2 * settings.kube_api_qps}"]


def _feature_gates(settings: Settings) -> list[str]:
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(settings.feature_gates.items()))
    return [f"--feature-gates={gates}"] if gates else []
