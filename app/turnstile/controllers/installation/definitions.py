"""Updates Turnstile's CustomResourceDefinitions, which Helm installs once and never updates; runs in the leader only.

The controller sets two fields of each: whether older versions are served, as the values of the chart configure, and the
client of the conversion webhook. That is copied from Turnstile's validating webhook configuration, which always has the
address and CA bundle of the webhook, whatever issued the certificates. A kind whose versions differ serves older ones
only once it has a conversion: until then the API server would store objects with fields that the stored version drops.

Must never write other fields; each patch has the resourceVersion that was decided about as precondition.
"""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from turnstile.api.admissionregistration import ValidatingWebhookConfiguration, WebhookClientConfig
from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.kinds import KINDS, Definition
from turnstile.api.meta import to_plain
from turnstile.api.patch import JsonPatch
from turnstile.controllers.runtime.actions import Emit, Patch, ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Watch
from turnstile.controllers.runtime.writes import fresh_operations
from turnstile.kube.store import Store

PATH: Final = "/convert"
_PART_OF: Final = "app.kubernetes.io/part-of", "turnstile"
LABEL_SELECTOR: Final = "=".join(_PART_OF)
"""Selects Turnstile's definitions."""
_REVIEW_VERSIONS: Final = ["v1"]
_OURS: Final[Mapping[str, Definition]] = {kinds.name: kinds for kinds in KINDS}


def is_ours(definition: CustomResourceDefinition) -> bool:
    """Whether a definition is of Turnstile's chart, as LABEL_SELECTOR selects it; Kueue's of the same name is not."""
    label, value = _PART_OF
    return definition.metadata.labels.get(label) == value


def conversion_client(configuration: ValidatingWebhookConfiguration | None) -> WebhookClientConfig | None:
    """The client config of the conversion webhook: that of the configuration's first entry, with another path.

    None while the configuration is missing, or has no CA bundle yet.
    """
    if configuration is None or not configuration.webhooks:
        return None
    client = configuration.webhooks[0].client_config
    if not client.ca_bundle:
        return None
    if client.service is not None:
        return WebhookClientConfig(
            service=msgspec.structs.replace(client.service, path=PATH), ca_bundle=client.ca_bundle
        )
    url = urlsplit(client.url or "")
    return WebhookClientConfig(url=urlunsplit((url.scheme, url.netloc, PATH, "", "")), ca_bundle=client.ca_bundle)


def decide(
    definition: CustomResourceDefinition, kinds: Definition, client: WebhookClientConfig | None, *, serve_older: bool
) -> ReconcileResult:
    """The writes for the definition of a kind. `client` is that of the conversion webhook, None if not known yet."""
    stored_older = any(version != kinds.stored.VERSION for version in definition.status.stored_versions)
    converts = kinds.converted and (serve_older or stored_older)
    if converts and client is None:
        return ReconcileResult(why="it is not known yet where objects are converted")
    operations = JsonPatch()
    for index, version in enumerate(definition.spec.versions):
        if version.name in kinds.older and version.served != serve_older:
            operations.replace("spec", "versions", index, "served", value=serve_older)
    served = bool(operations)
    if converts and definition.conversion_webhook != client:
        webhook = {"clientConfig": to_plain(client), "conversionReviewVersions": _REVIEW_VERSIONS}
        operations.add("spec", "conversion", value={"strategy": "Webhook", "webhook": webhook})
    elif not converts and definition.spec.conversion.strategy != "None":
        operations.add("spec", "conversion", value={"strategy": "None"})
    if not operations:
        return ReconcileResult(why="it is as it should be")
    changes = []
    if served:
        changes.append(f"{', '.join(kinds.older)} {'served' if serve_older else 'not served any more'}")
    if len(operations) > served:
        changes.append(f"objects converted {'by our webhook' if converts else 'by the API server itself'}")
    body = fresh_operations(definition.metadata, operations).encode()
    patch = Patch(CustomResourceDefinition, "", kinds.name, body, type="json")
    return ReconcileResult(
        [patch, Emit(definition, "Normal", "VersionsUpdated", "; ".join(changes))], "; ".join(changes)
    )


def controller(
    *,
    configuration: str,
    definitions: Store[CustomResourceDefinition],
    validating: Store[ValidatingWebhookConfiguration],
    serve_older: Callable[[Definition], bool],
) -> Controller:
    """The controller that reconciles each of Turnstile's definitions when it, or the webhook configuration, changes.

    The stores must be full before the controller runs. `configuration` is the name of Turnstile's validating webhook
    configuration. `serve_older` returns whether to serve the older versions of a kind.
    """

    def decide_key(key: str) -> ReconcileResult:
        definition = definitions.get(key)
        if definition is None:
            return ReconcileResult(why="gone")
        client = conversion_client(validating.get(configuration))
        return decide(definition, _OURS[key], client, serve_older=serve_older(_OURS[key]))

    def changed(key: str, _: object, __: object) -> tuple[str, ...]:
        return (key,) if key in _OURS else ()

    return Controller(
        name=CustomResourceDefinition.KIND,
        kind=CustomResourceDefinition,
        decide=decide_key,
        watches=[Watch(definitions, changed), Watch(validating, lambda key, old, new: _OURS)],
        initial=lambda: iter(_OURS),
        workers=2,
        base_delay=0.02,
        max_delay=30.0,
    )
