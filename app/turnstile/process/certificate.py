"""Where the serving certificate of a process comes from: files, or the Secret that the leader keeps."""

import asyncio
from pathlib import Path

import structlog

from turnstile.api.core import Secret
from turnstile.api.errors import InvalidValue
from turnstile.http.tls import ServingCertificate, follow_files
from turnstile.kube.store import Store

_log = structlog.get_logger(__name__)


async def keep(
    certificate: ServingCertificate,
    *,
    files: tuple[Path, Path] | None,
    secrets: Store[Secret] | None,
    key: str,
    stop: asyncio.Event,
) -> None:
    """Load the certificate from its file and that of its key, or else from the Secret with this key in the store, and
    again on change, until `stop` is set."""
    if files is not None:
        await follow_files(certificate, cert=files[0], key=files[1])
        return
    assert secrets is not None

    def take(secret: Secret | None) -> None:
        if secret is None or secret.metadata.key != key or not secret.data.get("tls.crt"):
            return
        try:
            if certificate.load(secret.data["tls.crt"], secret.data.get("tls.key", b"")):
                _log.info("certificate.loaded", secret=key)
        except InvalidValue as error:
            _log.warning("certificate.unusable", secret=key, error=str(error))

    take(secrets.get(key))
    secrets.subscribe(lambda _, old, new: take(new))
    await stop.wait()
