"""Any name, any namespace, any order: a release works whoever makes its certificates, and a second one is refused."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.client import resource_path, wait_until
from testbed.errors import TestbedError
from testbed.installation import CHART
from tests.cluster.open_kinds import open_definition
from tests.cluster.versions import wait_served
from tests.faults.changes import Bed, bed, settings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

DEFINITIONS = CHART / "crds"
CERT_MANAGER = (("certificates", "Certificate"), ("issuers", "Issuer"))


def own(made: Bed) -> None:
    """The leader makes the certificates; the definitions are applied before the release."""
    made.cp.kubectl("apply", "--server-side", "-f", str(DEFINITIONS))
    made.helm(flags=["--skip-crds"])


def existing(made: Bed) -> None:
    """A Secret of the administrator; the definitions are applied after the release."""
    made.cp.kubectl("create", "namespace", made.namespace)
    service = f"{made.release}-turnstile-webhook-service.{made.namespace}.svc"
    create_secret(made, "own-certificate", [service])
    made.helm(
        "webhook.certs.mode=existing", "webhook.certs.secretName=own-certificate",
        f"webhook.certs.caBundle={bundle(made)}", flags=["--skip-crds"],
    )  # fmt: skip
    made.cp.kubectl("apply", "--server-side", "-f", str(DEFINITIONS))


def cert_manager(made: Bed) -> None:
    """cert-manager, which the test plays: it makes the Secret of the Certificate, and writes the caBundle."""
    for plural, kind in CERT_MANAGER:
        made.cp.api.create(open_definition("cert-manager.io", plural, kind))
    plurals = [plural for plural, _ in CERT_MANAGER]
    wait_until(lambda: all(served(made, each) for each in plurals), timeout=30, describe=lambda: "not served")
    made.helm("webhook.certs.mode=certManager")
    name = f"{made.release}-turnstile-webhook"
    path = resource_path("cert-manager.io/v1", "certificates", name, namespace=made.namespace)
    certificate = made.cp.api.get(path)["spec"]
    create_secret(made, certificate["secretName"], certificate["dnsNames"])
    for kind in ("mutating", "validating"):
        found = made.cp.api.get(made.webhooks(kind))
        assert found["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == f"{made.namespace}/{name}"
        for hook in found["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle(made)
        made.cp.api.replace(made.webhooks(kind), found)


def create_secret(made: Bed, name: str, hosts: list[str]) -> None:
    """A Secret with a certificate for these names by the bed's authority."""
    directory: Path = made.cp.directory / name
    made.cp.serving_certificate(directory, hosts=hosts)
    made.cp.kubectl(
        "-n", made.namespace, "create", "secret", "tls", name,
        f"--cert={directory / 'tls.crt'}", f"--key={directory / 'tls.key'}",
    )  # fmt: skip


def bundle(made: Bed) -> str:
    """The bed's authority as a caBundle."""
    return base64.b64encode(made.cp.authority.read_bytes()).decode()


def served(made: Bed, plural: str) -> bool:
    """Whether the API server answers for a kind of cert-manager."""
    return made.cp.api.find(resource_path("cert-manager.io/v1", plural)) is not None


@pytest.fixture(
    params=[
        ("blue", "batch", own),
        ("q", "a-namespace", existing),
        ("r-with-a-long-name", "kueue-system", cert_manager),
    ],
    ids=["own certificates, CRDs first", "a Secret that exists, CRDs last", "cert-manager"],
)
def found(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A release of that name in that namespace, installed that way."""
    install: Callable[[Bed], None]
    release, namespace, install = request.param
    with bed(install, release=release, namespace=namespace) as made:
        yield made


def test_jobs_are_queued_versions_converted_and_a_second_release_refused(found: Bed) -> None:
    """Through the Service of that name, with that certificate: a Job is held until it is admitted, old versions are
    read, and neither another name nor another namespace takes a second release."""
    wait_served(found.cp.api)
    assert found.scenario.job("hello", queue="queue-0")["spec"]["suspend"] is True
    found.scenario.wait_started("hello", timeout=60)
    assert found.cp.api.items("/apis/kueue.x-k8s.io/v1beta1/clusterqueues")
    refused = f"release {found.release} in namespace {found.namespace} has installed Turnstile"
    flags = ("--create-namespace", "--skip-crds", *settings())
    for release, namespace in (("second", found.namespace), (found.release, "another"), ("turnstile", "other")):
        with pytest.raises(TestbedError, match=refused):
            found.cp.helm("install", release, str(CHART), "-n", namespace, *flags)
