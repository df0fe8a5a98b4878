"""Reviews for an API server with a client certificate only, and what the API server sends to be converted.

A control plane of its own: its API server is told to present a certificate, as docs/install.md explains.
"""

import datetime as dt
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from testbed import ControlPlane
from testbed.client import wait_until
from testbed.installation import MANAGED, Installation
from tests.cluster.scenario import Scenario, job
from tests.cluster.versions import wait_served
from turnstile.http.certificates import make_ca, make_leaf

pytestmark = pytest.mark.cluster

NAME = "kube-apiserver"


def certificates(directory: Path) -> None:
    """`ca.crt`, and `client.crt` with `client.key` whose common name is `NAME`."""
    now = dt.datetime.now(dt.UTC)
    authority = make_ca(now)
    leaf = make_leaf(authority, now, ["client"])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)]))
        .issuer_name(authority.certificate.subject)
        .public_key(leaf.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(authority.key, hashes.SHA256())
    )
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    (directory / "client.crt").write_bytes(type(leaf)(certificate, leaf.key).certificate_pem)
    (directory / "client.key").write_bytes(leaf.key_pem)


def admission_configuration(directory: Path) -> Path:
    """The file for --admission-control-config-file, as on the page."""
    user = {"client-certificate": str(directory / "client.crt"), "client-key": str(directory / "client.key")}
    kubeconfig = directory / "webhooks.kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]})
    )
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = [
        {"name": name, "configuration": configuration}
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    file = directory / "admission.yaml"
    whole = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}
    file.write_text(yaml.safe_dump(whole))
    return file


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Turnstile, which answers reviews to `NAME` only."""
    directory = tmp_path_factory.mktemp("clients")
    certificates(directory)
    flag = f"--admission-control-config-file={admission_configuration(directory)}"
    components = ["etcd", "kube-apiserver", "kube-controller-manager"]
    with ControlPlane(components=components, extra_arguments={"kube-apiserver": [flag]}) as cp:
        made = Installation(cp)
        made.install()
        arguments = ("--client-ca-file", str(directory / "ca.crt"), "--client-name", NAME)
        made.wait_ready(made.start(arguments=arguments))
        wait_served(cp.api)
        yield made


def test_the_api_server_is_known_and_others_are_not(installation: Installation) -> None:
    """A Job is reviewed; the same review sent by somebody else is answered 401."""
    namespace = installation.control_plane.namespace("team", labels=MANAGED)
    made = installation.control_plane.api.create(job("train", namespace=namespace, queue="main"), dry_run=True)
    assert made["spec"]["suspend"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    asked = urllib.request.Request(
        f"https://127.0.0.1:{installation.port}/mutate-batch-v1-job",
        data=json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(asked, context=context, timeout=5)
    caught.value.close()
    assert caught.value.code == 401


def test_each_object_is_converted_by_itself(installation: Installation) -> None:
    """Also those of a list, so a conversion review is no larger than an object; and no certificate comes with it."""
    world = Scenario(installation.control_plane.api, installation.control_plane.namespace("team", labels=MANAGED))
    for number in range(20):
        world.cohort(f"cohort-{number}")

    installation.control_plane.restart("kube-apiserver")  # which then reads all of each kind from etcd
    path = "/apis/kueue.x-k8s.io/v1beta1/cohorts"
    wait_until(lambda: len(world.api.items(path)) == 20, timeout=20, describe=lambda: "the list is not served")
    samples = [line.split() for line in installation.metrics().splitlines()]
    objects, reviews = (
        sum(float(sample[-1]) for sample in samples if sample[0].startswith(name))
        for name in ("turnstile_webhook_conversions_total", "turnstile_webhook_conversion_duration_seconds_count")
    )
    assert objects >= 20
    assert objects == reviews
