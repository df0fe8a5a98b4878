"""Thousands of spoiled requests a path, through the whole application: always an answer, soon, and never a 5xx."""

import asyncio
import copy
import itertools
import json
import random
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.webhooks.reviews import Cluster, Json
from tests.unit.webhooks.test_any_json import places, seeds
from turnstile.http.health import Health
from turnstile.webhooks.application import create_app
from turnstile.webhooks.conversion import PATH as CONVERT
from turnstile.webhooks.routes import routes

PATHS = routes(Cluster(default_queue_in=("team-a",)))
CHUNK = 200
CHUNKS = 2
"""Chunks of requests a path: more than 20,000 requests in all."""

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308,
    "", " ", "a", "A" * 300, "\0", "é" * 70, "x" * 5000, "1e999999999", "-1", "1Ki", "0.0000000001",
    "999999999999999999999E", "2026-01-02T03:04:05Z", "kueue.x-k8s.io/v1beta1",
    [], [None], [[]], {}, {"": ""}, {"a": None}, {"a": {"b": [1]}},
)  # fmt: skip
TOKENS = (
    b"null",
    b"\xff",
    b"\\ud800",
    b"1e999",
    b'"',
    b"{",
    b"]",
    b",",
    b"\0",
    b"-",
    b"99999999999999999999",
    b"[" * 600,
)

TOPOLOGY: Json = {
    "levels": ["a", "b"],
    "domains": [{"values": ["r", "h1"], "count": 1}, {"values": ["r", "h2"], "count": 2}],
}
RUNS: Json = {
    "levels": ["a", "b"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"universal": "r"}, {"individual": {"roots": ["1", "2"], "prefix": "h"}}],
            "podCounts": {"individual": [1, 2]},
        }
    ],
}


def conversions() -> list[Json]:
    """Objects to convert: the seeds in v1beta2, and what v1beta1 says otherwise."""
    new = [copy.deepcopy(seed) for name, seed in seeds().items() if name in {"clusterqueue", "cohort", "workload"}]
    new[-1]["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = RUNS
    new[-1]["spec"]["priorityClassRef"] = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}
    head: Json = {"apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "x", "namespace": "team-a"}}
    old = [
        {
            "kind": "ClusterQueue",
            "spec": {"cohort": "c", "admissionChecks": ["a"], "flavorFungibility": {"whenCanBorrow": "Borrow"}},
        },
        {"kind": "LocalQueue", "spec": {}, "status": {"flavorUsage": [{"name": "f"}], "flavors": [{"name": "f"}]}},
        {"kind": "MultiKueueCluster", "spec": {"kubeConfig": {"location": "a"}, "clusterProfileRef": {"name": "p"}}},
        {
            "kind": "Workload",
            "spec": {"priorityClassName": "p", "priorityClassSource": "scheduling.k8s.io/priorityclass"},
            "status": {"admission": {"podSetAssignments": [{"topologyAssignment": TOPOLOGY}]}},
        },
    ]
    return [*new, *(head | obj for obj in old)]


def spoil(chance: random.Random, value: Any) -> Any:
    """The value with up to four places replaced, taken out, doubled or put elsewhere."""
    value = copy.deepcopy(value)
    for _ in range(chance.randint(0, 4)):
        found = places(value)
        if not found:
            break
        *parents, last = chance.choice(found)
        target = value
        for key in parents:
            target = target[key]
        match chance.randrange(5):
            case 0:
                del target[last]
            case 1 if isinstance(target, list):
                target.append(target[last])
            case 2 if isinstance(target, dict):
                target[chance.choice(("", "a", "spec", "status", "metadata"))] = target.pop(last)
            case _:
                target[last] = copy.deepcopy(chance.choice(ODD))
    return value


def garble(chance: random.Random, body: bytes) -> bytes:
    """Mostly the body itself; sometimes cut, or with bytes in it that no JSON has."""
    place = chance.randrange(len(body))
    match chance.randrange(10):
        case 0:
            return body[:place]
        case 1 | 2:
            return body[:place] + chance.choice(TOKENS) + body[place + chance.randrange(3) :]
        case _:
            return body


def review(chance: random.Random, seed: Json) -> bytes:
    """An AdmissionReview about a spoiled object."""
    group, _, version = seed["apiVersion"].rpartition("/")
    request = {
        "uid": "u",
        "kind": {"group": group, "version": version, "kind": seed["kind"]},
        "operation": chance.choice(("CREATE", "UPDATE")),
        "subResource": chance.choice(("", "", "status")),
        "namespace": "team-a",
        "object": spoil(chance, seed),
        "oldObject": spoil(chance, seed),
    }
    if not chance.randrange(20):
        request = spoil(chance, request)
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return garble(chance, json.dumps(whole).encode())


def conversion(chance: random.Random, objects: list[Json]) -> tuple[bytes, list[Json]]:
    """A ConversionReview of spoiled objects, and the objects."""
    sent = [spoil(chance, obj) for obj in chance.sample(objects, chance.randint(0, 3))]
    version = chance.choice(("v1beta1", "v1beta2"))
    request: Any = {"uid": "u", "desiredAPIVersion": f"kueue.x-k8s.io/{version}", "objects": sent}
    if not chance.randrange(20):
        request = spoil(chance, request)
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    body = json.dumps(whole).encode()
    garbled = garble(chance, body)
    return garbled, sent if garbled == body and isinstance(request, dict) and request.get("objects") == sent else []


def who(obj: Json) -> Any:
    """The metadata; a number past 64 bits is one with a fraction for every reader of JSON in Kubernetes."""
    return json.loads(json.dumps(obj.get("metadata")), parse_int=float)


class Application:
    """The application, asked without a network."""

    def __init__(self) -> None:
        self.app = create_app(PATHS, health=Health(), registry=CollectorRegistry())
        self.slowest = 0.0

    async def ask(self, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"content-type", b"application/json")]}
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])
        sent: list[Any] = []

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message)

        began = time.thread_time()
        await self.app(scope, receive, send)
        self.slowest = max(self.slowest, time.thread_time() - began)
        return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


@pytest.mark.parametrize("path", sorted(PATHS))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_reviews(path: str, chunk: int) -> None:
    """A review is answered with 200 or with a 4xx that says what is wrong; who only judges changes nothing."""
    chance = random.Random(f"{path} {chunk}")
    seed = seeds()[path.rsplit("-", 1)[1]]
    ours = "kueue-x-k8s-io" in path
    application = Application()

    async def ask_all() -> None:
        for _ in range(CHUNK):
            body = review(chance, seed)
            status, answer = await application.ask(path, body)
            assert status in {200, 400}, body
            if status == 400:
                assert answer["message"], body
                continue
            response = answer["response"]
            if path.startswith("/validate"):
                assert "patch" not in response, body
            if not response["allowed"]:
                assert response["status"]["message"], body
                assert response["status"]["code"] in ({400, 403} if ours else {400, 403, 500}), body

    asyncio.run(ask_all())
    assert application.slowest < 1


@pytest.mark.parametrize("chunk", range(5 * CHUNKS))
def test_conversions(chunk: int) -> None:
    """A conversion succeeds with every object, each who it was, or fails with a message."""
    chance = random.Random(f"convert {chunk}")
    objects = conversions()
    application = Application()

    async def ask_all() -> None:
        for _ in range(CHUNK):
            body, sent = conversion(chance, objects)
            status, answer = await application.ask(CONVERT, body)
            assert status in {200, 400}, body
            if status == 400:
                assert answer["message"], body
                continue
            response = answer["response"]
            if response["result"]["status"] == "Failure":
                assert response["result"]["message"], body
                assert "the log of the webhook has the reason" not in response["result"]["message"], body
            elif sent:
                pairs = itertools.zip_longest(sent, response["convertedObjects"])
                assert all(who(old) == who(new) for old, new in pairs), body

    asyncio.run(ask_all())
    assert application.slowest < 1
