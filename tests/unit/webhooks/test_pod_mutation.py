"""A Pod that has a queue, or gets one, is gated and marked; every other Pod is left as it came."""

import json

import pytest

from tests.unit.webhooks.reviews import Cluster, Json, meta, mutated, operations, owned_by, pod, request
from turnstile.api import names
from turnstile.api.core import Job, ReplicaSet
from turnstile.api.meta import Kind, ObjectMeta, OwnerReference
from turnstile.jobs.kinds.appwrapper.wrapper import AppWrapper, AppWrappers
from turnstile.jobs.kinds.deployment import Deployment
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.kinds.spark.application import SparkApplication, SparkApplications
from turnstile.jobs.kinds.statefulset import StatefulSet
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.jobs.workload import name_of
from turnstile.webhooks.jobreview import mutating
from turnstile.webhooks.review import ALLOWED

QUEUED = {names.QUEUE_LABEL: "main"}
GATES = [{"name": names.ADMISSION_GATE}, {"name": names.TOPOLOGY_GATE}]


def test_a_pod_with_a_queue_is_gated_and_marked() -> None:
    """Label, finalizer, gates and role hash come in this order, and only these."""
    answer = mutating(PlainPod(), Cluster())(request(pod(labels=QUEUED)))
    assert [(each["op"], each["path"]) for each in operations(answer)] == [
        ("add", "/metadata/labels/kueue.x-k8s.io~1managed"),
        ("add", "/metadata/finalizers"),
        ("add", "/spec/schedulingGates"),
        ("add", "/metadata/annotations"),
        ("add", "/spec/schedulingGates/-"),
    ]


def test_without_topologies_a_pod_has_one_gate() -> None:
    """With the feature gate off."""
    after = mutated(mutating(PlainPod(), Cluster(options=JobOptions(topologies=False))), pod(labels=QUEUED))
    assert after["spec"]["schedulingGates"] == GATES[:1]


def test_the_number_of_a_pod_is_copied() -> None:
    """From the label that its annotation names, as by Kueue; a tenant's own number is not believed then."""
    numbered = {names.POD_GROUP_POD_INDEX_LABEL: "example.com/number"}
    labels = {**QUEUED, "example.com/number": "3", names.POD_GROUP_POD_INDEX: "9"}
    after = mutated(mutating(PlainPod(), Cluster()), pod(labels=labels, annotations=numbered))
    assert after["metadata"]["labels"][names.POD_GROUP_POD_INDEX] == "3"
    after = mutated(mutating(PlainPod(), Cluster()), pod(labels=QUEUED, annotations=numbered))
    assert names.POD_GROUP_POD_INDEX not in after["metadata"]["labels"]


def test_what_was_there_stays() -> None:
    """Gates, finalizers, labels and annotations of others are kept, in front of ours."""
    before = pod(labels={**QUEUED, "app": "x"}, annotations={"note": "y"}, schedulingGates=[{"name": "other/gate"}])
    before["metadata"]["finalizers"] = ["other/finalizer"]
    after = mutated(mutating(PlainPod(), Cluster()), before)
    assert after["metadata"]["labels"] == {**QUEUED, "app": "x", names.MANAGED_LABEL: "true"}
    assert after["metadata"]["finalizers"] == ["other/finalizer", names.POD_FINALIZER]
    assert after["spec"]["schedulingGates"] == [{"name": "other/gate"}, *GATES]
    assert after["metadata"]["annotations"]["note"] == "y"


def test_a_pod_without_a_queue_is_left_alone() -> None:
    """It is scheduled at once."""
    assert mutating(PlainPod(), Cluster())(request(pod())) is ALLOWED


def test_the_default_queue_is_given() -> None:
    """As for Jobs, together with the marks of a managed pod."""
    after = mutated(mutating(PlainPod(), Cluster(default_queue_in=("team-a",))), pod())
    assert after["metadata"]["labels"] == {names.QUEUE_LABEL: "default", names.MANAGED_LABEL: "true"}
    assert after["spec"]["schedulingGates"] == GATES


@pytest.mark.parametrize("there", [True, False])
def test_a_pod_of_a_set_gets_the_default_queue(*, there: bool) -> None:
    """Pods of a queued StatefulSet are held by an annotation; any other pod that names one is not charged for."""
    jobs = (stateful_set(labels={}),) if there else ()
    owner = {**owned_by("StatefulSet", "db", api_version="apps/v1"), "uid": "uid-db"}
    after = mutated(mutating(PlainPod(), Cluster(default_queue_in=("team-a",), jobs=jobs)), pod(owner=owner))
    assert after["metadata"]["labels"][names.QUEUE_LABEL] == "default"
    assert after["spec"]["schedulingGates"] == GATES


@pytest.mark.parametrize("parent", [{}, {names.POD_SUSPENDING_PARENT: "statefulset"}], ids=["alone", "held"])
def test_the_name_of_a_workload_is_not_copied_to_another_pod(parent: dict[str, str]) -> None:
    """An admission adds it: of a pod that no controller has made, it is removed."""
    marks = {names.WORKLOAD: "job-train-0a1b2", "note": "x", **parent}
    after = mutated(mutating(PlainPod(), Cluster()), pod(annotations=marks))
    assert names.WORKLOAD not in after["metadata"]["annotations"]
    made = pod(annotations=marks, owner=owned_by("ReplicaSet", "web", api_version="apps/v1"))
    answer = mutating(PlainPod(), Cluster())(request(made))
    assert not any("remove" in each["op"] for each in operations(answer))


def test_a_pod_of_a_job_gets_no_default_queue() -> None:
    """Its Job may be queued, or not be managed."""
    parent = Job(metadata=meta(name="parent", uid="uid-1"))
    handler = mutating(PlainPod(), Cluster(default_queue_in=("team-a",), jobs=(parent,)))
    assert handler(request(pod(owner=owned_by("Job", "parent")))) is ALLOWED


def test_a_pod_of_a_queued_job_is_left_alone_even_with_a_queue_label() -> None:
    """Templates often carry the label of their Job, and always the pod set once the Job was started."""
    parent = Job(metadata=meta(name="parent", uid="uid-1", labels=QUEUED))
    handler = mutating(PlainPod(), Cluster(jobs=(parent,)))
    owner = owned_by("Job", "parent")
    assert handler(request(pod(labels={**QUEUED, names.PODSET_LABEL: "main"}, owner=owner))) is ALLOWED
    assert "schedulingGates" in mutated(handler, pod(labels=QUEUED, owner=owner))["spec"]


def test_a_pod_of_another_owner_is_gated() -> None:
    """Who makes the pod does not matter unless it is a job kind."""
    owner = owned_by("ReplicaSet", "web", api_version="apps/v1")
    assert "schedulingGates" in mutated(mutating(PlainPod(), Cluster()), pod(labels=QUEUED, owner=owner))["spec"]


def test_a_queue_label_does_not_help_in_a_namespace_that_is_not_managed() -> None:
    """Unlike a Job, a Pod with a queue label is gated in managed namespaces only."""
    assert mutating(PlainPod(), Cluster())(request(pod(labels=QUEUED), namespace="kube-system")) is ALLOWED


def test_all_pods_wait_where_all_are_managed() -> None:
    """With `manageJobsWithoutQueueName` a bare pod is gated without a queue."""
    options = JobOptions(
        manage_jobs_without_queue_name=True, managed_jobs_namespace_selector=namespaces(without=["kube-system"])
    )
    after = mutated(mutating(PlainPod(), Cluster(options=options)), pod())
    assert after["metadata"]["labels"] == {names.MANAGED_LABEL: "true"}
    assert after["spec"]["schedulingGates"] == GATES


def test_a_pod_suspended_by_its_parent_is_gated_without_questions() -> None:
    """Neither namespace nor owner are looked at, and the finalizer is the parent's business."""
    before = pod(annotations={names.POD_SUSPENDING_PARENT: "deployment"}, owner=owned_by("Job", "unknown"))
    after = mutated(mutating(PlainPod(), Cluster()), before, namespace="kube-system")
    assert after["spec"]["schedulingGates"] == GATES
    assert names.ROLE_HASH in after["metadata"]["annotations"]
    assert "finalizers" not in after["metadata"]


def stateful_set(*, labels: dict[str, str], owner: Json | None = None) -> Kind:
    """A StatefulSet named `db`."""
    metadata = {"name": "db", "namespace": "team-a", "uid": "uid-db", "labels": labels}
    metadata |= {"ownerReferences": [owner]} if owner is not None else {}
    return StatefulSet.decoder()(json.dumps({"metadata": metadata, "spec": {}}).encode())


def test_a_pod_that_names_a_queued_set_is_gated() -> None:
    """Its owner alone never charges for it, whatever its labels say."""
    cluster = Cluster(jobs=(stateful_set(labels=QUEUED),))
    owner = owned_by("StatefulSet", "db", uid="uid-db", api_version="apps/v1")
    after = mutated(mutating(PlainPod(), cluster), pod(labels={names.PODSET_LABEL: "main"}, owner=owner))
    assert after["spec"]["schedulingGates"] == GATES


def test_a_pod_of_a_set_that_a_job_wraps_is_not_gated() -> None:
    """The Workload of the AppWrapper charges for it: its start has labelled the template of the set."""
    wrapper = AppWrapper(metadata=ObjectMeta(name="all", namespace="team-a", uid="uid-all", labels=QUEUED))
    wrapped = owned_by("AppWrapper", "all", uid="uid-all", api_version="workload.codeflare.dev/v1beta2")
    cluster = Cluster(jobs=(stateful_set(labels={}, owner=wrapped), wrapper))
    owner = owned_by("StatefulSet", "db", uid="uid-db", api_version="apps/v1")
    found = pod(labels={names.PODSET_LABEL: "all-0"}, owner=owner)
    assert mutating(PlainPod(), cluster)(request(found)) is ALLOWED


def test_a_role_that_was_given_is_kept() -> None:
    """A controller that names the roles of its pods is not overruled."""
    after = mutated(mutating(PlainPod(), Cluster()), pod(labels=QUEUED, annotations={names.ROLE_HASH: "leader"}))
    assert after["metadata"]["annotations"] == {names.ROLE_HASH: "leader"}


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
def test_other_operations_pass(operation: str) -> None:
    """A gate can only be set on a new pod."""
    assert mutating(PlainPod(), Cluster())(request(pod(labels=QUEUED), operation=operation)) is ALLOWED


def test_an_eviction_passes() -> None:
    """Sub-resources of pods are of other kinds."""
    assert mutating(PlainPod(), Cluster())(request(pod(labels=QUEUED), sub_resource="eviction")) is ALLOWED


SPARK = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "name": "pi", "uid": "uid-of-pi"}


def executor(*, workload: str = "", owner: Json | None = None) -> Json:
    """An executor, as the program in a Spark driver makes it with the settings of an admitted application."""
    name = workload or name_of(SparkApplications(), application())
    made = pod(labels={names.PODSET_LABEL: "executor"}, annotations={names.WORKLOAD: name})
    driver = {"apiVersion": "v1", "kind": "Pod", "name": "pi-driver", "uid": "uid-of-driver", "controller": True}
    made["metadata"]["ownerReferences"] = [driver, SPARK if owner is None else owner]
    return made


def application(**labels: str) -> SparkApplication:
    """The application in a queue."""
    return SparkApplication(metadata=meta(name="pi", uid="uid-of-pi", labels=labels or {names.QUEUE_LABEL: "main"}))


@pytest.mark.parametrize("every_job", [False, True])
def test_an_executor_of_a_queued_application_is_left_alone(every_job: bool) -> None:
    """The Workload of its application charges for it, and its pods are counted: also where pods get a default queue."""
    options = JobOptions(manage_jobs_without_queue_name=every_job)
    cluster = Cluster(default_queue_in=("team-a",), jobs=(application(),), options=options)
    assert operations(mutating(PlainPod(), cluster)(request(executor()))) == []


@pytest.mark.parametrize(
    "made",
    [
        executor(workload="of-another"),
        executor(owner={**SPARK, "uid": "another"}),
        executor(owner={**SPARK, "name": "another"}),
        executor(owner={**SPARK, "kind": "Job", "apiVersion": "batch/v1"}),
    ],
)
def test_a_pod_that_pretends_to_be_an_executor_is_queued(made: Json) -> None:
    """It names another Workload, or an application that does not exist."""
    cluster = Cluster(default_queue_in=("team-a",), jobs=(application(),))
    after = mutated(mutating(PlainPod(), cluster), made)
    assert after["metadata"]["labels"][names.QUEUE_LABEL] == "default"
    assert after["spec"]["schedulingGates"] == GATES


WRAPPED = "workload.codeflare.dev/appwrapper"


def wrapper(*, suspend: bool = False) -> AppWrapper:
    """An AppWrapper in a queue."""
    made = {"metadata": {"name": "all", "namespace": "team-a", "uid": "uid-all", "labels": QUEUED}}
    return AppWrapper.decoder()(json.dumps({**made, "spec": {"suspend": suspend}}).encode())


def below(owner: Kind) -> list[OwnerReference]:
    """An owner reference to a controller."""
    version, of = f"{owner.GROUP}/{owner.VERSION}", owner.metadata
    return [OwnerReference(api_version=version, kind=owner.KIND, name=of.name, uid=of.uid, controller=True)]


def wrapped_deployment(*, owners: list[OwnerReference] | None = None) -> Deployment:
    """A Deployment in the AppWrapper."""
    owners = below(wrapper()) if owners is None else owners
    return Deployment(metadata=meta(name="web", uid="uid-web", labels={WRAPPED: "all"}, owner_references=owners))


def replica_set(*, owners: list[OwnerReference] | None = None) -> ReplicaSet:
    """The ReplicaSet of that Deployment."""
    owners = below(wrapped_deployment()) if owners is None else owners
    return ReplicaSet(metadata=meta(name="web-1", uid="uid-web-1", labels={WRAPPED: "all"}, owner_references=owners))


def of_wrapped_deployment(*, workload: str = "", controller: bool = True, uid: str = "uid-web-1") -> Json:
    """A pod of the ReplicaSet, with the marks of the AppWrapper's admission."""
    labels = {names.PODSET_LABEL: "all-0", WRAPPED: "all"}
    made = pod(labels=labels, annotations={names.WORKLOAD: workload or name_of(AppWrappers(), wrapper())})
    if controller:
        made["metadata"]["ownerReferences"] = [owned_by("ReplicaSet", "web-1", uid=uid, api_version="apps/v1")]
    return made


def wrapped(*above: Kind, suspend: bool = False) -> Cluster:
    """A cluster whose namespace has a default queue, with the AppWrapper and what is between it and a pod."""
    return Cluster(default_queue_in=("team-a",), jobs=(wrapper(suspend=suspend), *above))


@pytest.mark.parametrize("every_job", [False, True])
def test_a_pod_of_a_wrapped_deployment_is_left_alone(every_job: bool) -> None:
    """The Workload of the AppWrapper charges for it: in the default queue it would wait for that quota once more."""
    cluster = wrapped(wrapped_deployment(), replica_set())
    cluster.options = JobOptions(manage_jobs_without_queue_name=every_job)
    assert operations(mutating(PlainPod(), cluster)(request(of_wrapped_deployment()))) == []


ANOTHER = OwnerReference(
    api_version="workload.codeflare.dev/v1beta2", kind="AppWrapper", name="all", uid="another", controller=True
)
THING = OwnerReference(api_version="example.com/v1", kind="Thing", name="all", uid="uid-all", controller=True)


@pytest.mark.parametrize(
    ("made", "above"),
    [
        (of_wrapped_deployment(workload="of-another"), (wrapped_deployment(), replica_set())),
        (of_wrapped_deployment(controller=False), (wrapped_deployment(), replica_set())),
        (of_wrapped_deployment(uid="another"), (wrapped_deployment(), replica_set())),
        (of_wrapped_deployment(), (replica_set(owners=[]),)),
        (of_wrapped_deployment(), (replica_set(owners=[THING]),)),
        (of_wrapped_deployment(), (wrapped_deployment(owners=[]), replica_set())),
        (of_wrapped_deployment(), (wrapped_deployment(owners=[ANOTHER]), replica_set())),
    ],
    ids=[
        "another Workload",
        "no controller",
        "another ReplicaSet of that name",
        "a ReplicaSet of nobody",
        "a ReplicaSet of another controller",
        "a Deployment of nobody",
        "a Deployment of another AppWrapper of that name",
    ],
)
def test_a_pod_that_pretends_to_be_wrapped_is_queued(made: Json, above: tuple[Kind, ...]) -> None:
    """Its marks are those of a pod of the AppWrapper, as any template may have them. Its owners do not lead there."""
    after = mutated(mutating(PlainPod(), wrapped(*above)), made)
    assert after["metadata"]["labels"][names.QUEUE_LABEL] == "default"


@pytest.mark.parametrize("above", [(), (replica_set(),)], ids=["ReplicaSet", "Deployment"])
def test_a_pod_whose_owners_are_not_known_yet_is_refused(above: tuple[Kind, ...]) -> None:
    """Its controller tries again a moment later, when the webhook has seen what was created before the pod."""
    answer = mutating(PlainPod(), wrapped(*above))(request(of_wrapped_deployment()))
    assert answer.code
    assert "is not known yet" in answer.message


def test_a_pod_of_an_appwrapper_that_waits_is_refused() -> None:
    """Its controller tries again; an AppWrapper that was resumed a moment ago may not be known yet to run."""
    cluster = wrapped(wrapped_deployment(), replica_set(), suspend=True)
    answer = mutating(PlainPod(), cluster)(request(of_wrapped_deployment()))
    assert answer.code
    assert "is suspended" in answer.message
