"""`turnstile serve`: run the webhook, the controller, or both; or the page."""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from turnstile.api.config import Loaded, features
from turnstile.api.errors import InvalidValue
from turnstile.api.numbers import clamped
from turnstile.cli.cluster import Context, Kubeconfig, explained
from turnstile.cli.config import load_or_exit
from turnstile.controllers.audit import INTERVAL_SECONDS
from turnstile.controllers.metrics.labels import MetricOptions
from turnstile.engine.options import Options as EngineOptions
from turnstile.jobs.options import namespaces
from turnstile.process import configured
from turnstile.process.configured import Election, JobFlags
from turnstile.process.settings import Role, Settings
from turnstile.recorder.location import Location
from turnstile.recorder.writer import Retention

WEBHOOK_ADDRESS: Final = "127.0.0.1:9443"


def _address(value: str, flag: str) -> tuple[str, int]:
    host, separator, port = value.rpartition(":")
    number = clamped(port) if separator else None
    if number is None or number > 65535:
        raise typer.BadParameter(f"{value!r} is not host:port, for example 127.0.0.1:9443", param_hint=flag)
    return host.strip("[]") or "0.0.0.0", number  # noqa: S104 -- without a host it binds all interfaces


def _recorder(text: str | None) -> Location | None:
    with explained():
        try:
            return Location.of(text) if text else None
        except InvalidValue as error:
            raise typer.BadParameter(f"{error.value!r} {error.cure}", param_hint="--recorder") from None


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise typer.BadParameter(f"{text!r} is not key=value", param_hint="--managed-namespace-label")
    return key, value


def _election(loaded: Loaded | None, **flags: float | None) -> Election:
    """The times of the file, overridden by the flags that are given."""
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    election = replace(configured.election(loaded), **given)
    try:
        election.check()
    except InvalidValue as error:
        raise typer.BadParameter(
            str(error), param_hint=" ".join(f"--{name.replace('_', '-')}" for name in given)
        ) from None
    return election


def _default_namespace() -> str:
    mounted = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return mounted.read_text().strip() if mounted.exists() else "turnstile-system"


def register(app: typer.Typer, serving: Callable[[Settings], int]) -> None:
    """Add the command to `app`; its exit code is the result of `serving`."""

    @app.command()
    def serve(
        *,
        role: Annotated[Role, typer.Option(help="What this process serves.")] = Role.ALL,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
        namespace: Annotated[
            str | None,
            typer.Option(
                help="Namespace of the Lease and the certificate Secret; by default the namespace of the pod."
            ),
        ] = None,
        name: Annotated[str, typer.Option(help="Full name of the release; prefixes its objects.")] = "turnstile",
        config: Annotated[
            Path | None,
            typer.Option(
                help="A config.kueue.x-k8s.io Configuration file. Flags override it; it is read again when it changes."
            ),
        ] = None,
        feature_gates: Annotated[
            str,
            typer.Option(
                help="Feature gates as A=true,B=false; not together with featureGates in the configuration file."
            ),
        ] = "",
        bind: Annotated[
            str | None, typer.Option(help=f"host:port of the webhook or the page (TLS); {WEBHOOK_ADDRESS}.")
        ] = None,
        health_bind: Annotated[
            str | None, typer.Option(help="host:port of /healthz and /readyz without TLS; empty for none.")
        ] = None,
        metrics_bind: Annotated[
            str | None,
            typer.Option(help="host:port of /metrics (TLS, certificate made at start); empty for none."),
        ] = None,
        visibility_bind: Annotated[
            str | None,
            typer.Option(
                help="host:port of the visibility API (TLS) in the controller role; empty for none. With the gate"
                " VisibilityOnDemand only."
            ),
        ] = None,
        page_registered: Annotated[
            bool,
            typer.Option(
                "--page-registered",
                help="The page is registered with the API server: the leader writes the caBundle of its APIService.",
            ),
        ] = False,
        metrics_for_everybody: Annotated[
            bool,
            typer.Option(
                "--metrics-for-everybody",
                help="Show /metrics without a token, also at --health-bind. Else the API server is asked who may read.",
            ),
        ] = False,
        webhook_host: Annotated[
            list[str] | None,
            typer.Option(
                help="Further host or address the API server may call; goes into the certificate. Repeatable."
            ),
        ] = None,
        client_ca_file: Annotated[
            Path | None,
            typer.Option(
                help="PEM of authorities. Reviews are then answered only to clients with a certificate of one of them.",
                exists=True,
            ),
        ] = None,
        client_name: Annotated[
            list[str] | None,
            typer.Option(help="Common name that such a certificate must have; any by default. Repeatable."),
        ] = None,
        tls_cert: Annotated[
            Path | None,
            typer.Option(help="Serving certificate file; by default the managed Secret is used.", exists=True),
        ] = None,
        tls_key: Annotated[Path | None, typer.Option(help="Key of --tls-cert.", exists=True)] = None,
        manage_certificates: Annotated[
            bool | None,
            typer.Option(help="Issue and renew the serving certificate, and write its CA into every caBundle."),
        ] = None,
        serve_v1beta1: Annotated[
            bool,
            typer.Option(
                help="Serve v1beta1 of Turnstile's kinds, and v1alpha2 of ClusterQueue. Makes every write slower."
            ),
        ] = True,
        serve_v1beta1_workloads: Annotated[
            bool,
            typer.Option(
                help="With --serve-v1beta1, serve v1beta1 of Workloads too, the kind that is written most often."
            ),
        ] = True,
        manage_jobs_without_queue_name: Annotated[
            bool | None, typer.Option(help="Also suspend jobs that name no queue, until they name one.")
        ] = None,
        exclude_namespace: Annotated[
            list[str] | None,
            typer.Option(help="Namespace that is never managed, besides kube-system and Turnstile's own. Repeatable."),
        ] = None,
        victim_patience: Annotated[
            float,
            typer.Option(
                help="Seconds a preemptor waits for the quota of an evicted Workload before it tries other victims;"
                " pods that hold it for longer are deleted with a grace period of 10 s. 0 for ever.",
                min=0.0,
            ),
        ] = 300.0,
        unused_after: Annotated[
            float,
            typer.Option(
                help="Seconds after which a Workload that holds quota is evicted, and waits again, if none of its pods"
                " has run. 0 for never.",
                min=0.0,
            ),
        ] = 0.0,
        drain_seconds: Annotated[
            float, typer.Option(help="Seconds for which reviews are still answered after SIGTERM.", min=0.0)
        ] = 1.0,
        idle_seconds: Annotated[
            float,
            typer.Option(
                help="Seconds, after --drain-seconds, for which the API server may keep idle connections to the"
                " webhook: it closes them after 90, and a review that it sends while the webhook closes one fails.",
                min=0.0,
            ),
        ] = 0.0,
        managed_namespace_label: Annotated[
            list[str] | None,
            typer.Option(help="Label key=value of managed namespaces; without this flag all are managed. Repeatable."),
        ] = None,
        log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
        log_format: Annotated[str, typer.Option(help="json for machines, console for people.")] = "json",
        decision_log: Annotated[
            Path | None,
            typer.Option(
                help="File to which the leader appends its input and decisions, one line of JSON each; none by default."
            ),
        ] = None,
        decision_log_objects: Annotated[
            bool,
            typer.Option(
                "--decision-log-objects",
                help="Write objects to --decision-log too, so that `turnstile replay` can make its decisions again.",
            ),
        ] = False,
        recorder: Annotated[
            str | None,
            typer.Option(
                envvar="TURNSTILE_RECORDER",
                metavar="FILE|URL",
                help="Where the leader records what happens to each Workload, for `turnstile timeline` and `turnstile"
                " usage`, and where the role page reads; nowhere by default. A file (SQLite; not on a network file"
                " system), or a database of PostgreSQL as postgresql://USER:PASSWORD@HOST/DATABASE: give that by the"
                " variable, which other processes do not see.",
            ),
        ] = None,
        recorder_decisions: Annotated[
            bool,
            typer.Option(
                "--recorder-decisions",
                help="Record the input and the decisions of the leader to --recorder too, so that `turnstile replay`"
                " can make its decisions again: a few KiB for each change of a Workload.",
            ),
        ] = False,
        recorder_days: Annotated[
            float,
            typer.Option(help="Days for which Workloads that are over stay in --recorder; 0 for ever.", min=0.0),
        ] = Retention().days or 0.0,
        recorder_mib: Annotated[
            float,
            typer.Option(
                help="MiB that the file of --recorder may take: the Workloads that were over first are deleted; 0 for"
                " no limit. A database has none.",
                min=0.0,
            ),
        ] = Retention().mib or 0.0,
        audit_interval: Annotated[
            float,
            typer.Option(
                help="Seconds between two audits of running pods against quotas by the leader; 0 for none.", min=0.0
            ),
        ] = INTERVAL_SECONDS,
        lease_duration: Annotated[
            int | None,
            typer.Option(help=f"Seconds after which a silent leader is replaced; {Election().lease_duration}."),
        ] = None,
        renew_deadline: Annotated[
            float | None,
            typer.Option(
                help="Seconds after which a leader that cannot renew its Lease stops writing, half a second below"
                f" --lease-duration at least; {Election().renew_deadline:g}."
            ),
        ] = None,
        retry_period: Annotated[
            float | None,
            typer.Option(help=f"Seconds between attempts to get or renew the Lease; {Election().retry_period:g}."),
        ] = None,
    ) -> None:
        """Run the webhook, the controller, both, or the page."""
        if (tls_cert is None) != (tls_key is None):
            raise typer.BadParameter("--tls-cert and --tls-key go together", param_hint="--tls-cert")
        if role.page and tls_cert is None:
            raise typer.BadParameter("--role page needs --tls-cert and --tls-key", param_hint="--tls-cert")
        if client_name and client_ca_file is None:
            raise typer.BadParameter("--client-name needs --client-ca-file", param_hint="--client-name")
        if recorder_decisions and (recorder is None or decision_log is not None):
            cure = "needs --recorder, and takes the place of --decision-log"
            raise typer.BadParameter(cure, param_hint="--recorder-decisions")
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
        gates = loaded.gates if loaded is not None else features.DEFAULTS
        visibility = configured.visibility_address(loaded) if loaded is not None else None
        if visibility_bind is not None:
            visibility = _address(visibility_bind, "--visibility-bind") if visibility_bind else None
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
            metrics_bind=(_address(metrics_bind, "--metrics-bind") if metrics_bind else None)
            if metrics_bind is not None or loaded is None
            else configured.metrics_address(loaded),
            visibility_bind=visibility if "VisibilityOnDemand" in gates else None,
            page_registered=page_registered,
            metrics_for_everybody=metrics_for_everybody,
            measured=configured.metric_options(loaded) if loaded is not None else MetricOptions(),
            webhook_hosts=tuple(webhook_host or ()),
            client_ca=client_ca_file,
            client_names=tuple(client_name or ()),
            tls=configured.tls_options(loaded),
            tls_cert=tls_cert,
            tls_key=tls_key,
            manage_certificates=tls_cert is None and manage_certificates is not False,
            serve_v1beta1=serve_v1beta1,
            serve_v1beta1_workloads=serve_v1beta1_workloads,
            jobs=replace(
                flags.options(loaded), victim_patience=victim_patience or None, unused_after=unused_after or None
            ),
            registry=configured.job_kinds(loaded),
            engine=replace(
                configured.engine_options(loaded) if loaded is not None else EngineOptions(),
                victim_patience=victim_patience or None,
            ),
            gates=gates,
            election=_election(
                loaded, lease_duration=lease_duration, renew_deadline=renew_deadline, retry_period=retry_period
            ),
            config=config,
            feature_gates=feature_gates,
            loaded=loaded,
            flags=flags,
            identity=f"{socket.gethostname()}-{os.getpid()}",
            drain_seconds=drain_seconds,
            idle_seconds=idle_seconds,
            log_level=log_level,
            log_format=log_format,
            decision_log=decision_log,
            decision_log_objects=decision_log_objects,
            recorder=_recorder(recorder),
            recorder_decisions=recorder_decisions,
            retention=Retention(days=recorder_days or None, mib=recorder_mib or None),
            audit_interval=audit_interval,
            notifications=configured.notifications(loaded, source=f"/apis/kueue.x-k8s.io/{own}/{name}"),
            traces=configured.traces(loaded),
        )
        raise typer.Exit(serving(settings))
