"""A worker cluster that is cut off: its connections stay open, and nothing comes; and workers without room.

The manager sends jobs where there is room, gives a worker up after ten seconds, gives quota back that no worker uses
for twenty, and keeps copies that have ended.
"""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.client import condition
from tests.cluster.sites import Site, Sites, Team, a_team, connect, wait_active

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job]}
multiKueue:
  workerLostTimeout: 10s
  keepFinished: 1h
  giveUpTimeout: 20s
  dispatcherName: turnstile.dev/multikueue-dispatcher-fit
"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """A manager with that configuration, and two workers."""
    file = tmp_path_factory.mktemp("manager") / "configuration.yaml"
    Path(file).write_text(CONFIGURATION)
    without_pods = ("etcd", "kube-apiserver", "kube-controller-manager")
    with ControlPlane(components=without_pods) as first, ControlPlane() as second, ControlPlane() as third:
        workers = {"east": Site(second), "west": Site(third)}
        yield connect(Site(first, "--config", str(file)), workers, "--with-queues")


@pytest.fixture
def team(sites: Sites) -> Iterator[Team]:
    """A namespace on all of them."""
    with a_team(sites.manager, sites.workers) as found:
        yield found


def nominated(team: Team, job: str) -> str:
    """The worker that a Job's Workload was sent to and won."""
    found = team.here.wait_workload(job, lambda w: w.get("status", {}).get("clusterName"), timeout=60)
    name: str = found["status"]["clusterName"]
    return name


def test_a_worker_that_is_cut_off_loses_its_job_and_delays_no_other(sites: Sites, team: Team) -> None:
    """The Job goes to the other worker soon after the timeout; Jobs for that one start meanwhile as ever; and the copy
    is deleted when the worker is back."""
    team.there["west"].job("local", queue="team", cpu="4")
    team.there["west"].wait_admitted("local", timeout=60)
    team.here.job("train", queue="team", cpu="2")
    team.wait_on("train", "east")  # the other has no room
    team.there["west"].delete_job("local")
    server = sites.workers["east"].cp.process("kube-apiserver")
    server.pause()
    began = time.monotonic()
    try:
        team.here.job("beside", queue="team", cpu="1")
        assert nominated(team, "beside") == "west"
        beside = time.monotonic() - began
        team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName") == "west", timeout=120)
        anew = time.monotonic() - began
    finally:
        server.resume()
    print(f"a Job beside it won a worker after {beside:.1f} s, the Job that was cut off another after {anew:.1f} s")
    assert anew < 60
    wait_active(sites.manager.api, "east")
    team.wait_clean("east")


def test_the_copy_of_a_job_that_has_ended_is_kept(team: Team) -> None:
    """With its pod, whose log can be read; it is deleted with the Job on the manager."""
    team.here.job("train", queue="team", cpu="1")
    winner = nominated(team, "train")
    team.wait_on("train", winner)
    team.there[winner].finish("train")
    finished = team.here.wait_workload("train", lambda w: condition(w, "Finished").get("status") == "True", timeout=60)
    name = finished["metadata"]["name"]
    (pod,) = team.there[winner].pods_of("train")
    assert sorted(team.left(winner)) == sorted(["train", name, pod["metadata"]["name"]])
    team.here.delete_job("train")
    team.wait_clean("east", "west")


def test_a_job_that_no_worker_admits_gives_its_quota_back(team: Team) -> None:
    """The manager's quota is free for the next Job, while the check has the Workload wait a minute for another try; no
    worker keeps the Workload."""
    for scenario in team.there.values():
        scenario.job("local", queue="team", cpu="4")
        scenario.wait_admitted("local", timeout=60)
    team.here.job("waits", queue="team", cpu="3")
    sent = team.here.wait_workload("waits", lambda w: w.get("status", {}).get("nominatedClusterNames"), timeout=60)
    found = team.here.wait_workload(
        "waits",
        lambda w: condition(w, "Evicted") and condition(w, "QuotaReserved").get("status") == "False",
        timeout=90,
    )
    (check,) = found["status"]["admissionChecks"]
    assert (check["state"], check["message"]) == ("Pending", "Reset to Pending after eviction. Previously: Retry")
    evicted = condition(found, "Evicted")
    assert (evicted["status"], evicted["reason"]) == ("True", "AdmissionCheck")
    times = (found["status"]["requeueState"]["requeueAt"], evicted["lastTransitionTime"])
    again, since = map(datetime.fromisoformat, times)
    assert again - since > timedelta(seconds=50)
    for worker in team.there:
        team.wait_gone(sent["metadata"]["name"], on=worker)
    team.here.job("next", queue="team", cpu="8")
    team.here.wait_workload("next", lambda w: condition(w, "QuotaReserved").get("status") == "True", timeout=30)
