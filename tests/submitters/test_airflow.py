"""The page about Airflow, read from top to bottom with Airflow and its operators; the containers are played by kwok."""

from collections.abc import Callable

import pytest

from testbed import ControlPlane
from tests.submitters.desk import Desk, Queue

pytestmark = [pytest.mark.cluster, pytest.mark.submitter("airflow")]

POD = "task_id=prepare"
JOB = "task_id=fit"
POLICY = """
def task_policy(task):
    task.get_logs = False
"""
"""There are no containers, and so no logs: a policy of Airflow for all DAGs, which stay as they are on the page."""


def test_airflow(control_plane: ControlPlane, full_queue: Queue, desk: Callable[..., Desk]) -> None:
    """The Pod of one operator and the Job of the other wait for quota, run when there is some, and the DAG succeeds."""
    page = desk(
        "airflow.md",
        AIRFLOW_CONN_KUBERNETES_DEFAULT=f"kubernetes://?kube_config_path={control_plane.kubeconfig()}",
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT="600",  # half a minute, which a busy machine may need
    )
    policy = page.folder / "airflow" / "config" / "airflow_local_settings.py"
    policy.parent.mkdir()
    policy.write_text(POLICY)
    run = full_queue.submitter = page.begin()
    full_queue.wait_gated(POD)
    page.see(r"pod-prepare-\S+ +by-label +False")
    page.end()
    full_queue.open()
    full_queue.wait_runs(POD)
    full_queue.fill_next()
    full_queue.end(POD)
    (job,) = full_queue.wait_jobs_suspended("kueue.x-k8s.io/queue-name=by-label")
    full_queue.open()
    full_queue.wait_runs(JOB)
    full_queue.end(JOB)
    printed = run.end()
    assert "success" in printed, printed
    full_queue.wait_finished(job, kind="Job")
