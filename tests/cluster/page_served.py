"""Both APIs of Turnstile behind the real aggregator, pending Workloads and the page; two tenants, and their browsers.

On a control plane of its own, because an APIService that is not available holds up the deletion of every namespace.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urljoin

import pytest

from testbed import ControlPlane, build
from testbed.client import Json, condition, wait_until
from testbed.installation import MANAGED, Installation
from testbed.ports import lent_port
from testbed.processes import Process
from tests.cluster.scenario import GROUP, Scenario
from tests.cluster.versions import wait_served
from tests.shared import Shared

API = "/apis/insight.turnstile.dev/v1alpha1"
PAGE = f"{API}/pages/turnstile/proxy"


class Served:
    """Turnstile with its APIs registered, and browsers behind `kubectl proxy`. Arguments are the controller's; the page
    is served with `start`."""

    def __init__(self, cp: ControlPlane, *arguments: str) -> None:
        self.cp = cp
        self.installation = Installation(cp, visibility=True, page=True)
        self.installation.install()
        self.leader: Process = self.lead(*arguments)
        self._proxies: dict[str, tuple[subprocess.Popen[bytes], int]] = {}

    def lead(self, *arguments: str) -> Process:
        """Start Turnstile, and wait until it is ready."""
        process = self.installation.start(arguments=arguments)
        self.installation.wait_ready(process)
        wait_served(self.cp.api)
        return process

    def start(self, *arguments: str) -> Process:
        """Start the page, and wait until the API server says that it is available."""
        self.process = process = self.installation.start_page(*arguments)
        path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.insight.turnstile.dev"

        def look() -> bool:
            process.require_running()
            return condition(self.cp.api.get(path), "Available").get("status") == "True"

        wait_until(look, timeout=60, describe=lambda: f"{self.cp.api.get(path)['status']}\n{process.tail(20)}")
        return process

    def browser(self, user: str) -> "Browser":
        """A browser whose requests `kubectl proxy` sends as a user."""
        if user not in self._proxies:
            port = lent_port()
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
        self.address = f"http://127.0.0.1:{port}"

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

        wait_until(look, timeout=30, every=0.5, describe=lambda: f"{path} should say {sentences}, but says\n{said}")
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
        address = urljoin(f"{PAGE}{path}", found[1].replace("&amp;", "&"))
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


@pytest.fixture(scope="session")
def served(shared: Shared) -> Served:
    """A control plane with one node, Turnstile and its page: one a session."""
    return shared.enter("served", _serving())


@contextmanager
def _serving() -> Iterator[Served]:
    with ControlPlane(audit=True) as cp:
        cp.add_node("plain", cpu=64, memory="256Gi")
        found = Served(cp)
        found.start()
        yield found
        found.close()


@pytest.fixture(scope="module")
def teams(served: Served) -> Iterator[tuple[Scenario, Scenario]]:
    """Two tenants of one ClusterQueue of 4 cpus: a Job of the second runs, one of each waits.

    `batch-NAMESPACE` is a batch user of a namespace.
    """
    mine, theirs = (Scenario(served.cp.api, served.cp.namespace(name, labels=MANAGED)) for name in ("mine", "theirs"))
    flavor = mine.flavor("plain")
    queue = mine.cluster_queue("shared", {flavor: {"cpu": "4"}})
    for each in (mine, theirs):
        each.local_queue("main", queue)
        role(each, f"batch-{each.namespace}", "turnstile-batch-user-role", everywhere=False)
    theirs.job("secret-runs", queue="main", cpu="3")
    theirs.wait_admitted("secret-runs")
    theirs.job("secret-waits", queue="main", cpu="2")
    theirs.wait_pending("secret-waits")
    mine.job("waits", queue="main", cpu="3")  # another amount: equal ones are not tried for themselves
    mine.wait_pending("waits")
    yield mine, theirs
    theirs.remove()
    mine.remove()


def role(world: Scenario, user: str, name: str, *, everywhere: bool = True) -> None:
    """Give a user a ClusterRole; again in another attempt of a test."""
    metadata = {"name": f"{user}-{name}"} | ({} if everywhere else {"namespace": world.namespace})
    world.api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding" if everywhere else "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
    )


def may_list(
    world: Scenario, user: str, *plurals: str, everywhere: bool = True, group: str = GROUP.partition("/")[0]
) -> None:
    """Wait until the API server knows of rights that were just given: the page remembers a refusal for a minute."""
    for plural in plurals:
        attributes = {"group": group, "resource": plural, "verb": "list"}
        attributes |= {} if everywhere else {"namespace": world.namespace}
        spec = {"user": user, "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}

        def allowed(review: Json = review) -> bool:
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            return world.api.request("POST", path, review)["status"]["allowed"] is True

        wait_until(allowed, timeout=30, describe=lambda spec=spec: f"is refused: {spec}")
