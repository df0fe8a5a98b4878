"""CustomResourceDefinitions, reduced to what the leader keeps right in ours: what is served, and who converts."""

from typing import ClassVar, Literal

import msgspec

from turnstile.api.admissionregistration import WebhookClientConfig
from turnstile.api.meta import Kind, Object


class WebhookConversion(Object):
    """apiextensionsv1.WebhookConversion."""

    client_config: WebhookClientConfig | None = None


class CustomResourceConversion(Object):
    """apiextensionsv1.CustomResourceConversion; None rewrites the apiVersion and nothing else."""

    strategy: Literal["None", "Webhook"] = "None"
    webhook: WebhookConversion | None = None


class CustomResourceDefinitionVersion(Object):
    """apiextensionsv1.CustomResourceDefinitionVersion."""

    name: str
    served: bool = False
    storage: bool = False


class CustomResourceDefinitionSpec(Object):
    """apiextensionsv1.CustomResourceDefinitionSpec."""

    versions: list[CustomResourceDefinitionVersion] = []
    conversion: CustomResourceConversion = msgspec.field(default_factory=CustomResourceConversion)


class CustomResourceDefinitionStatus(Object):
    """apiextensionsv1.CustomResourceDefinitionStatus."""

    stored_versions: list[str] = []


class CustomResourceDefinition(Kind):
    """apiextensions.k8s.io/v1 CustomResourceDefinition."""

    GROUP: ClassVar = "apiextensions.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "CustomResourceDefinition"
    PLURAL: ClassVar = "customresourcedefinitions"
    NAMESPACED: ClassVar = False

    spec: CustomResourceDefinitionSpec = msgspec.field(default_factory=CustomResourceDefinitionSpec)
    status: CustomResourceDefinitionStatus = msgspec.field(default_factory=CustomResourceDefinitionStatus)

    @property
    def conversion_webhook(self) -> WebhookClientConfig | None:
        """Where the API server has objects converted; None if it does that itself."""
        conversion = self.spec.conversion
        webhook = conversion.webhook if conversion.strategy == "Webhook" else None
        return webhook.client_config if webhook is not None else None
