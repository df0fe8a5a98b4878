"""The client for users' programs: what it loads, the manifest that it makes, and how a job stands by its conditions."""

import subprocess
import sys
from typing import Any

import pytest

import turnstile
from turnstile import Standing, State, container_job
from turnstile.client.standing import standing

NEVER = ("turnstile.engine", "turnstile.webhooks", "turnstile.controllers", "fastapi", "kubernetes_asyncio")


@pytest.mark.parametrize("module", NEVER)
def test_it_does_not_load(module: str) -> None:
    """Programs that submit a job do not wait for what decides about it."""
    code = f"import sys; from turnstile import Client; print({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_importing_the_package_loads_no_client() -> None:
    """It is loaded when it is asked for, so that no command waits for it."""
    code = "import sys, turnstile; print('turnstile.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    with pytest.raises(AttributeError, match="Clinet"):
        _ = turnstile.Clinet


class TestTheJobOfAContainer:
    def test_asks_for_what_is_said(self) -> None:
        """GPUs and memory are limits too; a CPU is not."""
        job = container_job("registry.example.com/train:1", ["python", "train.py"], queue="gpus", gpus=4, memory="64Gi")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["python", "train.py"]
        assert container["resources"]["requests"] == {"cpu": "1", "memory": "64Gi", "nvidia.com/gpu": "4"}
        assert container["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "4"}
        assert job["metadata"] == {"generateName": "train-", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}

    def test_has_the_name_that_is_given(self) -> None:
        """And no label that says nothing."""
        assert container_job("train", name="first")["metadata"] == {"name": "first", "labels": {}}


def workload(**conditions: tuple[str, str, str]) -> dict[str, Any]:
    """A Workload with conditions: status, reason, message."""
    names = ("status", "reason", "message")
    found = [{"type": name, **dict(zip(names, values, strict=True))} for name, values in conditions.items()]
    return {"spec": {}, "status": {"conditions": found}}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (None, Standing(State.WAITING, "it has no Workload yet")),
        (workload(), Standing(State.WAITING, "it is not decided on yet")),
        (workload(QuotaReserved=("False", "Pending", "no quota")), Standing(State.WAITING, "no quota")),
        (workload(Admitted=("True", "Admitted", "in")), Standing(State.ADMITTED, "in")),
        (workload(Finished=("True", "Succeeded", "done")), Standing(State.SUCCEEDED, "done")),
        (workload(Finished=("True", "Failed", "broke")), Standing(State.FAILED, "broke")),
    ],
)
def test_a_job_stands_as_its_workload_says(of: dict[str, Any] | None, expected: Standing) -> None:
    """And waits while it has none."""
    assert standing({"spec": {"suspend": True}}, of) == expected


def test_a_job_stands_on_the_cluster_that_runs_it() -> None:
    """Not one that waits for another admission: its cluster is that of the run before."""
    job = {"spec": {"suspend": True}}
    conditions = (("Admitted", "True"), ("Finished", "True"), ("QuotaReserved", "False"))
    found = [workload(**{name: (status, "", "")}) for name, status in conditions]
    for each in found:
        each["status"]["clusterName"] = "east"
    assert [standing(job, each).cluster for each in found] == ["east", "east", ""]


def test_a_deleted_job_is_gone() -> None:
    """Whatever its Workload said last."""
    assert standing(None, workload(Admitted=("True", "Admitted", "in"))).ended
