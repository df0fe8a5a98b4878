"""`helm upgrade` while Turnstile runs: job kinds are switched off and on, and no certificate is lost on the way.

A control plane of its own, because the release's webhook configurations change.
"""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane
from testbed.client import Json, wait_until
from testbed.installation import CHART, MANAGED, NAMESPACE, RELEASE, Installation
from tests.cluster.scenario import job
from tests.cluster.versions import wait_served

pytestmark = pytest.mark.cluster

KINDS = ("mutating", "validating")
WITHOUT_JOBS = "config.integrations.frameworks={pod}"
WITH_JOBS = "config.integrations.frameworks={batch/job,pod}"


class Release:
    """A release of the chart, and how Helm applies it: on the server as Helm 4 does, or itself as Helm 3 did."""

    def __init__(self, installation: Installation, *, server_side: str) -> None:
        self.installation = installation
        self.api = installation.control_plane.api
        self._server_side = server_side

    def upgrade(self, *values: str) -> None:
        """`helm upgrade` with further values; raises with Helm's complaint, such as a conflict."""
        self._helm("upgrade", "--reuse-values", *values)

    def install(self) -> None:
        """`helm install` with the webhooks pointed at this machine."""
        url = f"webhook.url=https://127.0.0.1:{self.installation.port}"
        self._helm("install", "--create-namespace", url, "controller.enabled=false")

    def _helm(self, verb: str, option: str, *values: str) -> None:
        flags = [part for value in values for part in ("--set", value)]
        arguments = (RELEASE, str(CHART), "-n", NAMESPACE, option, f"--server-side={self._server_side}")
        self.installation.control_plane.helm(verb, *arguments, *flags)

    def entries(self, kind: str) -> dict[str, Json]:
        """How each entry of a webhook configuration is called."""
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
        found = self.api.get(f"{path}/{RELEASE}-{kind}-webhook-configuration")
        return {each["name"]: each["clientConfig"] for each in found["webhooks"]}

    def bundles(self) -> set[str | None]:
        """The different bundles of all entries."""
        return {each.get("caBundle") for kind in KINDS for each in self.entries(kind).values()}


@pytest.fixture(scope="module", params=["true", "false"], ids=["helm 4", "helm 3"])
def release(request: pytest.FixtureRequest) -> Iterator[Release]:
    """A release and the process that serves it."""
    with ControlPlane(components=["etcd", "kube-apiserver", "kube-controller-manager"]) as cp:
        installation = Installation(cp)
        made = Release(installation, server_side=request.param)
        made.install()
        installation.wait_ready(installation.start())
        wait_served(cp.api)
        yield made


def test_a_kind_is_switched_off_and_on_again(release: Release) -> None:
    """Its entries go and return, those of the other kinds keep their bundle throughout, and Jobs are queued again."""
    namespace = release.installation.control_plane.namespace("team", labels=MANAGED)
    (bundle,) = release.bundles()
    assert bundle
    for _ in range(2):
        release.upgrade(WITHOUT_JOBS)
        assert release.bundles() == {bundle}
        assert "mjob.kb.io" not in release.entries("mutating")
        assert "vjob.kb.io" not in release.entries("validating")
        untouched = release.api.create(job("untouched", namespace=namespace, queue="main"), dry_run=True)
        assert not untouched["spec"].get("suspend")

        release.upgrade(WITH_JOBS)
        assert release.bundles() <= {bundle, None}
        assert release.entries("mutating")["mpod.kb.io"]["caBundle"] == bundle
        wait_until(
            lambda: release.bundles() == {bundle},
            timeout=10,
            describe=lambda: f"bundles: {release.bundles()}",
        )
        queued = release.api.create(job("queued", namespace=namespace, queue="main"), dry_run=True)
        assert queued["spec"]["suspend"]


def test_what_an_upgrade_changes_beside_the_bundle_is_changed(release: Release) -> None:
    """The time that the API server waits, and a label of every object; the certificate stays."""
    (bundle,) = release.bundles()
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-webhook-server-cert"
    before = release.api.get(secret)["data"]
    release.upgrade("webhook.timeoutSeconds=3", "commonLabels.team=platform")
    assert release.bundles() == {bundle}
    found = release.api.get(secret)
    assert (found["data"], found["metadata"]["labels"]["team"]) == (before, "platform")


def test_another_address_of_the_webhook_keeps_the_bundle(release: Release) -> None:
    """From a URL to the Service and back."""
    (bundle,) = release.bundles()
    url = release.entries("mutating")["mpod.kb.io"]["url"].removesuffix("/mutate--v1-pod")
    release.upgrade("webhook.url=", "webhook.replicas=1")
    assert all("service" in each for each in release.entries("mutating").values())
    assert release.bundles() == {bundle}
    release.upgrade(f"webhook.url={url}")
    assert all("url" in each for each in release.entries("mutating").values())
    assert release.bundles() == {bundle}
