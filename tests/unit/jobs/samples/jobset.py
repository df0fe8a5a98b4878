"""A JobSet."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import NAMED_TEMPLATE, POD_TEMPLATE, Sample, moments, pods_at_a_time

Json = dict[str, Any]


def jobset_pods(body: Json) -> int:
    """The pods of all its Jobs; a restart makes those of Jobs that have succeeded again."""
    done = {each["name"]: each.get("succeeded", 0) for each in body["status"].get("replicatedJobsStatus", [])}
    policy = body["spec"].get("failurePolicy") or {}
    endless = any(each.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for each in policy.get("rules", []))
    if endless or policy.get("maxRestarts", 0):
        done = {}  # a restart makes all replicas again
    pods = 0
    for each in body["spec"].get("replicatedJobs", []):
        spec = each["template"]["spec"]
        pods += max(each.get("replicas", 1) - done.get(each["name"], 0), 0) * pods_at_a_time(spec)
    return pods


def _replicated(name: str, replicas: int, **more: Any) -> Json:
    return {"name": name, "replicas": replicas, "template": {"spec": {"template": NAMED_TEMPLATE}}, **more}


def _counted(**jobs: Json) -> Json:
    return {"replicatedJobsStatus": [{"name": name, **counts} for name, counts in jobs.items()]}


_STAGES: Final = {
    "replicatedJobs": [
        _replicated("prepare", 1),
        _replicated("train", 2, dependsOn=[{"name": "prepare", "status": "Complete"}]),
        _replicated("judge", 1, dependsOn=[{"name": "train", "status": "Complete"}]),
    ]
}
_LEADER_FIRST: Final = {
    "replicatedJobs": [
        _replicated("leader", 1),
        _replicated("workers", 2, dependsOn=[{"name": "leader", "status": "Ready"}]),
    ]
}
JOB_SET: Final = [
    *moments(
        {"replicatedJobs": [_replicated("leader", 1), _replicated("workers", 2)]},
        ("nothing is written yet", {}, False),
        ("one of two workers is ready", _counted(leader={"ready": 1}, workers={"ready": 1, "active": 2}), False),
        ("all are ready", _counted(leader={"ready": 1}, workers={"ready": 2}), True),
        ("a worker has succeeded", _counted(leader={"ready": 1}, workers={"ready": 1, "succeeded": 1}), True),
        ("the leader has failed", _counted(leader={"failed": 1}, workers={"ready": 2}), False),
    ),
    *moments(
        _STAGES,
        ("the first stage begins", _counted(prepare={"active": 1}, train={}, judge={}), False),
        ("the first stage runs, the others have no pods", _counted(prepare={"ready": 1}, train={}, judge={}), True),
        (
            "the second stage begins",
            _counted(prepare={"succeeded": 1}, train={"active": 2, "ready": 1}, judge={}),
            False,
        ),
        ("the second stage runs", _counted(prepare={"succeeded": 1}, train={"ready": 2}, judge={}), True),
        (
            "a pod of it has succeeded",
            _counted(prepare={"succeeded": 1}, train={"ready": 1, "succeeded": 1}, judge={}),
            True,
        ),
        (
            "the last stage begins",
            _counted(prepare={"succeeded": 1}, train={"succeeded": 2}, judge={"active": 1}),
            False,
        ),
        ("the last stage runs", _counted(prepare={"succeeded": 1}, train={"succeeded": 2}, judge={"ready": 1}), True),
    ),
    *moments(
        _LEADER_FIRST,
        ("only the leader is ready: workers are made next", _counted(leader={"ready": 1}, workers={}), False),
        ("all are ready", _counted(leader={"ready": 1}, workers={"ready": 2}), True),
    ),
]

SAMPLES: Final = (
    Sample(
        framework="jobset.x-k8s.io/jobset",
        api_version="jobset.x-k8s.io/v1alpha2",
        kind="JobSet",
        spec={"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": {"template": POD_TEMPLATE}}}]},
        pods=jobset_pods,
        moments=JOB_SET,
    ),
)
