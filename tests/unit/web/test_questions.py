"""Questions over REST: what is answered, and what is refused with which reason."""

import json
from collections import Counter
from typing import Any

import pytest
from starlette.requests import Request

from tests.unit.engine import builders as b
from tests.unit.web.asking import AtOnce, Page, page
from tests.unit.web.test_sight import ONE_NAMESPACE, TENANT, shared
from turnstile.http.bodies import Refused
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube.reviews import User
from turnstile.recorder.location import Location
from turnstile.web.questions import ASKED, BODY_LIMIT, OF_ONE, Questions
from turnstile.web.sight import EVERYTHING, Sight

pytestmark = pytest.mark.asyncio

USER = User("alice")
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: new, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "2"}}}]
"""


class Asking:
    """Asks the questions of one page."""

    def __init__(self, shown: Page, recorder: Location | None = None) -> None:
        self.questions = Questions(shown.world, AtOnce(), Registry(), JobOptions, recorder)

    async def __call__(
        self, what: str, query: str = "", *, body: bytes = b"", sight: Sight = EVERYTHING, namespace: str = "team"
    ) -> dict[str, Any]:
        """The JSON of the answer."""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        method = "POST" if what == "what-if" else "GET"
        scope = {"type": "http", "method": method, "path": "/", "query_string": query.encode(), "headers": []}
        answer = await self.questions.answer(Request(scope, receive), USER, sight, namespace, what)
        found: dict[str, Any] = json.loads(bytes(answer.body))
        return found

    async def refused(self, what: str, query: str = "", **more: Any) -> tuple[int, str]:
        """Code and reason of a refusal."""
        with pytest.raises(Refused) as caught:
            await self(what, query, **more)
        return caught.value.code, caught.value.message


async def test_why_a_workload_waits() -> None:
    """The fields of `turnstile explain -o json`; names of other tenants are left out."""
    async with page(*shared()) as shown:
        told = await Asking(shown)("explain", "of=workload/waits", sight=ONE_NAMESPACE)
        assert (told["workload"], told["state"]) == ("team/waits", "pending")
        assert told["place"] == {"in_cluster_queue": 1, "in_local_queue": 0, "before": [], "hidden": 1}
        assert "secret" not in json.dumps(told)


async def test_what_a_job_would_change() -> None:
    """The fields of `turnstile what-if -o json`, with manifests as the body."""
    async with page(*shared()) as shown:
        told = await Asking(shown)("what-if", "set=cpu%3D1", body=JOB.encode(), sight=ONE_NAMESPACE)
        (verdict,) = told["asked"]
        assert verdict["outcome"] == "waits"
        assert "secret" not in json.dumps(told)


async def test_what_a_drain_would_change() -> None:
    """Flavors that lose their nodes, whose Workloads run there, and what is decided if their quotas go too."""
    async with page(*shared(), b.flavor(nodeLabels={"pool": "main"})) as shown:
        told = await Asking(shown)("what-if", "drain=pool%3Dmain", sight=ONE_NAMESPACE)
        (flavor,) = told["drained"]
        assert (flavor["flavor"], flavor["workloads"], flavor["hidden"]) == ("default", [], 1)
        assert [(each["workload"], each["what"]) for each in told["effects"]] == [("team/waits", "starves")]
        assert "secret" not in json.dumps(told)


async def test_when_a_workload_starts() -> None:
    """The fields of `turnstile when -o json`."""
    async with page(*shared()) as shown:
        told = await Asking(shown)("when", "all=true&courses=20", sight=ONE_NAMESPACE)
        assert [each["workload"] for each in told["forecasts"]] == ["team/waits"]
        assert "secret" not in json.dumps(told)


@pytest.mark.parametrize(
    ("what", "query", "body", "says"),
    [
        ("explain", "", "", "TARGET : give the name of a job, or KIND/NAME"),
        ("explain", "of=job/none", "", "No Workload is for none in namespace team"),
        ("explain", "of=job/none&colour=red", "", "colour: there is no such parameter of explain: give of"),
        ("when", "of=workload/waits&courses=7", "", "courses 7: give a whole number from 20 to 1000"),
        ("when", "of=workload/nothing", "", "of team/nothing: there is no such Workload"),
        ("what-if", "", "", "body nothing: say what would change"),
        ("what-if", "drain=pool%3Dother", "", "drain [('pool', 'other')]: no ResourceFlavor has such nodes"),
        ("what-if", "set=cpu", JOB, "set cpu: give [POD_SET/]RESOURCE=AMOUNT"),
        ("what-if", "", "a: [", "body text: is neither YAML nor JSON"),
        ("what-if", "", "a: &a [b]\nc: *a", "body text: has an alias of YAML"),
        ("what-if", "", JOB.replace('"2"', "lots"), "lots"),
        ("what-if", "", "\xff", "body"),
    ],
)
async def test_what_is_wrong_is_named(what: str, query: str, body: str, says: str) -> None:
    """The field, its value and what to do."""
    async with page(*shared()) as shown:
        code, said = await Asking(shown).refused(what, query, body=body.encode("latin-1"))
        assert code == 400
        assert says.replace("TARGET", "of") in said


async def test_what_may_not_be_asked() -> None:
    """In the words of the API server: a namespace, or queues, that the sender may not list."""
    async with page(*shared()) as shown:
        ask = Asking(shown)
        code, said = await ask.refused("explain", "of=workload/secret-wait", namespace="rival", sight=ONE_NAMESPACE)
        assert code == 403
        assert said == (
            'workloads.kueue.x-k8s.io is forbidden: User "alice" cannot list resource "workloads" in API group'
            ' "kueue.x-k8s.io" in the namespace "rival"'
        )
        code, said = await ask.refused("what-if", "drain=pool%3Dspot", sight=TENANT)
        assert (code, "clusterqueues" in said) == (403, True)
        code, said = await ask.refused("what-if", "drop=cq/main", sight=TENANT)
        assert (code, said) == (403, "ClusterQueue: you may not list clusterqueues")
        elsewhere = JOB.replace("name: new,", "name: new, namespace: rival,")
        code, said = await ask.refused("what-if", body=elsewhere.encode(), sight=ONE_NAMESPACE)
        assert (code, said) == (403, "Job new: you may not list Workloads and LocalQueues in namespace rival")


async def test_who_may_list_no_queue_is_answered_in_full() -> None:
    """With amounts and remedies, and without the names of ClusterQueues and Workloads of others."""
    async with page(*shared()) as shown:
        ask = Asking(shown)
        told = await ask("explain", "of=workload/waits", sight=TENANT)
        assert told["blockers"]
        assert told["remedies"]
        assert told["unread"] == []
        assert "secret" not in json.dumps(told)
        told = await ask("what-if", "set=cpu%3D1", body=JOB.encode(), sight=TENANT)
        assert told["asked"][0]["outcome"] == "waits"
        told = await ask("when", "of=workload/waits", sight=TENANT)
        assert told["forecasts"][0]["workload"] == "team/waits"


async def test_too_much() -> None:
    """A body that is too large, and too many questions at a time, of all users or of one."""
    async with page(*shared()) as shown:
        ask = Asking(shown)
        code, said = await ask.refused("what-if", body=b"#" * (BODY_LIMIT + 1))
        assert (code, said) == (413, "the manifests have more than 1 MiB: ask about fewer")
        for others in ({"bob": ASKED}, {USER.name: OF_ONE}):
            ask.questions._asked.clear()
            ask.questions._asked.update(others)
            assert (await ask.refused("explain", "of=workload/waits"))[0] == 429
        ask.questions._asked = Counter({"bob": OF_ONE})
        assert (await ask("explain", "of=workload/waits"))["state"] == "pending"
