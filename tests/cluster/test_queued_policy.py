"""Who resumes a queued job of a kind that suspends, whether it grows, and in which versions of its kind it may be made,
is decided by the API server alone.

The policies are rendered from what each kind declares. Here Turnstile does not run, no webhook is registered, and the
definitions of the kinds accept everything.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from testbed import ApiError, ControlPlane
from testbed.client import Api, Json, resource_path, wait_until
from testbed.installation import CHART, MANAGED, NAMESPACE
from testbed.manifests import documents
from tests.cluster.every_kind import definition
from tests.cluster.scenario import QUEUE
from turnstile.api.config.document import dotted
from turnstile.jobs.registry import ALL

pytestmark = pytest.mark.cluster

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/main:1"}]}}
ODD = {
    "framework": "example.com/odd",
    "group": "example.com",
    "version": "v1",
    "kind": "Odd",
    "plural": "odds",
    "suspend": "spec.run-policy.namespace",
    "podSets": [{"name": "main", "template": "spec.t", "count": [{"path": "spec.loop.workers", "default": 3}]}],
    "finished": {"success": {"condition": "Complete"}},
    "active": {"counts": ["status.active"]},
}
"""A kind of the configuration file with names that CEL does not take behind a dot."""
UNREAD = "v0"
KINDS: dict[str, tuple[str, str, str, tuple[str, ...], dict[str, int | None]]] = {
    "odd": ("example.com/v1", "Odd", "odds", ("spec", "run-policy", "namespace"), {"spec.loop.workers": 3}),
    **{
        each.framework: (
            f"{each.kind.GROUP}/{each.kind.VERSION}",
            each.kind.KIND,
            each.kind.PLURAL,
            suspension.suspend_path,
            dict(suspension.counts),
        )
        for each in ALL
        if (suspension := each.suspension) is not None
    },
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the policies, rendered for all kinds that are built and for the odd one."""
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    integrations = {"frameworks": [each.framework for each in ALL], "customKinds": [ODD]}
    values.write_text(yaml.safe_dump({"config": {"integrations": integrations}}))
    with ControlPlane(components=["etcd", "kube-apiserver"]) as cp:
        for api_version, kind, plural, _, _ in KINDS.values():
            group, version = api_version.split("/")
            if "." in group:
                cp.api.create(definition(f"{group}/{version}", kind, plural, also=[UNREAD]))
        shown = ["--values", str(values)]
        for policy in ("queued", "versions"):
            shown += ["--show-only", f"templates/policy-{policy}.yaml"]
        for document in documents(cp.helm("template", "turnstile", str(CHART), "-n", NAMESPACE, *shown)):
            cp.api.create(document)
        yield cp


def job(framework: str, namespace: str, **labels: str) -> Json:
    """A suspended job."""
    api_version, kind, _, suspend, counts = KINDS[framework]
    spec: Json = {"template": TEMPLATE, "completionMode": "Indexed"} if framework == "batch/job" else {}
    made = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "a", "namespace": namespace, "labels": labels},
        "spec": spec,
    }
    put(made, suspend, value=True)
    return sized(made, counts, 2)


def sized(into: Json, counts: dict[str, int | None], number: int) -> Json:
    """Set the numbers of pods of an object; return the object."""
    for path in counts:
        put(into, tuple(path.split(".")), value=number)
    return into


def put(into: Json, path: tuple[str, ...], *, value: object) -> Json:
    """Set a field of an object; return the object."""
    at = into
    for part in path[:-1]:
        at = at.setdefault(part, {})
    at[path[-1]] = value
    return into


def tenant_of(cp: ControlPlane, namespace: str) -> Api:
    """A user who may do anything in a namespace."""
    rule: dict[str, Any] = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    rbac = "rbac.authorization.k8s.io"
    meta = {"name": "eve", "namespace": namespace}
    subject = {"apiGroup": rbac, "kind": "User", "name": "eve"}
    role = {"apiGroup": rbac, "kind": "Role", "name": "eve"}
    cp.api.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
    cp.api.create(
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]}
    )
    return cp.api_as("eve")


def done(call: Callable[..., object], *arguments: object) -> bool:
    """Whether the API server accepts a request."""
    try:
        call(*arguments)
    except ApiError:
        return False
    return True


def create(api: Api, body: Json) -> None:
    """Create an object, once its kind is served."""
    wait_until(lambda: done(api.create, body), timeout=20, describe=lambda: f"{body['kind']} is not served")


@pytest.mark.parametrize("framework", KINDS)
def test_only_turnstile_resumes_a_queued_job_and_only_a_suspension_lets_it_grow(
    guarded: ControlPlane, framework: str
) -> None:
    """For each kind with a field that suspends: the tenant may change other fields, and suspend."""
    api_version, _, plural, suspend, counts = KINDS[framework]
    namespace = guarded.namespace("guarded", labels=MANAGED)
    tenant = tenant_of(guarded, namespace)
    path = resource_path(api_version, plural, "a", namespace=namespace)
    create(guarded.api, job(framework, namespace, **{QUEUE: "main"}))

    def refused(patch: Json, message: str) -> bool:
        try:
            tenant.patch(path, patch, params={"dryRun": "All"})
        except ApiError as error:
            return message in str(error)
        return False

    resumed = put({}, suspend, value=False)
    wanted = f"{dotted(suspend)}: a queued job is resumed by Turnstile"
    wait_until(lambda: refused(resumed, wanted), timeout=20, describe=lambda: f"{resumed} is not refused")
    assert refused(put({}, suspend, value=None), wanted)
    assert refused({"metadata": {"labels": None}}, "may be moved to another queue, but not out of all queues")
    tenant.patch(path, {"metadata": {"labels": {"a": "b", QUEUE: "other"}}})
    guarded.api.patch(path, resumed)
    if counts:
        larger, smaller = sized({}, counts, 9), sized({}, counts, 1)
        assert refused(larger, f": more pods need more quota: set {dotted(suspend)} to true in the same change")
        tenant.patch(path, smaller, params={"dryRun": "All"})
        tenant.patch(path, put(larger, suspend, value=True), params={"dryRun": "All"})
    tenant.patch(path, put({}, suspend, value=True))


@pytest.mark.parametrize("framework", KINDS)
def test_a_job_in_no_queue_is_left_alone(guarded: ControlPlane, framework: str) -> None:
    """It is resumed by its user."""
    api_version, _, plural, suspend, _ = KINDS[framework]
    namespace = guarded.namespace("free", labels=MANAGED)
    tenant = tenant_of(guarded, namespace)
    path = resource_path(api_version, plural, "a", namespace=namespace)
    create(guarded.api, job(framework, namespace))
    resumed = put({}, suspend, value=False)
    wait_until(lambda: done(tenant.patch, path, resumed), timeout=20, describe=lambda: "the tenant has no rights")


@pytest.mark.parametrize("framework", [framework for framework, kind in KINDS.items() if "." in kind[0]])
def test_a_queued_job_in_a_version_that_no_webhook_has_seen_is_refused(guarded: ControlPlane, framework: str) -> None:
    """A cluster may serve a kind in another version only, such as MPIJob of the training operator: then no webhook
    suspends the job. Where the version that is read is served too, the webhook has suspended the job."""
    api_version, kind, _, suspend, _ = KINDS[framework]
    namespace = guarded.namespace("unread", labels=MANAGED)
    tenant = tenant_of(guarded, namespace)
    group, version = api_version.split("/")

    def refused(made: Json, *, by: str) -> bool:
        try:
            tenant.create(made, dry_run=True)
        except ApiError as error:
            return by in str(error)
        return False

    def made(version: str, **labels: str) -> Json:
        return put({**job(framework, namespace, **labels), "apiVersion": f"{group}/{version}"}, suspend, value=False)

    wanted = f"{group}/{UNREAD}: Turnstile queues a {kind} where the cluster serves version {version}"
    queued = made(UNREAD, **{QUEUE: "main"})
    wait_until(lambda: refused(queued, by=wanted), timeout=20, describe=lambda: f"{queued} is not refused")
    assert refused({**queued, "spec": {}}, by=wanted), "the field may have another name in that version"
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1", "controller": True}
    child = {**queued, "metadata": {**queued["metadata"], "ownerReferences": [reference]}}
    for allowed in (put(made(UNREAD, **{QUEUE: "main"}), suspend, value=True), made(UNREAD), child):
        tenant.create(allowed, dry_run=True)
    tenant.create(made(version, **{QUEUE: "main"}), dry_run=True)
