"""What is recorded of two tenants who share a cohort, of a namespace that is gone, and of one that was made again.

All names of what the tenant of namespace `team` must not see contain `secret`.
"""

from typing import Any, Final

from tests.unit.recorder.lives import T0
from turnstile.recorder.facts import Fact, Quota, Record, Subject, What
from turnstile.recorder.scope import Scope

MADE: Final = T0 - 100
"""Since when the namespace `team` exists."""
TENANT: Final = Scope({"team": MADE})
"""What its tenant is shown who may list queues."""
BLIND: Final = Scope({"team": MADE}, quotas=False)
"""And who may not."""
SHORT: Final = [["default", "cpu", 3000, 1000]]


def subject(namespace: str, name: str, *, created: float = T0, **labels: str) -> Subject:
    """A Workload."""
    return Subject(f"uid-{name}", namespace, name, "Job", f"job-of-{name}", "main", 0, created, labels)


def fact(name: str, what: What, second: int, reason: str = "", message: str = "", **detail: Any) -> Fact:
    """Something that happened to a Workload."""
    return Fact(f"uid-{name}", what, T0 + second, 0, f"{second}", False, reason, message, detail or None)


def held(name: str, cpu: int, begin: int, end: int, *, queue: str = "shared") -> list[Record]:
    """A Workload that holds CPUs from one second to another, and is deleted."""
    usage = [["default", "cpu", cpu * 1000]]
    return [
        fact(name, "reserved", begin, cluster_queue=queue, usage=usage),
        fact(name, "admitted", begin),
        fact(name, "deleted", end),
    ]


def tenants() -> list[Record]:
    """All records."""
    preempts = [
        ["uid-secret-victim", "rival/secret-victim", "InCohortReclamation"],
        ["uid-secret-other", "rival/secret-other", "InCohortReclamation"],
        ["uid-mine-too", "team/mine-too", "InClusterQueue"],
    ]
    by = {"preemptor": "uid-secret-preemptor", "cluster_queue": "shared", "why": "InClusterQueue"}
    return [
        *(
            Quota("ClusterQueue", name, T0 - 200, "all", (("default", "cpu", cpu * 1000, None, None),))
            for name, cpu in (("shared", 4), ("secret-lender", 9))
        ),
        subject("team", "mine", user="me"),
        fact(
            "mine", "tried", 1, "WaitingForPreemptedWorkloads", "it waits", outcome="preempting",
            cluster_queue="shared", short=SHORT, preempts=preempts,
        ),
        fact("mine", "waiting", 2, "Pending", "it waits"),
        *held("mine", 3, 10, 50),
        fact("mine", "evicted", 40, "Preempted", "Preempted to accommodate a workload", **by),
        subject("team", "mine-too"),
        subject("rival", "secret-victim", user="secret-user"),
        *held("secret-victim", 3, 20, 40),
        subject("rival", "secret-preemptor"),
        fact("secret-preemptor", "deleted", 60),
        subject("ghost", "secret-ghost"),
        *held("secret-ghost", 1, 5, 45, queue="secret-lender"),
        subject("team", "secret-before", created=MADE - 1),
        *held("secret-before", 1, -101, 100),
    ]  # fmt: skip
