"""The page in the cluster, as the chart installs it."""

import pytest

from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest, Render
from tests.unit.chart.test_values import Helm, arguments, named
from turnstile.web.questions import QUESTIONS

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds

VALUES = ("--values", str(CHART / "ci" / "page-values.yaml"))
API_SERVICE = "v1alpha1.insight.turnstile.dev"


def about_the_page(manifests: list[Manifest]) -> list[str]:
    """Kinds and names of what belongs to the page."""
    names = ("-page", "insight")
    found = [f"{each['kind']}/{each['metadata']['name']}" for each in manifests]
    return sorted(name for name in found if any(word in name for word in names))


def test_by_default_there_is_none(render: Render) -> None:
    """And no right for it: while a registered API is not available, no namespace is deleted to the end."""
    manifests = render()
    assert about_the_page(manifests) == []
    assert "--page-registered" not in arguments(manifests, "controller")


def test_a_process_of_its_own_behind_the_api_server(render: Render) -> None:
    """With its own account, and an APIService of which the leader writes the caBundle."""
    manifests = render(*VALUES)
    assert about_the_page(manifests) == [
        f"APIService/{API_SERVICE}",
        "ClusterRole/turnstile-page",
        "ClusterRole/turnstile-page-reader",
        "ClusterRoleBinding/turnstile-page",
        "ClusterRoleBinding/turnstile-page-reader",
        "Deployment/turnstile-page",
        "NetworkPolicy/turnstile-page",
        "PodDisruptionBudget/turnstile-page",
        "Role/turnstile-page",
        "RoleBinding/turnstile-page",
        "RoleBinding/turnstile-page-auth-reader",
        "Service/turnstile-page",
        "ServiceAccount/turnstile-page",
    ]
    service = named(manifests, "APIService", API_SERVICE)
    assert service["spec"]["service"] == {"name": "turnstile-page", "namespace": NAMESPACE, "port": 443}
    assert "--page-registered" in arguments(manifests, "controller")
    rules = named(manifests, "ClusterRole", "turnstile-controller")["rules"]
    assert any(API_SERVICE in rule.get("resourceNames", ()) for rule in rules)
    assert "secrets" not in str(named(manifests, "ClusterRole", "turnstile-page"))
    assert "secrets" not in str(named(manifests, "Role", "turnstile-page"))


def test_its_pods_have_the_leaf_and_no_key_of_an_authority(render: Render) -> None:
    """Of the Secret that the leader keeps, two files."""
    pod = named(render(*VALUES), "Deployment", "turnstile-page")["spec"]["template"]["spec"]
    (etc,) = [each for each in pod["volumes"] if each["name"] == "etc"]
    (source,) = etc["projected"]["sources"]
    assert [each["key"] for each in source["secret"]["items"]] == ["tls.crt", "tls.key"]


def test_who_may_open_it(render: Render) -> None:
    """Everybody who is authenticated, or those who are named."""
    binding = named(render(*VALUES), "ClusterRoleBinding", "turnstile-page-reader")
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
    assert binding["subjects"] == [group]
    account = '{"kind": "ServiceAccount", "name": "a", "namespace": "b"}'
    binding = named(
        render(*VALUES, "--set-json", f"page.readers=[{account}]"), "ClusterRoleBinding", "turnstile-page-reader"
    )
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}]


def test_its_readers_may_ask_every_question(render: Render) -> None:
    """Each that the page answers; the API server refuses a question that the role does not name."""
    rules = named(render(*VALUES), "ClusterRole", "turnstile-page-reader")["rules"]
    may = {resource for rule in rules if {"list", "create"} & {*rule["verbs"]} for resource in rule["resources"]}
    assert may == {*QUESTIONS}


def test_the_certificate_of_another_source(render: Render) -> None:
    """cert-manager writes the caBundle, and issues for the page's Service too."""
    manifests = render(*VALUES, "--set", "webhook.certs.mode=certManager")
    service = named(manifests, "APIService", API_SERVICE)
    assert service["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == f"{NAMESPACE}/turnstile-webhook"
    hosts = named(manifests, "Certificate", "turnstile-webhook")["spec"]["dnsNames"]
    assert f"turnstile-page.{NAMESPACE}.svc" in hosts


class TestTheFlightRecorder:
    """What the page's pods are given to read it."""

    WRITTEN = ("controller.recorder.enabled=true", "controller.recorder.postgres.secretName=history")

    @staticmethod
    def pod(render: Render, *settings: str) -> tuple[Manifest, Manifest]:
        """The pod of the page, and its NetworkPolicy."""
        options = [part for setting in settings for part in ("--set", setting)]
        manifests = render(*VALUES, "--set", "networkPolicy.egress=true", *options)
        pod = named(manifests, "Deployment", "turnstile-page")["spec"]["template"]["spec"]
        return pod, named(manifests, "NetworkPolicy", "turnstile-page")

    @staticmethod
    def url(pod: Manifest) -> object:
        """Where its URL comes from."""
        (container,) = pod["containers"]
        found = [each for each in container["env"] if each["name"] == "TURNSTILE_RECORDER"]
        return found[0]["valueFrom"]["secretKeyRef"] if found else None

    def test_in_a_database_is_read_as_it_is_written(self, render: Render) -> None:
        """With the same Secret, unless another one is named."""
        pod, policy = self.pod(render, *self.WRITTEN, "controller.recorder.postgres.port=6432")
        assert self.url(pod) == {"name": "history", "key": "url"}
        assert {"name": "recorder", "secret": {"secretName": "history"}} in pod["volumes"]
        mount = {"name": "recorder", "mountPath": "/etc/turnstile-recorder", "readOnly": True}
        assert mount in pod["containers"][0]["volumeMounts"]
        assert {"ports": [{"port": 6432, "protocol": "TCP"}]} in policy["spec"]["egress"]
        assert not any(each.startswith("--recorder") for each in pod["containers"][0]["args"])

    def test_with_a_role_that_only_reads(self, render: Render) -> None:
        """A Secret of the page alone; the pods have nothing of the controller's."""
        own = ("page.recorder.postgres.secretName=readers", "page.recorder.postgres.port=7432")
        pod, policy = self.pod(render, *self.WRITTEN, *own)
        assert self.url(pod) == {"name": "readers", "key": "url"}
        assert "history" not in str(pod)
        assert {"ports": [{"port": 7432, "protocol": "TCP"}]} in policy["spec"]["egress"]
        pod, _ = self.pod(render, *own, "page.recorder.postgres.secretKey=uri")
        assert self.url(pod) == {"name": "readers", "key": "uri"}
        pod, policy = self.pod(render, own[0])
        assert self.url(pod) == {"name": "readers", "key": "url"}
        assert {"ports": [{"port": 5432, "protocol": "TCP"}]} in policy["spec"]["egress"]
        pod, _ = self.pod(render, *self.WRITTEN, "page.recorder.postgres.secretKey=reads")
        assert self.url(pod) == {"name": "history", "key": "reads"}

    @pytest.mark.parametrize(
        "settings", [(), ("controller.recorder.enabled=true",), (*WRITTEN, "page.recorder.enabled=false"),
                     ("controller.recorder.postgres.secretName=history",)],
    )  # fmt: skip
    def test_in_a_file_or_not_at_all(self, render: Render, settings: tuple[str, ...]) -> None:
        """There is nothing to read in another pod."""
        pod, policy = self.pod(render, *settings)
        assert self.url(pod) is None
        assert "recorder" not in str(pod)
        assert "5432" not in str(policy)

    def test_a_key_of_no_secret(self, helm: Helm) -> None:
        """Is refused by name."""
        settings = ("--set", "page.enabled=true", "--set", "page.recorder.postgres.secretKey=url")
        answer = helm("template", "turnstile", str(CHART), "--namespace", NAMESPACE, *settings)
        assert "page.recorder.postgres.secretName: name the Secret" in answer.stderr

    def test_the_notes_say_what_is_missing(self, helm: Helm) -> None:
        """With a file that the page does not read."""
        install = ("install", "turnstile", str(CHART), "--dry-run=client", "--set", "page.enabled=true")
        install = (*install, "--set", "controller.recorder.enabled=true")
        assert "It has no timelines and no usage" in helm(*install).stdout
        there = helm(*install, "--set", "controller.recorder.postgres.secretName=history").stdout
        assert "It has no timelines" not in there
        assert "Open the page" in there
