"""What the user of a job is told by the webhooks, and when a job is refused for it."""

from typing import Any

import pytest

from tests.unit.engine import builders as b
from tests.unit.webhooks.reviews import Cluster, job, operations, owned_by, pod, request
from turnstile.advice.offer import Offer
from turnstile.api.core import Namespace
from turnstile.api.meta import Kind
from turnstile.api.submission import REFUSE, About
from turnstile.engine import Options
from turnstile.jobs.options import JobOptions, SubmissionOptions
from turnstile.webhooks.review import Answer
from turnstile.webhooks.routes import routes

QUEUED = {"kueue.x-k8s.io/queue-name": "main"}
TOO_MUCH = (
    "the job can never start as it is: its pod asks for 9 CPUs on default nodes, where ClusterQueue main can have 8 at"
    " most"
)


def cluster(*objects: Kind, refused: tuple[str, ...] = (), ignored: tuple[str, ...] = (), **queue: Any) -> Cluster:
    """A cluster with a queue of 8 cpus, or one with what is told of it, and other objects."""
    offer = Offer(Options())
    main = b.queue("main", {"default": {"cpu": 8}}, **queue)
    for each in (b.flavor(), main, b.local("main", "main", "team-a"), *objects):
        offer.put(each)
    options = SubmissionOptions(refused=frozenset(refused), ignored=frozenset(ignored))
    return Cluster(options=JobOptions(submission=options), offer=offer)


def asking(cpu: str, **more: Any) -> dict[str, Any]:
    """A Job of one pod that asks for so many cpus."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return job(**{"labels": QUEUED, "template": template, **more})


def created(world: Cluster, body: dict[str, Any], kind: str = "batch-v1-job") -> Answer:
    """The answer of the defaulting webhook to a new object."""
    return routes(world)[f"/mutate-{kind}"](request(body))


def changed(world: Cluster, old: dict[str, Any], new: dict[str, Any]) -> Answer:
    """The answer of the validating webhook to a change."""
    return routes(world)["/validate-batch-v1-job"](request(new, old=old))


class TestNewJobs:
    """Told when a job is made."""

    def test_a_job_that_never_fits(self) -> None:
        """It is suspended as ever, and the user is warned."""
        answer = created(cluster(), asking("9"))
        assert answer.warnings == (TOO_MUCH,)
        assert {each["path"] for each in operations(answer)} >= {"/spec/suspend"}

    def test_a_job_that_fits(self) -> None:
        """There is nothing to tell."""
        assert created(cluster(), asking("8")).warnings == ()

    def test_a_job_that_is_suspended_already(self) -> None:
        """The user is warned all the same."""
        assert created(cluster(), asking("9", suspend=True)).warnings == (TOO_MUCH,)

    def test_a_job_without_a_queue(self) -> None:
        """Turnstile does not hold it."""
        assert created(cluster(), asking("9", labels={})).warnings == ()

    def test_a_default_queue(self) -> None:
        """The queue that the webhook adds counts."""
        world = cluster(b.local("default", "gone", "team-a"))
        world.default_queue_in = ("team-a",)
        world.namespaces = {"team-a": {"kubernetes.io/metadata.name": "team-a"}}
        sentence = "ClusterQueue gone does not exist: the job waits until it does"
        assert created(world, asking("1", labels={})).warnings == (sentence,)

    def test_a_class_and_a_queue_that_do_not_exist(self) -> None:
        """Both are told."""
        labels = {"kueue.x-k8s.io/queue-name": "typo", "kueue.x-k8s.io/priority-class": "hihg"}
        assert created(cluster(), asking("1", labels=labels)).warnings == (
            "WorkloadPriorityClass hihg does not exist: the job waits until it does",
            "LocalQueue typo does not exist in namespace team-a: the job waits until it does",
        )

    def test_a_plain_pod(self) -> None:
        """Like a Job."""
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "9"}}}
        world = cluster()
        world.namespaces = {"team-a": {"kubernetes.io/metadata.name": "team-a"}}
        answer = created(world, pod(labels=QUEUED, containers=[container]), "-v1-pod")
        assert answer.warnings == (TOO_MUCH,)

    @pytest.mark.parametrize("kind", ["CronJob", "JobSet"])
    def test_a_job_that_a_controller_makes(self, kind: str) -> None:
        """No user reads the answer."""
        assert created(cluster(), asking("9", owner=owned_by(kind, "parent"))).warnings == ()

    def test_caches_that_are_not_filled(self) -> None:
        """Nothing is guessed."""
        world = cluster()
        world.offer = None
        assert created(world, asking("9")).warnings == ()

    def test_less_than_its_parallelism(self) -> None:
        """A Job that may run with fewer pods fits if these do."""
        some = {"kueue.x-k8s.io/job-min-parallelism": "2"}
        assert created(cluster(), asking("3", parallelism=9, completions=9, annotations=some)).warnings == ()
        assert created(cluster(), asking("5", parallelism=9, completions=9, annotations=some)).warnings != ()

    def test_a_long_sentence_is_cut(self) -> None:
        """The API server would cut it too."""
        (warning,) = created(cluster(), asking("1", labels={"kueue.x-k8s.io/queue-name": "q" * 253})).warnings
        assert len(warning) == 256
        assert warning.endswith("…")

    def test_an_amount_that_cannot_be_read(self) -> None:
        """The API server refuses it with a word of its own."""
        assert created(cluster(), asking("many")).warnings == ()


class TestChanges:
    """Told when a job is changed."""

    def test_what_is_new(self) -> None:
        """It asks for more than before."""
        old, new = asking("1", suspend=True), asking("9", suspend=True)
        assert changed(cluster(), old, new).warnings == (TOO_MUCH,)

    def test_what_was_so_before(self) -> None:
        """Another label changes nothing."""
        old, new = asking("9", suspend=True), asking("9", suspend=True, labels={**QUEUED, "more": "x"})
        assert changed(cluster(), old, new) == Answer()
        assert not changed(cluster(refused=(About.NEVER_FITS,)), old, new).code

    def test_a_job_that_runs(self) -> None:
        """It has its quota."""
        assert changed(cluster(), asking("1"), asking("9")).warnings == ()

    def test_a_refusal(self) -> None:
        """As of a new job."""
        answer = changed(cluster(refused=(About.NEVER_FITS,)), asking("1", suspend=True), asking("9", suspend=True))
        assert answer.code == 403


class TestRefusals:
    """Jobs may be refused instead."""

    def test_by_the_configuration(self) -> None:
        """The reason is the sentence of the warning, with its name."""
        answer = created(cluster(refused=(About.NEVER_FITS,)), asking("9"))
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert answer.message == f"such jobs are refused here: {TOO_MUCH} (NeverFits)"
        assert answer.warnings == ()

    def test_by_the_cluster_queue(self) -> None:
        """For the names in its annotation, and its own jobs alone."""
        world = cluster()
        assert world.offer is not None
        queue = b.queue("main", {"default": {"cpu": 8}}, stopPolicy="Hold")
        queue.metadata.annotations = {REFUSE: "NeverFits, ResourceNotCovered"}
        world.offer.put(queue)
        answer = created(world, asking("9"))
        assert answer.message == f"such jobs are refused here: {TOO_MUCH} (NeverFits)"
        assert answer.warnings == (
            "ClusterQueue main is stopped (stopPolicy Hold): the job waits until it is started again",
        )
        assert not created(world, asking("8")).code

    def test_what_nobody_wants_to_know(self) -> None:
        """By the configuration."""
        assert created(cluster(ignored=(About.NEVER_FITS,)), asking("9")).warnings == ()


def test_a_namespace_that_a_queue_does_not_select() -> None:
    """Its labels are of the cache."""
    namespace = Namespace()
    namespace.metadata.name = "team-a"
    world = cluster(namespace, namespaceSelector={"matchLabels": {"tier": "gold"}})
    assert created(world, asking("1")).warnings == (
        "ClusterQueue main is not for namespace team-a: its namespaceSelector does not match",
    )


class TestTheAnnotation:
    """A ClusterQueue names what its jobs are refused for."""

    @staticmethod
    def answered(value: str, before: str | None = None) -> Answer:
        """The answer to a ClusterQueue with a value of the annotation."""

        def body(text: str) -> dict[str, Any]:
            metadata = {"name": "main", "annotations": {REFUSE: text}}
            return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": metadata, "spec": {}}

        old = body(before) if before is not None else None
        handler = routes(Cluster())["/validate-kueue-x-k8s-io-v1beta2-clusterqueue"]
        return handler(request(body(value), old=old))

    def test_names_that_are_known(self) -> None:
        """One or several."""
        assert not self.answered("NeverFits").code
        assert not self.answered("NeverFits, ClusterQueueStopped").code

    @pytest.mark.parametrize("name", ["Neverfits", "LocalQueueNotFound"])
    def test_names_that_are_not(self, name: str) -> None:
        """What no ClusterQueue can know of is refused too."""
        answer = self.answered(f"NeverFits,{name}")
        assert f'metadata.annotations[{REFUSE}]: Unsupported value: "{name}": supported values: ' in answer.message

    def test_a_name_that_was_there_before(self) -> None:
        """It does not block other changes."""
        assert not self.answered("Old,NeverFits", before="Old").code


@pytest.mark.parametrize(("label", "warned"), [("fast", True), ("general", False)])
def test_a_cluster_queue_whose_flavors_contradict_each_other_is_warned_about(label: str, *, warned: bool) -> None:
    """Flavors of two resource groups that no node can have both of are said when the ClusterQueue is made: nothing that
    asks for resources of both would be admitted."""
    flavors = {"cpus": "general", "gpus": label}
    world = cluster(*(b.flavor(name, nodeLabels={"pool": value}) for name, value in flavors.items()))
    groups = b.groups({"cpus": {"cpu": 8}}, {"gpus": {"example.com/gpu": 8}})
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "mixed"},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups},
    }
    validate = routes(world)["/validate-kueue-x-k8s-io-v1beta2-clusterqueue"]
    told = (
        "flavor cpus contradicts flavor gpus: node label pool is general and fast: no pod can ask for resources of both"
    )
    assert validate(request(body)) == Answer(warnings=(told,) if warned else ())
    assert validate(request(body, old=body, operation="UPDATE")).warnings == ()
