"""The page about Flyte, read from top to bottom with flytekit. Nobody has FlytePropeller as a Go module, so the test
makes the pod of the task, from the template in the package that flytekit writes."""

import json
from collections.abc import Callable
from typing import Final

import pytest

from tests.submitters.desk import Desk, Queue

pytestmark = [pytest.mark.cluster, pytest.mark.submitter("flyte")]

POD: Final = "node-id=n0,kueue.x-k8s.io/queue-name=by-label"
TEMPLATE: Final = """
import json
import tarfile

from flyteidl.admin.task_pb2 import TaskSpec
from google.protobuf.json_format import MessageToDict

with tarfile.open("flyte.tgz") as package:
    (name,) = [name for name in package.getnames() if ".fit_" in name]
    spec = TaskSpec.FromString(package.extractfile(name).read())
print(json.dumps(MessageToDict(spec.template.k8s_pod)))
"""


def test_flyte(full_queue: Queue, desk: Callable[..., Desk]) -> None:
    """The pod of the template that flytekit packages waits for quota, runs when there is some, and ends."""
    page = desk("flyte.md")
    page.do()
    page.end()
    (page.folder / "template.py").write_text(TEMPLATE)
    template = json.loads(page.run("python template.py"))
    labels = {**template["metadata"]["labels"], "node-id": "n0"}
    metadata = {"name": "f-n0-0", "namespace": "team-a", "labels": labels}
    spec = {**template["podSpec"], "restartPolicy": "Never"}
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    full_queue.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    full_queue.wait_gated(POD)
    full_queue.open()
    full_queue.wait_runs(POD)
    full_queue.end(POD)
    full_queue.wait_finished("f-n0-0", kind="Pod")
