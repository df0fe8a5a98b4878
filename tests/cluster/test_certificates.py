"""On a real API server: trust is installed, repaired, and never interrupted while the CA is rotated."""

import asyncio
import base64
import datetime as dt
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio

from testbed import ControlPlane
from testbed.patience import Patience
from tests.waiting import until
from turnstile.api.admissionregistration import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from turnstile.api.core import Secret
from turnstile.controllers.installation.certificates import Certificates
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.runner import Runner
from turnstile.http.certificates import CA_LIFE, make_ca
from turnstile.http.tls import ServingCertificate
from turnstile.kube.events import Recorder
from turnstile.kube.fence import Fence, monotonic
from turnstile.kube.reflector import Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

SECRET = "turnstile-webhook-server-cert"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutating", "validating")


class Webhook:
    """An HTTPS server that allows everything, with the leaf of the Secret as it is swapped."""

    def __init__(self) -> None:
        self.certificate = ServingCertificate()
        self.port = 0
        self.calls = 0

    async def start(self) -> asyncio.Server:
        """Listen on loopback."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", ssl=self.certificate.context)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        review = json.loads(await reader.readexactly(length))
        body = json.dumps(
            {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": True},
            }
        ).encode()
        self.calls += 1
        # Closed each time, so that every call shakes hands anew.
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        await writer.drain()
        writer.close()

    def follow(self, _key: str, _old: Secret | None, new: Secret | None) -> None:
        """Take the leaf of the Secret."""
        if new is not None and new.data.get("tls.crt"):
            self.certificate.load(new.data["tls.crt"], new.data["tls.key"])


class World:
    """The keeper with real parts around it, a webhook, and two configurations that call it."""

    def __init__(self, control_plane: ControlPlane, transport: Transport, namespace: str) -> None:
        self.api = control_plane.api
        self.transport = transport
        self.namespace = namespace
        self.prefix = namespace
        self.webhook = Webhook()
        self.offset = dt.timedelta(0)
        self.secrets: Store[Secret] = Store()
        self.mutating: Store[MutatingWebhookConfiguration] = Store()
        self.validating: Store[ValidatingWebhookConfiguration] = Store()
        self.secrets.subscribe(self.webhook.follow)
        stores: dict[Any, Store[Any]] = {
            Secret: self.secrets,
            MutatingWebhookConfiguration: self.mutating,
            ValidatingWebhookConfiguration: self.validating,
        }
        self.reflectors = [
            Reflector(transport, store, kind, namespace=namespace if kind is Secret else "", params=params)
            for kind, store in stores.items()
            for params in [{"fieldSelector": f"metadata.name={self._name(kind)}"}]
        ]
        self.recorder = Recorder(transport, instance="test")
        fence = Fence(clock=monotonic, epoch=1, renewed_at=monotonic(), span=3600)
        self.executor = Executor(transport, stores, self.recorder, fence=fence)
        certificates = Certificates(
            namespace=namespace,
            secret_name=SECRET,
            prefix=self.prefix,
            hosts=("127.0.0.1", "webhook.local"),
            secrets=self.secrets,
            mutating=self.mutating,
            validating=self.validating,
            clock=lambda: dt.datetime.now(dt.UTC) + self.offset,
        )
        self.keeper = Runner(self.executor, certificates.controllers())

    def _name(self, kind: type[Any]) -> str:
        return {"Secret": SECRET, "MutatingWebhookConfiguration": self.name("mutating")}.get(
            kind.KIND, self.name("validating")
        )

    def name(self, kind: str) -> str:
        """Name of a configuration."""
        return f"{self.prefix}-{kind}-webhook-configuration"

    def path(self, kind: str) -> str:
        """URL path of a configuration."""
        return f"{CONFIGURATIONS}/{kind}webhookconfigurations/{self.name(kind)}"

    def configuration(self, kind: str) -> dict[str, Any]:
        """Two entries for ConfigMaps of our namespace, which fail when the webhook cannot be reached."""
        entries = [
            {
                "name": f"{name}.{kind}.test.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 5,
                "clientConfig": {"url": f"https://127.0.0.1:{self.webhook.port}/{name}"},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": [operation]}
                ],
            }
            for name, operation in (("a", "CREATE"), ("b", "UPDATE"))
        ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind.title()}WebhookConfiguration",
            "metadata": {"name": self.name(kind)},
            "webhooks": entries,
        }

    def bundles(self, kind: str) -> list[bytes]:
        """The bundle of each entry, as the server has it."""
        found = self.api.get(self.path(kind))["webhooks"]
        return [base64.b64decode(entry["clientConfig"].get("caBundle", "")) for entry in found]

    def data(self) -> dict[str, bytes]:
        """The Secret's data, as the server has it."""
        found = self.api.find(f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}")
        return {key: base64.b64decode(value) for key, value in ((found or {}).get("data") or {}).items()}

    def trusted(self) -> bool:
        """Whether every entry trusts what the Secret says."""
        bundle = self.data().get("ca.crt", b"")
        return bool(bundle) and all(one == bundle for kind in KINDS for one in self.bundles(kind))

    def reasons(self) -> list[str]:
        """Reasons of the events about the Secret, in order."""
        found = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        mine = [event for event in found if event["regarding"]["kind"] == "Secret"]
        return [event["reason"] for event in sorted(mine, key=lambda event: event["eventTime"])]

    async def look(self) -> None:
        """Have the keeper look again: a label of the Secret changes."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}"
        self.api.patch(path, {"metadata": {"labels": {"at": str(time.monotonic_ns())}}})

    async def call(self) -> None:
        """Have the API server call the webhook; raises if that does not work."""
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "call-"}}
        await self.transport.request(
            "POST",
            f"/api/v1/namespaces/{self.namespace}/configmaps",
            params={"dryRun": "All"},
            body=json.dumps(config_map).encode(),
            retry="never",
        )


@pytest_asyncio.fixture
async def world(control_plane: ControlPlane, namespace: str) -> AsyncIterator[World]:
    """Everything installed and watched; the keeper does not run yet."""
    async with await Transport.connect(str(control_plane.kubeconfig())) as transport:
        made = World(control_plane, transport, namespace)
        server = await made.webhook.start()
        for kind in KINDS:
            made.api.create(made.configuration(kind))
        made.api.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": SECRET, "namespace": namespace},
                "type": "Opaque",
            }
        )
        running = [asyncio.ensure_future(reflector.run()) for reflector in made.reflectors]
        try:
            for reflector in made.reflectors:
                await asyncio.wait_for(reflector.synced.wait(), 10)
            yield made
        finally:
            for kind in KINDS:
                made.api.delete(made.path(kind))
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            server.close()


@asynccontextmanager
async def keeping(world: World) -> AsyncIterator[None]:
    """Let the keeper run for the time of a block."""
    tasks = [asyncio.ensure_future(world.keeper.run()), asyncio.ensure_future(world.recorder.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_a_new_installation_works_within_a_second(world: World) -> None:
    """An empty Secret and empty bundles: soon after the start the API server reaches the webhook over trusted TLS."""
    async with keeping(world):
        await until(world.trusted, seconds=1, what="the bundle is not installed")
        await call_until_it_works(world)
        assert world.webhook.calls
    assert world.reasons() == ["CertificatesCreated"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["remove", "replace"])
async def test_a_bundle_that_is_emptied_or_replaced_is_repaired(world: World, kind: str, how: str) -> None:
    """Within a second, and nothing else of the configuration changes."""
    async with keeping(world):
        await until(world.trusted, what="the bundle is not installed")
        before = world.api.get(world.path(kind))["webhooks"]
        operation = {"op": how, "path": "/webhooks/1/clientConfig/caBundle"}
        if how == "replace":
            stranger = make_ca(dt.datetime.now(dt.UTC)).certificate_pem
            operation["value"] = base64.b64encode(stranger).decode()
        world.api.patch(world.path(kind), [operation], kind="json")
        await until(world.trusted, seconds=1, what="the bundle is not repaired")
        assert world.api.get(world.path(kind))["webhooks"] == before


async def test_a_configuration_that_is_installed_anew_is_trusted_again(world: World) -> None:
    """Deleted and created again, as an upgrade may do, or with entries added."""
    async with keeping(world):
        await until(world.trusted, what="the bundle is not installed")
        world.api.delete(world.path("mutating"))
        fuller = world.configuration("mutating")
        fuller["webhooks"].append(fuller["webhooks"][0] | {"name": "c.mutating.test.dev"})
        world.api.create(fuller)
        await until(lambda: world.trusted() and len(world.bundles("mutating")) == 3, what="it is not trusted")


async def test_a_secret_that_is_emptied_or_deleted_is_made_again(world: World) -> None:
    """New certificates, trusted again within a second."""
    path = f"/api/v1/namespaces/{world.namespace}/secrets/{SECRET}"
    async with keeping(world):
        await until(world.trusted, what="the bundle is not installed")
        for lose in (lambda: world.api.patch(path, {"data": None}, kind="strategic"), lambda: world.api.delete(path)):
            old = world.data()["ca.crt"]
            lose()
            await until(lambda old=old: world.trusted() and world.data()["ca.crt"] != old, what="it is not made again")
            await call_until_it_works(world)


async def test_damage_is_healed_and_told(world: World) -> None:
    """A leaf that does not parse is replaced under the same CA."""
    async with keeping(world):
        await until(world.trusted, what="the bundle is not installed")
        bundle = world.data()["ca.crt"]
        path = f"/api/v1/namespaces/{world.namespace}/secrets/{SECRET}"
        world.api.patch(path, {"data": {"tls.crt": base64.b64encode(b"garbage").decode()}})
        await until(lambda: b"BEGIN" in world.data()["tls.crt"], what="the leaf is not replaced")
        assert world.data()["ca.crt"] == bundle
        await call_until_it_works(world)
    assert world.reasons() == ["CertificatesCreated", "CertificateRenewed"]


async def test_no_call_fails_while_the_ca_is_rotated(world: World) -> None:
    """The API server calls all the time, each time with a new handshake, through stage, switch and drop."""
    failures: list[str] = []
    calling = True

    async def call_on() -> None:
        while calling:
            try:
                await world.call()
            except Exception as error:
                failures.append(str(error))
            await asyncio.sleep(0.002)

    # Seven years ago an installation was made; its leaf is of yesterday.
    world.offset = -CA_LIFE * 0.68
    async with keeping(world):
        await until(world.trusted, what="the bundle is not installed")
        world.offset = -dt.timedelta(days=1) - (CA_LIFE * 0.02)
        await world.look()
        await until(lambda: "CertificateRenewed" in world.reasons(), what="the leaf is not renewed")
        await call_until_it_works(world)
        caller = asyncio.ensure_future(call_on())
        world.offset = dt.timedelta(0)
        await world.look()
        await until(lambda: "ca-next.crt" in world.data() and world.trusted(), what="no CA is staged")
        await more_calls(world)
        while "ca-next.crt" in world.data():  # until the bundles have been right for long enough
            world.offset += dt.timedelta(seconds=5)
            assert world.offset < dt.timedelta(minutes=2), "the CA is not switched"
            await world.look()
            await asyncio.sleep(0.05)
        assert world.data()["ca.crt"].count(b"BEGIN") == 2
        await more_calls(world)
        world.offset += dt.timedelta(days=1, minutes=10)
        await world.look()
        await until(lambda: world.data()["ca.crt"].count(b"BEGIN") == 1 and world.trusted(), what="no CA is dropped")
        await more_calls(world)
        calling = False
        await caller
    assert failures == []
    assert world.reasons()[-3:] == ["AuthorityStaged", "AuthoritySwitched", "AuthorityDropped"]


async def more_calls(world: World) -> None:
    """Wait until the API server has called several times more."""
    before = world.webhook.calls
    await until(lambda: world.webhook.calls >= before + 7, what="the API server does not call")


async def call_until_it_works(world: World) -> None:
    """An API server notices a new bundle by a watch, some milliseconds after the write."""
    patience = Patience(2)
    while True:
        try:
            await world.call()
        except Exception:
            if patience.over:
                raise
            await asyncio.sleep(0.02)
        else:
            return


async def test_an_entry_that_its_applier_leaves_out_is_gone(world: World) -> None:
    """Helm applies the configurations: an upgrade that removes an entry is not held up by the bundle in that entry."""
    whole = world.configuration("mutating")
    path = world.path("mutating")
    world.api.delete(path)
    await until(lambda: world.api.find(path) is None, what="the configuration is gone")

    async def apply(entries: list[dict[str, Any]]) -> None:
        await world.transport.patch(
            MutatingWebhookConfiguration,
            whole["metadata"]["name"],
            "",
            {**whole, "webhooks": entries},
            type="apply",
            manager="helm",
        )

    await apply(whole["webhooks"])
    async with keeping(world):
        await until(world.trusted, what="every entry trusts the bundle")
        await until(
            lambda: "turnstile" not in {each["manager"] for each in world.api.get(path)["metadata"]["managedFields"]},
            what="nothing of the configuration is owned by Turnstile",
        )
        await apply(whole["webhooks"][:1])
        assert [entry["name"] for entry in world.api.get(path)["webhooks"]] == ["a.mutating.test.dev"]
        assert world.trusted()
