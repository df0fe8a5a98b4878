"""`with ControlPlane() as cp:` a real Kubernetes control plane with simulated nodes, on loopback, gone at the end.

It owns a temporary directory, a process group and three ports, and gives all of them back whatever happens. It knows
nothing of Turnstile.
"""

import os
import shutil
import ssl
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed import build, kubeconfig, nodes
from testbed.certs import Authority, service_account_keys
from testbed.chart import with_image
from testbed.client import Api, resource_path, wait_until
from testbed.components import ALL, EXIT_CODE, FRONT_PROXY_NAME, RUN_FOR, Places, Settings, command_line
from testbed.errors import ApiError, ComponentFailed, TestbedError
from testbed.patience import Patience
from testbed.ports import ReservedPort, lent_port
from testbed.processes import Process, ProcessGroup

_ADMIN_GROUP = "system:masters"
_COMPONENT_USERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", (_ADMIN_GROUP,)),
}


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok as one context manager.

    `components` leaves some out (etcd and kube-apiserver are needed by all others).
    `pod_seconds` ends a Job's pod after so many seconds when its annotation `testbed.turnstile.dev/run-for` does not
    say otherwise; None (the default) lets it run until deleted or finished (`finish_job`).
    `kube_api_qps` is the client limit of controller manager and scheduler, burst is twice the value; None leaves them
    theirs (20 and 50), which costs 4 s of every start and makes them what a load test measures.
    `event_ttl` and `feature_gates` go to the components as they are.
    `audit` writes one JSON line a request to `audit_log`. `logs` has kwok serve what `write_log` writes as the log
    of every container. `extra_arguments` adds flags by component, `environment`
    variables to all components.
    `keep` leaves the directory with its logs behind; the environment variable TESTBED_KEEP=1 does so too.
    `report` gets the lines of a build; by default they go to standard error.

    Raises `BuildError` when a tool cannot be built and `ComponentFailed` when a component does not come up.
    """

    def __init__(
        self,
        *,
        components: Sequence[str] = ALL,
        pod_seconds: float | None = None,
        kube_api_qps: int | None = 200,
        event_ttl: str = "1h",
        feature_gates: Mapping[str, bool] | None = None,
        audit: bool = False,
        logs: bool = False,
        extra_arguments: Mapping[str, Sequence[str]] | None = None,
        environment: Mapping[str, str] | None = None,
        keep: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> None:
        unknown = sorted({*components, *(extra_arguments or {})} - set(ALL))
        if unknown:
            raise ValueError(f"components: {unknown[0]!r} is none of {', '.join(ALL)}")
        self.settings = Settings(
            components=[name for name in ALL if name in components],
            pod_seconds=pod_seconds,
            kube_api_qps=kube_api_qps,
            event_ttl=event_ttl,
            feature_gates=feature_gates or {},
            audit=audit,
            logs=logs,
            extra_arguments=extra_arguments or {},
        )
        self._variables = dict(environment or {})
        self._keep = keep or os.environ.get("TESTBED_KEEP", "") not in ("", "0")
        self._report = report
        self._ports: list[ReservedPort] = []
        self._processes: dict[str, Process] = {}
        self._kubeconfigs: dict[tuple[str, tuple[str, ...]], Path] = {}
        self._clients: list[Api] = []
        self._group: ProcessGroup | None = None
        self._directory: Path | None = None

    # ---------------------------------------------------------------- start and stop

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self.tools = build.ensure(self._report)
        self._directory = Path(tempfile.mkdtemp(prefix="turnstile-testbed-"))
        self._group = ProcessGroup(None if self._keep else self._directory)
        self._ports = [ReservedPort() for _ in range(3)]
        etcd_port, etcd_peer_port, api_port = (port.number for port in self._ports)
        self.server = f"https://127.0.0.1:{api_port}"
        self._authority = Authority(self.directory / "certs")
        front_proxy = Authority(self.directory / "certs" / "front-proxy", name="testbed-front-proxy-ca")
        self._places = Places(
            directory=self.directory,
            tools=self.tools,
            etcd_port=etcd_port,
            etcd_peer_port=etcd_peer_port,
            api_port=api_port,
            kubelet_port=lent_port() if self.settings.logs else 0,
            authority=self._authority.certificate_file,
            authority_key=self._authority.key_file,
            serving=self._authority.server(
                "kube-apiserver", hosts=["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc", "10.0.0.1"]
            ),
            front_proxy_authority=front_proxy.certificate_file,
            front_proxy=front_proxy.client("front-proxy-client", user=FRONT_PROXY_NAME),
            kubelet_client=self._authority.client(
                "kube-apiserver-kubelet-client", user="kube-apiserver-kubelet-client", groups=[_ADMIN_GROUP]
            ),
            service_account_keys=service_account_keys(self.directory / "certs"),
            kubeconfigs={
                name: self.kubeconfig(user, groups=groups) for name, (user, groups) in _COMPONENT_USERS.items()
            },
        )
        self.api = self.api_as("admin")
        # The API server waits for etcd by itself. Its clients would wait for it too, but in steps of seconds.
        first = [name for name in ("etcd", "kube-apiserver") if name in self.settings.components]
        for name in first:
            self._launch(name)
        if "kube-apiserver" in first:
            self._wait_answer("/readyz", Patience(60))
        for name in self.settings.components:
            if name not in first:
                self._launch(name)
        if "kube-apiserver" in first:
            self._wait_ready(timeout=60)

    def stop(self) -> None:
        """Kill everything and remove the directory. May be called twice."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._group is not None:
            self._group.stop()
            self._group = None
        self._processes.clear()
        for port in self._ports:
            port.release()
        self._ports.clear()
        if self._directory is not None and not self._keep:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _launch(self, name: str) -> None:
        log = self.log(name)
        argv = command_line(name, self.settings, self._places)
        self._processes[name] = self._running_group.start(
            name, argv, log=log, env={**self._environment, **self._variables}
        )

    @property
    def _running_group(self) -> ProcessGroup:
        if self._group is None:
            raise TestbedError("the control plane is not running: use it as `with ControlPlane() as cp:`")
        return self._group

    @property
    def _environment(self) -> dict[str, str]:
        """Keeps the tools from reading or writing anything in the user's home."""
        home = self.directory / "home"
        return {
            "HOME": str(home),
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }

    def _wait_ready(self, *, timeout: float) -> None:
        """Until /readyz is ok and, with a controller manager, the default namespace has its service account."""
        patience = Patience(timeout)
        wanted = ["/readyz"]
        if "kube-controller-manager" in self.settings.components:
            wanted += [
                resource_path("v1", "serviceaccounts", "default", namespace="default"),
                resource_path("v1", "configmaps", "kube-root-ca.crt", namespace="default"),
            ]
        for path in wanted:
            self._wait_answer(path, patience)

    def _wait_answer(self, path: str, patience: Patience) -> None:
        why: object = "no answer"
        while True:
            for process in self._processes.values():
                process.require_running()
            try:
                self.api.request("GET", path, timeout=5)
            except (OSError, ApiError) as error:
                why = error
            else:
                return
            if patience.over:
                logs = "\n".join(f"--- {process.log}\n{process.tail(10)}" for process in self._processes.values())
                raise ComponentFailed(f"{path} is not ready after {patience.waited:.0f} s: {why}\n{logs}")
            time.sleep(0.05)

    # ---------------------------------------------------------------- components

    @property
    def directory(self) -> Path:
        """The temporary directory: logs, certificates, kubeconfigs, data."""
        if self._directory is None:
            raise TestbedError("the control plane is not running: use it as `with ControlPlane() as cp:`")
        return self._directory

    @property
    def audit_log(self) -> Path:
        """The API server's audit log (with `audit=True`): one JSON line a request."""
        return self._places.audit_log

    def write_log(self, *lines: str, anew: bool = False) -> None:
        """Add lines to the log of every container (with `logs=True`), or have it begin with them."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())
        with self._places.container_log.open("w" if anew else "a") as log:
            log.writelines(f"{now} stdout F {line}\n" for line in lines)  # the format of container runtimes

    @property
    def etcd(self) -> str:
        """URL of etcd, which asks nobody who they are."""
        return f"http://127.0.0.1:{self._places.etcd_port}"

    @property
    def pids(self) -> list[int]:
        """Process ids of all that runs now."""
        return self._running_group.pids

    def log(self, name: str) -> Path:
        """The log file of a component or of a program started with `start_process`."""
        return self.directory / "logs" / f"{name}.log"

    def process(self, component: str) -> Process:
        """The process of a component."""
        try:
            return self._processes[component]
        except KeyError:
            raise ValueError(f"component: {component!r} is none of {', '.join(sorted(self._processes))}") from None

    def ended(self) -> dict[str, str]:
        """The components that do not run, each with the end of its log: what to show when a test fails."""
        return {name: process.tail() for name, process in self._processes.items() if process.poll() is not None}

    def kill(self, component: str) -> None:
        """SIGKILL a component; `restart` brings it back."""
        self.process(component).kill()

    def pause(self, component: str) -> None:
        """Freeze a component: its connections stay open, nothing answers."""
        self.process(component).pause()

    def resume(self, component: str) -> None:
        """Let a paused component go on."""
        self.process(component).resume()

    def start(self, component: str, *, timeout: float = 30) -> None:
        """Start a component that was killed, with the same flags and port, and wait until the API answers."""
        if self.process(component).poll() is None:
            raise ValueError(f"component: {component!r} is running: use restart")
        self._launch(component)
        if component in ("etcd", "kube-apiserver") and self.process("kube-apiserver").poll() is None:
            self._wait_ready(timeout=timeout)

    def restart(self, component: str, *, timeout: float = 30) -> None:
        """Kill a component and start it again; state is in etcd and stays."""
        self.kill(component)
        self.start(component, timeout=timeout)

    def start_process(
        self, name: str, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Process:
        """Start any other program (Turnstile, say) that dies with the bed; its output goes to `log(name)`."""
        return self._running_group.start(name, argv, log=self.log(name), env=env, cwd=cwd)

    # ---------------------------------------------------------------- access

    def kubeconfig(self, user: str = "admin", *, groups: Sequence[str] | None = None) -> Path:
        """A kubeconfig with a client certificate; `admin` is in system:masters, others only in the groups you give."""
        key = (user, _members(user, groups))
        if key not in self._kubeconfigs:
            file_name = f"client-{len(self._kubeconfigs)}"
            self._kubeconfigs[key] = kubeconfig.write(
                self.directory / "kubeconfigs" / f"{file_name}.kubeconfig",
                server=self.server,
                authority=self._authority.certificate_file,
                user=user,
                client=self._authority.client(file_name, user=user, groups=key[1]),
            )
        return self._kubeconfigs[key]

    def service_account_kubeconfig(self, namespace: str, name: str, *, seconds: int = 3600) -> Path:
        """A kubeconfig with a fresh token of a service account, valid for `seconds` (at least 600)."""
        return kubeconfig.write(
            self.directory / "kubeconfigs" / f"{namespace}.{name}.kubeconfig",
            server=self.server,
            authority=self._authority.certificate_file,
            user=f"system:serviceaccount:{namespace}:{name}",
            token=self.service_account_token(namespace, name, seconds=seconds),
            namespace=namespace,
        )

    def service_account_token(self, namespace: str, name: str, *, seconds: int = 3600) -> str:
        """A token of a service account by the TokenRequest API."""
        path = resource_path("v1", "serviceaccounts", name, namespace=namespace, subresource="token")
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        token: str = self.api.request("POST", path, request)["status"]["token"]
        return token

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signs for the API server and for `serving_certificate`."""
        return self._authority.certificate_file

    def serving_certificate(self, directory: Path, *, hosts: Sequence[str] = ("127.0.0.1",)) -> None:
        """Put `tls.crt` and `tls.key` there, as the volume of a TLS Secret has them, for a server with these names."""
        directory.mkdir(parents=True, exist_ok=True)
        files = self._authority.server(f"serving-{uuid.uuid4().hex[:8]}", hosts=hosts)
        for file, name in zip(files, ("tls.crt", "tls.key"), strict=True):
            shutil.copy(file, directory / name)

    def api_as(self, user: str, *, groups: Sequence[str] | None = None, impersonate: str | None = None) -> Api:
        """A client that calls as `user` (with a client certificate), in the name of another user if one is given."""
        file_name = self.kubeconfig(user, groups=groups).stem
        tls = ssl.create_default_context(cafile=str(self._authority.certificate_file))
        certs = self.directory / "certs"
        tls.load_cert_chain(certs / f"{file_name}.crt", certs / f"{file_name}.key")
        headers = {"Impersonate-User": impersonate} if impersonate else {}
        client = Api("127.0.0.1", self._places.api_port, tls, headers=headers)
        self._clients.append(client)
        return client

    def kubectl(self, *arguments: str, input: str | None = None, user: str = "admin") -> str:  # noqa: A002
        """Run kubectl and return what it prints; raises `TestbedError` with its complaint."""
        cache = f"--cache-dir={self.directory / 'home' / 'kube-cache'}"
        return self._tool("kubectl", cache, *arguments, text=input, user=user)

    def helm(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Run helm and return what it prints; raises `TestbedError` with its complaint."""
        return self._tool("helm", *with_image(arguments), text=input)

    def _tool(self, name: str, *arguments: str, text: str | None, user: str = "admin") -> str:
        environment = {**os.environ, **self._environment, "KUBECONFIG": str(self.kubeconfig(user))}
        done = subprocess.run(
            [str(self.tools[name]), *arguments],
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if done.returncode:
            raise TestbedError(f"{name} {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    # ---------------------------------------------------------------- contents

    def add_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str] | str] = (),
        cpu: str | int = 8,
        memory: str = "32Gi",
        pods: int = 110,
        extra: Mapping[str, str | int] | None = None,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Register a simulated node and wait until pods can land on it; a taint may be `key=value:Effect`."""
        obj = nodes.node(name, labels=labels, taints=taints, cpu=cpu, memory=memory, pods=pods, extra=extra)
        created = self.api.create(obj)
        if not wait:
            return created
        return self.api.wait_for(
            resource_path("v1", "nodes", name), nodes.is_ready, timeout=30, describe="Ready and untainted"
        )

    def remove_node(self, name: str) -> None:
        """Delete a node and, as a cloud's node controller does in the end, the pods that were on it."""
        self.api.delete(resource_path("v1", "nodes", name))
        for pod in self.api.items("/api/v1/pods", fields=f"spec.nodeName={name}"):
            path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])
            self.api.delete(path, grace_seconds=0)

    def namespace(self, prefix: str = "test", *, labels: Mapping[str, str] | None = None) -> str:
        """Make a fresh namespace, wait for its default service account (pods need it) and return its name."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        )
        if "kube-controller-manager" in self.settings.components:
            # The controllers look again only after up to half a minute once their API server was away.
            self.api.wait_for(resource_path("v1", "serviceaccounts", "default", namespace=name), bool, timeout=60)
        return name

    def end_pods(self, namespace: str, *, labels: str, exit_code: int = 0) -> list[dict[str, Any]]:
        """Let the pods with these labels end as soon as they run, without waiting for it; returns these pods."""
        pods = self.api.items(resource_path("v1", "pods", namespace=namespace), labels=labels)
        for pod in pods:
            if pod["metadata"].get("annotations", {}).get(RUN_FOR) != "0s":
                path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=namespace)
                self.api.patch(path, {"metadata": {"annotations": {RUN_FOR: "0s", EXIT_CODE: str(exit_code)}}})
        return pods

    def finish_job(self, namespace: str, name: str, *, exit_code: int = 0, timeout: float = 15) -> None:
        """Let the running pods of a Job end now and wait until the Job has noticed: none of them is active any more."""
        job = resource_path("batch/v1", "jobs", name, namespace=namespace)

        def ended() -> bool:
            pods = self.end_pods(namespace, labels=f"batch.kubernetes.io/job-name={name}", exit_code=exit_code)
            return bool(pods) and not self.api.get(job).get("status", {}).get("active")

        wait_until(ended, timeout=timeout, describe=lambda: f"{job}: its pods did not end")


def _members(user: str, groups: Sequence[str] | None) -> tuple[str, ...]:
    if groups is not None:
        return tuple(groups)
    return (_ADMIN_GROUP,) if user == "admin" else ()
