"""The settings of `turnstile serve`: what the command line and the configuration file say together. Only values."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from turnstile.api.config import Loaded
from turnstile.api.config.tls import TlsOptions
from turnstile.controllers.metrics.labels import MetricOptions
from turnstile.engine.options import Options as EngineOptions
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.process.configured import Election, JobFlags, NotificationOptions, TraceOptions
from turnstile.recorder.location import Location
from turnstile.recorder.writer import Retention


class Role(StrEnum):
    """The roles of this process."""

    ALL = "all"
    WEBHOOK = "webhook"
    CONTROLLER = "controller"
    PAGE = "page"

    @property
    def webhook(self) -> bool:
        """Whether this process answers admission reviews."""
        return self in (Role.ALL, Role.WEBHOOK)

    @property
    def controller(self) -> bool:
        """Whether this process is a candidate for the Lease and, as leader, reconciles."""
        return self in (Role.ALL, Role.CONTROLLER)

    @property
    def page(self) -> bool:
        """Whether this process serves the page; it does nothing else then."""
        return self is Role.PAGE


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
    visibility_bind: tuple[str, int] | None
    page_registered: bool
    measured: MetricOptions
    metrics_for_everybody: bool
    webhook_hosts: tuple[str, ...]
    client_ca: Path | None
    client_names: tuple[str, ...]
    tls: TlsOptions
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
    idle_seconds: float
    log_level: str
    log_format: str
    decision_log: Path | None
    decision_log_objects: bool
    recorder: Location | None
    recorder_decisions: bool
    retention: Retention
    audit_interval: float
    notifications: NotificationOptions | None
    traces: TraceOptions | None
