"""The leader keeps right what Helm leaves alone in our CustomResourceDefinitions, and nothing else."""

import json
from typing import Any

import pytest

from turnstile.api.admissionregistration import (
    ServiceReference,
    ValidatingWebhookConfiguration,
    Webhook,
    WebhookClientConfig,
)
from turnstile.api.apiextensions import (
    CustomResourceConversion,
    CustomResourceDefinition,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionStatus,
    CustomResourceDefinitionVersion,
    WebhookConversion,
)
from turnstile.api.kinds import KINDS, Definition
from turnstile.api.meta import ObjectMeta
from turnstile.controllers.installation.definitions import conversion_client, decide
from turnstile.controllers.runtime.actions import Emit, Patch, ReconcileResult

SERVICE = ServiceReference(name="turnstile-webhook-service", namespace="turnstile-system", path="/convert", port=443)
CLIENT = WebhookClientConfig(service=SERVICE, ca_bundle=b"bundle")
WEBHOOK = CustomResourceConversion(strategy="Webhook", webhook=WebhookConversion(client_config=CLIENT))
NONE = CustomResourceConversion()


def of(kind: str) -> Definition:
    """The kind of that name."""
    return next(kinds for kinds in KINDS if kind == kinds.stored.KIND)


def definition(
    kind: str, *, older: bool, conversion: CustomResourceConversion = NONE, stored: tuple[str, ...] = ("v1beta2",)
) -> CustomResourceDefinition:
    """The definition of a kind, its older versions served or not."""
    kinds = of(kind)
    versions = [
        CustomResourceDefinitionVersion(name="v1beta2", served=True, storage=True),
        *(CustomResourceDefinitionVersion(name=name, served=older) for name in kinds.older),
    ]
    return CustomResourceDefinition(
        metadata=ObjectMeta(name=kinds.name, resource_version="7"),
        spec=CustomResourceDefinitionSpec(versions=versions, conversion=conversion),
        status=CustomResourceDefinitionStatus(stored_versions=list(stored)),
    )


def decided(
    seen: CustomResourceDefinition, client: WebhookClientConfig | None = CLIENT, *, serve_older: bool = True
) -> ReconcileResult:
    """The decision about a definition."""
    kinds = next(kinds for kinds in KINDS if kinds.name == seen.metadata.name)
    return decide(seen, kinds, client, serve_older=serve_older)


def operations(decision: ReconcileResult) -> list[tuple[str, Any]]:
    """Path and value of each change, after the version it rests on."""
    if not decision.actions:
        return []
    patch, event = decision.actions
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert (patch.type, patch.subresource, event.reason) == ("json", "", "VersionsUpdated")
    first, *others = json.loads(patch.body)
    assert first == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    return [(operation["path"], operation["value"]) for operation in others]


class TestServing:
    """Older versions come with a conversion, or not at all."""

    def test_a_new_installation(self) -> None:
        """In one write the API server learns who converts, and serves all versions."""
        (served, older, conversion) = operations(decided(definition("ClusterQueue", older=False)))
        assert (served, older) == (("/spec/versions/1/served", True), ("/spec/versions/2/served", True))
        path, value = conversion
        assert (path, value["strategy"], value["webhook"]["conversionReviewVersions"]) == (
            "/spec/conversion",
            "Webhook",
            ["v1"],
        )
        client = value["webhook"]["clientConfig"]
        assert client["service"] == {
            "name": "turnstile-webhook-service",
            "namespace": "turnstile-system",
            "path": "/convert",
            "port": 443,
        }
        assert client["caBundle"] == "YnVuZGxl"

    def test_nobody_to_ask_yet(self) -> None:
        """Before it is known who converts, nothing is served that would need it."""
        assert operations(decided(definition("Workload", older=False), None)) == []

    @pytest.mark.parametrize("kind", ["ClusterQueue", "Workload"])
    def test_all_is_well(self, kind: str) -> None:
        """Then nothing is written."""
        assert operations(decided(definition(kind, older=True, conversion=WEBHOOK))) == []
        assert operations(decided(definition(kind, older=False), serve_older=False)) == []

    def test_another_trust(self) -> None:
        """A new bundle goes in, and nothing else is touched."""
        newer = WebhookClientConfig(service=SERVICE, ca_bundle=b"newer")
        ((path, value),) = operations(decided(definition("Workload", older=True, conversion=WEBHOOK), newer))
        assert path == "/spec/conversion"
        assert value["webhook"]["clientConfig"]["caBundle"] == "bmV3ZXI="

    def test_left_unserved(self) -> None:
        """Nothing is served but the stored version, and nobody is asked to convert."""
        seen = definition("ClusterQueue", older=True, conversion=WEBHOOK)
        assert operations(decided(seen, serve_older=False)) == [
            ("/spec/versions/1/served", False),
            ("/spec/versions/2/served", False),
            ("/spec/conversion", {"strategy": "None"}),
        ]

    def test_stored_in_an_older_version(self) -> None:
        """As long as there may be old objects in etcd they have to be converted, whatever is served."""
        seen = definition("Workload", older=True, conversion=NONE, stored=("v1beta1", "v1beta2"))
        (served, (path, value)) = operations(decided(seen, serve_older=False))
        assert served == ("/spec/versions/1/served", False)
        assert (path, value["strategy"]) == ("/spec/conversion", "Webhook")

    def test_same_schema(self) -> None:
        """Kinds whose versions share a schema need nobody."""
        assert operations(decided(definition("Topology", older=False), None)) == [("/spec/versions/1/served", True)]
        assert operations(decided(definition("Topology", older=True, conversion=WEBHOOK))) == [
            ("/spec/conversion", {"strategy": "None"})
        ]


class TestClient:
    """The API server reaches the conversion as it reaches the webhooks."""

    @staticmethod
    def configuration(client: WebhookClientConfig) -> ValidatingWebhookConfiguration:
        """A configuration whose entries are reached so."""
        return ValidatingWebhookConfiguration(webhooks=[Webhook(name="w", client_config=client)])

    def test_service(self) -> None:
        """By the Service, at a path of its own."""
        service = ServiceReference(name="s", namespace="n", path="/validate", port=443)
        client = conversion_client(self.configuration(WebhookClientConfig(service=service, ca_bundle=b"b")))
        assert client == WebhookClientConfig(
            service=ServiceReference(name="s", namespace="n", path="/convert", port=443), ca_bundle=b"b"
        )

    def test_url(self) -> None:
        """By a URL, at a path of its own."""
        client = WebhookClientConfig(url="https://127.0.0.1:9443/validate-x?timeout=5s", ca_bundle=b"b")
        assert conversion_client(self.configuration(client)) == WebhookClientConfig(
            url="https://127.0.0.1:9443/convert", ca_bundle=b"b"
        )

    def test_not_known(self) -> None:
        """Not at all before there is a configuration, and trust in it."""
        assert conversion_client(None) is None
        assert conversion_client(ValidatingWebhookConfiguration()) is None
        assert conversion_client(self.configuration(WebhookClientConfig(service=SERVICE))) is None
