"""The page in the cluster, behind the real aggregator: what tenants and administrators see, and what is refused.

On a control plane of its own, because an APIService that is not available holds up the deletion of every namespace.
"""

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse

import pytest
import yaml

from testbed import ControlPlane, build
from testbed.client import Json, condition, unverified_tls, wait_until
from testbed.installation import MANAGED, NAMESPACE, Installation
from testbed.ports import ReservedPort
from testbed.processes import Process
from tests.cluster.scenario import Scenario, job
from tests.cluster.test_visibility import bind

pytestmark = pytest.mark.cluster

API = "/apis/insight.turnstile.dev/v1alpha1"
PAGE = f"{API}/pages/turnstile/proxy"


class Served:
    """Turnstile with its page registered, and browsers behind `kubectl proxy`."""

    def __init__(self, cp: ControlPlane) -> None:
        self.cp = cp
        self.installation = Installation(cp, page=True)
        self.installation.install()
        leader = self.installation.start()
        self.installation.wait_ready(leader)
        self.process: Process = self.start()
        self._proxies: dict[str, tuple[subprocess.Popen[bytes], int]] = {}

    def start(self) -> Process:
        """Start the page, and wait until the API server says that it is available."""
        process = self.installation.start_page()
        path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.insight.turnstile.dev"

        def look() -> bool:
            process.require_running()
            return condition(self.cp.api.get(path), "Available").get("status") == "True"

        wait_until(look, timeout=60, describe=lambda: f"{self.cp.api.get(path)['status']}\n{process.tail(20)}")
        return process

    def browser(self, user: str) -> "Browser":
        """A browser whose requests `kubectl proxy` sends as a user."""
        if user not in self._proxies:
            with ReservedPort() as reserved:
                port = reserved.number
            flags = ["--port", str(port), "--kubeconfig", str(self.cp.kubeconfig(user))]
            process = subprocess.Popen([build.ensure()["kubectl"], "proxy", *flags], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            self._proxies[user] = process, port
        return Browser(self._proxies[user][1])

    def close(self) -> None:
        """End the proxies."""
        for process, _ in self._proxies.values():
            process.terminate()
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


class Browser:
    """What a user's browser does: it follows links and events."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a path."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def words(self, path: str) -> str:
        """The words of a page."""
        return " ".join(re.sub(r"<[^>]+>", " ", self.get(f"{PAGE}{path}")[1]).split())

    def sees(self, path: str, *sentences: str) -> str:
        """The words of a page, once it says all this."""
        said = ""

        def look() -> bool:
            nonlocal said
            said = self.words(path)
            return all(each in said for each in sentences)

        wait_until(look, timeout=30, describe=lambda: f"{path} should say {sentences}, but says\n{said}")
        return said

    def ask(self, what: str, namespace: str, query: str = "") -> tuple[int, Json]:
        """Status and JSON of a question."""
        code, text = self.get(f"{API}/namespaces/{namespace}/{what}?{query}")
        return code, json.loads(text)

    @contextmanager
    def following(self, path: str) -> Iterator[Callable[[str], dict[str, str]]]:
        """Follow a page: a function that waits for an event with a word, and returns the event."""
        found = re.search(r'data-follow="([^"]*)"', self.get(f"{PAGE}{path}")[1])
        assert found is not None
        address = f"{PAGE}{path.rpartition('/')[0]}/{found[1].replace('&amp;', '&')}"
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", address)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        try:
            yield lambda word: self._event(answer, word)
        finally:
            connection.close()

    @staticmethod
    def _event(answer: HTTPResponse, word: str) -> dict[str, str]:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            line = answer.readline().decode()
            assert line, "the events ended"
            if line.startswith("data: ") and word in line:
                told: dict[str, str] = json.loads(line.removeprefix("data: "))
                return told
        raise AssertionError(f"no event says {word}")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A control plane with one node, Turnstile and its page."""
    with ControlPlane(audit=True) as cp:
        cp.add_node("plain", cpu=64, memory="256Gi")
        found = Served(cp)
        yield found
        found.close()


@pytest.fixture(scope="module")
def teams(served: Served) -> Iterator[tuple[Scenario, Scenario]]:
    """Two tenants of one ClusterQueue of 4 cpus: a Job of the second runs, one of each waits.

    `batch-NAMESPACE` is a batch user of a namespace, `viewer-NAMESPACE` sees all queues too, `admin-of-queues` is a
    batch administrator.
    """
    mine, theirs = (Scenario(served.cp.api, served.cp.namespace(name, labels=MANAGED)) for name in ("mine", "theirs"))
    flavor = mine.flavor("plain")
    queue = mine.cluster_queue("shared", {flavor: {"cpu": "4"}})
    for each in (mine, theirs):
        each.local_queue("main", queue)
        bind(each, f"batch-{each.namespace}", "turnstile-batch-user-role")
    theirs.job("secret-runs", queue="main", cpu="3")
    theirs.wait_admitted("secret-runs")
    theirs.job("secret-waits", queue="main", cpu="2")
    theirs.wait_pending("secret-waits")
    mine.job("waits", queue="main", cpu="2")
    mine.wait_pending("waits")
    yield mine, theirs
    theirs.remove()
    mine.remove()


def role(world: Scenario, user: str, name: str, *, everywhere: bool = True) -> None:
    """Give a user a ClusterRole."""
    metadata = {"name": f"{user}-{name}"} | ({} if everywhere else {"namespace": world.namespace})
    world.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding" if everywhere else "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
    )


def test_a_batch_administrator_sees_everything(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """All queues, the Workloads of both tenants, health, and the JSON of questions."""
    mine, theirs = teams
    role(mine, "admin-of-queues", "turnstile-batch-admin-role")
    browser = served.browser("admin-of-queues")
    queue = mine.named("shared")
    browser.sees("/", queue, "3 / 4", "with the rights of admin-of-queues")
    said = browser.sees(f"/clusterqueues/{queue}", "2 Workloads, in the order", "secret-waits", "secret-runs", "waits")
    assert "that you may not see" not in said
    browser.sees("/health", "What this page follows", "clusterqueues.kueue.x-k8s.io synced")
    code, told = browser.ask("explain", theirs.namespace, "of=job/secret-waits")
    assert (code, told["state"]) == (200, "pending")


def test_a_tenant_sees_its_own_workloads(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """With the role batch-user: no queue, no name of another tenant, in pages, events and answers."""
    mine, theirs = teams
    browser = served.browser(f"batch-{mine.namespace}")
    workload = mine.workload_of("waits")["metadata"]["name"]
    said = browser.sees("/", "ClusterQueues cannot be shown", f"in namespace {mine.namespace} only")
    said += browser.sees("/workloads", "1 Workload.", workload, "insufficient unused quota")
    said += browser.sees(f"/workloads/{mine.namespace}/{workload}", "insufficient unused quota")
    assert "secret" not in said
    assert theirs.namespace not in said
    hidden = theirs.workload_of("secret-runs")["metadata"]["name"]
    assert browser.get(f"{PAGE}/workloads/{theirs.namespace}/{hidden}")[0] == 404
    assert browser.get(f"{PAGE}/clusterqueues/{mine.named('shared')}")[0] == 404
    assert browser.get(f"{PAGE}/health")[0] == 403

    code, told = browser.ask("explain", mine.namespace, "of=job/waits")
    assert (code, told["workload"], told["blockers"]) == (200, f"{mine.namespace}/{workload}", [])
    code, told = browser.ask("explain", theirs.namespace, "of=job/secret-waits")
    assert code == 403
    assert (
        f'cannot list resource "workloads" in API group "kueue.x-k8s.io" in the namespace "{theirs.namespace}"'
        in (told["message"])
    )
    code, told = browser.ask("when", mine.namespace, "all=true")
    assert (code, "clusterqueues" in told["message"]) == (403, True)


def test_a_tenant_who_sees_queues(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Names of other tenants' Workloads are counted, also in events and in what a change would do."""
    mine, theirs = teams
    user = f"batch-{mine.namespace}"
    seer = f"seer-{mine.namespace}"
    role(mine, seer, "turnstile-batch-user-role", everywhere=False)
    for kind in ("clusterqueue", "cohort"):
        role(mine, seer, f"turnstile-{kind}-viewer-role")
    browser, queue = served.browser(seer), mine.named("shared")
    said = browser.sees(f"/clusterqueues/{queue}", "2 Workloads, in the order", "and 1 of namespaces that you may not")
    workload = mine.workload_of("waits")["metadata"]["name"]
    said += browser.sees(f"/workloads/{mine.namespace}/{workload}", "of which 1 is available", "What would admit it")
    assert "secret" not in said
    assert theirs.namespace not in said

    with browser.following(f"/clusterqueues/{queue}") as event:
        theirs.job("secret-new", queue="main", cpu="2")
        theirs.wait_pending("secret-new")
        told = event("3 Workloads")
        assert "and 2 of namespaces that you may not see" in told["waiting"]
        assert "secret" not in json.dumps(told)
        assert f"{theirs.namespace}/" not in json.dumps(told)

    manifest = job("asked", namespace=mine.namespace, queue="main", cpu="1")
    told = json.loads(what_if(served, seer, mine.namespace, manifest))
    assert told["asked"][0]["outcome"] in ("admitted", "waits")
    assert "secret" not in json.dumps(told)
    assert "forbidden" in what_if(served, user, mine.namespace, manifest)
    elsewhere = job("asked", namespace=theirs.namespace, queue="main", cpu="1")
    assert "you may not list Workloads" in what_if(served, seer, mine.namespace, elsewhere)


def what_if(served: Served, user: str, namespace: str, manifest: Json) -> str:
    """What kubectl prints of a question about a manifest."""
    command = [build.ensure()["kubectl"], "create", "--raw", f"{API}/namespaces/{namespace}/what-if", "-f", "-"]
    command += ["--kubeconfig", str(served.cp.kubeconfig(user))]
    done = subprocess.run(command, input=yaml.safe_dump(manifest), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_right_that_is_taken_away(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Within seconds the page of its user has nothing of the namespace any more."""
    mine, _ = teams
    user = f"leaves-{mine.namespace}"
    role(mine, user, "turnstile-batch-user-role", everywhere=False)
    browser = served.browser(user)
    browser.sees("/workloads", "1 Workload.")
    path = (
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{mine.namespace}/rolebindings/{user}-turnstile-batch-user-role"
    )
    mine.api.delete(path)
    browser.sees("/workloads", "There is no Workload")


def test_rights_are_asked_by_kind_and_namespace(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Few SubjectAccessReviews for a page, however many Workloads it lists, and none for the next one."""
    mine, _ = teams
    user = f"counts-{mine.namespace}"
    role(mine, user, "turnstile-batch-user-role", everywhere=False)
    browser = served.browser(user)
    namespaces = 2
    before = reviews(served)
    browser.get(f"{PAGE}/workloads")
    first = reviews(served) - before
    assert 0 < first <= 5 + 2 * namespaces
    browser.get(f"{PAGE}/workloads")
    assert reviews(served) - before - first <= 2  # those of which the answer is not remembered any more


def reviews(served: Served) -> int:
    """SubjectAccessReviews that the page has asked for, by the audit log."""
    lines = served.cp.audit_log.read_text().splitlines()
    asked = (json.loads(line) for line in lines if "/subjectaccessreviews" in line)
    account = f"system:serviceaccount:{NAMESPACE}:turnstile-page"
    return sum((each["stage"], each["user"]["username"]) == ("ResponseComplete", account) for each in asked)


class TestPastTheApiServer:
    """Requests to the Service itself, as from an ingress."""

    @staticmethod
    def get(served: Served, path: str = "/", **headers: str) -> tuple[int, str]:
        """Status and text."""
        url = f"https://localhost:{served.installation.page_port}{path}"
        request = urllib.request.Request(url, headers={name.replace("_", "-"): each for name, each in headers.items()})
        try:
            with urllib.request.urlopen(request, context=unverified_tls(), timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_the_bearer_of_a_token(self, served: Served, teams: tuple[Scenario, Scenario]) -> None:
        """Is known by a TokenReview, and sees what the account may see."""
        mine, _ = teams
        mine.create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": mine.namespace}}
        )
        token = served.cp.service_account_token(mine.namespace, "reader", seconds=3600)
        code, said = self.get(served, authorization=f"Bearer {token}")
        assert code == 200
        assert f"with the rights of system:serviceaccount:{mine.namespace}:reader" in said
        assert mine.named("shared") not in said

    def test_nobody_else(self, served: Served) -> None:
        """No token, a token that is not valid, headers of the front proxy without its certificate."""
        assert self.get(served)[0] == 401
        assert self.get(served, authorization="Bearer nonsense")[0] == 401
        assert self.get(served, x_remote_user="admin", x_remote_group="system:masters")[0] == 401
        assert self.get(served, f"{API}/namespaces/default/explain?of=job/x")[0] == 401

    def test_it_only_reads(self, served: Served) -> None:
        """A page is never posted to, and another site gets nothing of it."""
        token = served.cp.service_account_token(NAMESPACE, "turnstile-page", seconds=3600)
        code, _ = self.get(served, authorization=f"Bearer {token}", sec_fetch_site="cross-site")
        assert code == 403


def test_a_page_outlives_its_server(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """After a restart the same address is answered again, with the same content."""
    mine, _ = teams
    browser = served.browser(f"batch-{mine.namespace}")
    browser.sees("/workloads", "1 Workload.")
    served.process.terminate()
    wait_until(lambda: browser.get(f"{PAGE}/")[0] == 503, timeout=30, describe=lambda: "the API server says 503")
    served.process = served.start()
    browser.sees("/workloads", "1 Workload.")
