"""Which owner is queued in place of a job, by the references alone."""

from typing import Any, ClassVar

import pytest

from turnstile.api import names
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.core import Job, Pod, ReplicaSet
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, ObjectMeta, OwnerReference
from turnstile.jobs.ancestors import Ancestor, managed_ancestor
from turnstile.jobs.bases.configured import ConfiguredJobs
from turnstile.jobs.kinds.deployment import Deployment
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import ALL, Registry

QUEUED = {names.QUEUE_LABEL: "main"}
WRAPPERS = ConfiguredJobs(
    CustomKind(
        framework="example.com/wrapper",
        group="example.com",
        version="v1",
        kind="Wrapper",
        plural="wrappers",
        makes=["JobSet.jobset.x-k8s.io"],
    )
)
Wrapper: type[Kind] = WRAPPERS.kind


class CronJob(Kind):
    """A kind that no configuration enables."""

    GROUP: ClassVar = "batch"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "CronJob"
    PLURAL: ClassVar = "cronjobs"
    NAMESPACED: ClassVar = True


def made(kind: type[Kind], name: str, *, owner: Kind | None = None, queued: bool = False, **reference: Any) -> Any:
    """An object, with a reference to its controller."""
    references = []
    if owner is not None:
        api = f"{owner.GROUP}/{owner.VERSION}" if owner.GROUP else owner.VERSION
        fields = {"name": owner.metadata.name, "uid": owner.metadata.uid, "controller": True, **reference}
        references = [OwnerReference(api_version=api, kind=owner.KIND, **fields)]
    labels = QUEUED if queued else {}
    meta = ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", labels=labels, owner_references=references)
    return kind(metadata=meta)


def ancestor(
    job: Kind,
    *others: Kind,
    enabled: tuple[str, ...] | None = None,
    manage_all: bool = False,
    external: tuple[tuple[str, str], ...] = (),
) -> Ancestor | None:
    """The ancestor of a job among the other objects."""
    registry = Registry(enabled, kinds=(*ALL, WRAPPERS), external=external)
    known = {(type(each), each.metadata.key): each for each in others}
    options = JobOptions(manage_jobs_without_queue_name=manage_all)
    return managed_ancestor(job, lambda kind, key: known.get((kind, key)), options=options, registry=registry)


def test_the_owner_if_it_is_queued() -> None:
    """A Job of a JobSet; not if neither names a queue and such jobs are not managed."""
    for queued, manage_all, expected in ((True, False, "set"), (False, True, "set"), (False, False, None)):
        owner = made(JobSet, "set", queued=queued)
        found = ancestor(made(Job, "job", owner=owner), owner, manage_all=manage_all)
        assert (found.name if found is not None else None) == expected


def test_the_topmost_owner_that_is_queued() -> None:
    """The owners between are told, the nearest first; what is above and not queued does not count."""
    top = made(Wrapper, "top", queued=True)
    middle = made(JobSet, "set", owner=top)
    found = ancestor(made(Job, "job", owner=middle), top, middle)
    assert found is not None
    assert (found.job, found.between, found.fault) == (top, (middle,), "")
    top = made(Wrapper, "top")
    middle = made(JobSet, "set", owner=top, queued=True)
    found = ancestor(made(Job, "job", owner=middle), top, middle)
    assert found is not None
    assert (found.job, found.between) == (middle, ())


def test_the_search_passes_through_a_kind_that_is_not_enabled() -> None:
    """If its objects are read at all."""
    top = made(Wrapper, "top", queued=True)
    middle = made(JobSet, "set", owner=top, queued=True)
    found = ancestor(made(Job, "job", owner=middle), top, middle, enabled=("batch/job", "example.com/wrapper"))
    assert found is not None
    assert found.job is top


def test_the_search_passes_through_replica_sets() -> None:
    """To the Deployment of a Pod."""
    top = made(Deployment, "web", queued=True)
    middle = made(ReplicaSet, "web-1", owner=top)
    found = ancestor(made(Pod, "pod", owner=middle), top, middle)
    assert found is not None
    assert (found.kind, found.name, found.fault) == ("Deployment", "web", "")


@pytest.mark.parametrize("kind", [Pod, Job])
def test_an_owner_whose_kind_makes_no_such_objects_is_found_with_a_fault(kind: type[Kind]) -> None:
    """It is queued, and yet cannot be charged for the job."""
    owner = made(kind, "owner", queued=True)
    found = ancestor(made(Job, "job", owner=owner), owner)
    assert found is not None
    assert found.fault == f"the owner of Job job is a {kind.KIND}, which makes none"


@pytest.mark.parametrize("kind", [Pod, Job])
def test_such_an_owner_is_none_if_it_is_not_there(kind: type[Kind]) -> None:
    """Pods that are not managed are never read: nobody waits for them."""
    assert ancestor(made(Job, "job", owner=made(kind, "owner"))) is None


def test_an_owner_that_is_not_read_is_none() -> None:
    """A kind that nothing is known of, or whose jobs have no Workload."""
    for child, owner in ((Job, CronJob), (Pod, ReplicaSet)):
        assert ancestor(made(child, "child", owner=made(owner, "owner", queued=True))) is None


def test_another_uid_is_another_object() -> None:
    """The owner was made again, or the reference is forged."""
    owner = made(JobSet, "set", queued=True)
    assert ancestor(made(Job, "job", owner=owner, uid="forged"), owner) is None


def test_only_the_controller_counts() -> None:
    """Other references keep the object alive, no more."""
    owner = made(JobSet, "set", queued=True)
    assert ancestor(made(Job, "job", owner=owner, controller=False), owner) is None


def test_an_owner_that_ought_to_be_there_is_missing() -> None:
    """Its kind makes such objects, and is read."""
    with pytest.raises(LookupError, match="workload owner not found: JobSet team/set"):
        ancestor(made(Job, "job", owner=made(JobSet, "set")))


def test_owners_in_a_circle_are_an_error() -> None:
    """As an endless chain is."""
    first = made(Job, "a")
    second = made(Job, "b", owner=first)
    first = made(Job, "a", owner=second)
    with pytest.raises(PermanentError, match="circle"):
        ancestor(first, first, second)


def test_an_external_owner_ends_the_search() -> None:
    """Its own owners are its controller's business."""
    owner = made(CronJob, "run")
    found = ancestor(made(Job, "job", owner=owner), external=(("batch", "CronJob"),))
    assert found is not None
    assert (found.job, found.name) == (None, "run")
