"""The page about Dagster, read from top to bottom with Dagster; the containers are played by kwok."""

from collections.abc import Callable

import pytest

from tests.submitters.desk import Desk, Queue

pytestmark = [pytest.mark.cluster, pytest.mark.submitter("dagster")]

OP, RUN = "dagster/op=fit", "dagster/job=whole_run"


def test_dagster(full_queue: Queue, desk: Callable[..., Desk]) -> None:
    """The Job of an op waits for quota and the op for the Job, then both end; so does the Job of a whole run."""
    page = desk("dagster.md")
    page.variable("DAGSTER_HOME", str(page.folder))
    (page.folder / "dagster.yaml").rename(page.folder / "later.yaml")  # its run launcher is for the second half
    run = full_queue.submitter = page.begin()
    (job,) = full_queue.wait_jobs_suspended(OP)
    page.see(r"\w{32} +Suspended", r"job-\w{32}-\S+ +by-label +False")
    full_queue.open()
    full_queue.wait_runs(OP)
    full_queue.fill_next()
    full_queue.end(OP)
    run.end()
    full_queue.wait_finished(job, kind="Job")
    (page.folder / "later.yaml").rename(page.folder / "dagster.yaml")
    page.do()
    page.end()
    (job,) = full_queue.wait_jobs_suspended(f"{RUN},kueue.x-k8s.io/queue-name=by-label")
    full_queue.open()
    full_queue.wait_runs(RUN)
    full_queue.end(RUN)
    full_queue.wait_finished(job, kind="Job")
