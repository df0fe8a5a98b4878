"""The page about Prefect, read from top to bottom with a Prefect server and a worker; kwok plays the containers."""

from collections.abc import Callable

import pytest

from testbed.client import wait_until
from testbed.ports import lent_port
from tests.submitters.desk import Desk, Queue

pytestmark = [pytest.mark.cluster, pytest.mark.submitter("prefect")]

JOBS = "kueue.x-k8s.io/queue-name=by-label,prefect.io/deployment-name=queued"


def test_prefect(full_queue: Queue, desk: Callable[..., Desk]) -> None:
    """The Job that the worker makes of a flow run waits for quota, runs when there is some, and ends."""
    port = lent_port()
    page = desk(
        "prefect.md",
        PREFECT_API_URL=f"http://127.0.0.1:{port}/api",
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        PREFECT_LOGGING_TO_API_ENABLED="false",
    )
    server = page.begin(f"prefect server start --host 127.0.0.1 --port {port} --no-ui")

    def served() -> bool:
        return server.goes_on() and page.succeeds(f"curl -sf http://127.0.0.1:{port}/api/health")

    wait_until(served, timeout=60, every=1, describe=lambda: server.printed)
    page.do()
    worker = full_queue.submitter = page.begin()
    (job,) = full_queue.wait_jobs_suspended(JOBS)
    page.see(r"\S+ +Suspended", r"job-\S+ +by-label +False")
    page.end()
    full_queue.open()
    full_queue.wait_runs(JOBS)
    full_queue.end(JOBS)
    worker.end()
    full_queue.wait_finished(job, kind="Job")
