"""Names of Workloads are Kueue's, so that a cluster keeps its objects when it changes hands."""

from hypothesis import given
from hypothesis import strategies as st

from turnstile.api.core import Job, Pod
from turnstile.api.meta import ObjectMeta, OwnerReference
from turnstile.api.workload import Workload
from turnstile.jobs import workload as build
from turnstile.jobs.naming import MAX_NAME, SHORT_NAME, group_in, job_key, split_job_key, workload_name
from turnstile.jobs.registry import Registry


def test_the_name_is_kueues() -> None:
    """The hash is that of `printf 'Job\\nbatch\\ntrain\\nuid-1' | sha1sum`."""
    assert workload_name(Job, "train", "uid-1") == "job-train-a6870"
    assert workload_name(Job, "train", "uid-1", extra="7") == "job-train-b2389"


def test_kinds_do_not_meet() -> None:
    """A Pod and a Job of one name and uid have different Workloads."""
    assert workload_name(Job, "a", "u") != workload_name(Pod, "a", "u")


@given(name=st.text(alphabet="abc-.0", min_size=1, max_size=300), uid=st.uuids().map(str))
def test_a_name_fits_and_tells_owners_apart(name: str, uid: str) -> None:
    """However long the owner's name is."""
    made = workload_name(Job, name, uid)
    assert len(made) <= MAX_NAME
    assert made == workload_name(Job, name, uid)
    assert made != workload_name(Job, name, uid + "x")


def test_a_short_name_may_be_the_value_of_a_label() -> None:
    """With the gate; the name without it is known still, because Workloads keep theirs when the gate is switched."""
    job = Job(metadata=ObjectMeta(name="train-" * 20, namespace="team", uid="u"))
    (long,), (short,) = (Registry(["batch/job"], short_names=on).enabled for on in (False, True))
    assert (len(build.name_of(long, job)), len(build.name_of(short, job))) == (130, SHORT_NAME)
    for name in (build.name_of(long, job), build.name_of(short, job)):
        assert build.may_be_named(long, job, name)
        assert build.may_be_named(short, job, name)
    assert not build.may_be_named(short, job, "job-train-0a1b2")


def test_a_key_leads_to_kind_and_name_and_back() -> None:
    """Framework names contain slashes."""
    assert split_job_key(job_key("batch/job", "team", "train")) == ("batch/job", "team/train")


def test_a_workload_knows_the_jobs_that_own_it_by_name() -> None:
    """Whatever the version of the owner's API; owners that are no jobs do not count."""
    owners = [
        OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="u"),
        OwnerReference(api_version="v1", kind="Pod", name="one", uid="v"),
        OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="w"),
    ]
    workload = Workload(metadata=ObjectMeta(name="wl", namespace="team", owner_references=owners))
    assert Registry().jobs_of(workload) == ["batch/job:team/train", "pod:team/group/wl"]


def test_a_workload_of_a_group_knows_the_group_by_its_own_name() -> None:
    """Its pods may be gone; one that controls it is known too."""
    owner = OwnerReference(api_version="v1", kind="Pod", name="one", uid="v", controller=True)
    meta = ObjectMeta(
        name="ring",
        namespace="team",
        owner_references=[owner],
        annotations={"kueue.x-k8s.io/is-group-workload": "true"},
    )
    assert Registry().jobs_of(Workload(metadata=meta)) == ["pod:team/one", "pod:team/group/ring"]


def test_pods_of_a_group_have_its_key() -> None:
    """By annotation or label; a pod that is named `group` is no group."""
    registry = Registry()
    for where in ("labels", "annotations"):
        meta = ObjectMeta(name="a", namespace="team", **{where: {"kueue.x-k8s.io/pod-group-name": "ring"}})
        assert registry.key_of(Pod(metadata=meta)) == "pod:team/group/ring"
    assert registry.key_of(Pod(metadata=ObjectMeta(name="group", namespace="team"))) == "pod:team/group"
    assert group_in("team/group/ring") == "ring"
    assert group_in("team/group") == ""


def test_a_registry_finds_each_kind_by_all_its_names() -> None:
    """By framework, job and owner reference."""
    registry = Registry()
    for integration in registry.enabled:
        kind = integration.kind
        group = f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION
        owner = OwnerReference(api_version=group, kind=kind.KIND, name="a", uid="u")
        assert registry.by_framework(integration.framework) is integration
        assert registry.of(kind()) is integration
        assert registry.by_owner(owner) is integration
