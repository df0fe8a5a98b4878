"""Renews the certificate of Turnstile's servers and installs its CA bundle for the API server; runs in the leader only.

The controllers watch the Secret, whose next step `turnstile.http.certificates` plans, and Turnstile's two webhook
configurations, in which every entry's `caBundle` must be the bundle of the Secret. Any other value is replaced at once.
No other field of a configuration is written: the write is a server-side apply of exactly these fields. Turnstile then
gives up its entry in `metadata.managedFields`, so that another applier (Helm) can remove a whole webhook entry. The
APIServices of the visibility API and the page, which the same certificate serves, get the bundle by a merge patch.

Must not run where certificates come from another source (cert-manager, an existing Secret).
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from turnstile.api import names
from turnstile.api.admissionregistration import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    WebhookConfiguration,
)
from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.apiregistration import APIService
from turnstile.api.core import Secret
from turnstile.api.meta import Kind
from turnstile.api.patch import JsonPatch
from turnstile.controllers.runtime.actions import Action, Create, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch
from turnstile.controllers.runtime.writes import fresh_operations, fresh_patch
from turnstile.http.certificates import KEYS, Step, ca_bundle, carry_out, check_hosts, plan
from turnstile.kube.store import Store

SETTLED_AFTER = 10.0
"""Seconds for which all bundles must have been right before a leaf's CA may change: API servers learn of bundles by a
watch."""
AT_LATEST = 3600.0
"""Maximum seconds until the Secret is reconciled again, in case the clock jumps."""

_API_SERVICES = names.API_SERVICES

_REASONS = {
    Step.START_OVER: "CertificatesCreated",
    Step.ISSUE_LEAF: "CertificateRenewed",
    Step.STAGE_CA: "AuthorityStaged",
    Step.SWITCH_CA: "AuthoritySwitched",
    Step.DROP_CA: "AuthorityDropped",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """The input of a decision: the Secret as last read, the time, and for how many seconds every entry of the
    configurations has had the Secret's bundle.
    """

    secret: Secret | None
    now: dt.datetime
    settled_for: float = 0.0


def is_everywhere(bundle: bytes, configurations: Sequence[WebhookConfiguration]) -> bool:
    """Whether every entry of every configuration trusts exactly this bundle."""
    return all(entry.client_config.ca_bundle == bundle for one in configurations for entry in one.webhooks)


def decide(seen: Seen, *, namespace: str, name: str, hosts: Sequence[str]) -> ReconcileResult:
    """The next step for the Secret `name`, at most one. Deterministic but for the new keys that a step generates."""
    data = seen.secret.data if seen.secret is not None else {}
    settled = seen.settled_for >= SETTLED_AFTER
    due = plan(data, seen.now, hosts, distributed=settled)
    if due.step is Step.NOTHING:
        wait = min(AT_LATEST, (due.plan_again - seen.now).total_seconds()) if settled else SETTLED_AFTER
        return ReconcileResult([RequeueAfter(max(1.0, wait))], due.why)
    actions = _write_secret(seen.secret, namespace, name, carry_out(due.step, data, seen.now, hosts))
    if seen.secret is not None:
        damaged = due.step is Step.START_OVER and any(data.get(key) for key in KEYS)
        note = f"{due.step.value}: {due.why}"
        actions.append(Emit(seen.secret, "Warning" if damaged else "Normal", _REASONS[due.step], note))
    return ReconcileResult(actions, due.why)


def decide_configuration(configuration: WebhookConfiguration, secret: Secret | None) -> ReconcileResult:
    """The write that installs the Secret's bundle, if it has one, in every entry of a configuration."""
    bundle = ca_bundle(secret.data) if secret is not None else b""
    if not bundle:
        return ReconcileResult(why="there is no bundle to install")
    if is_everywhere(bundle, [configuration]):
        return ReconcileResult(_disown(configuration), "every entry has the bundle")
    return ReconcileResult(_install(configuration, bundle), "an entry has another bundle")


def decide_api_service(service: APIService, secret: Secret | None) -> ReconcileResult:
    """The write that installs the Secret's bundle, if it has one, in an APIService."""
    bundle = ca_bundle(secret.data) if secret is not None else b""
    if not bundle:
        return ReconcileResult(why="there is no bundle to install")
    if service.spec.ca_bundle == bundle:
        return ReconcileResult(why="it has the bundle")
    note = f"caBundle written: it was {'another' if service.spec.ca_bundle else 'empty'}"
    patch = fresh_patch(service, {"spec": {"caBundle": bundle}})
    return ReconcileResult([patch, Emit(service, "Normal", "CABundleInstalled", note)], "it has another bundle")


def _install(configuration: WebhookConfiguration, bundle: bytes) -> list[Action]:
    # All entries, also those that are right: a field that an earlier apply set and this apply omits would be removed.
    entries = [{"name": entry.name, "clientConfig": {"caBundle": bundle}} for entry in configuration.webhooks]
    body = {
        "apiVersion": f"{configuration.GROUP}/{configuration.VERSION}",
        "kind": configuration.KIND,
        "metadata": {
            "name": configuration.metadata.name,
            "resourceVersion": configuration.metadata.resource_version,
        },
        "webhooks": entries,
    }
    bundles = [entry.client_config.ca_bundle for entry in configuration.webhooks]
    wrong = sum(one not in (bundle, b"") for one in bundles)
    note = f"caBundle written: it was empty in {bundles.count(b'')} entries and another in {wrong}"
    return [
        Patch(type(configuration), "", configuration.metadata.name, msgspec.json.encode(body), type="apply"),
        Emit(configuration, "Normal", "CABundleInstalled", note),
    ]


def _disown(configuration: WebhookConfiguration) -> list[Action]:
    """Remove Turnstile from `metadata.managedFields`.

    While Turnstile owns the `caBundle` of an entry, a Helm upgrade that removes the entry leaves an entry with nothing
    but that field, which the API server refuses.
    """
    meta = configuration.metadata
    for index, entry in enumerate(meta.managed_fields):
        if entry.manager == names.FIELD_MANAGER:
            patch = fresh_operations(meta, JsonPatch().remove("metadata", "managedFields", index))
            return [Patch(type(configuration), "", meta.name, patch.encode(), type="json")]
    return []


def _write_secret(secret: Secret | None, namespace: str, name: str, data: dict[str, bytes]) -> list[Action]:
    if secret is None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "type": "Opaque",
            "data": data,
        }
        return [Create(Secret, namespace, name, msgspec.json.encode(body))]
    changed: dict[str, bytes | None] = {key: value for key, value in data.items() if secret.data.get(key) != value}
    changed |= {key: None for key in secret.data if key not in data}
    return [fresh_patch(secret, {"data": changed})]


class Certificates:
    """The controllers of the Secret, the two webhook configurations and the APIServices, each reconciled when any of
    them changes, or when a step is due.

    The stores must be full before the controllers run; objects of other names in them are ignored. `hosts` are all
    names and addresses under which the servers are called. `prefix` starts the names of the configurations. The CA is
    switched only when `definitions`, which copy the bundle from a configuration
    (`turnstile.controllers.installation.definitions`), and `api_services` have it too. `clock` returns aware times.
    Raises InvalidValue for an invalid host.
    """

    def __init__(
        self,
        *,
        namespace: str,
        secret_name: str,
        prefix: str,
        hosts: Sequence[str],
        secrets: Store[Secret],
        mutating: Store[MutatingWebhookConfiguration],
        validating: Store[ValidatingWebhookConfiguration],
        clock: Callable[[], dt.datetime],
        definitions: Store[CustomResourceDefinition] | None = None,
        api_services: Store[APIService] | None = None,
    ) -> None:
        check_hosts(hosts)
        self._namespace = namespace
        self._secret_name = secret_name
        self._prefix = prefix
        self._hosts = tuple(hosts)
        self._secrets = secrets
        self._mutating = mutating
        self._validating = validating
        self._clock = clock
        self._definitions: Store[CustomResourceDefinition] = Store() if definitions is None else definitions
        self._api_services: Store[APIService] = Store() if api_services is None else api_services
        self._right_since: tuple[bytes, dt.datetime] | None = None

    @property
    def key(self) -> str:
        """Key of the Secret."""
        return f"{self._namespace}/{self._secret_name}"

    def controllers(self) -> list[Controller]:
        """One controller for each kind, so that a failure of one object does not delay the others."""
        return [
            self._controller(Secret, self.key),
            self._controller(MutatingWebhookConfiguration, f"{self._prefix}-{names.MUTATING_CONFIGURATION}"),
            self._controller(ValidatingWebhookConfiguration, f"{self._prefix}-{names.VALIDATING_CONFIGURATION}"),
            self._controller(APIService, *_API_SERVICES),
        ]

    def _controller(self, kind: type[Kind], *keys: str) -> Controller:
        stores: tuple[Store[Any], ...] = (
            self._secrets,
            self._mutating,
            self._validating,
            self._definitions,
            self._api_services,
        )
        return Controller(
            name=kind.KIND,
            kind=kind,
            decide=self._decide,
            watches=[Watch(store, lambda changed, old, new: keys) for store in stores],
            initial=lambda: iter(keys),
            base_delay=0.02,
            max_delay=30.0,
        )

    def _decide(self, key: str) -> ReconcileResult:
        secret = self._secrets.get(self.key)
        if key == self.key:
            return decide(self._seen(secret), namespace=self._namespace, name=self._secret_name, hosts=self._hosts)
        service = self._api_services.get(key)
        if service is not None:
            return decide_api_service(service, secret)
        configuration = self._mutating.get(key) or self._validating.get(key)
        if configuration is None:
            return ReconcileResult(why="it is not installed")
        return decide_configuration(configuration, secret)

    def _seen(self, secret: Secret | None) -> Seen:
        now = self._clock()
        found = (
            self._mutating.get(f"{self._prefix}-{names.MUTATING_CONFIGURATION}"),
            self._validating.get(f"{self._prefix}-{names.VALIDATING_CONFIGURATION}"),
        )
        bundle = ca_bundle(secret.data) if secret is not None else b""
        clients = (definition.conversion_webhook for definition in self._definitions.values())
        converted = all(client.ca_bundle == bundle for client in clients if client is not None)
        converted = converted and all(service.spec.ca_bundle == bundle for service in self._api_services.values())
        if not converted or not is_everywhere(bundle, [one for one in found if one is not None]):
            self._right_since = None
        elif self._right_since is None or self._right_since[0] != bundle or self._right_since[1] > now:
            self._right_since = (bundle, now)
        settled_for = (now - self._right_since[1]).total_seconds() if self._right_since is not None else 0.0
        return Seen(secret, now, settled_for)
