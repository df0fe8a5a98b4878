"""What the tests of `kubectl turnstile` share: the program in this process, and objects for it to show."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from typer.testing import CliRunner

from testbed import Api, ControlPlane
from tests.cluster.schema_server import thing
from turnstile.cli import commands

Json = dict[str, Any]

NOW = datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def table(self) -> list[list[str]]:
        """The cells of a printed table, without its first line; columns begin where the names of the columns do."""
        heading, *lines = self.out.splitlines()
        starts = [
            0,
            *(at + 3 for at in range(len(heading) - 3) if heading[at : at + 3] == "   " and heading[at + 3] != " "),
        ]
        ends = [*starts[1:], None]
        return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]


Program = Callable[..., Done]


def plugin(control_plane: ControlPlane, *, user: str = "admin") -> Program:
    """`kubectl turnstile` in this process, as a user."""
    app = commands.create(run=asyncio.run, clock=lambda: datetime.now(UTC))

    def run(*arguments: str, text: str = "") -> Done:
        environment = {"KUBECONFIG": str(control_plane.kubeconfig(user))}
        done = CliRunner().invoke(app, arguments, input=text, env=environment, catch_exceptions=False)
        return Done(done.exit_code, done.stdout, done.stderr)

    return run


def ago(**span: float) -> str:
    """A timestamp of the past."""
    return (NOW - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(*types: str, since: str = "", false: tuple[str, ...] = ()) -> list[Json]:
    """Conditions that are True, and some that are not."""
    return [
        {
            "type": each,
            "status": "False" if each in false else "True",
            "reason": "Test",
            "message": f"{each} is said",
            "lastTransitionTime": since or ago(minutes=5),
        }
        for each in (*types, *false)
    ]


def workload(name: str, namespace: str, *, queue: str = "main", job: Json | None = None, **spec: Any) -> Json:
    """A Workload of one pod, for a job if one is given."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    made = thing("Workload", name, {"queueName": queue, "podSets": pod_sets, **spec}, namespace=namespace)
    if job is not None:
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], **_identity(job), "controller": True}
        made["metadata"] |= {"ownerReferences": [owner], "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}}
    return made


def _identity(job: Json) -> Json:
    return {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}


def job(name: str, namespace: str) -> Json:
    """A suspended Job."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"suspend": True, "template": template},
    }


def admission(cluster_queue: str) -> Json:
    """Quota of a ClusterQueue for a Workload."""
    return {"clusterQueue": cluster_queue, "podSetAssignments": [{"name": "main", "count": 1}]}


def with_status(api: Api, obj: Json, status: Json) -> Json:
    """Create an object with a status."""
    api.create(obj)
    found: Json = api.patch(f"{api.path_of(obj)}/status", {"status": status})
    return found
