"""What `turnstile explain` prints of a Workload that has quota."""

import msgspec

from turnstile.cli.explain import shown
from turnstile.insight.explain import Explanation
from turnstile.insight.running import PodSetRun, Running, Used

RUN = Running(
    cluster_queue="a",
    since="2026-01-01T08:00:00Z",
    until="",
    seconds=7_200.0,
    pod_sets=(PodSetRun("main", 4, 0, ("a100",)),),
    used=(Used("nvidia.com/gpu", "4", 8.0, "GPU-hours"), Used("cpu", "16", 32.0, "core-hours")),
    evicted=0,
)


def lines(run: Running, state: str = "admitted") -> list[str]:
    """The lines below the answer."""
    told = Explanation(
        workload="team/job-w",
        job="team/w",
        local_queue="main",
        cluster_queue="a",
        state=state,
        sentence="Said.",
        run=run,
    )
    head, _, why, *rest = shown(told)
    assert head.startswith(f"team/w is {state} (")
    assert why == "Why: Said."
    return rest


def test_a_job_that_runs() -> None:
    """Since when, where, with how many pods, and how much it has used."""
    assert lines(RUN) == [
        "     It has run for 2.0 h, since 2026-01-01T08:00:00Z.",
        "  4 pods on a100",
        "  used: 8.00 GPU-hours, 32.00 core-hours",
    ]


def test_a_job_on_another_cluster() -> None:
    """The cluster is named, also after the end."""
    away = msgspec.structs.replace(RUN, cluster="east")
    assert lines(away)[1] == "     It runs on the worker cluster east."
    over = msgspec.structs.replace(away, until="2026-01-01T10:00:00Z")
    assert lines(over, "finished")[1] == "     It ran on the worker cluster east."


def test_a_job_that_has_finished() -> None:
    """How long it ran, and how often it was evicted; with pods that ended earlier it used at most so much."""
    pod_sets = (PodSetRun("leader", 1, 1, ("on-demand",)), PodSetRun("workers", 8, 0, ("spot",)))
    over = msgspec.structs.replace(RUN, until="2026-01-01T10:00:00Z", pod_sets=pod_sets, evicted=2)
    assert lines(over, "finished") == [
        "     It ran for 2.0 h, until 2026-01-01T10:00:00Z.",
        "     It was evicted 2 times before.",
        "  leader: 1 pod on on-demand, 1 of them done",
        "  workers: 8 pods on spot",
        "  used at most: 8.00 GPU-hours, 32.00 core-hours",
    ]
