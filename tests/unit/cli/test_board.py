"""What `kubectl turnstile top` makes of cohorts and ClusterQueues."""

from typing import Any

from turnstile.cli.queues.board import below, lines, tree

Json = dict[str, Any]


def queue(name: str, cpu: str, *, used: str = "0", borrowed: str = "0", cohort: str = "", **status: Any) -> Json:
    """A ClusterQueue with a quota of cpu."""
    flavor = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    reserved = {"name": "plain", "resources": [{"name": "cpu", "total": used, "borrowed": borrowed}]}
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": cohort, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]},
        "status": {"flavorsReservation": [reserved], **status},
    }


def cohort(name: str, parent: str = "", cpu: str = "") -> Json:
    """A Cohort, with a quota of its own if one is given."""
    flavor = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}] if cpu else []
    return {"metadata": {"name": name}, "spec": {"parentName": parent, "resourceGroups": groups}}


def shown(queues: list[Json], cohorts: list[Json]) -> list[str]:
    """The lines, cells apart by bars."""
    return ["|".join(line.cells) for line in lines(tree(queues, cohorts))]


def test_a_cohort_has_the_sum_of_its_members() -> None:
    """Quota, usage and Workloads of all below it, and its own quota; what members borrow is theirs."""
    queues = [
        queue("a", "4", used="6", borrowed="2", cohort="team", pendingWorkloads=1, admittedWorkloads=3),
        queue("b", "4", used="500m", cohort="team", pendingWorkloads=2),
        queue("alone", "1"),
    ]
    assert shown(queues, [cohort("all", cpu="2"), cohort("team", "all")]) == [
        "cohort all|plain|cpu|6500m|10||65%|3|3",
        "  cohort team|plain|cpu|6500m|8||81%|3|3",
        "    a|plain|cpu|6|4|2|150%|1|3",
        "    b|plain|cpu|500m|4||12%|2|0",
        "alone|plain|cpu|0|1||0%|0|0",
    ]


def test_a_cohort_needs_no_object() -> None:
    """A name is enough, of a ClusterQueue's cohort or of a cohort's parent."""
    assert [line.partition("|")[0] for line in shown([queue("a", "1", cohort="x")], [cohort("y", "z")])] == [
        "cohort x",
        "  a",
        "cohort z",
        "  cohort y",
    ]


def test_cohorts_in_a_circle_are_shown() -> None:
    """Each once, though Turnstile admits nothing to them."""
    names = [line.partition("|")[0] for line in shown([], [cohort("x", "y"), cohort("y", "x")])]
    assert names == ["cohort x", "cohort y"]


def test_a_queue_that_does_not_admit_says_so() -> None:
    """It is marked, and one without quota has no share of it."""
    stopped = queue("a", "0", conditions=[{"type": "Active", "status": "False"}])
    assert shown([stopped], []) == ["a (inactive)|plain|cpu|0|0||-|0|0"]


def test_part_of_the_tree() -> None:
    """A cohort below another one can be shown by itself."""
    roots = tree([], [cohort("all"), cohort("team", "all")])
    found = below(roots, "team")
    assert found is not None
    assert found.name == "team"
    assert below(roots, "nobody") is None


def test_the_quota_of_a_status_holds() -> None:
    """Of a ClusterQueue and of a Cohort, with the object for which another controller has written it; an empty one is
    no quota."""

    def given(owner: Json, cpu: str) -> Json:
        by = {"apiGroup": "example.com", "kind": "Schedule", "name": "nights"}
        groups = cohort("", cpu=cpu)["spec"]["resourceGroups"]
        status = owner.get("status", {})
        return {**owner, "status": {**status, "effectiveQuotas": {"orchestratorRef": by, "resourceGroups": groups}}}

    queues = [given(queue("a", "4", used="6", cohort="team"), "12"), given(queue("b", "4", cohort="team"), "")]
    assert shown(queues, [given(cohort("team", cpu="1"), "3")]) == [
        "cohort team (quota by Schedule nights)|plain|cpu|6|15||40%|0|0",
        "  a (quota by Schedule nights)|plain|cpu|6|12||50%|0|0",
        "  b (quota by Schedule nights)|plain|cpu|0|0||-|0|0",
    ]
