"""A webhook and a collector of traces learn of real jobs: one starts and is preempted by another, a third can never
start."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testbed.client import wait_until
from testbed.installation import Installation
from tests.cluster.configured import configured
from tests.collector import collector

pytestmark = pytest.mark.cluster


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server on this machine, and the events that it takes."""
    taken: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 -- as the base has it
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_jobs_are_told_of(idle_installation: Installation, tmp_path: Path) -> None:
    """Each event names its own job, and nothing of the preemptor."""
    with webhook() as (url, taken), collector() as otel:
        text = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
notifications: {{url: "{url}"}}
traces: {{endpoint: "{otel.url}"}}
"""
        with configured(idle_installation, tmp_path, text) as turnstile, turnstile.team() as team:
            turnstile.start()
            quota = {team.flavor("plain"): {"cpu": "4"}}
            team.queue("team", quota, preemption={"withinClusterQueue": "LowerPriority"})
            team.job("first", queue="team", cpu="3")

            def told() -> list[tuple[str, str]]:
                names = ((each["type"].rpartition(".")[2], each["data"]["job"]["name"]) for each in taken)
                return list(names)

            def see(*wanted: tuple[str, str]) -> None:
                wait_until(lambda: set(wanted) <= set(told()), timeout=90, describe=lambda: f"told: {told()}")

            see(("started", "first"))
            team.job("large", queue="team", cpu="5")
            urgent = {"kueue.x-k8s.io/priority-class": team.priority_class("high", 100)}
            team.job("urgent", queue="team", cpu="3", labels=urgent)
            see(("preempted", "first"), ("started", "urgent"), ("cannotstart", "large"))
            (preempted,) = [each for each in taken if each["type"].endswith(".preempted")]
            assert preempted["data"]["reason"] == "InClusterQueue"
            assert "urgent" not in json.dumps(preempted)
            trace = preempted["data"]["uid"].replace("-", "")

            def traced() -> list[str]:
                return [each.name for each in otel.spans if each.trace_id.hex() == trace]

            wait_until(lambda: len(traced()) == 3, timeout=90, describe=lambda: f"traced: {traced()}")
            assert traced() == ["queued", "running", "evicted"]
            assert preempted["subject"].startswith(f"namespaces/{team.namespace}/workloads/job-first-")
