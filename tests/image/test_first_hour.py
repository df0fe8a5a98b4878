"""What somebody does who has just found the project, page by page, each command as it stands there.

README (install), examples/quickstart (the first queues and Jobs), docs/tasks/why-a-job-waits.md, and README again
(uninstall). The pods of the release are processes of the image; those of the Jobs are simulated. `docker`, for which
there is no daemon here, is a program that notes how it was called. How long each part took is printed.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.image import Container
from testbed.installation import NAMESPACE, RELEASE, ROOT
from testbed.processes import Process
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, Scenario
from tests.faults.changes import PLATFORM, Bed, bed
from tests.image.conftest import start_pod

pytestmark = pytest.mark.cluster

PUSHED = "registry.example.com/turnstile:0.1.0"
PODS = resource_path("v1", "pods", namespace=NAMESPACE)
WORKERS = ("worker-0", "worker-1")
ADMITTED = {"training", "report", "notebook", "sweep", "hotfix"}
WAITING = {"features", "etl", "migration", "archive"}
"""Of the quickstart, when all files are applied and nothing has ended."""


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long this took."""
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s")


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A directory with a `docker` that writes its arguments into a file beside it."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/docker.log\n')
    program.chmod(0o755)
    return program.parent


def admitted(api_of: Scenario) -> dict[str, bool]:
    """Whether the jobs of the quickstart that have a Workload are admitted."""
    found = api_of.api.items(f"/apis/{GROUP}/workloads")
    return {
        owner["name"]: condition(each, "Admitted").get("status") == "True"
        for each in found
        for owner in each["metadata"].get("ownerReferences", ())
    }


def test_from_the_readme_to_the_first_job_and_away(
    container: Container, docker: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Install, queues, Jobs that run, that wait and say why, and uninstall: what waited runs."""
    readme: Reader | None = None

    def start(cp: ControlPlane, pod: Json, arguments: Sequence[str]) -> Process:
        name = pod["metadata"]["name"]
        assert pod["spec"]["containers"][0]["image"] == PUSHED
        return start_pod(container, tmp_path_factory.mktemp(name), cp, name, pod["spec"], arguments)

    def install(made: Bed) -> None:
        nonlocal readme
        readme = Reader("../../README.md", made.cp, section="Install on a cluster", programs=[docker])
        with timed("helm install"):
            readme.do(REGISTRY="registry.example.com", **{"MY-TEAM": made.elsewhere})

    with timed("all"), bed(install, start=start, nodes=0) as made:
        assert readme is not None
        pushed = [call for call in (docker.parent / "docker.log").read_text().splitlines() if PUSHED in call]
        assert [call.split()[0] for call in pushed] == ["build", "push"]
        with timed("quickstart"):
            walk_the_quickstart(made)
        with timed("why it waits"):
            ask_why(made)
        with timed("helm uninstall, until its pods have ended"):
            # The pod of the hook would only be simulated on these nodes, and never end.
            made.cp.kubectl("cordon", *WORKERS)
            readme.do()
            readme.end()
            released = f"app.kubernetes.io/instance={RELEASE}"
            wait_until(lambda: not made.cp.api.items(PODS, labels=released), timeout=60, describe=made.kubelet.describe)
            move_to_workers(made)
        with timed("what waited starts, and all is removed"):
            go_on_without(made)


def move_to_workers(made: Bed) -> None:
    """Have the pods of the teams run on the nodes of the teams: on those of the release only pods of the release run,
    and no pod of a Job that started during the uninstall would ever end there."""
    made.cp.kubectl("cordon", *PLATFORM)
    made.cp.kubectl("uncordon", *WORKERS)
    for namespace in ("team-a", "team-b"):
        for pod in made.cp.api.items(resource_path("v1", "pods", namespace=namespace)):
            if pod["spec"].get("nodeName") in PLATFORM:
                path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=namespace)
                made.cp.api.delete(path, grace_seconds=0)


def walk_the_quickstart(made: Bed) -> None:
    """Label the nodes and apply the files; what the table of its page says is so."""
    for name in WORKERS:
        made.cp.add_node(name, cpu=16, memory="64Gi")
    page = Reader("../../examples/quickstart/README.md", made.cp)
    page.do(**dict(zip(("ON-DEMAND-NODE", "SPOT-NODE"), WORKERS, strict=True)))
    page.end()
    expected = {**dict.fromkeys(ADMITTED, True), **dict.fromkeys(WAITING, False)}
    wait_until(
        lambda: admitted(made.scenario) == expected, timeout=60, describe=lambda: f"admitted: {admitted(made.scenario)}"
    )
    for namespace in ("team-a", "team-b"):
        path = resource_path("v1", "pods", namespace=namespace)
        wait_until(
            lambda path=path: all(each["status"]["phase"] == "Running" for each in made.cp.api.items(path)),
            timeout=60,
            describe=lambda path=path: f"{made.cp.api.items(path)}",
        )


def ask_why(made: Bed) -> None:
    """The command and the conditions name what is short, and a replica that leads is shown."""
    team = Scenario(made.cp.api, "team-a")
    page = Reader("why-a-job-waits.md", made.cp)
    page.see(r"Why: Waits for \d+ more CPUs? on on-demand nodes", NAME="features")
    page.see(r"features-\w+ +default", "quota", WORKLOAD=team.workload_of("features")["metadata"]["name"])
    page.see(r"turnstile-webhook-\S+ +1/1 +Running", r"\n\S+ \d+-\d+-\d+T")
    page.see("^1 wait, in use: .*on-demand")
    page.end()


def go_on_without(made: Bed) -> None:
    """No Job is suspended any more, and everything of the quickstart can be deleted as its page says."""
    for team, name in (("team-a", "features"), ("team-b", "migration"), ("team-b", "archive"), ("team-b", "etl")):
        Scenario(made.cp.api, team).wait_started(name, timeout=30)
    text = (ROOT / "examples" / "quickstart" / "README.md").read_text()
    assert "`kubectl delete -f examples/quickstart`" in text
    made.cp.kubectl("delete", "-f", str(ROOT / "examples" / "quickstart"), "--timeout=90s")
    assert made.cp.api.find(resource_path("v1", "namespaces", "team-a")) is None
