"""Webhook configurations, reduced to how the API server reaches each entry: the leader keeps the CA bundle right."""

from typing import ClassVar

import msgspec

from turnstile.api.meta import Kind, Object, ObjectMeta


class ServiceReference(Object):
    """admissionregistrationv1.ServiceReference."""

    name: str
    namespace: str
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(Object):
    """admissionregistrationv1.WebhookClientConfig: a URL or a Service; `ca_bundle` is the PEM itself."""

    ca_bundle: bytes = b""
    url: str | None = None
    service: ServiceReference | None = None


class Webhook(Object):
    """One entry of either kind; names are unique within a configuration."""

    name: str
    client_config: WebhookClientConfig


class ManagedFieldsEntry(Object):
    """metav1.ManagedFieldsEntry: who set fields of the object, and how; not which fields."""

    manager: str = ""
    operation: str = ""


class ManagedMeta(ObjectMeta):
    """metav1.ObjectMeta with its managedFields."""

    managed_fields: list[ManagedFieldsEntry] = []


class WebhookConfiguration(Kind):
    """The common part of both kinds."""

    GROUP: ClassVar = "admissionregistration.k8s.io"
    VERSION: ClassVar = "v1"
    NAMESPACED: ClassVar = False

    metadata: ManagedMeta = msgspec.field(default_factory=ManagedMeta)
    webhooks: list[Webhook] = []


class MutatingWebhookConfiguration(WebhookConfiguration):
    """admissionregistration.k8s.io/v1 MutatingWebhookConfiguration."""

    KIND: ClassVar = "MutatingWebhookConfiguration"
    PLURAL: ClassVar = "mutatingwebhookconfigurations"


class ValidatingWebhookConfiguration(WebhookConfiguration):
    """admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration."""

    KIND: ClassVar = "ValidatingWebhookConfiguration"
    PLURAL: ClassVar = "validatingwebhookconfigurations"
