"""Each command of `kueuectl` does against Turnstile what it does against Kueue."""

import re
from collections.abc import Callable, Iterator

import pytest

from testbed import Api, resource_path
from testbed.client import Json, condition, wait_until
from tests.cluster.scenario import GROUP, Scenario, job_path
from tests.peers.programs import Program

KINDS = ("clusterqueue", "localqueue", "resourceflavor", "workload")
SHORT = {"clusterqueue": "cq", "localqueue": "lq", "resourceflavor": "rf"}
"""Workloads are not `wl` any more in later versions of Kueue, nor here: Kubernetes has Workloads of its own."""


@pytest.fixture
def named(scenario: Scenario) -> Iterator[Callable[[str, str], str]]:
    """`named("clusterqueues", "made")` is a name for an object that the test makes by a command."""
    made: list[str] = []

    def name(plural: str, short: str) -> str:
        made.append(resource_path(GROUP, plural, scenario.named(short)))
        return scenario.named(short)

    yield name
    for path in reversed(made):
        scenario.api.delete(path)


@pytest.fixture
def team(scenario: Scenario) -> str:
    """A queue `main` for two cpus, a Job `first` that runs with them, and `second` and `third`, which wait."""
    queue = scenario.queue("main", {scenario.flavor("default"): {"cpu": 2}})
    scenario.job("first", queue="main", cpu="2")
    scenario.wait_started("first")
    for name in ("second", "third"):
        scenario.job(name, queue="main", cpu="2")
        scenario.wait_pending(name)
    return queue


def wait_any_started(scenario: Scenario, *names: str) -> str:
    """Wait until one of these Jobs is unsuspended, and return its name: Jobs of one second have no order."""
    return wait_until(
        lambda: next((name for name in names if not scenario.suspended(name)), None),
        timeout=30,
        describe=lambda: f"none of {names} is started",
    )


def names_of(kind: str, scenario: Scenario, queue: str) -> tuple[str, str]:
    """The path and the name of an object of a kind."""
    name = {
        "clusterqueue": lambda: queue,
        "localqueue": lambda: "main",
        "resourceflavor": lambda: scenario.named("default"),
        "workload": lambda: str(scenario.workload_of("second")["metadata"]["name"]),
    }[kind]()
    space = {"namespace": scenario.namespace} if kind in ("localqueue", "workload") else {}
    return resource_path(GROUP, f"{kind}s", name, **space), name


class TestCreate:
    """Queues and flavors are made by flags."""

    def test_a_flavor_has_the_labels_taints_and_tolerations_of_the_flags(
        self, program: Program, scenario: Scenario, named: Callable[[str, str], str]
    ) -> None:
        """All three in the spec of the flavor."""
        name = named("resourceflavors", "arm")
        said = program(
            "create", "resourceflavor", name, "--node-labels", "kubernetes.io/arch=arm64",
            "--node-taints", "spot=true:NoSchedule", "--tolerations", "spot=true:NoSchedule",
        )  # fmt: skip
        assert said == f"resourceflavor.kueue.x-k8s.io/{name} created\n"
        spec = scenario.api.get(resource_path(GROUP, "resourceflavors", name))["spec"]
        assert spec["nodeLabels"] == {"kubernetes.io/arch": "arm64"}
        assert spec["nodeTaints"] == [{"key": "spot", "value": "true", "effect": "NoSchedule"}]
        assert spec["tolerations"] == [{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]

    def test_a_cluster_queue_has_the_quotas_and_policies_of_the_flags(
        self, program: Program, scenario: Scenario, named: Callable[[str, str], str]
    ) -> None:
        """Nominal quota, limits, cohort, strategy, selector and preemption; the queue becomes active."""
        flavor, name = scenario.flavor("default"), named("clusterqueues", "made")
        said = program(
            "create", "clusterqueue", name, "--cohort", scenario.named("all"), "--queuing-strategy", "StrictFIFO",
            "--namespace-selector", "team=a", "--reclaim-within-cohort", "Any",
            "--preemption-within-cluster-queue", "LowerPriority", "--nominal-quota", f"{flavor}:cpu=9;memory=36Gi",
            "--borrowing-limit", f"{flavor}:cpu=1;memory=1Gi", "--lending-limit", f"{flavor}:cpu=2;memory=2Gi",
        )  # fmt: skip
        assert said == f"clusterqueue.kueue.x-k8s.io/{name} created\n"
        made = scenario.api.wait_for(
            resource_path(GROUP, "clusterqueues", name),
            lambda queue: condition(queue, "Active").get("status") == "True",
            timeout=10,
        )
        spec = made["spec"]
        assert (spec["cohortName"], spec["queueingStrategy"]) == (scenario.named("all"), "StrictFIFO")
        assert spec["namespaceSelector"] == {"matchLabels": {"team": "a"}}
        assert spec["preemption"]["reclaimWithinCohort"] == "Any"
        assert spec["preemption"]["withinClusterQueue"] == "LowerPriority"
        [cpu, memory] = spec["resourceGroups"][0]["flavors"][0]["resources"]
        assert cpu == {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1", "lendingLimit": "2"}
        assert (memory["name"], memory["nominalQuota"]) == ("memory", "36Gi")

    def test_a_wrong_cluster_queue_is_refused_with_the_field(
        self, program: Program, scenario: Scenario, named: Callable[[str, str], str]
    ) -> None:
        """A borrowing limit without a cohort: the message of the webhook or the schema reaches the terminal."""
        flavor, name = scenario.flavor("default"), named("clusterqueues", "wrong")
        complaint = program.refused(
            "create", "clusterqueue", name, "--nominal-quota", f"{flavor}:cpu=9", "--borrowing-limit", f"{flavor}:cpu=1"
        )
        assert "borrowingLimit must be nil when cohort is empty" in complaint

    def test_a_local_queue_leads_to_its_cluster_queue(self, program: Program, scenario: Scenario) -> None:
        """One that does not exist is refused, unless the user says that it may."""
        queue = scenario.cluster_queue("main", {scenario.flavor("default"): {"cpu": 1}})
        place = ("--namespace", scenario.namespace)
        assert "not found" in program.refused("create", "localqueue", "lost", "-c", "nowhere", *place)
        for name, arguments in (("lost", ("-c", "nowhere", "-i")), ("main", ("-c", queue))):
            said = program("create", "localqueue", name, *arguments, *place)
            assert said == f"localqueue.kueue.x-k8s.io/{name} created\n"
        path = resource_path(GROUP, "localqueues", namespace=scenario.namespace)
        leads = {each["metadata"]["name"]: each["spec"]["clusterQueue"] for each in scenario.api.items(path)}
        assert leads == {"lost": "nowhere", "main": queue}
        scenario.api.delete(path)

    @pytest.mark.parametrize("strategy", ["client", "server"])
    def test_a_dry_run_makes_nothing(
        self, program: Program, scenario: Scenario, named: Callable[[str, str], str], strategy: str
    ) -> None:
        """It says so, and there is no flavor."""
        name = named("resourceflavors", "never")
        said = program("create", "resourceflavor", name, "--dry-run", strategy)
        assert said == f"resourceflavor.kueue.x-k8s.io/{name} created ({strategy} dry run)\n"
        assert scenario.api.find(resource_path(GROUP, "resourceflavors", name)) is None


class TestList:
    """Tables of what is there."""

    def test_workloads_with_status_and_position(self, program: Program, scenario: Scenario, team: str) -> None:
        """The positions come from the visibility API, and count from zero."""

        def look() -> list[Json]:
            rows = program.table("list", "workload", "--namespace", scenario.namespace)
            return rows if {row["POSITION IN QUEUE"] for row in rows} == {"", "0", "1"} else []

        rows = wait_until(look, timeout=30, describe=lambda: "two of three Workloads have no position")
        shown = {
            row["JOB NAME"]: (row["JOB TYPE"], row["LOCALQUEUE"], row["STATUS"], row["POSITION IN QUEUE"])
            for row in rows
        }
        assert shown["first"] == ("job", "main", "ADMITTED", "")
        # Jobs of one second have no order.
        assert sorted([shown["second"], shown["third"]]) == [("job", "main", "PENDING", each) for each in ("0", "1")]
        assert {row["CLUSTERQUEUE"] for row in rows} == {team}

    @pytest.mark.parametrize(
        ("options", "jobs"),
        [
            (("--status", "pending"), {"second", "third"}),
            (("--status", "admitted"), {"first"}),
            (("--for", "job/second"), {"second"}),
            (("--localqueue", "main", "--status", "admitted"), {"first"}),
            (("--localqueue", "other"), set()),
        ],
        ids=["pending", "admitted", "of a job", "of a queue", "of another queue"],
    )
    def test_some_workloads(
        self, program: Program, scenario: Scenario, team: str, options: tuple[str, ...], jobs: set[str]
    ) -> None:
        """By status, by job, by queue."""
        del team
        done = program.run("list", "workload", *options, "--namespace", scenario.namespace)
        assert done.returncode == 0
        listed = {name for name in ("first", "second", "third") if re.search(rf"\b{name}\b", done.stdout)}
        assert listed == jobs

    def test_cluster_queues_with_their_counts(self, program: Program, scenario: Scenario, team: str) -> None:
        """Pending and admitted Workloads as the status has them."""

        def look() -> Json | None:
            rows = program.table("list", "clusterqueue", "--active", "true")
            [row] = [row for row in rows if row["NAME"] == team]
            counts = (row["PENDING WORKLOADS"], row["ADMITTED WORKLOADS"], row["ACTIVE"])
            return row if counts == ("2", "1", "true") else None

        wait_until(look, timeout=30, describe=lambda: program("list", "clusterqueue"))
        assert scenario.named("main") == team

    def test_local_queues_with_their_counts(self, program: Program, scenario: Scenario, team: str) -> None:
        """Pending and admitted Workloads as the status has them."""

        def look() -> bool:
            [row] = program.table("list", "localqueue", "--namespace", scenario.namespace)
            counts = (row["PENDING WORKLOADS"], row["ADMITTED WORKLOADS"])
            return (row["NAME"], row["CLUSTERQUEUE"], *counts) == ("main", team, "2", "1")

        wait_until(look, timeout=30, describe=lambda: program("list", "localqueue", "--namespace", scenario.namespace))

    def test_flavors_with_their_labels(self, program: Program, scenario: Scenario) -> None:
        """The labels of the nodes."""
        name = scenario.flavor("arm", labels={"arch": "arm64"})
        rows = program.table("list", "resourceflavor")
        assert [row["NODE LABELS"] for row in rows if row["NAME"] == name] == ["arch=arm64"]

    def test_the_pods_of_a_job(self, program: Program, scenario: Scenario, team: str) -> None:
        """Those of the Job that runs."""
        del team
        [pod] = wait_until(lambda: scenario.pods_of("first"), timeout=30, describe=lambda: "the Job has no pod")
        printed = program("list", "pods", "--for", "job/first", "--namespace", scenario.namespace)
        assert pod["metadata"]["name"] in printed

    def test_an_empty_namespace(self, program: Program, scenario: Scenario) -> None:
        """Nothing is listed, and the exit code is 0."""
        done = program.run("list", "workload", "--namespace", scenario.namespace)
        assert (done.returncode, done.stdout) == (0, "")
        assert "No resources found" in done.stderr


class TestStopAndResume:
    """A queue or a Workload is stopped, and goes on."""

    @pytest.mark.parametrize("kind", ["clusterqueue", "localqueue"])
    def test_a_queue_is_drained_and_goes_on(self, program: Program, scenario: Scenario, team: str, kind: str) -> None:
        """What runs is stopped too; afterwards there is quota for a Job again."""
        path, name = names_of(kind, scenario, team)
        program("stop", kind, name, "--namespace", scenario.namespace)
        assert scenario.api.get(path)["spec"]["stopPolicy"] == "HoldAndDrain"
        scenario.wait_suspended("first", timeout=30)
        program("resume", kind, name, "--namespace", scenario.namespace)
        wait_any_started(scenario, "first", "second", "third")

    @pytest.mark.parametrize("kind", ["clusterqueue", "localqueue"])
    def test_a_queue_is_held_and_what_runs_goes_on(
        self, program: Program, scenario: Scenario, team: str, kind: str
    ) -> None:
        """With room for one more Job nothing starts until the queue is resumed."""
        path, name = names_of(kind, scenario, team)
        program("stop", kind, name, "--keep-already-running", "--namespace", scenario.namespace)
        assert scenario.api.get(path)["spec"]["stopPolicy"] == "Hold"
        scenario.wait_pending("second")
        assert not scenario.suspended("first")
        scenario.finish("first")
        scenario.wait_workload("first", lambda each: condition(each, "Finished").get("status") == "True", timeout=30)
        assert scenario.suspended("second")
        assert scenario.suspended("third")
        program("resume", kind, name, "--namespace", scenario.namespace)
        wait_any_started(scenario, "second", "third")

    def test_a_workload_is_stopped_and_goes_on(self, program: Program, scenario: Scenario, team: str) -> None:
        """Its Job is suspended while the next one runs, and waits again when it is resumed."""
        del team
        name = scenario.workload_of("first")["metadata"]["name"]
        place = ("--namespace", scenario.namespace)
        assert program("stop", "workload", name, *place) == f"workload.kueue.x-k8s.io/{name} stopped\n"
        scenario.wait_suspended("first", timeout=30)
        wait_any_started(scenario, "second", "third")
        assert program("resume", "workload", name, *place) == f"workload.kueue.x-k8s.io/{name} resumed\n"
        scenario.wait_pending("first", timeout=30)

        def runs_again() -> bool:
            for name in ("second", "third"):
                scenario.end_pods(name)
            return not scenario.suspended("first")

        wait_until(runs_again, timeout=60, describe=lambda: "the Job that was resumed does not start")

    def test_a_dry_run_stops_nothing(self, program: Program, scenario: Scenario, team: str) -> None:
        """The Workload stays active."""
        del team
        name = scenario.workload_of("first")["metadata"]["name"]
        program("stop", "workload", name, "--dry-run", "client", "--namespace", scenario.namespace)
        assert scenario.workload_of("first")["spec"].get("active", True)


class TestDelete:
    """Workloads go with their jobs."""

    def test_the_job_goes_too(self, program: Program, scenario: Scenario, team: str) -> None:
        """Once the user has agreed. `kueuectl` leaves a Job's pods running, as is the API server's default: they keep
        their quota, and the next Job starts when they are gone."""
        del team
        [pod] = wait_until(lambda: scenario.pods_of("first"), timeout=30, describe=lambda: "the Job has no pod")
        name = scenario.workload_of("first")["metadata"]["name"]
        place = ("--namespace", scenario.namespace)
        assert "canceled" in program("delete", "workload", name, *place, text="n\n")
        assert not scenario.suspended("first")
        program("delete", "workload", name, *place, text="y\n")
        scenario.api.wait_gone(job_path(scenario.namespace, "first"), timeout=30)
        scenario.api.delete(resource_path("v1", "pods", pod["metadata"]["name"], namespace=scenario.namespace))
        wait_any_started(scenario, "second", "third")

    def test_all_of_a_namespace(self, program: Program, scenario: Scenario, team: str) -> None:
        """With every job, without a question."""
        del team
        program("delete", "workload", "--all", "--yes", "--namespace", scenario.namespace)
        for name in ("first", "second", "third"):
            scenario.api.wait_gone(job_path(scenario.namespace, name), timeout=30)


@pytest.mark.parametrize("kind", KINDS)
class TestPassedToKubectl:
    """`get`, `describe`, `patch`, `edit` and `delete` are kubectl's."""

    def test_get(self, program: Program, scenario: Scenario, team: str, kind: str) -> None:
        """The object by name, in the words of kubectl."""
        _, name = names_of(kind, scenario, team)
        for word in filter(None, (kind, SHORT.get(kind))):
            printed = program("get", word, name, "--namespace", scenario.namespace, "-o", "name")
            assert printed == f"{kind}.kueue.x-k8s.io/{name}\n"

    def test_describe(self, program: Program, scenario: Scenario, team: str, kind: str) -> None:
        """Name and spec."""
        _, name = names_of(kind, scenario, team)
        printed = program("describe", kind, name, "--namespace", scenario.namespace)
        assert re.search(rf"^Name:\s+{name}$", printed, re.MULTILINE)
        assert "Spec:" in printed

    def test_patch(self, program: Program, scenario: Scenario, team: str, kind: str) -> None:
        """A label is added."""
        path, name = names_of(kind, scenario, team)
        patch = '{"metadata": {"labels": {"patched": "yes"}}}'
        program("patch", kind, name, "--namespace", scenario.namespace, "--type", "merge", "-p", patch)
        assert scenario.api.get(path)["metadata"]["labels"]["patched"] == "yes"

    def test_edit(self, program: Program, scenario: Scenario, team: str, kind: str) -> None:
        """What the user's editor changes is written."""
        path, name = names_of(kind, scenario, team)
        scenario.api.patch(path, {"metadata": {"annotations": {"note": "before"}}})
        program("edit", kind, name, "--namespace", scenario.namespace, editor="sed -i 's/note: before/note: after/'")
        assert scenario.api.get(path)["metadata"]["annotations"]["note"] == "after"


def test_queues_and_flavors_are_deleted_by_kubectl(program: Program, scenario: Scenario, api: Api) -> None:
    """Turnstile takes its finalizers off, in the order that the objects use each other."""
    flavor = scenario.flavor("default")
    queue = scenario.queue("main", {flavor: {"cpu": 1}})
    for kind, name in (("localqueue", "main"), ("clusterqueue", queue), ("resourceflavor", flavor)):
        program("delete", kind, name, "--namespace", scenario.namespace)
        space = {"namespace": scenario.namespace} if kind == "localqueue" else {}
        assert api.find(resource_path(GROUP, f"{kind}s", name, **space)) is None


def test_version(program: Program) -> None:
    """The version of the client."""
    assert re.match(r"Client Version: v?\d+\.\d+", program("version"))


def test_names_are_completed(program: Program, scenario: Scenario, team: str) -> None:
    """What a shell asks when the user presses the tab key: the queues that can be stopped."""
    assert "bash completion" in program("completion", "bash")
    printed = program("__complete", "stop", "localqueue", "--namespace", scenario.namespace, "")
    assert "main" in printed.splitlines()
    assert team in program("__complete", "stop", "clusterqueue", "").splitlines()
