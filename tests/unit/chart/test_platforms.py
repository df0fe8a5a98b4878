"""What the chart takes from those who run clusters of many kinds: the value files beside it, and what else they set."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from testbed import build
from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest, Render
from tests.unit.chart.test_monitoring import RULES
from tests.unit.chart.test_values import Helm, named

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds

ROLES = ("controller", "webhook")


def file(name: str) -> tuple[str, str]:
    """A value file of the chart."""
    return "--values", str(CHART / "ci" / f"{name}-values.yaml")


def pod(manifests: list[Manifest], role: str) -> Manifest:
    """The pod of a role."""
    found: Manifest = named(manifests, "Deployment", f"turnstile-{role}")["spec"]["template"]["spec"]
    return found


def refused(helm: Helm, *arguments: str) -> str:
    """What helm says to values that it refuses."""
    answer = helm("template", "turnstile", str(CHART), "--namespace", NAMESPACE, *arguments)
    assert answer.returncode != 0
    return answer.stderr


class TestUsers:
    def test_are_left_to_the_platform(self, helm: Helm) -> None:
        """With null no pod names a user or group, the hooks' pods included; that none is root stays said."""
        answer = helm("template", "turnstile", str(CHART), "--namespace", NAMESPACE, *file("openshift"))
        assert "runAsUser" not in answer.stdout
        assert "fsGroup" not in answer.stdout
        assert answer.stdout.count("runAsNonRoot: true") == 4

    def test_values_of_an_older_chart_are_refused(self, helm: Helm) -> None:
        """A pod without a security context is never made by accident: --reuse-values leaves new values out."""
        assert "--reset-then-reuse-values" in refused(helm, "--set", "podSecurityContext=null")


class TestTheNetworkOfTheNode:
    def test_has_names_of_the_cluster_and_a_way_to_roll(self, render: Render) -> None:
        """The pods find Services by name, and two pods with the same ports need not share a node in an upgrade."""
        manifests = render(*file("eks"))
        for role in ROLES:
            assert pod(manifests, role)["hostNetwork"] is True
            assert pod(manifests, role)["dnsPolicy"] == "ClusterFirstWithHostNet"
        strategy = named(manifests, "Deployment", "turnstile-webhook")["spec"]["strategy"]
        assert strategy["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}

    def test_is_not_used_by_default(self, render: Render) -> None:
        """Nor is the DNS policy said."""
        for role in ROLES:
            assert not {"hostNetwork", "dnsPolicy", "dnsConfig"} & pod(render(), role).keys()


class TestImages:
    def test_have_to_be_named_while_none_is_published(self) -> None:
        """A sentence says how to come by one; nothing is installed that cannot be pulled."""
        command = [build.ensure()["helm"], "template", "turnstile", str(CHART), "--namespace", NAMESPACE]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode != 0
        assert "image.repository: no image of Turnstile is published yet: build it with `make image" in answer.stderr

    @pytest.mark.parametrize(
        ("settings", "image"),
        [
            ("image.registry=a.example.com", "a.example.com/turnstile:0.1.0"),
            ("image.registry=a.example.com,global.imageRegistry=b.example.com/x/", "b.example.com/x/turnstile:0.1.0"),
        ],
    )
    def test_come_from_the_registry(self, render: Render, settings: str, image: str) -> None:
        """That of all charts wins over that of this one."""
        for role in ROLES:
            assert pod(render("--set", settings), role)["containers"][0]["image"] == image

    def test_are_pulled_with_the_secrets_of_both(self, render: Render) -> None:
        """Names, or objects with a name."""
        manifests = render(*file("umbrella"), "--set", "imagePullSecrets[0].name=own")
        assert pod(manifests, "webhook")["imagePullSecrets"] == [
            {"name": each} for each in ("mirror", "mirror-2", "own")
        ]


def test_accounts_and_deployments_are_annotated(render: Render) -> None:
    """IAM roles on the account that has them, and nowhere else; what a GitOps tool reads on the Deployment."""
    manifests = render(*file("eks"), *file("argocd"))
    accounts = {
        each["metadata"]["name"]: each["metadata"].get("annotations")
        for each in manifests
        if each["kind"] == "ServiceAccount"
    }
    assert accounts == {
        "turnstile-controller": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/turnstile"},
        "turnstile-webhook": None,
    }
    deployment = named(manifests, "Deployment", "turnstile-controller")
    assert deployment["metadata"]["annotations"] == {"argocd.argoproj.io/sync-wave": "1"}


def test_containers_have_what_is_added(render: Render) -> None:
    """Environment, volumes and their mounts, beside those of the chart."""
    found = pod(render(*file("air-gapped")), "webhook")
    (container,) = found["containers"]
    assert {"POD_NAME", "HTTPS_PROXY"} <= {each["name"] for each in container["env"]}
    assert container["envFrom"] == [{"configMapRef": {"name": "proxy", "optional": True}}]
    assert {"tmp", "authorities"} <= {each["name"] for each in found["volumes"]}
    assert {"name": "authorities", "mountPath": "/etc/ssl/company", "readOnly": True} in container["volumeMounts"]


def test_objects_are_added_as_templates(render: Render) -> None:
    """Given as a manifest, or as a text with one."""
    text = "extraObjects[0]=apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x-{{ .Release.Name }}\\, namespace: y}"
    assert named(render("--set", text), "ConfigMap", "x-turnstile")
    assert named(render(*file("argocd")), "ConfigMap", "turnstile-owners")["metadata"]["namespace"] == NAMESPACE


def test_definitions_are_left_out(render: Render) -> None:
    """Another release keeps them, whatever crds.render says."""
    for name, there in (("umbrella", False), ("argocd", True)):
        assert any(each["kind"] == "CustomResourceDefinition" for each in render(*file(name))) is there


class TestAlerts:
    @staticmethod
    def rules(render: Render, *arguments: str) -> dict[str, dict[str, Any]]:
        """The alerts that the chart makes, by name."""
        rule = named(render(*arguments, "--set", "metrics.prometheusRule.enabled=true"), "PrometheusRule", "turnstile")
        return {each["alert"]: each for group in rule["spec"]["groups"] for each in group["rules"]}

    def test_have_limits_labels_and_a_handbook_of_our_own(self, render: Render) -> None:
        """An alert keeps what is not said of it."""
        plain, own = self.rules(render), self.rules(render, *file("prometheus"))
        assert plain.keys() - own.keys() == {"TurnstileInadmissibleForever"}
        stuck = own["TurnstileStuckHead"]
        assert stuck["expr"] == plain["TurnstileStuckHead"]["expr"].replace("3600", "14400")
        assert (stuck["for"], stuck["labels"]) == ("30m", {"severity": "info", "team": "platform"})
        assert own["TurnstileNoLeader"]["labels"] == {"severity": "critical", "team": "platform"}
        base = "https://handbook.example.com/turnstile/monitoring"
        assert {each["annotations"]["runbook_url"] for each in own.values()} == {
            f"{base}#{name.lower()}" for name in own
        }

    @pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
    def test_have_a_limit_where_the_page_says_one(self, helm: Helm, render: Render, alert: str) -> None:
        """One place of its expression has the new limit, and no other alert changes; others refuse a limit by name."""
        limit = ("--set", f"metrics.prometheusRule.alerts.{alert}.limit=987654")
        page = (CHART.parents[1] / "docs/tasks/monitoring.md").read_text()
        section = page.partition(f"### {alert}\n")[2].partition("\n### ")[0]
        if "Limit: " not in section:
            assert "this alert has no limit; those with one: " in refused(
                helm,
                *limit,
                "--set",
                "metrics.prometheusRule.enabled=true",
                "--api-versions",
                "monitoring.coreos.com/v1",
            )
            return
        plain, own = self.rules(render), self.rules(render, *limit)
        assert own[alert]["expr"].count("987654") == 1
        assert [name for name in own if own[name] != plain[name]] == [alert]

    def test_of_unknown_names_are_refused(self, helm: Helm) -> None:
        """With those that there are."""
        settings = "metrics.prometheusRule.enabled=true,metrics.prometheusRule.alerts.NoLeader.enabled=false"
        said = refused(helm, "--set", settings, "--api-versions", "monitoring.coreos.com/v1")
        assert "alerts.NoLeader: no such alert; there are TurnstileNoLeader, " in said


def test_every_endpoint_is_scraped_as_said(render: Render) -> None:
    """Relabelings and the timeout are for all three."""
    monitors = [m for m in render(*file("prometheus"), "--set", "page.enabled=true") if m["kind"] == "ServiceMonitor"]
    assert len(monitors) == 3
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["scrapeTimeout"] == "20s"
        assert endpoint["relabelings"] == [{"targetLabel": "cluster", "replacement": "research-1"}]
        assert endpoint["metricRelabelings"][0]["action"] == "drop"


class TestThePageBehindALogin:
    def test_is_reached_through_the_proxy_only(self, render: Render) -> None:
        """The route leads to the container that logs in, which passes the token on inside the pod."""
        for name, kind in (("oidc-ingress", "Ingress"), ("oidc-gateway", "HTTPRoute")):
            manifests = render(*file(name))
            spec = str(named(manifests, kind, "turnstile-page")["spec"])
            assert ("oidc-proxy" in spec) or ("'port': 80}" in spec)
            proxy = next(each for each in pod(manifests, "page")["containers"] if each["name"] == "oidc-proxy")
            assert {"--pass-authorization-header=true", "--upstream=https://127.0.0.1:8444/"} <= set(proxy["args"])
            service = named(manifests, "Service", "turnstile-page")
            assert {"name": "oidc-proxy", "port": 80, "targetPort": "oidc-proxy", "protocol": "TCP"} in service["spec"][
                "ports"
            ]

    def test_lets_the_ingress_in(self, render: Render) -> None:
        """To the port of the proxy, and the proxy out to the issuer."""
        policy = named(render(*file("oidc-ingress")), "NetworkPolicy", "turnstile-page")["spec"]
        (rule,) = [each for each in policy["ingress"] if each["ports"][0]["port"] == 4180]
        assert rule["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "ingress-nginx"}
        assert {"ports": [{"port": 443, "protocol": "TCP"}]} in policy["egress"]

    @pytest.mark.parametrize("missing", ["issuerUrl", "clientId", "secretName"])
    def test_needs_an_issuer_a_client_and_its_secret(self, helm: Helm, missing: str) -> None:
        """Each is asked for by name."""
        assert f"page.oidcProxy.{missing}: " in refused(
            helm, *file("oidc-ingress"), "--set", f"page.oidcProxy.{missing}="
        )

    def test_without_the_proxy_leads_to_https(self, render: Render) -> None:
        """For an ingress that logs in by itself."""
        settings = "page.enabled=true,page.ingress.enabled=true,page.ingress.hosts={a.example.com}"
        ingress = named(render("--set", settings), "Ingress", "turnstile-page")["spec"]
        backend = ingress["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend == {"name": "turnstile-page", "port": {"name": "https"}}


def test_helm_test_has_an_account_with_few_rights(
    helm: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    """It creates flavors (as dry runs) and reads by name; `tests/cluster/test_check.py` runs it."""
    answer = helm("template", "turnstile", str(CHART), "--namespace", NAMESPACE, "-s", "templates/tests/check.yaml")
    assert answer.stdout.count("helm.sh/hook: test") == 6
    assert "secrets" not in answer.stdout
