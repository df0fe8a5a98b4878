"""What the tour's table says about objects as the API server stores them."""

from typing import Any

from testbed.snapshot import Row, read

Json = dict[str, Any]


def job(
    name: str = "etl", *, suspend: bool = False, queue: str = "batch", conditions: list[Json] | None = None
) -> Json:
    """A Job of three pods that ask for half a CPU each."""
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
        },
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "suspend": suspend,
            "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}]}},
        },
        "status": {"conditions": conditions or []},
    }


def pod(name: str, *, owner: str = "", node: str = "", phase: str = "Pending", gate: bool = False) -> Json:
    """A Pod, made by a Job if `owner` names one."""
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:01Z",
            "labels": {"kueue.x-k8s.io/managed": "true"} if gate else {},
            "ownerReferences": [{"uid": f"uid-{owner}", "controller": True}] if owner else [],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"requests": {"cpu": 1}}}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}] if gate else [],
        },
        "status": {"phase": phase},
    }


def workload(owner: str, *conditions: Json, flavor: str = "") -> Json:
    """The Workload of a Job or Pod."""
    assignments = [{"name": "main", "flavors": {"cpu": flavor, "memory": flavor}}] if flavor else []
    return {
        "metadata": {"name": f"job-{owner}", "namespace": "team", "ownerReferences": [{"uid": f"uid-{owner}"}]},
        "status": {"conditions": list(conditions), "admission": {"podSetAssignments": assignments}},
    }


def condition(kind: str, status: str, message: str = "") -> Json:
    """A condition."""
    return {"type": kind, "status": status, "message": message}


def only_row(*, jobs: tuple[Json, ...] = (), pods: tuple[Json, ...] = (), workloads: tuple[Json, ...] = ()) -> Row:
    """The one row of these objects."""
    seen = read(jobs=jobs, pods=pods, workloads=workloads, local_queues=(), cluster_queues=(), nodes=())
    (row,) = seen.rows.values()
    return row


def test_a_waiting_job_says_why() -> None:
    """A suspended Job waits, with the sentence of its Workload."""
    why = "insufficient unused quota for cpu in flavor spot, 1 more needed"
    row = only_row(jobs=(job(suspend=True),), workloads=(workload("etl", condition("QuotaReserved", "False", why)),))
    assert (row.state, row.why, row.queue, row.nodes) == ("Waiting", why, "batch", ())


def test_a_job_nobody_looked_at_says_so() -> None:
    """Between creation and the first decision there is a sentence too."""
    assert only_row(jobs=(job(suspend=True),)).why == "no Workload yet"
    assert only_row(jobs=(job(suspend=True),), workloads=(workload("etl"),)).why == "in line; its turn has not come yet"


def test_a_running_job_shows_flavor_nodes_and_cpus() -> None:
    """Flavors once each, nodes sorted, CPUs of all pods; its pods are no rows of their own."""
    pods = (pod("b", owner="etl", node="n2", phase="Running"), pod("a", owner="etl", node="n1"))
    row = only_row(jobs=(job(),), pods=pods, workloads=(workload("etl", flavor="spot"),))
    assert (row.state, row.flavors, row.nodes, row.cpu) == ("Running", ("spot",), ("n1", "n2"), 1.5)


def test_admitted_before_its_pods_run() -> None:
    """Resumed, and no pod runs yet."""
    row = only_row(
        jobs=(job(),), workloads=(workload("etl", condition("Admitted", "True", "The workload is admitted")),)
    )
    assert (row.state, row.why) == ("Admitted", "The workload is admitted")


def test_between_the_last_pod_and_the_end_of_the_job() -> None:
    """Pods that have ended are told from pods that never began."""
    row = only_row(jobs=(job(),), pods=(pod("a", owner="etl", node="n1", phase="Succeeded"),))
    assert (row.state, row.why) == ("Running", "0 of 1 pods running, 1 ended")


def test_ends() -> None:
    """Complete is finished, Failed is failed, whatever suspend says."""
    assert only_row(jobs=(job(conditions=[condition("Complete", "True")]),)).state == "Finished"
    assert only_row(jobs=(job(suspend=True, conditions=[condition("Failed", "True", "no")]),)).state == "Failed"


def test_a_job_without_queue_is_unmanaged() -> None:
    """Nothing holds it."""
    assert (
        only_row(jobs=(job(queue=""),), pods=(pod("a", owner="etl", node="n", phase="Running"),)).state == "Unmanaged"
    )


def test_a_gated_pod_waits_and_a_finished_one_is_finished() -> None:
    """A plain Pod has a row of its own."""
    assert only_row(pods=(pod("shell", gate=True),)).state == "Waiting"
    assert only_row(pods=(pod("shell", phase="Succeeded"),)).state == "Finished"


def test_figures_of_queues() -> None:
    """Active queues by key, CPUs reserved and borrowed by queue and flavor."""
    status = {
        "conditions": [condition("Active", "True")],
        "flavorsReservation": [
            {
                "name": "spot",
                "resources": [{"name": "cpu", "total": "2500m", "borrowed": "1"}, {"name": "memory", "total": "1Gi"}],
            }
        ],
    }
    seen = read(
        jobs=(),
        pods=(),
        workloads=(),
        local_queues=[{"metadata": {"name": "batch", "namespace": "team"}, "status": {}}],
        cluster_queues=[{"metadata": {"name": "cq"}, "status": status}],
        nodes=[{"metadata": {"name": "n", "labels": {"a": "b"}}}],
    )
    assert seen.active_queues == {"cq"}
    assert seen.reserved == {("cq", "spot"): 2.5}
    assert seen.borrowed == {("cq", "spot"): 1}
    assert seen.nodes == {"n": {"a": "b"}}


def preempted(owner: str, *, preemptor: str, requeued: Json | None = None) -> Json:
    """A Workload that made room for another."""
    message = (
        f"Preempted to accommodate a workload (UID: w1, JobUID: {preemptor}) due to reclamation within the cohort; "
        "preemptor path: /all/b; preemptee path: /all/a"
    )
    reserved = requeued or condition("QuotaReserved", "False", message)
    return workload(owner, condition("Evicted", "True", message), reserved)


def test_a_victim_says_for_whom_it_was_stopped() -> None:
    """By name where it is known, without the paths of queues."""
    stopped = "Preempted to accommodate team/urgent due to reclamation within the cohort"
    jobs = (job(suspend=True), job("urgent"))
    seen = read(
        jobs=jobs, pods=(), workloads=(preempted("etl", preemptor="uid-urgent"),), local_queues=(), cluster_queues=(),
        nodes=(),
    )  # fmt: skip
    assert seen.rows["team/etl"].why == stopped
    unknown = only_row(jobs=jobs[:1], workloads=(preempted("etl", preemptor="gone"),))
    assert unknown.why.startswith("Preempted to accommodate a workload (UID: w1, JobUID: gone) due to")


def test_a_victim_says_why_it_waits_since() -> None:
    """Once it was considered again, both sentences are there."""
    again = preempted("etl", preemptor="uid-etl", requeued=condition("QuotaReserved", "False", "no room"))
    assert only_row(jobs=(job(suspend=True),), workloads=(again,)).why.endswith("the cohort; since then: no room")


def test_a_suspended_job_with_pods_is_stopping() -> None:
    """Its pods are not gone yet; pods that have ended do not count."""
    stopping = (pod("a", owner="etl", node="n1", phase="Running"), pod("b", owner="etl", node="n1", phase="Succeeded"))
    assert only_row(jobs=(job(suspend=True),), pods=stopping).state == "Stopping"
    assert only_row(jobs=(job(suspend=True),), pods=stopping[1:]).state == "Waiting"
