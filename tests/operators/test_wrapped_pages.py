"""The pages about AppWrappers and Spark, read from top to bottom with the operators that they are about."""

import pytest

from testbed import ControlPlane
from testbed.client import resource_path
from testbed.errors import ApiError
from tests.cluster.reader import Reader, queues, team_a
from tests.cluster.scenario import Scenario

__all__ = ["queues", "team_a"]


@pytest.mark.operator("appwrapper")
def test_appwrappers(control_plane: ControlPlane, team_a: Scenario) -> None:
    """One Workload is admitted for all objects, which run."""
    page = Reader("appwrappers.md", control_plane)
    page.do()
    admission = team_a.wait_admitted("bundle", kind="AppWrapper")
    assert [(each["name"], each["count"]) for each in admission["podSetAssignments"]] == [("bundle-0", 2)]
    page.see("appwrapper-bundle-.* default +team-a +True", r"job.batch/bundle(.|\n)*Running(.|\n)*Running")
    page.end()
    team_a.api.delete(resource_path("workload.codeflare.dev/v1beta2", "appwrappers", "bundle", namespace="team-a"))


@pytest.mark.operator("appwrapper")
def test_an_appwrapper_without_a_pod_template_is_told_what_its_own_webhook_says(team_a: Scenario) -> None:
    """Turnstile does not refuse it, as Kueue does not."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    meta = {"name": "bare", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "default"}}
    body = {"metadata": meta, "spec": {"components": [{"template": service}]}}
    with pytest.raises(ApiError, match=r"vappwrapper\.kb\.io.*components contains no podspecs"):
        team_a.create({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", **body})


@pytest.mark.operator("sparkoperator")
def test_spark(control_plane: ControlPlane, team_a: Scenario) -> None:
    """Driver and executors are charged with their memory overhead."""
    page = Reader("spark.md", control_plane)
    page.do()
    admission = team_a.wait_admitted("pi", kind="SparkApplication")
    usage = {each["name"]: each["resourceUsage"] for each in admission["podSetAssignments"]}
    assert usage == {"driver": {"cpu": "1", "memory": "896Mi"}, "executor": {"cpu": "2", "memory": "1792Mi"}}
    page.see("sparkapplication-pi-.* default +team-a +True", "pi ")
    page.end()
    team_a.api.delete(resource_path("sparkoperator.k8s.io/v1beta2", "sparkapplications", "pi", namespace="team-a"))
