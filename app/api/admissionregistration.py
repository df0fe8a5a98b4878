"""Webhook configurations, reduced to what the leader keeps right in them: the CA bundle of each entry."""

from typing import ClassVar

from app.api.meta import Kind, Object


class WebhookClientConfig(Object):
    """admissionregistrationv1.WebhookClientConfig; `ca_bundle` is the PEM itself."""

    ca_bundle: bytes = b""


class Webhook(Object):
    """One entry of either kind; names are unique within a configuration."""

    name: str
    client_config: WebhookClientConfig


class WebhookConfiguration(Kind):
    """What both kinds have in common."""

    GROUP: ClassVar = "admissionregistration.k8s.io"
    VERSION: ClassVar = "v1"
    NAMESPACED: ClassVar = False

    webhooks: list[Webhook] = []


class MutatingWebhookConfiguration(WebhookConfiguration):
    """admissionregistration.k8s.io/v1 MutatingWebhookConfiguration."""

    KIND: ClassVar = "MutatingWebhookConfiguration"
    PLURAL: ClassVar = "mutatingwebhookconfigurations"


class ValidatingWebhookConfiguration(WebhookConfiguration):
    """admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration."""

    KIND: ClassVar = "ValidatingWebhookConfiguration"
    PLURAL: ClassVar = "validatingwebhookconfigurations"
