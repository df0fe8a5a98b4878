"""APIServices, reduced to what the leader keeps right: the CA bundle for Turnstile's visibility API."""

from typing import ClassVar

import msgspec

from turnstile.api.meta import Kind, Object


class APIServiceSpec(Object):
    """apiregistrationv1.APIServiceSpec; `ca_bundle` is the PEM itself."""

    group: str = ""
    version: str = ""
    ca_bundle: bytes = b""


class APIService(Kind):
    """apiregistration.k8s.io/v1 APIService."""

    GROUP: ClassVar = "apiregistration.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "APIService"
    PLURAL: ClassVar = "apiservices"
    NAMESPACED: ClassVar = False

    spec: APIServiceSpec = msgspec.field(default_factory=APIServiceSpec)
