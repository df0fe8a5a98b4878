"""From Kueue to Turnstile and back with Jobs that run and Jobs that wait: the commands of docs/tasks/from-kueue.md.

The tests follow on each other, in the order of the page: each leaves the cluster to the program that its name says.
"""

import os
from collections.abc import Iterator

import pytest

from testbed import ApiError, ControlPlane, resource_path
from testbed.client import wait_until
from tests.peers.moving import TEAMS, Cluster, Standing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

JOBS = int(os.environ.get("MOVE_JOBS", "1000"))
STOP, DEFINITIONS, INSTALL = "2. Stop Kueue", "3. Definitions", "4. Install, and remove Kueue's webhooks"
NEXT = max(1, JOBS // 200)
"""Jobs of each team that end, so that as many others start."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Under Kueue, all quota in use, more than twice as many Jobs waiting."""
    with ControlPlane(kube_api_qps=500) as cp:
        made = Cluster(cp, tmp_path_factory.mktemp("move"), jobs=JOBS)
        made.kueue.start()
        made.fill()
        yield made


def install(cluster: Cluster) -> None:
    """Steps 2 to 4; no process of Turnstile runs yet."""
    cluster.kueue.stop()
    cluster.guide(STOP).do()
    assert cluster.guide(DEFINITIONS).do().endswith("Webhook")
    guide = cluster.guide(INSTALL)
    guide.do()
    guide.do()
    assert_refused(cluster)


def go_back(cluster: Cluster) -> None:
    """The way back, and Kueue's process."""
    guide = cluster.guide("Back to Kueue")
    cluster.stop_turnstile()
    guide.do()
    guide.do()
    cluster.kueue.start()
    cluster.restart_kueue_once()


def assert_refused(cluster: Cluster) -> None:
    """While neither program runs, new Jobs are."""
    with pytest.raises(ApiError, match="failed calling webhook"):
        cluster.api.create(cluster.job(TEAMS[0], "refused"))


def assert_goes_on(cluster: Cluster, before: Standing) -> None:
    """Not a pod is started again, each Workload is the one that it was, and the first of the queues start next."""
    cluster.assert_still(before)
    cluster.assert_the_next_ones_start(NEXT)
    cluster.assert_within_quota()


def test_under_kueue(cluster: Cluster) -> None:
    """What the other tests rest on: Kueue keeps to the quota and to the order."""
    cluster.assert_the_next_ones_start(NEXT)
    cluster.assert_within_quota()


def test_looking_changes_nothing(cluster: Cluster) -> None:
    """Kueue's configuration can be taken over, and preflight names what is in the way: Kueue, and what it owns."""
    before = cluster.standing()
    guide = cluster.guide("1. Look")
    guide.do()
    cluster.set_values()
    report = guide.do()
    for check in (
        "kueue: Kueue's webhooks are registered",
        "crds: not stored as v1beta2",
        "owners: of no Helm release",
    ):
        assert check in report
    assert "\n0 dangers" in report
    cluster.assert_still(before)


@pytest.mark.parametrize("steps", [(STOP,), (STOP, DEFINITIONS), (STOP, DEFINITIONS, INSTALL)])
def test_a_step_is_undone(cluster: Cluster, steps: tuple[str, ...]) -> None:
    """After the first block of each, Kueue's manifests bring Kueue back; it goes on where it was."""
    before = cluster.standing()
    cluster.kueue.stop()
    guides = [cluster.guide(step) for step in steps]
    for guide in guides:
        guide.do()
    assert_refused(cluster)
    guides[0].do()
    cluster.kueue.start()
    if DEFINITIONS in steps:
        cluster.restart_kueue_once()
    assert_goes_on(cluster, before)


def test_an_installation_that_never_started_is_undone(cluster: Cluster) -> None:
    """After all of step 4, before any process of Turnstile runs, the way back leads to Kueue."""
    before = cluster.standing()
    install(cluster)
    go_back(cluster)
    assert_goes_on(cluster, before)


def test_turnstile_takes_over(cluster: Cluster) -> None:
    """All goes on as it was under Kueue."""
    before = cluster.standing()
    install(cluster)
    cluster.start_turnstile()
    assert_goes_on(cluster, before)


def test_new_jobs_wait_behind_the_others(cluster: Cluster) -> None:
    """A Job that is made under Turnstile has a Workload like those of Kueue, and goes last."""
    for team in TEAMS:
        made = cluster.api.create(cluster.job(team, f"{team}-{cluster.jobs:04}"))
        assert made["spec"]["suspend"]
    wait_until(
        lambda: len(cluster.standing().workloads) == (cluster.jobs + 1) * len(TEAMS),
        timeout=60,
        describe=lambda: "the new Jobs have no Workload",
    )
    cluster.assert_the_next_ones_start(NEXT)


def test_back_to_kueue(cluster: Cluster) -> None:
    """The same the other way: what Turnstile wrote is what Kueue goes on with."""
    before = cluster.standing()
    go_back(cluster)
    assert_goes_on(cluster, before)


def test_the_way_back_is_undone(cluster: Cluster) -> None:
    """Turnstile takes over once more, and what is left of Kueue is deleted."""
    before = cluster.standing()
    install(cluster)
    cluster.start_turnstile()
    cluster.guide("6. Later").do()
    cluster.api.wait_gone(resource_path("v1", "namespaces", "kueue-system"), timeout=120)
    assert_goes_on(cluster, before)


def test_the_removal_of_kueue_is_undone(cluster: Cluster) -> None:
    """The way back makes Kueue anew."""
    before = cluster.standing()
    go_back(cluster)
    assert_goes_on(cluster, before)
