"""Whatever values are combined, `helm lint` is content and the API server takes everything that is rendered.

Every pair of settings of two different values occurs in one of the combinations.
"""

import itertools
from collections.abc import Iterator

import pytest

from testbed import ControlPlane
from testbed.client import wait_until
from testbed.installation import CHART
from testbed.manifests import documents
from tests.cluster.open_kinds import open_definition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMESPACE = "kube-public"
EXISTING = str(CHART / "ci" / "existing-certificate-values.yaml")
CONFIG = str(CHART / "ci" / "config-values.yaml")
INGRESS, GATEWAY = (str(CHART / "ci" / f"oidc-{each}-values.yaml") for each in ("ingress", "gateway"))
SETTINGS: dict[str, tuple[tuple[str, ...], ...]] = {
    "certificates": ((), ("webhook.certs.mode=certManager",), (EXISTING,)),
    "namespaces": ((), ("managedNamespaces.mode=exclude", "managedNamespaces.exclude={monitoring}")),
    "configuration": ((), (CONFIG,), ("featureGates.SparkApplicationIntegration=true",)),
    "definitions": ((), ("crds.render=true",)),
    "versions": ((), ("api.serveV1beta1=false",), ("api.serveV1beta1Workloads=false",)),
    "webhook": ((), ("webhook.url=https://127.0.0.1:9443", "visibility.url=https://localhost:9444"),
                ("webhook.replicas=1", "webhook.failurePolicy=Ignore", "webhook.clients.caConfigMap=clients")),
    "controller": ((), ("controller.replicas=1", "controller.leaderElection.leaseDuration=4",
                        "controller.leaderElection.renewDeadline=3"), ("controller.enabled=false",)),
    "recorder": ((), ("controller.recorder.enabled=true",),
                 ("controller.recorder.enabled=true", "controller.recorder.postgres.secretName=history")),
    "page": ((), ("page.enabled=true",), ("page.enabled=true", "page.recorder.postgres.secretName=readers")),
    "budgets": ((), ("webhook.podDisruptionBudget.minAvailable=1", "controller.podDisruptionBudget.enabled=false")),
    "visibility": ((), ("visibility.enabled=false",), ("visibility.flowControl.enabled=true",)),
    "policies": ((), ("admissionPolicies.enabled=false",)),
    "unnamed": ((), ("manageJobsWithoutQueueName=true",)),
    "metrics": ((), ("metrics.authorization=false", "metrics.dashboard.enabled=true"),
                ("metrics.serviceMonitor.enabled=true", "metrics.prometheusRule.enabled=true")),
    "flow": ((), ("flowSchema.enabled=false",)),
    "network": ((), ("networkPolicy.enabled=false",), ("networkPolicy.egress=true",)),
    "roles": ((), ("rbac.userRoles=false",)),
    "uninstall": ((), ("uninstall.enabled=false",), ("uninstall.pendingJobs=keep",)),
    "host": ((), ("webhook.hostNetwork=true", "controller.hostNetwork=true", "controller.dnsPolicy=Default")),
    "user": ((), ("podSecurityContext.runAsUser=null", "podSecurityContext.fsGroup=null")),
    "routes": ((), (INGRESS,), (GATEWAY,)),
    "names": ((), ("fullnameOverride=queueing", "commonLabels.team=platform"), ("nameOverride=quota",)),
}  # fmt: skip
"""Values that go together, by what they are about: files, or arguments of --set."""
DEFINED = (
    ("cert-manager.io", "certificates", "Certificate"),
    ("cert-manager.io", "issuers", "Issuer"),
    ("gateway.networking.k8s.io", "httproutes", "HTTPRoute"),
    ("monitoring.coreos.com", "servicemonitors", "ServiceMonitor"),
    ("monitoring.coreos.com", "prometheusrules", "PrometheusRule"),
)

Choice = dict[str, int]
Pair = tuple[tuple[str, int], tuple[str, int]]


def pairs(choice: Choice) -> set[Pair]:
    """The pairs of settings that are in a combination."""
    return set(itertools.combinations(sorted(choice.items()), 2))


def combinations() -> list[Choice]:
    """Few combinations in which every pair of settings occurs: each begins with a pair that is missing, and takes of
    each other value the setting by which most missing pairs occur."""
    every = [(name, number) for name, settings in SETTINGS.items() for number in range(len(settings))]
    missing = {tuple(sorted(pair)) for pair in itertools.combinations(every, 2) if pair[0][0] != pair[1][0]}
    found: list[Choice] = []
    while missing:
        choice: Choice = dict(min(missing))
        for name, settings in SETTINGS.items():
            if name not in choice:
                choice[name] = max(
                    range(len(settings)), key=lambda number: len(pairs({**choice, name: number}) & missing)
                )
        missing -= pairs(choice)
        found.append(choice)
    return found


COMBINATIONS = combinations()


def flags(choice: Choice) -> list[str]:
    """What helm is given."""
    found: list[str] = []
    for name, number in choice.items():
        for value in SETTINGS[name][number]:
            found += ["--values" if value.endswith(".yaml") else "--set", value]
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """An API server that knows the kinds of cert-manager and of the operator of Prometheus."""
    with ControlPlane(components=["etcd", "kube-apiserver", "kube-controller-manager"]) as cp:
        for group, plural, kind in DEFINED:
            cp.api.create(open_definition(group, plural, kind))
        paths = [f"/apis/{group}/v1/{plural}" for group, plural, _ in DEFINED]
        wait_until(
            lambda: all(cp.api.find(path) is not None for path in paths), timeout=30, describe=lambda: f"{paths}"
        )
        yield cp


def test_every_pair_occurs() -> None:
    """In few combinations."""
    wanted = sum(len(a) * len(b) for a, b in itertools.combinations(SETTINGS.values(), 2))
    assert len(set().union(*(pairs(each) for each in COMBINATIONS))) == wanted
    assert len(COMBINATIONS) < 30


@pytest.mark.parametrize("choice", COMBINATIONS, ids=range(len(COMBINATIONS)))
def test_lint_and_the_api_server_are_content(cluster: ControlPlane, choice: Choice) -> None:
    """No warning of lint, and a server-side dry run takes every object with every field known."""
    given = flags(choice)
    cluster.helm("lint", "--strict", str(CHART), *given)
    monitoring = ("--api-versions", "monitoring.coreos.com/v1")
    given += ["--skip-crds", "--skip-tests"]
    rendered = cluster.helm("template", "other", str(CHART), "-n", NAMESPACE, *monitoring, *given)
    checked = ("--dry-run=server", "--validate=strict")
    printed = cluster.kubectl("apply", "--server-side", *checked, "-f", "-", input=rendered)
    assert len(printed.splitlines()) == len(documents(rendered))
