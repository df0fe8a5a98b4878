"""The part of the installation that the leader keeps right: certificates, versions and conversion of its CRDs.

Declares the caches of its objects; starts nothing.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from turnstile.api.admissionregistration import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.apiregistration import APIService
from turnstile.api.core import Secret
from turnstile.api.kinds import Definition
from turnstile.controllers.installation import definitions
from turnstile.controllers.installation.certificates import Certificates
from turnstile.controllers.runtime.controller import Controller
from turnstile.http.certificates import service_hosts
from turnstile.kube.caches import Caches
from turnstile.kube.store import Store

KINDS: Final = (Secret, MutatingWebhookConfiguration, ValidatingWebhookConfiguration, CustomResourceDefinition)
"""Kinds that only the controllers of Turnstile's own installation read."""
SERVICES: Final = ("webhook-service", "visibility-server", "page")
"""The end of the names of the Services that the serving certificate is for."""


class Installation:
    """The installation with a name in a namespace. `registered`: APIServices need the caBundle."""

    def __init__(self, caches: Caches, *, name: str, namespace: str, registered: bool) -> None:
        self._name = name
        self._namespace = namespace
        configuration = f"metadata.name={name}-%s-webhook-configuration"
        self._mutating = caches.of(MutatingWebhookConfiguration, params={"fieldSelector": configuration % "mutating"})
        self._validating = caches.of(
            ValidatingWebhookConfiguration, params={"fieldSelector": configuration % "validating"}
        )
        labelled = {"labelSelector": definitions.LABEL_SELECTOR}
        self._definitions = caches.of(CustomResourceDefinition, params=labelled)
        self._api_services: Store[APIService] = (
            caches.of(APIService, params=labelled, optional=True) if registered else Store()
        )

    def controllers(
        self,
        *,
        secrets: Store[Secret] | None,
        secret_name: str,
        hosts: Sequence[str],
        serve_older: Callable[[Definition], bool],
        clock: Callable[[], datetime],
    ) -> list[Controller]:
        """Its controllers; those of the certificate, with further `hosts`, only if there are `secrets`."""
        found = [
            definitions.controller(
                configuration=f"{self._name}-validating-webhook-configuration",
                definitions=self._definitions,
                validating=self._validating,
                serve_older=serve_older,
            )
        ]
        if secrets is not None:
            own = [host for each in SERVICES for host in service_hosts(f"{self._name}-{each}", self._namespace)]
            found += Certificates(
                namespace=self._namespace,
                secret_name=secret_name,
                prefix=self._name,
                hosts=(*own, *hosts),
                secrets=secrets,
                mutating=self._mutating,
                validating=self._validating,
                clock=clock,
                definitions=self._definitions,
                api_services=self._api_services,
            ).controllers()
        return found
