"""`turnstile serve`: run the webhook, the controller, or both."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from app.api.config import Loaded, features
from app.cli.config import load_or_exit
from app.controllers.audit import INTERVAL_SECONDS
from app.engine.options import Options as EngineOptions
from app.jobs.options import JobOptions, namespaces
from app.jobs.registry import Registry
from app.process import configured
from app.process.configured import Election, JobFlags

WEBHOOK_ADDRESS: Final = "127.0.0.1:9443"


class Role(StrEnum):
    """What this process does."""

    ALL = "all"
    WEBHOOK = "webhook"
    CONTROLLER = "controller"

    @property
    def webhook(self) -> bool:
        """Whether this process answers admission reviews."""
        return self in (Role.ALL, Role.WEBHOOK)

    @property
    def controller(self) -> bool:
        """Whether this process is a candidate for the Lease and, as leader, reconciles."""
        return self in (Role.ALL, Role.CONTROLLER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings from the command line and the configuration file; the command line overrides the file.

    `loaded` is the file at the start, and `flags` the job options of the command line.
    """

    role: Role
    kubeconfig: str | None
    context: str | None
    namespace: str
    name: str
    bind: tuple[str, int]
    health_bind: tuple[str, int] | None
    metrics_bind: tuple[str, int] | None
    local_queue_metrics: bool
    webhook_hosts: tuple[str, ...]
    tls_cert: Path | None
    tls_key: Path | None
    manage_certificates: bool
    serve_v1beta1: bool
    serve_v1beta1_workloads: bool
    jobs: JobOptions
    registry: Registry
    engine: EngineOptions
    gates: frozenset[str]
    election: Election
    config: Path | None
    feature_gates: str
    loaded: Loaded | None
    flags: JobFlags
    identity: str
    drain_seconds: float
    log_level: str
    log_format: str
    decision_log: Path | None
    audit_interval: float


def _address(value: str, flag: str) -> tuple[str, int]:
    host, separator, port = value.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(f"{value!r} is not host:port, for example 127.0.0.1:9443", param_hint=flag)
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 -- without a host it binds all interfaces


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise typer.BadParameter(f"{text!r} is not key=value", param_hint="--managed-namespace-label")
    return key, value


def _default_namespace() -> str:
    mounted = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return mounted.read_text().strip() if mounted.exists() else "turnstile-system"


def register(app: typer.Typer, run: Callable[[Settings], int]) -> None:
    """Add the command to `app`; its exit code is the result of `run`."""

    @app.command()
    def serve(
        *,
        role: Annotated[Role, typer.Option(help="What this process does.")] = Role.ALL,
        kubeconfig: Annotated[
            str | None,
            typer.Option(
                help="Kubeconfig file. Without it: the service account in a pod, else $KUBECONFIG or ~/.kube/config."
            ),
        ] = None,
        context: Annotated[
            str | None, typer.Option(help="Context of the kubeconfig; its current one by default.")
        ] = None,
        namespace: Annotated[
            str | None,
            typer.Option(help="Namespace of the Lease and the certificate Secret; the pod's own by default."),
        ] = None,
        name: Annotated[str, typer.Option(help="Full name of the release; prefixes its objects.")] = "turnstile",
        config: Annotated[
            Path | None,
            typer.Option(help="A config.kueue.x-k8s.io Configuration. Flags win over it; looked at again on change."),
        ] = None,
        feature_gates: Annotated[
            str, typer.Option(help="Gates as A=true,B=false; not together with featureGates in the file.")
        ] = "",
        bind: Annotated[str | None, typer.Option(help=f"host:port of the webhook (TLS); {WEBHOOK_ADDRESS}.")] = None,
        health_bind: Annotated[
            str | None, typer.Option(help="host:port of /healthz, /readyz and /metrics without TLS; empty for none.")
        ] = None,
        webhook_host: Annotated[
            list[str] | None,
            typer.Option(
                help="Further host or address the API server may call; goes into the certificate. Repeatable."
            ),
        ] = None,
        tls_cert: Annotated[
            Path | None,
            typer.Option(help="Serving certificate file; by default the managed Secret is used.", exists=True),
        ] = None,
        tls_key: Annotated[Path | None, typer.Option(help="Key of --tls-cert.", exists=True)] = None,
        manage_certificates: Annotated[
            bool | None, typer.Option(help="Make and renew the serving certificate and keep caBundle right.")
        ] = None,
        serve_v1beta1: Annotated[
            bool,
            typer.Option(
                help="Serve v1beta1 of our kinds, and v1alpha2 of ClusterQueue. Costs the API server at every write."
            ),
        ] = True,
        serve_v1beta1_workloads: Annotated[
            bool, typer.Option(help="With --serve-v1beta1 also serve Workloads so, the kind that changes most.")
        ] = True,
        manage_jobs_without_queue_name: Annotated[
            bool | None, typer.Option(help="Also suspend jobs that name no queue; they wait until they do.")
        ] = None,
        exclude_namespace: Annotated[
            list[str] | None,
            typer.Option(help="Namespace never managed, besides kube-system and our own. Repeatable."),
        ] = None,
        drain_seconds: Annotated[
            float, typer.Option(help="How long reviews are still answered after a request to stop.", min=0.0)
        ] = 1.0,
        managed_namespace_label: Annotated[
            list[str] | None,
            typer.Option(help="key=value that a managed namespace must carry; every namespace without it. Repeatable."),
        ] = None,
        log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
        log_format: Annotated[str, typer.Option(help="json for machines, console for people.")] = "json",
        decision_log: Annotated[
            Path | None,
            typer.Option(
                help="File to append to what the leader saw and decided, a line of JSON each; none by default."
            ),
        ] = None,
        audit_interval: Annotated[
            float,
            typer.Option(
                help="Seconds between two audits of running pods against quotas by the leader; 0 for none.", min=0.0
            ),
        ] = INTERVAL_SECONDS,
    ) -> None:
        """Answer admission reviews, keep quota, or both."""
        if (tls_cert is None) != (tls_key is None):
            raise typer.BadParameter("--tls-cert and --tls-key go together", param_hint="--tls-cert")
        loaded = load_or_exit(
            config, name=name, namespace=namespace or _default_namespace(), feature_gates=feature_gates
        )
        own = namespace or (loaded and loaded.configuration.namespace) or _default_namespace()
        labels = dict(_label(text) for text in managed_namespace_label or ())
        flags = JobFlags(
            without_queue_name=manage_jobs_without_queue_name,
            selector=namespaces(without=("kube-system", own, *(exclude_namespace or ())), labels=labels)
            if loaded is None or labels or exclude_namespace
            else None,
        )
        if loaded is not None and tls_cert is None and (files := configured.certificate_files(loaded)) is not None:
            tls_cert, tls_key = files
        settings = Settings(
            role=role,
            kubeconfig=kubeconfig,
            context=context,
            namespace=own,
            name=name,
            bind=_address(bind, "--bind")
            if bind
            else (loaded and configured.webhook_address(loaded)) or _address(WEBHOOK_ADDRESS, "--bind"),
            health_bind=(_address(health_bind, "--health-bind") if health_bind else None)
            if health_bind is not None or loaded is None
            else configured.health_address(loaded),
            metrics_bind=configured.metrics_address(loaded) if loaded is not None else None,
            local_queue_metrics=loaded is None or configured.local_queue_metrics(loaded),
            webhook_hosts=tuple(webhook_host or ()),
            tls_cert=tls_cert,
            tls_key=tls_key,
            manage_certificates=tls_cert is None and manage_certificates is not False,
            serve_v1beta1=serve_v1beta1,
            serve_v1beta1_workloads=serve_v1beta1_workloads,
            jobs=flags.options(loaded),
            registry=configured.job_kinds(loaded),
            engine=configured.engine_options(loaded) if loaded is not None else EngineOptions(),
            gates=loaded.gates if loaded is not None else features.DEFAULTS,
            election=configured.election(loaded) if loaded is not None else Election(),
            config=config,
            feature_gates=feature_gates,
            loaded=loaded,
            flags=flags,
            identity=f"{socket.gethostname()}-{os.getpid()}",
            drain_seconds=drain_seconds,
            log_level=log_level,
            log_format=log_format,
            decision_log=decision_log,
            audit_interval=audit_interval,
        )
        raise typer.Exit(run(settings))
