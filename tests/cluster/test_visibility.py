"""The visibility API behind the API server's aggregator: who may read it, in which order, and what an outage costs.

On a control plane of its own, because an APIService that is not available holds up the deletion of every namespace.
"""

import base64
import json
import re
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.errors import TestbedError
from testbed.installation import MANAGED, NAMESPACE
from testbed.ports import lent_port
from tests.cluster.page_served import Served
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, Scenario

pytestmark = pytest.mark.cluster

ROOT = "/apis/visibility.kueue.x-k8s.io"
API_SERVICES = [f"{version}.visibility.kueue.x-k8s.io" for version in ("v1beta1", "v1beta2")]


class Visible:
    """Turnstile with its visibility API registered."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.cp = served.cp
        self.installation = served.installation

    def start(self) -> None:
        """Start it unless it runs, and wait until the API server says that the API is available."""
        if self.served.leader.poll() is not None:
            self.served.leader = self.served.lead()
            self.ask_again()
        wait_until(lambda: self.available("True"), timeout=60, describe=lambda: f"{self.conditions()}")

    def ask_again(self) -> None:
        """Have the API server look at once whether the APIs answer: it does by itself after up to half a minute, and
        whenever an APIService changes."""
        for name in API_SERVICES:
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
            self.cp.api.patch(path, {"metadata": {"annotations": {"testbed": uuid.uuid4().hex}}})

    def conditions(self) -> list[Json]:
        """Whether each version is available, and why not."""
        path = "/apis/apiregistration.k8s.io/v1/apiservices"
        return [condition(self.cp.api.get(f"{path}/{name}"), "Available") for name in API_SERVICES]

    def available(self, status: str) -> bool:
        """Whether that is the status of all versions."""
        return all(each.get("status") == status for each in self.conditions())

    def get(self, path: str, *, user: str = "admin", version: str = "v1beta2") -> Json:
        """`kubectl get --raw` of a path of the API."""
        found: Json = json.loads(self.cp.kubectl("get", "--raw", f"{ROOT}/{version}/{path}", user=user))
        return found

    def refused(self, path: str, *, user: str) -> str:
        """What kubectl complains of."""
        with pytest.raises(TestbedError) as caught:
            self.get(path, user=user)
        return str(caught.value)


@pytest.fixture
def visible(served: Served) -> Visible:
    """The API, available."""
    made = Visible(served)
    made.start()
    return made


@pytest.fixture
def world(visible: Visible) -> Iterator[Scenario]:
    """An empty managed namespace."""
    scenario = Scenario(visible.cp.api, visible.cp.namespace("team", labels=MANAGED))
    yield scenario
    scenario.remove()


def bind(world: Scenario, user: str, role: str, *, everywhere: bool = False) -> None:
    """Give a user a ClusterRole, in the namespace or everywhere."""
    metadata = {"name": world.named("reader")} | ({} if everywhere else {"namespace": world.namespace})
    world.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding" if everywhere else "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
    )


def wait_pending(visible: Visible, path: str, count: int, *, user: str = "admin") -> list[Json]:
    """The items, once there are so many."""
    found: list[Json] = []

    def look() -> bool:
        nonlocal found
        try:
            found = visible.get(path, user=user)["items"]
        except TestbedError as error:  # the role was bound just now
            found = [{"refused": str(error)}]
            return False
        return len(found) == count

    wait_until(look, timeout=20, describe=lambda: f"{len(found)} items: {found}")
    return found


def jobs_of(items: list[Json]) -> list[str]:
    """Names of the Jobs behind the items."""
    return [item["metadata"]["ownerReferences"][0]["name"] for item in items]


def test_an_administrator_sees_the_order_of_a_queue(visible: Visible, world: Scenario) -> None:
    """By priority, with the positions in ClusterQueue and LocalQueue, page by page, in both versions."""
    flavor = world.flavor("any")
    queue = world.cluster_queue("main", {flavor: {"cpu": "1"}})
    for name in ("first", "second"):
        world.local_queue(name, queue)
    urgent, low = world.priority_class("urgent", 100), world.priority_class("low", -5)
    world.job("runs", queue="first")
    world.wait_started("runs")
    world.job("ordinary", queue="first")
    world.job("can-wait", queue="second", labels={"kueue.x-k8s.io/priority-class": low})
    world.job("urgent", queue="first", labels={"kueue.x-k8s.io/priority-class": urgent})
    bind(world, "admin-of-queues", "turnstile-batch-admin-role", everywhere=True)

    items = wait_pending(visible, f"clusterqueues/{queue}/pendingworkloads", 3, user="admin-of-queues")
    assert jobs_of(items) == ["urgent", "ordinary", "can-wait"]
    places = [(each["localQueueName"], each["positionInClusterQueue"], each["positionInLocalQueue"]) for each in items]
    assert places == [("first", 0, 0), ("first", 1, 1), ("second", 2, 0)]
    assert [each["priority"] for each in items] == [100, 0, -5]
    owner = world.read_job("urgent")["metadata"]
    assert items[0]["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "urgent", "uid": owner["uid"]}
    ]
    assert items[0]["metadata"].keys() == {"name", "namespace", "creationTimestamp", "ownerReferences"}

    paged = f"clusterqueues/{queue}/pendingworkloads?limit=1&offset=1"
    assert visible.get(paged, version="v1beta1") == {
        "kind": "PendingWorkloadsSummary",
        "apiVersion": "visibility.kueue.x-k8s.io/v1beta1",
        "metadata": {},
        "items": items[1:2],
    }
    of_second = visible.get(f"namespaces/{world.namespace}/localqueues/second/pendingworkloads")["items"]
    assert of_second == items[2:]


def test_a_held_queue_lists_nothing(visible: Visible, world: Scenario) -> None:
    """Its Workloads are not tried; when it goes on they have their places again."""
    queue = world.queue("main", {world.flavor("any"): {"cpu": "0"}})
    world.job("waits", queue="main")
    path = f"clusterqueues/{queue}/pendingworkloads"
    wait_pending(visible, path, 1)
    local = resource_path(GROUP, "localqueues", "main", namespace=world.namespace)
    world.api.patch(local, {"spec": {"stopPolicy": "Hold"}})
    wait_pending(visible, path, 0)
    assert visible.get(f"namespaces/{world.namespace}/localqueues/main/pendingworkloads")["items"] == []
    world.api.patch(local, {"spec": {"stopPolicy": "None"}})
    wait_pending(visible, path, 1)


def test_a_user_sees_only_the_queues_of_the_own_namespace(visible: Visible, world: Scenario) -> None:
    """A batch user lists a LocalQueue there; the ClusterQueue and other namespaces are refused, missing or not."""
    queue = world.queue("main", {world.flavor("any"): {"cpu": "0"}})
    world.job("waits", queue="main")
    bind(world, "member", "turnstile-batch-user-role")
    own = f"namespaces/{world.namespace}/localqueues/main/pendingworkloads"
    (item,) = wait_pending(visible, own, 1, user="member")
    assert jobs_of([item]) == ["waits"]

    for path in (f"clusterqueues/{queue}/pendingworkloads", "clusterqueues/missing/pendingworkloads"):
        refusal = visible.refused(path, user="member")
        assert 'User "member" cannot get resource "clusterqueues/pendingworkloads" in API group' in refusal
    other = visible.cp.namespace("other")
    refusal = visible.refused(f"namespaces/{other}/localqueues/main/pendingworkloads", user="member")
    assert f'cannot get resource "localqueues/pendingworkloads" in API group "{ROOT[6:]}" in the namespace' in refusal
    assert "Forbidden" in visible.refused(own, user="member-of-another-team")


def test_what_is_not_there_is_not_found(visible: Visible, world: Scenario) -> None:
    """In Kueue's words; a LocalQueue without a ClusterQueue is there, and empty; nothing can be written."""
    missing = visible.refused("clusterqueues/missing/pendingworkloads", user="admin")
    assert '(NotFound): clusterqueue.visibility.kueue.x-k8s.io "missing" not found' in missing
    missing = visible.refused(f"namespaces/{world.namespace}/localqueues/missing/pendingworkloads", user="admin")
    assert '(NotFound): localqueue.visibility.kueue.x-k8s.io "missing" not found' in missing
    world.local_queue("lonely", "missing")
    path = f"namespaces/{world.namespace}/localqueues/lonely/pendingworkloads"
    assert wait_pending(visible, path, 0) == []
    assert "NotFound" in visible.refused("clusterqueues", user="admin")
    assert "BadRequest" in visible.refused(f"{path}?limit=many", user="admin")
    with pytest.raises(TestbedError, match="MethodNotAllowed"):
        visible.cp.kubectl("delete", "--raw", f"{ROOT}/v1beta2/{path}")


def test_the_api_server_takes_the_documents_in(visible: Visible) -> None:
    """Discovery and OpenAPI of both versions are merged into its own, and it has nothing to complain of."""
    cp = visible.cp
    versions = cp.kubectl("api-versions").splitlines()
    assert {"visibility.kueue.x-k8s.io/v1beta1", "visibility.kueue.x-k8s.io/v1beta2"} <= set(versions)
    assert "error" not in cp.kubectl("api-resources")
    subresources = {each["name"] for each in json.loads(cp.kubectl("get", "--raw", f"{ROOT}/v1beta2"))["resources"]}
    assert {"clusterqueues/pendingworkloads", "localqueues/pendingworkloads"} <= subresources
    assert json.loads(cp.kubectl("get", "--raw", ROOT))["preferredVersion"]["version"] == "v1beta2"

    def merged() -> list[str]:
        document = json.loads(cp.kubectl("get", "--raw", "/openapi/v2"))
        return [path for path in document["paths"] if path.startswith(ROOT) and path.endswith("/pendingworkloads")]

    wait_until(lambda: len(merged()) == 4, timeout=60, describe=lambda: f"{merged()}")
    third = json.loads(cp.kubectl("get", "--raw", f"/openapi/v3{ROOT}/v1beta2"))
    assert any("PendingWorkloadsSummary" in name for name in third["components"]["schemas"])
    assert "Workload" in cp.kubectl("explain", "workloads.kueue.x-k8s.io")

    # It downloads them again after each change of an APIService; at first there was no server to ask.
    log = cp.log("kube-apiserver")
    before = len(log.read_text())
    visible.ask_again()
    visible.start()
    wait_until(lambda: len(merged()) == 4, timeout=60, describe=lambda: f"{merged()}")
    lines = log.read_text()[before:].splitlines()
    assert [line for line in lines if re.match("[EW]", line) and "visibility" in line] == []


def ask(visible: Visible, path: str, *, port: int | None = None, **headers: str) -> tuple[int, Json]:
    """Ask the server itself, without a client certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{port or visible.installation.visibility_port}{path}"
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_nobody_says_in_headers_who_they_are(visible: Visible, world: Scenario) -> None:
    """Without the certificate of the front proxy its headers count for nothing; the API server knows the tokens."""
    queue = world.queue("main", {world.flavor("any"): {"cpu": "0"}})
    path = f"{ROOT}/v1beta2/clusterqueues/{queue}/pendingworkloads"
    code, status = ask(visible, path, X_Remote_User="admin", X_Remote_Group="system:masters")
    assert (code, status["reason"]) == (403, "Forbidden")
    assert 'User "system:anonymous"' in status["message"]
    assert ask(visible, path, Authorization="Bearer invented")[0] == 401

    token = visible.cp.service_account_token(NAMESPACE, "turnstile-webhook")
    code, status = ask(visible, path, Authorization=f"Bearer {token}")
    assert code == 403
    assert f'User "system:serviceaccount:{NAMESPACE}:turnstile-webhook"' in status["message"]
    assert ask(visible, f"{ROOT}/v1beta2", Authorization=f"Bearer {token}")[0] == 200
    assert ask(visible, "/readyz") == (200, {"status": "ok"})


def test_a_replica_that_does_not_lead_answers_the_same(visible: Visible, world: Scenario) -> None:
    """The order follows from the objects, which each replica has: of Workloads of one second, from the order in which
    both have seen them come."""
    queue = world.queue("main", {world.flavor("any"): {"cpu": "0"}})
    account = f"system:serviceaccount:{NAMESPACE}:turnstile-webhook"  # any but the controller's
    bind(world, account, "turnstile-batch-admin-role", everywhere=True)
    token = visible.cp.service_account_token(NAMESPACE, "turnstile-webhook")
    port = lent_port()
    second = visible.installation.start(
        role="controller", arguments=("--visibility-bind", f"127.0.0.1:{port}", "--health-bind", "")
    )
    path = f"{ROOT}/v1beta2/clusterqueues/{queue}/pendingworkloads"
    answer: object = None

    def lists(items: list[Json]) -> bool:
        nonlocal answer
        second.require_running()
        try:
            answer = ask(visible, path, port=port, Authorization=f"Bearer {token}")
        except OSError as error:
            answer = error
            return False
        return answer[0] == 200 and answer[1]["items"] == items

    def wait_listed(items: list[Json]) -> None:
        wait_until(lambda: lists(items), timeout=30, describe=lambda: f"{answer}, not {items}\n{second.tail(5)}")

    try:
        wait_listed([])
        for number in range(6):
            world.job(f"waits-{number}", queue="main")
        wait_listed(wait_pending(visible, f"clusterqueues/{queue}/pendingworkloads", 6))
        assert '"leading"' not in second.log.read_text()
    finally:
        second.terminate()


def test_the_leader_keeps_the_bundle_of_the_api_services(visible: Visible) -> None:
    """A caBundle that somebody else wrote is replaced, and the API is available again."""
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICES[1]}"
    right = visible.cp.api.get(path)["spec"]["caBundle"]
    wrong = visible.cp.api.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
    visible.cp.api.patch(path, {"spec": {"caBundle": base64.b64encode(wrong.encode()).decode()}})
    wait_until(lambda: visible.cp.api.get(path)["spec"]["caBundle"] == right, timeout=20, describe=lambda: "it stays")
    visible.start()


def test_a_namespace_is_deleted_when_the_api_is_back(visible: Visible) -> None:
    """While Turnstile is away a namespace stays Terminating, its contents deleted; the rest of the API server works."""
    api = visible.cp.api
    namespace = visible.cp.namespace("other")
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "content", "namespace": namespace}})
    visible.served.leader.terminate()
    visible.ask_again()
    wait_until(lambda: visible.available("False"), timeout=90, describe=lambda: f"{visible.conditions()}")
    path = f"/api/v1/namespaces/{namespace}"
    api.delete(path)

    def held_up() -> bool:
        return condition(api.get(path), "NamespaceDeletionDiscoveryFailure").get("status") == "True"

    wait_until(held_up, timeout=30, describe=lambda: f"{api.get(path)}")
    assert api.items(f"{path}/configmaps") == []
    assert "pods" in visible.cp.kubectl("api-resources", "--api-group=")
    visible.start()
    api.wait_gone(path, timeout=60)


def test_the_page(visible: Visible) -> None:
    """docs/tasks/pending-workloads.md, read from top to bottom."""
    cp = visible.cp
    page = Reader("two-teams.md", cp)
    for _ in range(5):
        page.do()
    world = Scenario(cp.api, "team-a")
    for name in ("one", "two"):
        world.job(name, queue="default", cpu="1000")
    wait_pending(visible, "clusterqueues/team-a/pendingworkloads", 2)

    page = Reader("pending-workloads.md", cp)
    items = json.loads(page.do())["items"]
    assert sorted(jobs_of(items)) == ["one", "two"]
    assert json.loads(page.do())["items"] == items[1:]
    page.do()
    assert '"positionInLocalQueue":1' in page.see("PendingWorkloadsSummary")
    assert page.do().count("True") == 2
    page.do()
    page.end()
    assert cp.api.find(f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICES[0]}") is None
    visible.installation.install()
