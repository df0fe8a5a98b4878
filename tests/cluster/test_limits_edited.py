"""A LimitRange or RuntimeClass that is edited decides anew about the Workloads that wait, without another event."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import Scenario

pytestmark = pytest.mark.cluster

JOBS = ("first", "second", "third")
"""Equal Jobs: where one does not fit, the others are not tried (SchedulingEquivalenceHashing)."""


def limit(scenario: Scenario, **item: Any) -> str:
    """A LimitRange for containers; returns its path."""
    body = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": scenario.namespace},
        "spec": {"limits": [{"type": "Container", **item}]},
    }
    scenario.create(body)
    return scenario.api.path_of(body)


def edit(scenario: Scenario, path: str, **item: Any) -> None:
    """Change a LimitRange."""
    scenario.api.patch(path, {"spec": {"limits": [{"type": "Container", **item}]}})


def runtime_class(scenario: Scenario, cpu: str) -> str:
    """A RuntimeClass with an overhead; returns its name."""
    name = scenario.named("heavy")
    overhead = {"podFixed": {"cpu": cpu}}
    scenario.create(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": "heavy",
            "overhead": overhead,
        }
    )
    return name


def container(**resources: Any) -> Json:
    """The template of a Job whose container asks for this."""
    return {"containers": [{"name": "main", "image": "registry.example/main:1", "resources": resources}]}


def submit(scenario: Scenario, *names: str, template: Json) -> None:
    """Create equal Jobs."""
    for name in names:
        scenario.job(name, queue="team", template=template)


def wait_any(scenario: Scenario, names: Sequence[str], says: Callable[[Json], object], what: str) -> None:
    """Until the status of a Workload of these Jobs says so: of equal ones only one may have been tried."""

    def look() -> bool:
        return any(says(scenario.workload_of(name).get("status", {})) for name in names)

    wait_until(look, timeout=20, describe=lambda: f"{what}: {[scenario.workload_of(name)['status'] for name in names]}")


def wait_why(scenario: Scenario, *names: str, text: str) -> None:
    """Until a Workload of these Jobs says why it waits."""
    wait_any(
        scenario, names, lambda told: text in condition({"status": told}, "QuotaReserved").get("message", ""), text
    )


def wait_requests(scenario: Scenario, *names: str, cpu: str) -> None:
    """Until a Workload of these Jobs, which waits, says that it requests this."""
    wait_any(scenario, names, lambda told: requested(told) == cpu, f"requests {cpu}")


def requested(told: Json) -> str | None:
    """The CPUs that a pending Workload requests, by its status."""
    requests = told.get("resourceRequests") or [{"resources": {}}]
    cpu: str | None = requests[0]["resources"].get("cpu")
    return cpu


def charged(scenario: Scenario, name: str) -> str:
    """The CPUs for which an admitted Workload holds quota."""
    cpu: str = scenario.wait_admitted(name)["podSetAssignments"][0]["resourceUsage"]["cpu"]
    return cpu


OUTSIDE = "resources didn't satisfy LimitRange constraints"


@pytest.mark.parametrize(
    ("resources", "before", "after"),
    [
        ({"limits": {"cpu": "2"}}, {"max": {"cpu": "1"}}, {"max": {"cpu": "2"}}),
        ({"requests": {"cpu": "100m"}}, {"min": {"cpu": "1"}}, {"min": {"cpu": "100m"}}),
        (
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"maxLimitRequestRatio": {"cpu": "4"}},
        ),
    ],
    ids=["max", "min", "maxLimitRequestRatio"],
)
def test_what_a_limit_range_refused_is_admitted_once_it_allows_it(
    scenario: Scenario, resources: Json, before: Json, after: Json
) -> None:
    """All of them; no new Job is needed to have them tried."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 12}})
    path = limit(scenario, **before)
    submit(scenario, *JOBS, template=container(**resources))
    wait_why(scenario, *JOBS, text=OUTSIDE)
    edit(scenario, path, **after)
    for name in JOBS:
        scenario.wait_started(name)


def test_what_a_limit_range_refused_is_admitted_once_it_is_gone(scenario: Scenario) -> None:
    """Deleting it is an edit too."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 12}})
    path = limit(scenario, max={"cpu": "1"})
    submit(scenario, *JOBS, template=container(limits={"cpu": "2"}))
    wait_why(scenario, *JOBS, text=OUTSIDE)
    scenario.api.delete(path)
    for name in JOBS:
        scenario.wait_started(name)


def test_what_waits_is_refused_by_a_limit_range_that_comes(scenario: Scenario) -> None:
    """Also what was only out of quota before, together with its equals: their conditions have the new reason."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    submit(scenario, *JOBS, template=container(limits={"cpu": "2"}))
    wait_why(scenario, *JOBS, text="insufficient quota")
    limit(scenario, max={"cpu": "1"})
    for name in JOBS:
        wait_why(scenario, name, text=OUTSIDE)


def test_requests_follow_the_default_of_a_limit_range(scenario: Scenario) -> None:
    """Those of the Workloads that wait. What is admitted keeps what it was charged."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 6}})
    path = limit(scenario, defaultRequest={"cpu": "5"})
    submit(scenario, "first", template=container())
    scenario.wait_started("first")
    submit(scenario, *JOBS[1:], template=container())
    assert charged(scenario, "first") == "5"
    wait_requests(scenario, *JOBS[1:], cpu="5")
    edit(scenario, path, defaultRequest={"cpu": "3"})
    wait_requests(scenario, *JOBS[1:], cpu="3")
    edit(scenario, path, defaultRequest={"cpu": "500m"})
    for name in JOBS[1:]:
        scenario.wait_started(name)
        assert charged(scenario, name) == "500m"
    assert charged(scenario, "first") == "5"


def test_requests_follow_the_overhead_of_a_runtime_class(scenario: Scenario) -> None:
    """A pod that fits without the overhead waits with it, and is charged for what the overhead is when it starts."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 9}})
    heavy = runtime_class(scenario, "20")
    template = {**container(requests={"cpu": "2"}), "runtimeClassName": heavy}
    submit(scenario, *JOBS, template=template)
    wait_why(scenario, *JOBS, text="insufficient quota")
    path = resource_path("node.k8s.io/v1", "runtimeclasses", heavy)
    scenario.api.patch(path, {"overhead": {"podFixed": {"cpu": "1"}}})
    for name in JOBS:
        scenario.wait_started(name)
        assert charged(scenario, name) == "3"


def test_requests_follow_a_runtime_class_that_comes(scenario: Scenario) -> None:
    """It counts for what waits, not only for what is submitted afterwards."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 9}}, stopPolicy="Hold")
    template = {**container(requests={"cpu": "2"}), "runtimeClassName": scenario.named("heavy")}
    submit(scenario, "first", template=template)
    scenario.wait_pending("first")
    runtime_class(scenario, "1")
    witness = {"runtimeClassName": scenario.named("heavy"), **container(requests={"cpu": "1"})}
    submit(scenario, "witness", template=witness)
    scenario.wait_pending("witness")
    scenario.patch_queue(queue, {"stopPolicy": "None"})
    assert charged(scenario, "witness") == "2"
    assert charged(scenario, "first") == "3"


def test_a_limit_without_a_request_is_charged_whatever_the_default_request(scenario: Scenario) -> None:
    """The API server makes the limit the request before a LimitRange adds its defaults, and a pod-level limit is a
    request only of what no container requests: the quota holds, and what fits it runs."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
    limit(scenario, defaultRequest={"cpu": "1"})
    submit(scenario, "first", template=container(limits={"cpu": "3"}))
    assert charged(scenario, "first") == "3"
    submit(scenario, "second", template=container(limits={"cpu": "3"}))
    scenario.wait_pending("second")
    whole = container(requests={"cpu": "1"}) | {"resources": {"limits": {"cpu": "4"}}}
    submit(scenario, "third", template=whole)
    assert charged(scenario, "third") == "1"
