"""The chart on a real API server: it is accepted, upgraded gently, and harms nobody when Turnstile is down.

A control plane of its own: these webhooks answer nobody, which would refuse every other test's ClusterQueues.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import ApiError, ControlPlane
from testbed.client import wait_until
from testbed.manifests import documents
from testbed.ports import ReservedPort
from tests.cluster.open_kinds import open_definition

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "charts" / "turnstile"
NAMESPACE = "turnstile-system"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/turnstile-webhook-server-cert"
MUTATING = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/turnstile-mutating-webhook-configuration"
)
VALUES = ["", *sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))]
DEFINED = (
    ("cert-manager.io", "certificates", "Certificate"),
    ("cert-manager.io", "issuers", "Issuer"),
    ("gateway.networking.k8s.io", "httproutes", "HTTPRoute"),
    ("monitoring.coreos.com", "servicemonitors", "ServiceMonitor"),
    ("monitoring.coreos.com", "prometheusrules", "PrometheusRule"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """A control plane on which the chart was installed with a URL that nobody listens on."""
    with (
        ControlPlane(components=["etcd", "kube-apiserver", "kube-controller-manager"]) as cp,
        ReservedPort() as nobody,
    ):
        cp.helm("install", "turnstile", str(CHART), "-n", NAMESPACE, "--create-namespace", *outside(nobody.number))
        yield cp


def outside(port: int) -> tuple[str, ...]:
    """Values that point the webhooks at a port of this host."""
    return ("--set", f"controller.enabled=false,webhook.url=https://127.0.0.1:{port}")


def job(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    """A Job that would run."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": pod_spec()}},
    }


def pod(name: str, namespace: str, **metadata: object) -> dict[str, Any]:
    """A Pod with further metadata."""
    metadata = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec()}


def pod_spec() -> dict[str, Any]:
    """The least a pod needs."""
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}


OWNED = [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1-2-3", "controller": True}]
QUEUED = {"kueue.x-k8s.io/queue-name": "default"}


@pytest.fixture(scope="module")
def platform(cluster: ControlPlane) -> ControlPlane:
    """The same with kinds that platforms add, whose schemas are open here."""
    for group, plural, kind in DEFINED:
        cluster.api.create(open_definition(group, plural, kind))
    wait_until(
        lambda: all(cluster.api.find(f"/apis/{group}/v1/{plural}") is not None for group, plural, _ in DEFINED),
        timeout=30,
        describe=lambda: "the kinds are not served",
    )
    return cluster


@pytest.mark.parametrize("values", VALUES)
def test_the_server_accepts_the_in_cluster_rendering(platform: ControlPlane, values: str) -> None:
    """A server-side dry run of all that the chart installs, with value files for clusters of many kinds, passes schema
    and CEL compilation, and no field is unknown. The definitions of crds/ are there already."""
    file = ("--values", str(CHART / "ci" / values)) if values else ()
    monitoring = ("--api-versions", "monitoring.coreos.com/v1")
    rendered = platform.helm("template", "other", str(CHART), "-n", "kube-public", "--skip-tests", *monitoring, *file)
    checked = ("--dry-run=server", "--validate=strict", "--force-conflicts")
    printed = platform.kubectl("apply", "--server-side", *checked, "-f", "-", input=rendered)
    assert len(printed.splitlines()) == len(documents(rendered))


def test_in_cluster_pods_meet_the_restricted_standard(cluster: ControlPlane) -> None:
    """A namespace that enforces the restricted Pod Security Standard takes both Deployments' pods."""
    namespace = cluster.namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    rendered = cluster.helm("template", "turnstile", str(CHART), "-n", namespace)
    for document in documents(rendered):
        if document["kind"] == "Deployment":
            template = document["spec"]["template"]
            account = {"name": template["spec"]["serviceAccountName"], "namespace": namespace}
            cluster.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
            metadata = {**template["metadata"], "name": document["metadata"]["name"], "namespace": namespace}
            made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            cluster.api.create(made, dry_run=True)


def test_an_upgrade_keeps_what_the_leader_wrote(cluster: ControlPlane) -> None:
    """Neither the certificate in the Secret nor the caBundle in the webhooks is reset by `helm upgrade`."""
    authority = base64.b64encode(b"a certificate").decode()
    cluster.api.patch(SECRET, {"data": {"tls.crt": authority}})
    configuration = cluster.api.get(MUTATING)
    for number in range(len(configuration["webhooks"])):
        patch = [{"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle(cluster)}]
        cluster.api.patch(MUTATING, patch, kind="json")
    values = ("--reuse-values", "--set", "webhook.timeoutSeconds=3")
    cluster.helm("upgrade", "turnstile", str(CHART), "-n", NAMESPACE, *values)
    webhooks = cluster.api.get(MUTATING)["webhooks"]
    assert {entry["timeoutSeconds"] for entry in webhooks} == {3}
    assert {entry["clientConfig"].get("caBundle") for entry in webhooks} == {bundle(cluster)}
    assert cluster.api.get(SECRET)["data"] == {"tls.crt": authority}


def test_newer_crds_are_applied_over_those_of_the_install(cluster: ControlPlane) -> None:
    """Helm leaves CRDs alone; the command that the documentation gives instead takes them over."""
    flags = ("--server-side", "--force-conflicts", "--field-manager=turnstile")
    printed = cluster.kubectl("apply", *flags, "-f", str(CHART / "crds"))
    assert printed.count("serverside-applied") == len(list((CHART / "crds").glob("*.yaml")))


def bundle(cluster: ControlPlane) -> str:
    """A caBundle that the API server takes: base64 of PEM."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig().read_text())
    return str(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"])


class TestWithTurnstileDown:
    """The webhook answers nobody: what is not its business goes on as if it were not there."""

    @pytest.mark.parametrize("namespace", ["default", "kube-system"])
    def test_jobs_elsewhere_are_created_at_once(self, cluster: ControlPlane, namespace: str) -> None:
        """A namespace that did not opt in, and kube-system, never wait for the webhook."""
        created = cluster.api.create(job("at-once", namespace, **QUEUED))
        assert not created["spec"].get("suspend")

    def test_a_label_on_kube_system_changes_nothing(self, cluster: ControlPlane) -> None:
        """Not even the opt-in label lets kube-system or the release's namespace be intercepted."""
        for namespace in ("kube-system", NAMESPACE):
            cluster.kubectl("label", "namespace", namespace, "kueue-managed=true", "--overwrite")
            cluster.api.create(job("labelled-namespace", namespace, **QUEUED), dry_run=True)
            cluster.kubectl("label", "namespace", namespace, "kueue-managed-")

    def test_jobs_of_a_managed_namespace_are_refused(self, cluster: ControlPlane) -> None:
        """Nothing gets past the quota: with failurePolicy Fail the call is refused, naming the webhook."""
        namespace = cluster.namespace(labels={"kueue-managed": "true"})
        with pytest.raises(ApiError, match=r"mjob\.kb\.io"):
            cluster.api.create(job("refused", namespace))

    def test_pods_of_jobs_are_left_alone(self, cluster: ControlPlane) -> None:
        """Admitted Jobs go on making pods; a plain pod, another controller's or one that names a queue is refused."""
        namespace = cluster.namespace(labels={"kueue-managed": "true"})
        cluster.api.create(pod("owned", namespace, ownerReferences=OWNED))
        cluster.api.create(pod("adopted", namespace, ownerReferences=OWNED, labels={"app": "web"}), dry_run=True)
        with pytest.raises(ApiError, match=r"mpod\.kb\.io"):
            cluster.api.create(pod("plain", namespace))
        replica_set = {**OWNED[0], "apiVersion": "apps/v1", "kind": "ReplicaSet"}
        with pytest.raises(ApiError, match=r"mpod\.kb\.io"):
            cluster.api.create(pod("replica", namespace, ownerReferences=[replica_set]))
        with pytest.raises(ApiError, match=r"mpod\.kb\.io"):
            cluster.api.create(pod("queued", namespace, ownerReferences=OWNED, labels=QUEUED))

    def test_a_deleted_job_can_go(self, cluster: ControlPlane) -> None:
        """Whoever removes a finalizer of a job that is being deleted is not held up; other updates are checked."""
        namespace = cluster.namespace()
        body = job("going", namespace, **QUEUED)
        body["metadata"]["finalizers"] = ["example.com/hold"]
        path = cluster.api.path_of(cluster.api.create(body))
        cluster.kubectl("label", "namespace", namespace, "kueue-managed=true")
        with pytest.raises(ApiError, match=r"vjob\.kb\.io"):
            cluster.api.patch(path, {"spec": {"parallelism": 0}})
        cluster.api.delete(path)
        cluster.api.patch(path, {"metadata": {"finalizers": []}})
        cluster.api.wait_gone(path)

    def test_the_controller_writes_without_its_own_webhook(self, cluster: ControlPlane) -> None:
        """A leader may start and stop jobs while the webhook is away: its own writes are not sent there."""
        namespace = cluster.namespace()
        path = cluster.api.path_of(cluster.api.create(job("ours", namespace, **QUEUED)))
        cluster.kubectl("label", "namespace", namespace, "kueue-managed=true")
        with pytest.raises(ApiError, match=r"vjob\.kb\.io"):
            cluster.api.patch(path, {"spec": {"suspend": True}})
        ours = cluster.api_as(f"system:serviceaccount:{NAMESPACE}:turnstile-controller")
        assert ours.patch(path, {"spec": {"suspend": True}})["spec"]["suspend"] is True


class TestRights:
    """Each account may do what its role needs, and nothing beside it."""

    @pytest.mark.parametrize(
        ("account", "verb", "resource", "allowed"),
        [
            ("controller", "patch", "jobs.batch", True),
            ("controller", "create", "jobs.batch", False),
            ("controller", "patch", "pods/status", True),
            ("controller", "patch", "workloads.kueue.x-k8s.io/status", True),
            ("controller", "update", "clusterqueues.kueue.x-k8s.io", False),
            ("controller", "delete", "clusterqueues.kueue.x-k8s.io", False),
            ("controller", "create", "events.events.k8s.io", True),
            ("controller", "list", "secrets", False),
            ("controller", "list", "nodes", True),
            ("controller", "patch", "nodes", False),
            ("controller", "patch", "secrets/turnstile-webhook-server-cert", True),
            ("controller", "get", "secrets/another", False),
            (
                "controller",
                "patch",
                "mutatingwebhookconfigurations.admissionregistration.k8s.io/turnstile-mutating-webhook-configuration",
                True,
            ),
            ("controller", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io/another", False),
            ("controller", "patch", "leases.coordination.k8s.io/turnstile-controller", True),
            ("controller", "patch", "leases.coordination.k8s.io/another", False),
            ("webhook", "watch", "namespaces", True),
            ("webhook", "watch", "localqueues.kueue.x-k8s.io", True),
            ("webhook", "watch", "secrets/turnstile-webhook-server-cert", True),
            ("webhook", "patch", "secrets/turnstile-webhook-server-cert", False),
            ("webhook", "patch", "jobs.batch", False),
        ],
    )
    def test_right(self, cluster: ControlPlane, account: str, verb: str, resource: str, *, allowed: bool) -> None:
        """As the API server's authorizer sees it."""
        where, _, part = resource.partition("/")
        plural, _, group = where.partition(".")
        attributes = {"namespace": NAMESPACE, "verb": verb, "group": group, "resource": plural}
        attributes["subresource" if part == "status" else "name"] = part
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{NAMESPACE}:turnstile-{account}",
                "resourceAttributes": attributes,
            },
        }
        answer = cluster.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review)
        assert answer["status"]["allowed"] is allowed, answer["status"]
