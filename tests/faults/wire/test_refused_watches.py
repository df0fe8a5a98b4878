"""A reflector whose kind the server does not have, or does not let it read."""

import asyncio
import json

import pytest
import structlog

from tests.faults.proxy import Proxy, answer, stream
from tests.faults.wire.world import ConfigMap, config, contents, mirror, resumes, running, starts, until
from turnstile.api.errors import NotServed
from turnstile.kube import answers
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


def named(pattern: str) -> bytes:
    """A Status that refuses, as the server says it."""
    reason, code, message = pattern.split(": ")
    status = {"kind": "Status", "status": "Failure", "reason": reason, "code": int(code), "message": message}
    return json.dumps(status).encode()


class TestRefusals:
    """The server does not have the kind, or does not let us read it."""

    async def test_an_optional_kind_that_is_not_there_ends_the_watch(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """At once, and nothing that was held is forgotten by that alone."""
        store, reflector = mirror(through, namespace, optional=True)
        store.observe(answers.decoder(ConfigMap)(json.dumps(config("held", version="1")).encode()))
        proxy.plan(answer("404 Not Found", named("NotFound: 404: no such kind")), applies=starts)
        with pytest.raises(NotServed, match="no such kind"):
            await asyncio.wait_for(reflector.run(), 5)
        assert len(store) == 1
        assert not store.complete

    async def test_a_kind_that_must_be_there_is_asked_for_again(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Its definition may be on its way."""
        proxy.plan(answer("404 Not Found", named("NotFound: 404: no such kind")), applies=starts, times=2)
        _store, reflector = mirror(through, namespace)
        async with running(reflector):
            await until(lambda: "no such kind" in str(reflector.error))
            assert reflector.tried.is_set()
            await until(reflector.synced.is_set)
            assert reflector.error is None

    async def test_others_wait_a_while_for_a_kind_that_fails(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """The first failure is not the end of their patience: what can be read soon is not left out."""
        refusal = answer("403 Forbidden", named("Forbidden: 403: not yours"))
        proxy.plan(refusal, applies=starts, times=3)
        _store, reflector = mirror(through, namespace, optional=True, patience=60.0)
        async with running(reflector):
            await until(lambda: reflector.failures == 3)
            assert not reflector.tried.is_set()
            await until(reflector.synced.is_set)
            assert reflector.tried.is_set()
        proxy.plan(refusal, applies=starts, times=float("inf"))
        _store, reflector = mirror(through, namespace, optional=True, patience=0.2)
        async with running(reflector):
            await until(reflector.tried.is_set)
            assert reflector.failures > 1
            assert not reflector.synced.is_set()

    async def test_what_fails_is_said_until_the_server_answers_again(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Also for a kind that nothing happens to. What was complete stays so: it is only late."""
        proxy.plan(stream(), applies=resumes)
        refusal = answer("403 Forbidden", named("Forbidden: 403: not yours"))
        proxy.plan(refusal, applies=resumes, times=2)
        store, reflector = mirror(through, namespace, idle_timeout=0.3, optional=True)
        async with running(reflector):
            await until(lambda: "not yours" in str(reflector.error))
            assert store.complete
            await until(lambda: reflector.error is None)
        assert reflector.relisted == 1

    async def test_the_same_failure_is_a_warning_once(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """However often it is met; another one is told too."""
        proxy.plan(answer("403 Forbidden", named("Forbidden: 403: not yours")), applies=starts, times=3)
        proxy.plan(answer("403 Forbidden", named("Forbidden: 403: nor theirs")), applies=starts)
        _store, reflector = mirror(through, namespace)
        with structlog.testing.capture_logs() as logs:
            async with running(reflector):
                await until(reflector.synced.is_set)
        told = [(each["log_level"], each["error"]) for each in logs if each["event"] == "reflector.stream_failed"]
        first, second = "403 Forbidden: not yours", "403 Forbidden: nor theirs"
        assert told == [("warning", first), ("debug", first), ("debug", first), ("warning", second)]

    async def test_metadata_is_all_that_is_asked_for(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """By watches and by lists."""
        await direct.create(ConfigMap, namespace, config("a", x="1"))
        store, reflector = mirror(through, namespace, metadata_only=True)
        async with running(reflector):
            await until(reflector.synced.is_set)
            await reflector.freshness.show()
        assert contents(store) == {"a": {}}
        accepted = [request.headers["accept"] for request in proxy.requests]
        assert [each.split(";")[1] for each in accepted] == ["as=PartialObjectMetadata", "as=PartialObjectMetadataList"]
