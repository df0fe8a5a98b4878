"""A real node: containerd, kubelet and kube-proxy, for pods that really run, with Services, probes, logs and exec.

kubelet and kube-proxy are built in the version of the control plane; containerd, runc, the CNI plugins and nft are
Debian's. All of it belongs into namespaces of its own (`testbed/apart.py`), with the control plane and the test, and
ends with them: a node must never be started on the network or among the processes of the machine.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from testbed import apart, nodes
from testbed.build import BED, Module, Tool
from testbed.client import resource_path, wait_until
from testbed.controlplane import ControlPlane
from testbed.processes import Process

MODULE: Final = Module(
    Path(__file__).parent,
    (Tool("kubelet", "k8s.io/kubernetes/cmd/kubelet"), Tool("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy")),
    link=BED.link,
)
COMPONENTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Of the control plane: KWOK must not play the kubelet of this node."""
API_SERVER: Final = (
    "--bind-address=0.0.0.0",
    f"--advertise-address={apart.ADDRESS}",
    "--endpoint-reconciler-type=lease",
    "--authorization-mode=Node",  # beside RBAC
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-preferred-address-types=InternalIP",
)
"""Further arguments of kube-apiserver: pods reach it, and it reaches the kubelet."""
_CNI_PLUGINS: Final = Path("/usr/lib/cni")
_PACKAGES: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
}
_NAME: Final = "real-0"
_SOCKET: Final = "/run/containerd/containerd.sock"


def why_not() -> str:
    """Why this machine cannot have a real node; empty if it can."""
    if reason := apart.why_not():
        return reason
    packages = {package for program, package in _PACKAGES.items() if shutil.which(program) is None}
    if not (_CNI_PLUGINS / "ptp").exists():
        packages.add("containernetworking-plugins")
    if packages:
        return f"not installed: {', '.join(sorted(packages))} (Debian: apt-get install {' '.join(sorted(packages))})"
    return ""


@contextmanager
def running(control_plane: ControlPlane, *, images: Sequence[Path], pause: str) -> Iterator[None]:
    """The node `real-0` for as long as the block lasts, with the images of these archives; nothing is ever pulled.

    `pause` is the image that holds the namespaces of each pod.
    """
    node = _Node(control_plane)
    node.start_containerd(pause)
    for archive in images:
        _ctr("images", "import", str(archive))
    node.start_kubelet()
    node.start_proxy()
    path = resource_path("v1", "nodes", _NAME)
    wait_until(lambda: node.ready(path), timeout=90, describe=node.describe)
    yield


def _ctr(*arguments: str) -> str:
    done = subprocess.run(
        ["ctr", "--namespace", "k8s.io", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class _Node:
    """The three processes."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._cp = control_plane
        self._tools = MODULE.ensure()
        self._directory = control_plane.directory / "node"
        self._directory.mkdir()
        self._processes: list[Process] = []

    def ready(self, path: str) -> bool:
        """Whether pods may be bound to the node; raises ComponentFailed if one of the processes ended."""
        for process in self._processes:
            process.require_running()
        found = self._cp.api.find(path)
        return found is not None and nodes.is_ready(found)

    def describe(self) -> str:
        """The ends of the logs."""
        return "\n".join(f"--- {process.name}\n{process.tail(15)}" for process in self._processes)

    def _start(self, name: str, *argv: str | Path) -> None:
        self._processes.append(self._cp.start_process(name, argv))

    def _write(self, name: str, text: str) -> Path:
        path = self._directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def start_containerd(self, pause: str) -> None:
        """Pods get addresses of 10.244.0.0/24, each a link of its own to the node, which routes between them."""
        self._write("cni/10-ptp.conflist", json.dumps({
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [{
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": "10.244.0.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }],
        }))  # fmt: skip
        configuration = self._write(
            "containerd.toml",
            f"""
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true  # root may not be allowed to lower it
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_CNI_PLUGINS}"
conf_dir = "{self._directory / "cni"}"
""",
        )
        self._start("containerd", "containerd", "--config", configuration)

        def answers() -> bool:
            self._processes[-1].require_running()
            return subprocess.run(["ctr", "version"], capture_output=True, check=False).returncode == 0

        wait_until(answers, timeout=60, describe=self.describe)

    def start_kubelet(self) -> None:
        """With its own credentials and rights alone (Node authorization), as on any node."""
        self._cp.serving_certificate(self._directory, hosts=(apart.ADDRESS, _NAME))
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{apart.cgroup()}",
            "protectKernelDefaults": True,  # testbed/apart.py shows it those it wants
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "address": apart.ADDRESS,
            "tlsCertFile": str(self._directory / "tls.crt"),
            "tlsPrivateKeyFile": str(self._directory / "tls.key"),
            "authentication": {"x509": {"clientCAFile": str(self._cp.authority)}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"},
            "failSwapOn": False,
            "resolvConf": "",
            "volumePluginDir": "/run/volume-plugins",
            "evictionHard": {"memory.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "2s",
        }
        self._start(
            "kubelet",
            self._tools["kubelet"],
            f"--config={self._write('kubelet.yaml', json.dumps(configuration))}",
            f"--kubeconfig={self._cp.kubeconfig(f'system:node:{_NAME}', groups=['system:nodes'])}",
            f"--hostname-override={_NAME}",
            f"--node-ip={apart.ADDRESS}",
        )

    def start_proxy(self) -> None:
        """kube-proxy, with rules of nftables. It must not set limits of connection tracking: they are the machine's."""
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": "10.244.0.0/24",
            "hostnameOverride": _NAME,
            "clientConnection": {"kubeconfig": str(self._cp.kubeconfig("system:kube-proxy"))},
            "conntrack": {
                "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            },
        }  # fmt: skip
        self._start(
            "kube-proxy", self._tools["kube-proxy"], f"--config={self._write('proxy.yaml', json.dumps(configuration))}"
        )
