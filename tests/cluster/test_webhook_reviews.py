"""A real API server asks the webhooks by URL: Jobs are suspended, Pods gated, refusals reach the client in full.

The server runs in this process, with a World of plain values and a hand-made configuration of its own, so that nothing
else of Turnstile has to be there.
"""

import asyncio
import base64
import datetime as dt
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Self

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from prometheus_client import CollectorRegistry

from testbed import Api, ApiError, ControlPlane
from tests.unit.webhooks.reviews import Cluster, Json, job, pod
from turnstile.api import names
from turnstile.http.certificates import make_ca, make_leaf
from turnstile.http.health import Health
from turnstile.http.server import serve
from turnstile.http.tls import ServingCertificate
from turnstile.webhooks.application import create_app
from turnstile.webhooks.review import Answer, Handler, Request
from turnstile.webhooks.routes import routes

QUEUED = {names.QUEUE_LABEL: "main"}
KINDS = {"job": ("batch", "jobs"), "pod": ("", "pods")}


def crash(_: Request) -> Answer:
    """A handler with a bug."""
    raise ZeroDivisionError


class Webhooks:
    """The running server."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.url = ""
        self.bundle = ""
        self.reviews = 0
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    def __enter__(self) -> Self:
        listening: Future[tuple[str, int]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listening)))
        self._thread.start()
        host, port = listening.result(timeout=10)
        self.url = f"https://{host}:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self, listening: "Future[tuple[str, int]]") -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        now = dt.datetime.now(dt.UTC)
        ca = make_ca(now)
        leaf = make_leaf(ca, now, ["127.0.0.1"])
        self.bundle = base64.b64encode(ca.certificate.public_bytes(Encoding.PEM)).decode()
        key = leaf.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        certificate = ServingCertificate()
        certificate.load(leaf.certificate.public_bytes(Encoding.PEM), key)
        health = Health(certificate=certificate)
        handlers = {path: self._counted(handler) for path, handler in routes(self.cluster).items()}
        handlers["/crash"] = crash
        app = create_app(handlers, health=health, registry=CollectorRegistry())
        await serve(
            app,
            host="127.0.0.1",
            port=0,
            health=health,
            stop=self._stop,
            drain_seconds=0,
            grace_seconds=1,
            on_listening=lambda *address: listening.set_result(address),
        )

    def _counted(self, handler: Handler) -> Handler:
        def count(request: Request) -> Answer:
            self.reviews += 1
            return handler(request)

        return count


@pytest.fixture(scope="module")
def webhooks() -> Iterator[Webhooks]:
    """A server for the tests of this module."""
    with Webhooks() as running:
        yield running


@pytest.fixture
def cluster(webhooks: Webhooks) -> Cluster:
    """What the handlers of this test see of the cluster."""
    webhooks.cluster.default_queue_in = ()
    webhooks.cluster.has_default_priority_class = False
    return webhooks.cluster


Configure = Callable[..., None]


@pytest.fixture
def configure(api: Api, webhooks: Webhooks, team: str) -> Iterator[Configure]:
    """Register webhooks for the namespace of the test alone; they go with the test."""
    made: list[str] = []

    def register(kind: str, verb: str, *, path: str = "", operations: tuple[str, ...] = ("CREATE",)) -> None:
        group, plural = KINDS[kind]
        name = f"{verb}-{kind}-{team}"
        hook = {
            "name": f"{verb}.{kind}.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 5,
            "clientConfig": {
                "url": webhooks.url + (path or f"/{verb}-{group}-v1-{kind}"),
                "caBundle": webhooks.bundle,
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [plural]}],
        }
        word = "Mutating" if verb == "mutate" else "Validating"
        made.append(f"/apis/admissionregistration.k8s.io/v1/{word.lower()}webhookconfigurations/{name}")
        kind_name = f"{word}WebhookConfiguration"
        api.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind_name,
                "metadata": {"name": name},
                "webhooks": [hook],
            }
        )
        _until_called(api, webhooks, team, kind=kind, verb=verb, expects_call=not path)

    yield register
    for path in made:
        api.delete(path)


def _until_called(api: Api, webhooks: Webhooks, team: str, *, kind: str, verb: str, expects_call: bool) -> None:
    """Wait until the API server has taken note of a configuration: dry runs until one arrives or fails."""
    deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=15)
    before = webhooks.reviews
    while webhooks.reviews == before and dt.datetime.now(dt.UTC) < deadline:
        try:
            api.create(named(pod() if kind == "pod" else job(), team), dry_run=True)
        except ApiError:
            if not expects_call:
                return
    assert webhooks.reviews > before, f"the {verb} webhook of {kind} was never called"


@pytest.fixture
def team(namespace: str) -> str:
    """The namespace that the webhooks are registered for."""
    return namespace


def named(obj: Json, namespace: str) -> Json:
    """An object of the unit tests as a client would create it here."""
    metadata = {key: value for key, value in obj["metadata"].items() if key in ("labels", "annotations")}
    name = f"t-{uuid.uuid4().hex[:8]}"
    fresh = {**obj, "metadata": {**metadata, "name": name, "namespace": namespace}}
    fresh.pop("status")
    return fresh


def test_a_job_with_a_queue_is_created_suspended(api: Api, cluster: Cluster, configure: Configure, team: str) -> None:
    """The API server takes the patch, and the Job never starts."""
    configure("job", "mutate")
    created = api.create(named(job(labels=QUEUED), team))
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["labels"][names.QUEUE_LABEL] == "main"


def test_a_job_without_a_queue_gets_the_default_one(
    api: Api, cluster: Cluster, configure: Configure, team: str
) -> None:
    """In a namespace that has one; before, the Job is left alone."""
    configure("job", "mutate")
    assert api.create(named(job(), team))["spec"]["suspend"] is False
    cluster.default_queue_in = (team,)
    cluster.has_default_priority_class = True
    created = api.create(named(job(), team))
    assert created["spec"]["suspend"] is True
    labels = created["metadata"]["labels"]
    assert (labels[names.QUEUE_LABEL], labels[names.PRIORITY_CLASS_LABEL]) == ("default", "default")


def test_a_pod_with_a_queue_is_gated(api: Api, cluster: Cluster, configure: Configure, team: str) -> None:
    """The scheduler does not look at it: gate, finalizer, label and role are there from the start."""
    configure("pod", "mutate")
    created = api.create(named(pod(labels=QUEUED), team))
    assert {"name": names.ADMISSION_GATE} in created["spec"]["schedulingGates"]
    assert names.POD_FINALIZER in created["metadata"]["finalizers"]
    assert created["metadata"]["labels"][names.MANAGED_LABEL] == "true"
    assert len(created["metadata"]["annotations"][names.ROLE_HASH]) == 8
    path = f"/api/v1/namespaces/{team}/pods/{created['metadata']['name']}"
    api.patch(path, {"metadata": {"finalizers": None}})


def test_a_dry_run_is_mutated_and_leaves_nothing(api: Api, cluster: Cluster, configure: Configure, team: str) -> None:
    """The webhooks have no side effects, so the API server calls them for dry runs too."""
    configure("job", "mutate")
    tried = api.create(named(job(labels=QUEUED), team), dry_run=True)
    assert tried["spec"]["suspend"] is True
    assert api.find(f"/apis/batch/v1/namespaces/{team}/jobs/{tried['metadata']['name']}") is None


def test_a_refusal_reaches_the_client_with_all_errors(
    api: Api, cluster: Cluster, configure: Configure, team: str
) -> None:
    """On create and on update, as 403 with the whole text."""
    configure("job", "validate", operations=("CREATE", "UPDATE"))
    wrong = named(job(labels={names.MAX_EXEC_TIME_LABEL: "0", names.QUEUE_LABEL: "No_Name"}), team)
    with pytest.raises(ApiError) as refused:
        api.create(wrong)
    assert refused.value.code == 403
    assert "should be greater than 0" in str(refused.value)
    assert "RFC 1123 subdomain" in str(refused.value)
    running = api.create(named(job(labels=QUEUED, suspend=False), team))
    path = f"/apis/batch/v1/namespaces/{team}/jobs/{running['metadata']['name']}"
    with pytest.raises(ApiError, match="field is immutable"):
        api.patch(path, {"metadata": {"labels": {names.QUEUE_LABEL: "other"}}})


def test_another_namespace_is_not_asked_about(
    control_plane: ControlPlane, api: Api, webhooks: Webhooks, cluster: Cluster, configure: Configure
) -> None:
    """Where the selector does not reach, nothing is called and nothing changes."""
    configure("job", "mutate")
    other = control_plane.namespace()
    before = webhooks.reviews
    assert api.create(named(job(labels=QUEUED), other))["spec"]["suspend"] is False
    assert webhooks.reviews == before
    api.delete(f"/api/v1/namespaces/{other}")


def test_a_bug_is_left_to_the_failure_policy(api: Api, cluster: Cluster, configure: Configure, team: str) -> None:
    """HTTP 500 is no answer: with `Fail` the object is refused and the client told which webhook failed."""
    configure("job", "mutate", path="/crash")
    with pytest.raises(ApiError) as refused:
        api.create(named(job(labels=QUEUED), team))
    assert refused.value.code == 500
    assert "mutate.job.test" in str(refused.value)
