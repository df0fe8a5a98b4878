"""What a Job and a Workload of a history use, pod by pod."""

from tests.faults.moments import job_cpus, workload_cpus

TEMPLATE = {"spec": {"containers": [{"resources": {"requests": {"cpu": "3"}}}]}}


def test_pods_that_are_through_use_nothing() -> None:
    """Nor less than nothing, once the Job is made smaller than they are many."""
    for count, left in ((4, 2), (2, 0), (1, 0)):
        job = {"spec": {"parallelism": count, "completions": count, "template": TEMPLATE}, "status": {"succeeded": 2}}
        assert job_cpus(job) == 3 * left
        workload = {
            "spec": {"podSets": [{"name": "main", "count": count, "template": TEMPLATE}]},
            "status": {"reclaimablePods": [{"name": "main", "count": 2}]},
        }
        assert workload_cpus(workload) == 3 * left
