"""The page in the cluster, behind the real aggregator: what tenants and administrators see, and what is refused."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from testbed import build
from testbed.client import Json, unverified_tls
from testbed.installation import NAMESPACE
from tests.cluster.page_served import API, PAGE, Served, may_list, role
from tests.cluster.reader import Reader
from tests.cluster.scenario import Scenario, job
from tests.documents import ROOT, steps

pytestmark = pytest.mark.cluster


def test_a_batch_administrator_sees_everything(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """All queues, the Workloads of both tenants, health, and the JSON of questions."""
    mine, theirs = teams
    role(mine, "admin-of-queues", "turnstile-batch-admin-role")
    may_list(mine, "admin-of-queues", "clusterqueues", "cohorts", "workloads", "localqueues")
    browser = served.browser("admin-of-queues")
    queue = mine.named("shared")
    browser.sees("/", queue, "3 / 4", "with the rights of admin-of-queues")
    said = browser.sees(f"/clusterqueues/{queue}", "2 Workloads, in the order", "secret-waits", "secret-runs", "waits")
    assert "that you may not see" not in said
    browser.sees("/health", "What this page follows", "clusterqueues.kueue.x-k8s.io synced")
    browser.sees("/usage", "This page reads records in PostgreSQL")
    code, told = browser.ask("explain", theirs.namespace, "of=job/secret-waits")
    assert (code, told["state"]) == (200, "pending")


def test_a_tenant_sees_its_own_workloads(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """With the role batch-user: no queue, no name of another tenant, in pages, events and complete answers."""
    mine, theirs = teams
    browser = served.browser(f"batch-{mine.namespace}")
    workload = mine.workload_of("waits")["metadata"]["name"]
    said = browser.sees("/", "Quotas cannot be shown", f"in namespace {mine.namespace} only")
    said += browser.sees("/workloads", "1 job:", "Waits for")
    said += browser.sees(f"/workloads/{mine.namespace}/{workload}", "Waits for")
    assert "secret" not in said
    assert theirs.namespace not in said
    hidden = theirs.workload_of("secret-runs")["metadata"]["name"]
    assert browser.get(f"{PAGE}/workloads/{theirs.namespace}/{hidden}")[0] == 404
    assert browser.get(f"{PAGE}/clusterqueues/{mine.named('shared')}")[0] == 404
    assert browser.get(f"{PAGE}/health")[0] == 403

    code, told = browser.ask("explain", mine.namespace, "of=job/waits")
    assert (code, told["workload"]) == (200, f"{mine.namespace}/{workload}")
    assert told["blockers"][0]["available"] == "1"
    assert told["remedies"]
    code, told = browser.ask("explain", theirs.namespace, "of=job/secret-waits")
    assert code == 403
    assert (
        f'cannot list resource "workloads" in API group "kueue.x-k8s.io" in the namespace "{theirs.namespace}"'
        in (told["message"])
    )
    code, told = browser.ask("when", mine.namespace, "all=true")
    assert (code, [each["workload"] for each in told["forecasts"]]) == (200, [f"{mine.namespace}/{workload}"])


def test_a_tenant_who_sees_queues(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Names of other tenants' Workloads are counted, also in events and in what a change would do."""
    mine, theirs = teams
    user = f"batch-{mine.namespace}"
    seer = f"seer-{mine.namespace}"
    role(mine, seer, "turnstile-batch-user-role", everywhere=False)
    for kind in ("clusterqueue", "cohort"):
        role(mine, seer, f"turnstile-{kind}-viewer-role")
    may_list(mine, seer, "clusterqueues", "cohorts")
    may_list(mine, seer, "workloads", "localqueues", everywhere=False)
    browser, queue = served.browser(seer), mine.named("shared")
    said = browser.sees(f"/clusterqueues/{queue}", "2 Workloads, in the order", "and 1 of namespaces that you may not")
    workload = mine.workload_of("waits")["metadata"]["name"]
    said += browser.sees(f"/workloads/{mine.namespace}/{workload}", "asks 3, 1 free", "What would start it now")
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
    told = json.loads(what_if(served, user, mine.namespace, manifest))
    assert told["asked"][0]["outcome"] in ("admitted", "waits")
    elsewhere = job("asked", namespace=theirs.namespace, queue="main", cpu="1")
    assert "you may not list Workloads" in what_if(served, seer, mine.namespace, elsewhere)


def test_the_pods_of_a_job_that_runs(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Kubernetes' `view` may list pods, and sees them with their nodes; the batch user's role may not."""
    _, theirs = teams
    user = f"view-{theirs.namespace}"
    role(theirs, user, "view", everywhere=False)
    may_list(theirs, user, "workloads", "localqueues", everywhere=False)
    path = f"/workloads/{theirs.namespace}/{theirs.workload_of('secret-runs')['metadata']['name']}"
    served.browser(user).sees(path, "Its pods 1 pod on 1 node", "secret-runs-", "plain Running")
    assert "plain Running" not in served.browser(f"batch-{theirs.namespace}").sees(path, "Has run for")


def test_commands_ask_the_page(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """A batch user of a namespace is answered in full; names of other tenants are left out."""
    mine, theirs = teams
    kubeconfig = str(served.cp.kubeconfig(f"batch-{mine.namespace}"))
    turnstile = Path(sys.executable).with_name("turnstile")
    manifest = yaml.safe_dump(job("asked", namespace=mine.namespace, queue="main", cpu="1"))

    def said(*arguments: str) -> str:
        command = [turnstile, *arguments, "-n", mine.namespace, "--kubeconfig", kubeconfig]
        done = subprocess.run(command, input=manifest, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stderr
        assert "secret" not in done.stdout
        assert theirs.namespace not in done.stdout
        assert "not complete" not in done.stdout, done.stderr
        return done.stdout

    explained = said("explain", "job/waits")
    assert "asks 3, 1 free" in explained
    assert "(administrator) raise the nominal quota" in explained
    assert "no forecast: " in said("when", "job/waits")
    answer = said("what-if", "-f", "-", "--fail-on", "preempted")
    assert f"Workload {mine.namespace}/job-asked" in answer


def what_if(served: Served, user: str, namespace: str, manifest: Json) -> str:
    """What kubectl prints of a question about a manifest."""
    command = [build.ensure()["kubectl"], "create", "--raw", f"{API}/namespaces/{namespace}/what-if", "-f", "-"]
    command += ["--kubeconfig", str(served.cp.kubeconfig(user))]
    done = subprocess.run(command, input=yaml.safe_dump(manifest), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


ADDRESSES = (
    f"{PAGE}/workloads/{{namespace}}/{{workload}}",
    f"{PAGE}/workloads/{{namespace}}/{{workload}}/{{uid}}",
    f"{PAGE}/workloads/{{mine}}/{{workload}}/{{uid}}",
    f"{PAGE}/workloads/{{mine}}/..%2F{{namespace}}%2F{{workload}}",
    f"{PAGE}/workloads/{{mine}}/%2e%2e/{{namespace}}/{{workload}}",
    f"{PAGE}/workloads?namespace={{namespace}}",
    f"{PAGE}/workloads?q={{namespace}}",
    f"{PAGE}/workloads?q={{workload}}",
    f"{PAGE}/clusterqueues/{{queue}}",
    f"{PAGE}/?q={{queue}}",
    f"{PAGE}/health",
    f"{PAGE}/usage?namespace={{namespace}}",
    f"{PAGE}/usage.csv?namespace={{namespace}}",
    f"{PAGE}/workloads?q={{workload}}&state=gone",
    f"{PAGE}/what-if?workload={{namespace}}/{{workload}}&priority=9",
    f"{PAGE}/what-if?queue={{namespace}}/main&pods=1&requests=cpu%3D1",
    f"{PAGE}/what-if?queue={{mine}}/main&pods=1&requests=cpu%3D1",
    f"{PAGE}/what-if?clusterqueue={{queue}}&flavor={{flavor}}&resource=cpu&nominal=9",
    f"{PAGE}/what-if?drain={{flavor}}",
    f"{API}/namespaces/{{namespace}}/explain?of=job/{{job}}",
    f"{API}/namespaces/{{namespace}}/when?all=true",
    f"{API}/namespaces/{{mine}}/explain?of=job/{{job}}",
    f"{API}/namespaces/{{mine}}/explain?of=workload/{{workload}}",
    f"{API}/namespaces/{{mine}}/explain?of={{namespace}}/{{workload}}",
    f"{API}/namespaces/{{mine}}/explain?of=job/{{job}}&namespace={{namespace}}",
    f"{API}/namespaces/{{mine}}/when?of=workload/{{workload}}",
)
"""Where a reader could look for the objects of another namespace, with their names to be filled in."""


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address.partition("v1alpha1/")[2])
def test_a_tenant_with_edit_learns_nothing_of_other_namespaces(
    served: Served, teams: tuple[Scenario, Scenario], address: str
) -> None:
    """The answer about what another namespace has is the answer about what there is not."""
    mine, theirs = teams
    user = f"edit-{mine.namespace}"
    role(mine, user, "edit", everywhere=False)
    may_list(mine, user, "workloads", "localqueues", everywhere=False)
    meta = theirs.workload_of("secret-runs")["metadata"]
    real = {
        "workload": meta["name"],
        "namespace": theirs.namespace,
        "uid": meta["uid"],
        "queue": mine.named("shared"),
        "flavor": mine.named("plain"),
        "job": "secret-runs",
    }
    none = {
        "workload": "job-there-is-none-12345",
        "namespace": "there-is-none",
        "uid": "00000000-0000-0000-0000-000000000000",
        "queue": "there-is-no-queue",
        "flavor": "there-is-no-flavor",
        "job": "there-is-no-job",
    }
    browser = served.browser(user)

    def answer(names: dict[str, str]) -> tuple[int, str]:
        code, text = browser.get(address.format(**names, mine=mine.namespace))
        words = re.sub(r"<[^>]+>", " ", text)
        for what, name in (*real.items(), *none.items()):
            words = words.replace(name, what)
        assert "secret" not in words
        return code, " ".join(words.split())

    assert answer(real) == answer(none)


def test_rights_are_asked_by_kind_and_namespace(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Few SubjectAccessReviews for a page, however many Workloads it lists, and none for the next one."""
    mine, _ = teams
    user = f"counts-{mine.namespace}"
    role(mine, user, "turnstile-batch-user-role", everywhere=False)
    browser = served.browser(user)
    kinds, namespaces = 6, 2  # a right of two kinds is asked by namespace once it is refused
    before = reviews(served)
    browser.get(f"{PAGE}/workloads")
    first = reviews(served) - before
    assert 0 < first <= kinds + 2 * namespaces
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


def test_the_commands_of_the_page_about_rest(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Each prints the answer that it is said to."""
    mine, _ = teams
    (block,) = [text for _, text in steps(ROOT / "docs" / "reference" / "rest.md")]
    reader = Reader("page.md", served.cp)
    told = [
        json.loads(reader.run(line.replace("team-a", mine.namespace).replace("job/train", "job/waits")))
        for line in block.splitlines()
    ]
    workload = f"{mine.namespace}/{mine.workload_of('waits')['metadata']['name']}"
    assert told[0]["workload"] == workload
    assert [each["workload"] for each in told[1]["forecasts"]] == [workload]
    assert len(told[2]["asked"]) == 1
