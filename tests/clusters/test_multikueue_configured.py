"""What the configuration adds to MultiKueue: jobs of another controller, and a cluster by its ClusterProfile.

The worker gets the kind of those jobs when it is connected already. Its name in URLs is none that could be guessed.

Two control planes with Turnstile on each. The tests act as the programs that are not there: the controller of the kind
on both clusters, and the inventory with its program for credentials, whose definition is that of
sigs.k8s.io/cluster-inventory-api as far as Turnstile reads it.
"""

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from testbed import ControlPlane
from testbed.client import Api, Json, condition, resource_path, wait_until
from testbed.installation import NAMESPACE
from tests.cluster.scenario import GROUP, QUEUE
from tests.cluster.sites import CHECK, POD, Site, Team, a_team, printed, wait_active

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SWEEPS: Final = "lab.example.com/v1"
PLURAL: Final = "sweepware"
"""Of Sweeps, in URLs: no rule makes that of the kind."""
PROFILES: Final = "multicluster.x-k8s.io/v1alpha1"
ACCOUNT: Final = "turnstile-manager"
PROGRAM: Final = """\
#!{python}
import json, os, pathlib, sys
cluster = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["spec"]["cluster"]
assert cluster["server"] and cluster["certificate-authority-data"]
file = pathlib.Path({directory!r}) / cluster["config"]["id"]
given = json.loads(file.read_text()) if file.exists() else sys.exit("the fleet does not know this cluster")
print(json.dumps({{"kind": "ExecCredential", "status": given}}))
"""


def definition(version: str, kind: str, plural: str) -> Json:
    """A kind with any fields, and a status of its own."""
    group, _, name = version.partition("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }


@dataclass(frozen=True, slots=True)
class Inventory:
    """The program that keeps ClusterProfiles on the manager, and gives tokens of an account on the worker."""

    directory: Path
    manager: Api
    worker: ControlPlane

    @property
    def program(self) -> Path:
        """What the configuration names: it prints the token of the cluster that it is asked about."""
        return self.directory / "fleet-credentials"

    def install(self) -> None:
        """Make the program."""
        self.program.write_text(PROGRAM.format(python=sys.executable, directory=str(self.directory)))
        self.program.chmod(0o755)

    def give(self, name: str, **credentials: str) -> None:
        """Have the program print these credentials for a cluster."""
        (self.directory / name).write_text(json.dumps(credentials))

    def given(self, name: str) -> dict[str, str]:
        """What the program prints now."""
        found: dict[str, str] = json.loads((self.directory / name).read_text())
        return found

    def token(self, secret: str) -> str:
        """A token of the manager's account on the worker, which is valid for as long as a Secret is there."""
        meta = {"name": secret, "namespace": NAMESPACE}
        self.worker.api.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
        bound = {"apiVersion": "v1", "kind": "Secret", "name": secret}
        path = resource_path("v1", "serviceaccounts", ACCOUNT, namespace=NAMESPACE, subresource="token")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        found: str = self.worker.api.request("POST", path, request)["status"]["token"]
        return found

    def revoke(self, secret: str) -> None:
        """Delete the Secret of a token."""
        self.worker.api.delete(resource_path("v1", "secrets", secret, namespace=NAMESPACE))

    def list(self, name: str, *, provider: str = "fleet") -> None:
        """Keep a profile of the worker under a name."""
        cluster = {
            "server": self.worker.server,
            "certificate-authority-data": base64.b64encode(self.worker.authority.read_bytes()).decode(),
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"id": name}}],
        }
        spec: Json = {"clusterManager": {"name": "fleet"}}
        meta = {"name": name, "namespace": NAMESPACE}
        self.manager.create({"apiVersion": PROFILES, "kind": "ClusterProfile", "metadata": meta, "spec": spec})
        path = resource_path(PROFILES, "clusterprofiles", name, namespace=NAMESPACE)
        ways = [{"name": "another", "cluster": cluster}, {"name": provider, "cluster": cluster}]
        self.manager.patch(f"{path}/status", {"status": {"accessProviders": ways}})


def connect_by_profile(api: Api, name: str) -> None:
    """A MultiKueueCluster that names the ClusterProfile of its name."""
    source: Json = {"clusterProfileRef": {"name": name}}
    spec = {"clusterSource": source}
    api.create({"apiVersion": GROUP, "kind": "MultiKueueCluster", "metadata": {"name": name}, "spec": spec})


@dataclass(frozen=True, slots=True)
class World:
    """The clusters, and the inventory that knows the worker."""

    manager: Site
    worker: Site
    inventory: Inventory


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A manager, and a worker that it reaches by its profile; both have the kind of another controller."""
    directory = tmp_path_factory.mktemp("fleet")
    without_pods = ("etcd", "kube-apiserver", "kube-controller-manager")
    with ControlPlane(components=without_pods) as first, ControlPlane() as second:
        inventory = Inventory(directory, first.api, second)
        inventory.install()
        first.api.create(definition(SWEEPS, "Sweep", PLURAL))
        first.api.create(definition(PROFILES, "ClusterProfile", "clusterprofiles"))
        called: dict[str, Any] = {
            "command": inventory.program,
            "apiVersion": "client.authentication.k8s.io/v1",
            "interactiveMode": "Never",
            "provideClusterInfo": "true",
        }
        provider = "config.multiKueue.clusterProfile.accessProviders[0]"
        values = [
            "config.multiKueue.externalFrameworks[0].name=Sweep.v1.lab.example.com",
            "config.featureGates.MultiKueueClusterProfile=true",
            f"{provider}.name=fleet",
            *(f"{provider}.execConfig.{key}={value}" for key, value in called.items()),
        ]
        manager, worker = Site(first, values=values, by_file=directory), Site(second)
        grant(first.api)
        second.add_node("plain", cpu=64, memory="256Gi")
        for each in yaml.safe_load_all(printed("role", "--external", f"Sweep.v1.lab.example.com={PLURAL}")):
            second.api.create(each)
        inventory.give("east", token=inventory.token("first-token"))
        inventory.list("east")
        connect_by_profile(first.api, "east")
        wait_told(first.api, f"Connected; takes no jobs of these kinds: {PLURAL}.lab.example.com")
        second.api.create(definition(SWEEPS, "Sweep", PLURAL))
        wait_told(first.api, "Connected")
        yield World(manager, worker, inventory)


def grant(api: Api) -> None:
    """Let the controller on the manager use Sweeps: the chart has given rights on a resource `sweeps`."""
    rbac, name = "rbac.authorization.k8s.io", "sweeps"
    verbs = {PLURAL: ["get", "list", "watch"], f"{PLURAL}/status": ["patch"]}
    rules = [{"apiGroups": ["lab.example.com"], "resources": [each], "verbs": verbs[each]} for each in verbs]
    api.create({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    api.create({
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "turnstile-controller", "namespace": NAMESPACE}],
    })  # fmt: skip


def wait_told(api: Api, message: str) -> None:
    """Wait until the condition of the worker, which is reached, has that message."""

    def told(found: Json) -> bool:
        active = condition(found, "Active")
        return (active.get("status"), active.get("message")) == ("True", message)

    api.wait_for(resource_path(GROUP, "multikueueclusters", "east"), told, timeout=60, describe=message)


@pytest.fixture
def team(world: World) -> Iterator[Team]:
    """An empty namespace on both clusters; the worker has a queue `team` of 4 CPUs."""
    with a_team(world.manager, {"east": world.worker}) as found:
        yield found


# --- a cluster by its profile -----------------------------------------------------------------------------------------


def test_a_job_runs_on_a_cluster_that_is_reached_by_its_profile(team: Team) -> None:
    """The program gives the token; the Job runs there to its end, and nothing is left."""
    team.here.job("train", queue="team", cpu="1")
    team.wait_on("train", "east")
    team.there["east"].finish("train")
    team.here.wait_workload("train", lambda w: condition(w, "Finished").get("reason") == "Succeeded", timeout=40)
    team.wait_clean("east")


def test_a_token_that_is_revoked_is_replaced_by_the_next_that_the_program_gives(world: World, team: Team) -> None:
    """No object changes: the program is asked again because the server refuses what it gave."""
    inventory = world.inventory
    old = inventory.given("east")["token"]
    inventory.give("east", token=inventory.token("second-token"))
    inventory.revoke("first-token")
    wait_until(lambda: refused(world, old), timeout=60, describe=lambda: "the first token is still valid")
    team.here.job("train", queue="team", cpu="1")
    team.wait_on("train", "east")
    team.here.delete_job("train")
    team.wait_clean("east")


def refused(world: World, token: str) -> bool:
    """Whether the worker refuses a token."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = world.inventory.worker.api.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    return not answer["status"].get("authenticated")


def test_a_cluster_is_reached_by_a_certificate_that_the_program_gives(world: World) -> None:
    """Instead of a token."""
    (user,) = yaml.safe_load(world.inventory.worker.kubeconfig().read_text())["users"]
    certificate, key = (
        base64.b64decode(user["user"][f"client-{part}-data"]).decode() for part in ("certificate", "key")
    )
    world.inventory.give("north", clientCertificateData=certificate, clientKeyData=key)
    world.inventory.list("north")
    connect_by_profile(world.manager.api, "north")
    wait_active(world.manager.api, "north")
    world.manager.api.delete(resource_path(GROUP, "multikueueclusters", "north"))


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ("", 'clusterprofiles.multicluster.x-k8s.io "{name}" not found'),
        ("other", "unsupported access provider"),
        ("fleet", "exit status 1: the fleet does not know this cluster"),
    ],
)
def test_a_profile_that_gives_no_access_is_said_to_do_so(world: World, provider: str, why: str) -> None:
    """There is no profile, no program for it, or the program fails; the cluster is reached when that is mended."""
    api, name = world.manager.api, f"west-{provider or 'none'}"
    if provider:
        world.inventory.list(name, provider=provider)
    connect_by_profile(api, name)
    api.wait_for(
        resource_path(GROUP, "multikueueclusters", name),
        lambda found: why.format(name=name) in condition(found, "Active").get("message", ""),
        timeout=30,
        describe=why,
    )
    world.inventory.give(name, token=world.inventory.token(f"of-{name}"))
    if provider == "other":
        api.delete(resource_path(PROFILES, "clusterprofiles", name, namespace=NAMESPACE))
    if provider != "fleet":
        world.inventory.list(name)
    wait_active(api, name)
    api.delete(resource_path(GROUP, "multikueueclusters", name))


# --- jobs of another controller ---------------------------------------------------------------------------------------


def submit(team: Team, *, managed_by: str = CHECK) -> Json:
    """A Sweep on the manager, with the Workload that its controller makes; the Workload."""
    meta = {"name": "grid", "namespace": team.here.namespace, "labels": {QUEUE: "team", "team": "vision"}}
    body = {"managedBy": managed_by, "trials": 3}
    made = team.here.create({"apiVersion": SWEEPS, "kind": "Sweep", "metadata": meta, "spec": body})
    owner = {key: made[key] for key in ("apiVersion", "kind")}
    owner |= {"name": "grid", "uid": made["metadata"]["uid"], "controller": True}
    sets = [{"name": "main", "count": 1, "template": {"spec": POD}}]
    return team.here.create({
        "apiVersion": GROUP,
        "kind": "Workload",
        "metadata": {"name": "sweep-grid-1a2b3", "namespace": team.here.namespace, "ownerReferences": [owner]},
        "spec": {"queueName": "team", "podSets": sets},
    })  # fmt: skip


def sweep_path(team: Team, subresource: str = "") -> str:
    """URL path of the Sweep, on both clusters."""
    return resource_path(SWEEPS, PLURAL, "grid", namespace=team.here.namespace, subresource=subresource)


def test_a_job_of_another_controller_is_copied_and_its_status_comes_back(team: Team) -> None:
    """The copy names the Workload that its controller on the worker takes; it ends, and nothing is left there."""
    workload = team.here.api.path_of(submit(team))
    here, there = team.here.api, team.there["east"].api
    copy = there.wait_for(sweep_path(team), bool, timeout=30, describe="a copy")
    assert copy["spec"] == {"trials": 3}
    assert copy["metadata"]["labels"]["team"] == "vision"
    assert copy["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] == "sweep-grid-1a2b3"
    assert here.get(workload)["status"]["clusterName"] == "east"
    assert condition(there.get(workload), "Admitted")["status"] == "True"
    long = {"phase": "Running", "steps": "x" * (100 << 10)}  # more than the manager holds of it
    there.patch(sweep_path(team, "status"), {"status": long})
    here.wait_for(
        sweep_path(team),
        lambda found: found.get("status") == long,
        timeout=30,
        describe="the status of its copy",
    )
    there.patch(sweep_path(team, "status"), {"status": {"phase": "Done", "steps": None}})
    finish(there, workload)
    here.wait_for(
        workload,
        lambda found: condition(found, "Finished").get("message") == "3 trials are done",
        timeout=30,
        describe="Finished",
    )
    assert here.get(sweep_path(team))["status"] == {"phase": "Done"}
    there.wait_gone(sweep_path(team), timeout=40)
    team.wait_clean("east")


def finish(api: Api, workload: str) -> None:
    """As the controller of a Sweep writes that it has ended."""
    ended = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "message": "3 trials are done",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    conditions = [*api.get(workload)["status"]["conditions"], ended]
    api.patch(f"{workload}/status", {"status": {"conditions": conditions}})


def test_a_deleted_job_of_another_controller_leaves_nothing_there(team: Team) -> None:
    """The user deletes it while the copy is there."""
    submit(team)
    here, there = team.here.api, team.there["east"].api
    there.wait_for(sweep_path(team), bool, timeout=30, describe="a copy")
    here.delete(sweep_path(team))
    there.wait_gone(sweep_path(team), timeout=40)
    team.wait_clean("east")


def test_a_job_that_another_controller_runs_is_rejected(team: Team) -> None:
    """Its `managedBy` names that controller, so a copy would run beside it."""
    workload = team.here.api.path_of(submit(team, managed_by="lab.example.com/sweeper"))

    def state(found: Json) -> Json:
        (check,) = found.get("status", {}).get("admissionChecks") or [{}]
        return dict(check)

    found = team.here.api.wait_for(
        workload, lambda w: state(w).get("state") == "Rejected" or not w["spec"]["active"], timeout=30, describe="no"
    )
    told = str(found["status"])
    assert f'Expecting .spec.managedBy to be "{CHECK}" not "lab.example.com/sweeper"' in told
    assert team.there["east"].api.find(sweep_path(team)) is None
