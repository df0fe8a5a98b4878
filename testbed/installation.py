"""Turnstile installed from its chart on a test bed, its processes running beside the cluster.

The chart renders everything but the Deployments (`webhook.url` points at this machine); `turnstile serve` runs as a
child process under the chart's own service accounts, so a missing right shows here as it would in production.
"""

import base64
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from testbed.client import Json, resource_path, unverified_tls, wait_until
from testbed.controlplane import ControlPlane
from testbed.ports import lent_port
from testbed.processes import Process

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "turnstile"
NAMESPACE = "turnstile-system"
RELEASE = "turnstile"
MANAGED = {"kueue-managed": "true"}
"""Labels of a namespace that opted in."""
OPT_IN = ("--managed-namespace-label", "kueue-managed=true")
"""Flags of the chart's default values: namespaces that opted in are managed."""

QUICK_ELECTION = ("--lease-duration", "4", "--renew-deadline", "3", "--retry-period", "0.4")
QUICK_END = ("--drain-seconds", "0")
"""No Service leads to these processes: its endpoints need no second to change before a process ends."""


class Installation:
    """One release of the chart and the processes that serve it. `gates` are feature gates that are on besides.

    `election` are the flags of the leader election: short times, so that a killed leader is replaced within 5 s. The
    visibility API is registered with `visibility` only: while its process does not run, the API server deletes no
    namespace to the end, and so is the page with `page`. `namespaces` are the flags that say which are managed.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        gates: Sequence[str] = (),
        election: Sequence[str] = QUICK_ELECTION,
        visibility: bool = False,
        page: bool = False,
        namespaces: Sequence[str] = OPT_IN,
    ) -> None:
        self.control_plane = control_plane
        self._gates = gates
        self._election = election
        self._namespaces = namespaces
        self.port = lent_port()
        self.visibility_port = lent_port() if visibility else None
        self.page_port = lent_port() if page else None
        self._count = 0

    def install(self, *values: str) -> None:
        """`helm upgrade --install` with the webhooks pointed at this machine; `values` are `--set` pairs."""
        settings = [f"webhook.url=https://127.0.0.1:{self.port}", "controller.enabled=false", *values]
        if self.visibility_port is not None:
            settings.append(f"visibility.url=https://localhost:{self.visibility_port}")
        if self.page_port is not None:
            settings += ["page.enabled=true", f"page.url=https://localhost:{self.page_port}"]
        settings += [f"featureGates.{gate}=true" for gate in self._gates]
        flags = [part for setting in settings for part in ("--set", setting)]
        self.control_plane.helm(
            "upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace", *flags
        )

    def configuration(self) -> str:
        """The configuration file in the ConfigMap that the chart made."""
        path = resource_path("v1", "configmaps", f"{RELEASE}-config", namespace=NAMESPACE)
        text: str = self.control_plane.api.get(path)["data"]["config.yaml"]
        return text

    def start(
        self,
        *,
        role: str = "all",
        port: int | None = None,
        arguments: tuple[str, ...] = (),
        election: Sequence[str] | None = None,
        program: Sequence[str] = ("turnstile",),
    ) -> Process:
        """Start `turnstile serve` under the service account of its role; `all` uses the controller's.

        Only one process can answer on the webhook's port; a second one of role controller needs none. `election` is
        the installation's by default, `program` the module to run and what it takes before the command.
        """
        self._count += 1
        account = "turnstile-webhook" if role == "webhook" else "turnstile-controller"
        # A day: somebody may look at `make run` for long.
        credentials = self.control_plane.service_account_kubeconfig(NAMESPACE, account, seconds=86400)
        name = f"turnstile-{role}-{self._count}"
        bind = port if port is not None else self.port
        command = [
            sys.executable,
            "-m",
            *program,
            "serve",
            "--role",
            role,
            "--kubeconfig",
            str(credentials),
            "--namespace",
            NAMESPACE,
            "--bind",
            f"127.0.0.1:{bind}",
            "--webhook-host",
            "127.0.0.1",
            *self._namespaces,
            *QUICK_END,
            *(["--visibility-bind", f"127.0.0.1:{self.visibility_port}"] if self.visibility_port is not None else []),
            *(["--page-registered"] if self.page_port is not None else []),
            *(self._election if election is None else election),
            *(["--feature-gates", ",".join(f"{gate}=true" for gate in self._gates)] if self._gates else []),
            *arguments,
        ]
        return self.control_plane.start_process(name, command, cwd=ROOT)

    def crash(self, process: Process) -> None:
        """SIGKILL to a leader, whose Lease is given up in its place: the next process would watch it first for as long
        as it lasts."""
        process.kill()
        path = resource_path("coordination.k8s.io/v1", "leases", f"{RELEASE}-controller", namespace=NAMESPACE)
        self.control_plane.api.patch(path, {"spec": {"holderIdentity": ""}})

    def start_page(self, *arguments: str) -> Process:
        """Start the page under its own account, with the certificate that the leader made; its pod would have it as
        files."""
        self._count += 1
        name = f"turnstile-page-{self._count}"
        credentials = self.control_plane.service_account_kubeconfig(NAMESPACE, "turnstile-page", seconds=86400)
        files = self._certificate()
        command = [sys.executable, "-m", "turnstile", "serve", "--role", "page", "--kubeconfig", str(credentials)]
        command += ["--namespace", NAMESPACE, "--bind", f"127.0.0.1:{self.page_port}", *files, *arguments]
        return self.control_plane.start_process(name, command, cwd=ROOT)

    def _certificate(self) -> list[str]:
        """Flags with the files of the serving certificate."""
        secret = self.control_plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/turnstile-webhook-server-cert")
        flags = []
        for key, flag in (("tls.crt", "--tls-cert"), ("tls.key", "--tls-key")):
            file = self.control_plane.directory / f"serving-{key}"
            file.write_bytes(base64.b64decode(secret["data"][key]))
            flags += [flag, str(file)]
        return flags

    def ready(self, port: int | None = None) -> bool:
        """Whether the webhook at its port, or at another one, says that it is ready."""
        return self.status(port).get("ready") is True

    def status(self, port: int | None = None) -> Json:
        """What /readyz says, with `ready` added; empty while nobody answers."""
        url = f"https://127.0.0.1:{port or self.port}/readyz"
        try:
            with urllib.request.urlopen(url, context=unverified_tls(), timeout=2) as answer:
                return {"ready": True, **json.loads(answer.read() or b"{}")}
        except urllib.error.HTTPError as error:
            return {"ready": False, "answer": error.read().decode(errors="replace")}
        except OSError:
            return {}

    def wait_ready(self, process: Process, *, timeout: float = 40) -> None:
        """Wait until the webhook is ready and trusted by the API server; an early end is raised with the last lines."""

        def look() -> bool:
            process.require_running()
            return self.ready() and self._trusted()

        wait_until(look, timeout=timeout, every=0.1, describe=lambda: f"not ready: {self.status()}\n{process.tail(20)}")

    def metrics(self) -> str:
        """What /metrics shows to an account that may read it."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}/metrics",
            headers={"Authorization": f"Bearer {metrics_token(self.control_plane)}"},
        )
        with urllib.request.urlopen(request, context=unverified_tls(), timeout=5) as answer:  # noqa: S310 -- https above
            text: str = answer.read().decode()
            return text

    def _trusted(self) -> bool:
        """Whether every webhook of ours has a caBundle."""
        for kind in ("mutating", "validating"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            found = self.control_plane.api.find(f"{path}/{RELEASE}-{kind}-webhook-configuration")
            if found is None or not all(hook["clientConfig"].get("caBundle") for hook in found["webhooks"]):
                return False
        return True


def metrics_token(control_plane: ControlPlane) -> str:
    """A token of an account that may read the metrics, as that of Prometheus; the account is made when first needed."""
    api = control_plane.api
    account = {"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}
    if api.find(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/prometheus") is None:
        metadata = {"name": account["name"], "namespace": NAMESPACE}
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        api.create({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "prometheus"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{RELEASE}-metrics-reader",
            },
            "subjects": [account],
        })  # fmt: skip
    return control_plane.service_account_token(NAMESPACE, "prometheus", seconds=3600)
