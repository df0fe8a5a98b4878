"""A pod template is charged with what the API server makes of it: each pod here is created for real, as a dry run."""

from itertools import product

import msgspec
import pytest

from testbed.client import Api, Json, wait_until
from testbed.errors import ApiError
from tests.versions import at_least
from turnstile.api.core import LimitRange
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import parse
from turnstile.engine.quota.requests import (
    effective_pod,
    exact,
    limit_violations,
    pod_requests,
    range_violations,
    summarize,
)

pytestmark = pytest.mark.cluster

PROBED = "ephemeral-storage"

CONTAINERS: dict[str, Json] = {
    "nothing": {},
    "requests": {"requests": {"cpu": "1"}},
    "limits": {"limits": {"cpu": "3"}},
    "both": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "2Gi"}},
    "huge pages": {"limits": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
}
BESIDE: dict[str, list[tuple[str, Json]]] = {
    "alone": [],
    "a second": [("container", {})],
    "a second with a limit": [("container", {"limits": {"cpu": "2"}})],
    "init": [("init", {"limits": {"cpu": "4"}})],
    "sidecar": [("sidecar", {}), ("init", {"requests": {"cpu": "2"}})],
    "init and sidecar": [("init", {}), ("sidecar", {"limits": {"cpu": "1", "memory": "1Gi"}}), ("init", {})],
}
WHOLE: dict[str, Json | None] = {
    "no pod level": None,
    "pod-level limit": {"limits": {"cpu": "8"}},
    "pod-level request": {"requests": {"cpu": "7"}},
    "pod-level request and limit": {"requests": {"cpu": "7"}, "limits": {"cpu": "9", "memory": "8Gi"}},
    "pod-level limit of memory": {"limits": {"memory": "9Gi"}},
}
if not at_least(34):  # the API server drops the field, so Turnstile never sees it either
    WHOLE = {"no pod level": None}
RANGES: dict[str, list[list[Json]]] = {
    "none": [],
    "default": [[{"type": "Container", "default": {"cpu": "2"}}]],
    "defaultRequest": [[{"type": "Container", "defaultRequest": {"cpu": "1"}}]],
    "default and defaultRequest": [
        [{"type": "Container", "default": {"cpu": "5", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}]
    ],
    "min": [[{"type": "Container", "min": {"cpu": "1"}}]],
    "max": [[{"type": "Container", "max": {"cpu": "3"}}]],
    "ratio": [[{"type": "Container", "default": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}]],
    "pods": [[{"type": "Pod", "max": {"cpu": "8"}, "min": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}]],
    "two that do not meet": [
        [{"type": "Container", "default": {"cpu": "2"}}],
        [{"type": "Container", "defaultRequest": {"memory": "1Gi"}}, {"type": "Pod", "max": {"memory": "4Gi"}}],
    ],
}
UNDECIDED = [
    [{"type": "Container", "default": {"cpu": "3"}}],
    [{"type": "Container", "defaultRequest": {"cpu": "1", "memory": "2Gi"}}],
]
"""LimitRanges that contradict each other."""


def spec_of(main: Json, beside: list[tuple[str, Json]], whole: Json | None) -> Json:
    """The spec of a pod whose containers have these resources."""
    found: dict[str, list[Json]] = {"containers": [], "initContainers": []}
    for index, (kind, resources) in enumerate([("container", main), *beside]):
        group = found["containers" if kind == "container" else "initContainers"]
        body = {"name": f"c{index}", "image": "registry.example/main:1", "resources": resources}
        group.append({**body, "restartPolicy": "Always"} if kind == "sidecar" else body)
    return {**found, **({"resources": whole} if whole is not None else {})}


def pod(namespace: str, spec: Json) -> Json:
    """A pod of that spec."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec}


def reserved(spec: Json) -> dict[str, int]:
    """What the scheduler reserves for a created pod, by the formula of the KEPs of sidecars and pod-level resources:
    the largest of what runs in the end and of what runs beside each init container; pod level instead, if it is there;
    overhead in any case."""
    moments: list[list[Json]] = []
    sidecars: list[Json] = []
    for each in spec.get("initContainers", ()):
        moments.append([*sidecars, each])
        if each.get("restartPolicy") == "Always":
            sidecars.append(each)
    moments.append([*sidecars, *spec["containers"]])
    sums: list[dict[str, int]] = []
    for moment in moments:
        together: dict[str, int] = {}
        for each in moment:
            for name, value in each["resources"].get("requests", {}).items():
                together[name] = together.get(name, 0) + int(parse(value) * 10**9)
        sums.append(together)
    most = {name: max(each.get(name, 0) for each in sums) for each in sums for name in each}
    most |= exact(spec.get("resources", {}).get("requests", {}))
    overhead = exact(spec.get("overhead", {}))
    return {name: most.get(name, 0) + overhead.get(name, 0) for name in {*most, *overhead}}


@pytest.fixture
def limited(api: Api, namespace: str, request: pytest.FixtureRequest) -> tuple[str, list[LimitRange]]:
    """The namespace, with the LimitRanges of the parameter, which the API server obeys."""
    bodies = [
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": f"limits-{index}", "namespace": namespace},
            "spec": {"limits": items},
        }
        for index, items in enumerate(RANGES.get(request.param, UNDECIDED))
    ]
    made = [api.create(each) for each in bodies]
    # The admission plugin gets LimitRanges from a watch, in the order of their creation.
    probe = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "probe", "namespace": namespace}}
    api.create({**probe, "spec": {"limits": [{"type": "Container", "defaultRequest": {PROBED: "1"}}]}})
    enough = {"cpu": "2", "memory": "1Gi"}
    fine = pod(namespace, spec_of({"requests": enough, "limits": enough}, [], None))

    def seen() -> bool:
        return PROBED in api.create(fine, dry_run=True)["spec"]["containers"][0]["resources"]["requests"]

    wait_until(seen, timeout=20, describe=lambda: "the API server does not obey the LimitRange yet")
    api.delete(api.path_of(probe))
    wait_until(lambda: not seen(), timeout=20, describe=lambda: "the API server obeys a LimitRange that is gone")
    return namespace, [msgspec.convert(each, LimitRange) for each in made]


@pytest.mark.parametrize("limited", RANGES, indirect=True, ids=RANGES)
def test_a_template_is_charged_as_its_pod_is_created(api: Api, limited: tuple[str, list[LimitRange]]) -> None:
    """The requests that are charged for a template are those of the pod that the API server makes of it, and a template
    is found at fault exactly if the API server refuses its pod: for all combinations of containers, init containers,
    sidecars, pod-level resources and LimitRanges."""
    namespace, ranges = limited
    limits = summarize(ranges)
    wrong: list[str] = []
    for names in product(CONTAINERS, BESIDE, WHOLE):
        spec = spec_of(CONTAINERS[names[0]], BESIDE[names[1]], WHOLE[names[2]])
        mine = effective_pod(msgspec.convert(spec, PodSpec), limits=limits)
        faults = [str(each) for each in (*limit_violations(mine, "spec"), *range_violations(mine, "spec", limits))]
        try:
            made = api.create(pod(namespace, spec), dry_run=True)
        except ApiError as error:
            if not faults:
                wrong.append(f"{', '.join(names)}: refused ({error.message})")
            continue
        if faults:
            wrong.append(f"{', '.join(names)}: created, but {faults}")
        if (want := reserved(made["spec"])) != pod_requests(mine):
            wrong.append(f"{', '.join(names)}: {want}, not {pod_requests(mine)}")
        if pod_requests(effective_pod(msgspec.convert(made["spec"], PodSpec))) != want:
            wrong.append(f"{', '.join(names)}: the pod itself is not read as {want}")
    assert not wrong, f"{len(wrong)} of {len(CONTAINERS) * len(BESIDE) * len(WHOLE)}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("limited", ["two with one default"], indirect=True)
def test_of_two_default_requests_the_larger_is_charged(api: Api, limited: tuple[str, list[LimitRange]]) -> None:
    """Where two LimitRanges have a default for one resource, the API server takes any of them: a pod requests one of
    them, and never more than is charged."""
    namespace, ranges = limited
    spec = spec_of({}, [], None)
    charged = pod_requests(effective_pod(msgspec.convert(spec, PodSpec), limits=summarize(ranges)))
    made = [reserved(api.create(pod(namespace, spec), dry_run=True)["spec"]) for _ in range(20)]
    assert charged == exact({"cpu": "3", "memory": "2Gi"})
    assert all(
        each["memory"] == charged["memory"] and each["cpu"] in exact({"a": "1", "b": "3"}).values() for each in made
    )


def test_the_overhead_of_a_runtime_class_is_charged(api: Api, namespace: str) -> None:
    """A RuntimeClass adds its overhead to what containers, or the pod as a whole, request."""
    name = f"heavy-{namespace}"
    overhead = {"podFixed": {"cpu": "250m", "memory": "1Gi"}}
    body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "heavy"}
    api.create({**body, "overhead": overhead})
    try:
        for main, whole in product(CONTAINERS.values(), WHOLE.values()):
            spec = {**spec_of(main, [], whole), "runtimeClassName": name}
            mine = effective_pod(msgspec.convert(spec, PodSpec), overheads={name: overhead["podFixed"]})
            made = api.create(pod(namespace, spec), dry_run=True)
            assert reserved(made["spec"]) == pod_requests(mine), spec
    finally:
        api.delete(api.path_of(body))
