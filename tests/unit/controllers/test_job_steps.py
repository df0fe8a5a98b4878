"""The life of a job is a table of pure steps: each reads a frozen view, and exactly those of the moment speak."""

import copy
import dataclasses
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Final

import pytest

from tests.unit.controllers.job_cluster import JOB, Cluster
from turnstile.api.core import Job
from turnstile.api.workload import Workload
from turnstile.controllers.jobs import (
    admissible,
    adoption,
    following,
    growing,
    jobreconciler,
    settling,
    shared,
    starting,
    stopping,
)
from turnstile.controllers.jobs.jobreconciler import LEFT_ALONE, LIFE
from turnstile.controllers.jobs.plan import Outcome
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Create, Patch
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB
from turnstile.jobs.naming import split_job_key

MODULES: Final = (admissible, adoption, following, growing, jobreconciler, settling, shared, starting, stopping)
QUEUED: Final = {"kueue.x-k8s.io/queue-name": "main"}


def view_of(cluster: Cluster) -> JobView:
    """The Job of a cluster as its reconciler sees it."""
    framework, name = split_job_key(JOB)
    world = cluster.world
    job = world.jobs[Job].get(name)
    assert job is not None
    return JobView(world.registry.known[framework], job, world.workloads.by_index(WORKLOADS_BY_JOB, JOB), world)


def speaking(view: JobView) -> list[str]:
    """The steps that decide something about a job, each asked alone."""
    return [step.__name__ for step in (*LEFT_ALONE, *LIFE) if (said := step(view)) is not None and said.why]


def waiting(cluster: Cluster) -> None:
    """A Job with a Workload that waits."""
    cluster.flavor()
    cluster.job()
    cluster.settle()


def running(cluster: Cluster) -> None:
    """A Job that runs under quota."""
    waiting(cluster)
    cluster.admit()
    cluster.settle()
    cluster.run_pods()


def preempted(cluster: Cluster) -> None:
    """A Job that runs and was evicted."""
    running(cluster)
    cluster.evict()


def ended(cluster: Cluster) -> None:
    """A Job that has succeeded, before its Workload says so."""
    running(cluster)
    done = {"status": {"active": None, "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}}
    cluster.patch(Job, "team/train", done)


def unmanaged(cluster: Cluster) -> None:
    """A Job that names no queue."""
    cluster.job(labels={})


def new(cluster: Cluster) -> None:
    """A Job that was created a moment ago."""
    cluster.job()


def admitted(cluster: Cluster) -> None:
    """A Job that waits, and whose Workload was admitted a moment ago."""
    waiting(cluster)
    cluster.admit()


STATES: Final = (unmanaged, new, waiting, admitted, running, preempted, ended)


class TestTheTable:
    """Which steps there are."""

    def test_has_each_step_once(self) -> None:
        """A function from a view alone to an outcome is a step, and a step that is in no table is never taken."""
        steps = [step for module in MODULES for step in _steps(module)]
        assert sorted(step.__name__ for step in (*LEFT_ALONE, *LIFE)) == sorted(step.__name__ for step in steps)


def _steps(module: ModuleType) -> list[Callable[..., object]]:
    return [
        each
        for name, each in inspect.getmembers(module, inspect.isfunction)
        if each.__module__ == module.__name__
        and not name.startswith("_")
        and list(inspect.signature(each).parameters) == ["view"]
        and each.__annotations__["return"] == Outcome | None
    ]


class TestAStep:
    """What a step may do."""

    @pytest.mark.parametrize("state", STATES)
    def test_is_pure(self, state: Callable[[Cluster], None]) -> None:
        """Asked twice about one view, it decides the same, and no object has changed."""
        cluster = Cluster()
        state(cluster)
        view = view_of(cluster)
        before = copy.deepcopy((view.job, view.workloads))
        for step in (*LEFT_ALONE, *LIFE):
            assert step(view) == step(view)
        assert (view.job, view.workloads) == before

    def test_cannot_change_its_view(self) -> None:
        """The view is frozen."""
        cluster = Cluster()
        new(cluster)
        with pytest.raises(dataclasses.FrozenInstanceError):
            view_of(cluster).job = Job()  # type: ignore[misc]


class TestTheFirstThatSpeaks:
    """Which step decides about a job, in each part of its life."""

    @pytest.mark.parametrize(
        ("state", "step"),
        [
            (unmanaged, "adopt_child"),
            (new, "create"),
            (waiting, "wait"),
            (admitted, "start"),
            (running, "watch_running"),
            (preempted, "evict"),
            (ended, "finish"),
        ],
    )
    def test_is_that_of_the_moment(self, state: Callable[[Cluster], None], step: str) -> None:
        """All earlier steps let it pass."""
        cluster = Cluster()
        state(cluster)
        assert speaking(view_of(cluster))[0] == step

    def test_creates_the_workload_of_a_new_job(self) -> None:
        """With an event, and nothing else."""
        cluster = Cluster()
        new(cluster)
        outcome = starting.create(view_of(cluster))
        assert outcome is not None
        assert [type(each).__name__ for each in outcome.actions] == ["Create", "Emit"]
        assert isinstance(outcome.actions[0], Create)
        assert outcome.actions[0].kind is Workload

    def test_starts_an_admitted_job_with_one_patch(self) -> None:
        """Of the Job."""
        cluster = Cluster()
        admitted(cluster)
        outcome = starting.start(view_of(cluster))
        assert outcome is not None
        assert [each.kind for each in outcome.actions if isinstance(each, Patch)] == [Job]


class TestRoles:
    """Which of its Workloads charges for a job."""

    def test_the_first_that_fits_is_current_and_the_others_are_surplus(self) -> None:
        """A second Workload that fits as well is deleted, never used."""
        cluster = Cluster()
        waiting(cluster)
        second = cluster.workload
        second["metadata"] |= {"name": "z-second", "uid": "second"}
        cluster.put(Workload, second)
        roles = view_of(cluster).roles
        assert roles.current is not None
        assert [each.metadata.name for each in roles.surplus] == ["z-second"]

    def test_a_workload_for_other_pods_is_surplus(self) -> None:
        """Nothing is current then, and the surplus Workload is rewritten while it waits."""
        cluster = Cluster()
        waiting(cluster)
        cluster.patch(Job, "team/train", {"spec": {"parallelism": 7}})
        view = view_of(cluster)
        assert view.roles.current is None
        assert len(view.roles.surplus) == 1
        assert speaking(view)[0] == "settle_surplus"

    def test_a_prebuilt_workload_is_current_once_it_exists(self) -> None:
        """However it was made; whether it fits is judged by the step that takes it over."""
        cluster = Cluster()
        cluster.job(labels={**QUEUED, "kueue.x-k8s.io/prebuilt-workload-name": "mine"})
        assert view_of(cluster).roles.current is None
        cluster.put(Workload, {"metadata": {"namespace": "team", "name": "mine"}, "spec": {"podSets": []}})
        current = view_of(cluster).roles.current
        assert current is not None
        assert current.metadata.name == "mine"
