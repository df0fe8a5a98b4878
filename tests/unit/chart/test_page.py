"""The page in the cluster, as the chart installs it."""

import pytest

from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest, Render
from tests.unit.chart.test_values import arguments, named

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


def test_the_certificate_of_another_source(render: Render) -> None:
    """cert-manager writes the caBundle, and issues for the page's Service too."""
    manifests = render(*VALUES, "--set", "webhook.certs.mode=certManager")
    service = named(manifests, "APIService", API_SERVICE)
    assert service["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == f"{NAMESPACE}/turnstile-webhook"
    hosts = named(manifests, "Certificate", "turnstile-webhook")["spec"]["dnsNames"]
    assert f"turnstile-page.{NAMESPACE}.svc" in hosts
