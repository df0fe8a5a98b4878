"""`turnstile preflight` on real API servers: what it finds before the chart is installed and before it is upgraded.

A control plane of its own, without controllers: other tests' installations would be found.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from testbed import Api, ControlPlane
from testbed.client import Json, resource_path
from testbed.installation import CHART, MANAGED, NAMESPACE, RELEASE
from testbed.ports import ReservedPort
from tests.cluster.scenario import job
from turnstile.kube.transport import Transport
from turnstile.release.findings import Check, Jobs, Level, Report
from turnstile.release.manifests import Manifests
from turnstile.release.preflight import examine

pytestmark = pytest.mark.cluster

TURNSTILE = Path(sys.executable).with_name("turnstile")
OUTSIDE = "controller.enabled=false,webhook.url=https://127.0.0.1:9"
"""Values with which no pod is needed; nobody answers the webhooks."""
ADMISSION = "admissionregistration.k8s.io/v1"
PLURALS = ("resourceflavors", "clusterqueues")


class Cluster:
    """A control plane, and what preflight says of it."""

    def __init__(self, cp: ControlPlane) -> None:
        self.cp = cp

    @property
    def api(self) -> Api:
        """A client with all rights."""
        return self.cp.api

    def render(self, *values: str, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
        """The chart rendered with these values."""
        flags = [part for value in values for part in ("--set", value)]
        return self.cp.helm("template", release, str(CHART), "-n", namespace, *flags)

    def preflight(
        self, *values: str, user: str = "admin", release: str = RELEASE, namespace: str = NAMESPACE
    ) -> Report:
        """The report on the chart with these values."""
        manifests = Manifests.parse(self.render(*values, release=release, namespace=namespace), "test")

        async def report() -> Report:
            async with await Transport.connect(str(self.cp.kubeconfig(user))) as transport:
                return await examine(transport, manifests, now=datetime.now(UTC))

        return asyncio.run(report())


def run(manifests: str, kubeconfig: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of the command, given rendered manifests."""
    command = [TURNSTILE, "preflight", "--file", "-", "--kubeconfig", kubeconfig, *arguments]
    done = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def dangers(report: Report) -> dict[str, str]:
    """What the dangers of a report say, by check; two of one check are joined."""
    found: dict[str, str] = {}
    for each in report.findings:
        assert each.cure
        if each.level is Level.DANGER:
            found[each.check] = "; ".join(filter(None, (found.get(each.check), each.says)))
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """An API server on which nothing is installed, before `release` installs the chart."""
    with ControlPlane(components=["etcd", "kube-apiserver"]) as cp:
        yield Cluster(cp)


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Cluster:
    """The same with the chart installed, from the first test that asks for it."""
    cluster.cp.helm("install", RELEASE, str(CHART), "-n", NAMESPACE, "--create-namespace", "--set", OUTSIDE)
    return cluster


@pytest.fixture
def team(cluster: Cluster) -> Iterator[str]:
    """A namespace with a Job that names a queue and runs, one that is suspended, one without a queue and one that has
    ended; it is labelled for management when the Jobs are there."""
    name = cluster.cp.namespace("team")
    for named, queue, suspend in (("runs", "main", False), ("waits", "main", True), ("plain", None, False)):
        made = job(named, namespace=name, queue=queue)
        cluster.api.create({**made, "spec": {**made["spec"], "suspend": suspend}})
    ended = cluster.api.create(job("ended", namespace=name, queue="main"))
    now = ended["metadata"]["creationTimestamp"]
    reason = {"status": "True", "lastTransitionTime": now, "reason": "Failed"}
    conditions = [{"type": kind, **reason} for kind in ("FailureTarget", "Failed")]
    status = {"status": {"startTime": now, "conditions": conditions}}
    cluster.api.patch(f"{cluster.api.path_of(ended)}/status", status)
    cluster.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": MANAGED}})
    yield name
    cluster.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": dict.fromkeys(MANAGED)}})
    cluster.api.delete(resource_path("batch/v1", "jobs", namespace=name))


def test_an_empty_cluster_is_ready(cluster: Cluster) -> None:
    """No finding, and what will be managed; nothing is written."""
    report = cluster.preflight()
    assert (report.findings, report.installed, report.namespaces) == ((), "", ())
    (scope,) = [each for each in report.changes if "jobs.batch" in each.what]
    assert scope.after == "kueue-managed=true,kubernetes.io/metadata.name notin (kube-system,turnstile-system)"
    assert cluster.api.find(f"/api/v1/namespaces/{NAMESPACE}") is None


def test_jobs_that_would_be_stopped_are_counted(cluster: Cluster, team: str) -> None:
    """The Job that runs and names a queue; not those that wait, name none or have ended."""
    report = cluster.preflight()
    assert list(dangers(report)) == ["jobs"]
    assert f"{team} (1)" in dangers(report)["jobs"]
    (found,) = report.namespaces
    assert (found.name, found.before, found.after) == (team, False, True)
    assert found.jobs == (Jobs("jobs.batch", unfinished=3, taken=2, stopped=1),)
    everything = cluster.preflight("manageJobsWithoutQueueName=true")
    assert everything.namespaces[0].jobs[0].stopped == 2


def test_the_command_prints_the_report_and_fails_on_danger(cluster: Cluster, team: str) -> None:
    """For people with the cures and the table of namespaces; exit code 1, and 0 once the danger is accepted."""
    code, text, _ = run(cluster.render(), cluster.cp.kubeconfig())
    assert code == 1
    lines = text.splitlines()
    assert lines[0].startswith(f"installation, release {RELEASE} in namespace {NAMESPACE}, on https://127.0.0.1:")
    assert lines[2].startswith("DANGER   jobs: ")
    assert lines[3].startswith("         -> ")
    (row,) = [line for line in lines if line.startswith(f"  {team} ")]
    assert row.split() == [team, "no", "yes", "jobs.batch", "3", "2", "1"]
    assert lines[-1] == "1 dangers, 0 warnings"
    code, text, _ = run(cluster.render(), cluster.cp.kubeconfig(), "--accept", "jobs", "-o", "json")
    assert code == 0
    assert [(each["level"], each["check"]) for each in json.loads(text)["findings"]] == [("warning", "jobs")]


def test_no_server_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    """Exit code 2, and no traceback."""
    kubeconfig = tmp_path / "kubeconfig"
    with ReservedPort() as nobody:
        server = f"https://127.0.0.1:{nobody.number}"
        kubeconfig.write_text(cluster.cp.kubeconfig().read_text().replace(cluster.cp.server, server))
        code, text, complaint = run(cluster.render(), kubeconfig)
    assert (code, text) == (2, "")
    assert complaint.startswith(f"error: no API server answers at {server}: ")
    assert len(complaint.splitlines()) == 1


def test_who_may_not_install_is_told(cluster: Cluster) -> None:
    """A user without rights learns what is lacking, and what could not be checked."""
    report = cluster.preflight(user="nobody")
    assert "you may not: " in dangers(report)["rights"]
    assert "you may not grant" in dangers(report)["rights"]
    (unread,) = [each for each in report.findings if each.check == "unread"]
    assert "could not be read" in unread.says


@pytest.fixture
def kueue(cluster: Cluster) -> Iterator[None]:
    """What an installed Kueue leaves to be seen: a webhook configuration, a Deployment, a Lease that is held, and a
    definition of its own Helm release."""
    api = cluster.api
    namespace = cluster.cp.namespace("kueue-system")
    made = [api.create(each) for each in kueues_objects(namespace)]
    yield
    for each in made:
        api.delete(api.path_of(each))
        api.wait_gone(api.path_of(each))


def kueues_objects(namespace: str) -> list[Json]:
    """As Kueue's chart names and labels them."""
    labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    owner = {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": namespace}
    pod: Json = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "kueue"}]}}
    rule = {"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["v1beta2"], "resources": ["workloads"]}
    entry = {
        "name": "mworkload.kb.io",
        "clientConfig": {"service": {"name": "kueue-webhook-service", "namespace": namespace}},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    schema: Json = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": "Topology", "plural": "topologies", "singular": "topology", "listKind": "TopologyList"}
    versions = [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}]
    return [
        manifest(
            f"{ADMISSION}", "MutatingWebhookConfiguration", "kueue-mutating-webhook-configuration", webhooks=[entry]
        ),
        manifest(
            "apps/v1",
            "Deployment",
            "kueue-controller-manager",
            namespace,
            labels,
            spec={"selector": {"matchLabels": labels}, "template": pod},
        ),
        manifest(
            "coordination.k8s.io/v1",
            "Lease",
            "c1f6bfd2.kueue.x-k8s.io",
            namespace,
            spec={"holderIdentity": "kueue-1", "renewTime": "2999-01-01T00:00:00.000000Z"},
        ),
        manifest(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "topologies.kueue.x-k8s.io",
            annotations=owner | {"api-approved.kubernetes.io": "unapproved, a test"},
            spec={"group": "kueue.x-k8s.io", "scope": "Cluster", "names": names, "versions": versions},
        ),
    ]


def manifest(
    version: str,
    kind: str,
    name: str,
    namespace: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **rest: Any,
) -> Json:
    """An object."""
    where = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **where, "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


@pytest.mark.usefixtures("kueue")
def test_kueue_beside_it_is_found(cluster: Cluster) -> None:
    """Its webhooks, its Deployment, the holder of its Lease, and its definitions."""
    found = dangers(cluster.preflight())
    assert "kueue-mutating-webhook-configuration" in found["kueue"]
    assert "/kueue-controller-manager runs" in found["kueue"]
    assert "kueue-1 holds Lease" in found["kueue"]
    assert "topologies.kueue.x-k8s.io (v1alpha1)" in found["crds"]
    assert "when Helm release kueue in kueue-system-" in found["crds"]
    assert "not stored as v1beta2: topologies.kueue.x-k8s.io" in found["crds"]


def test_an_upgrade_with_the_same_values_changes_nothing(release: Cluster) -> None:
    """No finding and no change."""
    report = release.preflight(OUTSIDE)
    assert (report.findings, report.changes) == ((), ())
    assert report.installed.startswith("turnstile-")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("managedNamespaces.mode=exclude", "namespaces that are managed from now on: default"),
        ("managedNamespaces.label=team=x", "namespaces may be managed that were not"),
        ("featureGates.SparkApplicationIntegration=true", "sparkapplications.sparkoperator.k8s.io"),
    ],
    ids=["namespaces", "another label", "a kind"],
)
def test_an_upgrade_that_manages_more_is_a_danger(release: Cluster, value: str, says: str) -> None:
    """Until it is accepted."""
    report = release.preflight(OUTSIDE, value)
    assert list(dangers(report)) == ["scope"]
    assert says in dangers(report)["scope"]
    assert not report.accepting([Check.SCOPE]).dangerous


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("config.integrations.frameworks={pod}", "kinds that are managed now, and not from now on, with the number of"),
        ("config.integrations.frameworks={pod}", " jobs.batch (1), "),
        (
            "config.integrations.frameworks={pod}",
            "policies that there are now, and not from now on: queued, versions;",
        ),
        ("config.featureGates.PartialAdmission=false", "gates that are on now, and not from now on: PartialAdmission;"),
        ("admissionPolicies.enabled=false", "queued, resize, templates, versions; jobs that run where they hold: 1"),
        ("managedNamespaces.label=team=x", "namespaces that are not managed from now on, with the number of their"),
    ],
    ids=["kinds", "their jobs", "policies of kinds", "gates", "all policies", "namespaces"],
)
@pytest.mark.usefixtures("team")
def test_an_upgrade_that_manages_less_is_a_danger(release: Cluster, value: str, says: str) -> None:
    """Whatever is managed by the running release and not by the next: with the number of jobs that run."""
    report = release.preflight(OUTSIDE, value)
    assert says in dangers(report)["scope"]
    assert not report.accepting([Check.SCOPE, Check.JOBS]).dangerous


def test_a_namespace_that_is_left_is_a_danger(release: Cluster, team: str) -> None:
    """With the number of its jobs that run: what waits there keeps waiting."""
    report = release.preflight(OUTSIDE, "managedNamespaces.mode=exclude", f"managedNamespaces.exclude={{{team}}}")
    assert f"stay suspended until their users resume them: {team} (1)" in dangers(report)["scope"]


def test_a_file_that_an_upgrade_takes_away_counts(cluster: Cluster, release: Cluster) -> None:
    """The next release has no configuration file: the gates of the running one are read from its own."""
    helm = ("upgrade", RELEASE, str(CHART), "-n", NAMESPACE, "--set", OUTSIDE)
    cluster.cp.helm(*helm, "--set", "config.featureGates.PriorityBoost=true,config.manageJobsWithoutQueueName=true")
    try:
        found = dangers(release.preflight(OUTSIDE))["scope"]
    finally:
        cluster.cp.helm(*helm)
    assert "feature gates that are on now, and not from now on: PriorityBoost;" in found
    assert "jobs without a queue name are not managed from now on; of these run: 0" in found


@pytest.mark.usefixtures("team")
def test_a_new_release_that_manages_less_than_the_chart_is_a_danger(cluster: Cluster) -> None:
    """Where no release runs, the chart's default is what a value takes something from."""
    values = "config.integrations.frameworks={pod}", "featureGates.PartialAdmission=false"
    found = dangers(cluster.preflight(*values, release="second", namespace="second"))["scope"]
    assert "kinds that are managed by the chart's default, and not by this release, with" in found
    assert " jobs.batch (1), " in found
    assert "policies that there are by the chart's default, and not by this release: queued" in found
    assert "feature gates that are on by the chart's default, and not by this release: PartialAdmission" in found


def test_what_an_upgrade_adds_and_removes_is_listed(release: Cluster) -> None:
    """Objects and settings."""
    report = release.preflight(OUTSIDE, "admissionPolicies.enabled=false", "webhook.failurePolicy=Ignore")
    changes = {each.what: (each.before, each.after) for each in report.changes}
    assert changes["failurePolicy of the webhooks"] == ("Fail", "Ignore")
    removed, added = changes["validatingadmissionpolicies.admissionregistration.k8s.io"]
    assert "turnstile-queued" in removed
    assert not added


def test_another_release_and_its_objects_are_found(release: Cluster) -> None:
    """A second release of the chart, under another name and under the names of the first."""
    theirs = dangers(release.preflight("fullnameOverride=turnstile", release="second", namespace="second"))
    assert f"Helm release {RELEASE} in namespace {NAMESPACE}" in theirs["owners"]
    other = dangers(release.preflight(release="second", namespace="second"))
    assert f"release {RELEASE} in namespace {NAMESPACE}" in other["releases"]
