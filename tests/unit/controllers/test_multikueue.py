"""Workloads that are sent to other clusters: what is written to the manager, and what to each worker."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.worlds import ADMITTED, NOW, RESERVED, condition, decode
from turnstile.api.core import Job
from turnstile.api.meta import ObjectMeta
from turnstile.api.workload import AdmissionCheckState, Workload
from turnstile.controllers.multikueue import manager, worker
from turnstile.controllers.multikueue.dispatchers import ROUND_SECONDS, Rounds, nominees
from turnstile.controllers.multikueue.kubeconfigs import BadKubeConfig, checked, fault_of, path_fault
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, Situation
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.options import MultiKueueOptions
from turnstile.jobs.remote import copied_job, naming

INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
ORIGIN = "kueue.x-k8s.io/multikueue-origin"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
EVICTED = condition("Evicted", "True", "Preempted", "others need it")


def workload(*conditions: Any, state: str = "Pending", uid: str = "uid-1", **status: Any) -> Workload:
    """The manager's Workload, with the state of its check."""
    checks = [{"name": "elsewhere", "state": state, "message": ""}]
    return decode(
        Workload,
        {
            "metadata": {"name": "wl", "namespace": "ns", "uid": uid},
            "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1}]},
            "status": {"conditions": list(conditions), "admissionChecks": checks, **status},
        },
    )


def copy(*conditions: Any, uid: str = "uid-1", **spec: Any) -> Workload:
    """The Workload on a worker."""
    marks = {"labels": {ORIGIN: "multikueue"}, "annotations": {f"{ORIGIN}-uid": uid}}
    body = {"queueName": "q", "podSets": [{"name": "main", "count": 1}], **spec}
    metadata = {"name": "wl", "namespace": "ns", **marks}
    return decode(Workload, {"metadata": metadata, "spec": body, "status": {"conditions": list(conditions)}})


def job(version: str = "5") -> RemoteJob:
    """The job on a worker."""
    return decode(
        RemoteJob, {"metadata": {"name": "job", "namespace": "ns", "uid": "there", "resourceVersion": version}}
    )


def told(here: Workload, remotes: dict[str, Remote], **more: Any) -> manager.Verdict:
    """The decision on the manager."""
    check: AdmissionCheckState = here.status.admission_checks[0]
    return manager.decide(Situation(workload=here, check=check, remotes=remotes, **more))


def on(here: Workload | None, remote: Remote, name: str = "east", *, dispatched: bool = True) -> worker.Order:
    """The decision about a worker."""
    return worker.decide(name, here, remote, dispatched=dispatched)


class TestTheWinner:
    """One cluster gets the job."""

    def test_is_the_first_that_the_manager_saw(self) -> None:
        """The clocks of workers do not count."""
        here = workload(RESERVED, nominatedClusterNames=["east", "west"])
        early = condition("Admitted", "True", "Admitted", since="2020-01-01T00:00:00Z")
        remotes = {"east": Remote(workload=copy(early), seen=7), "west": Remote(workload=copy(ADMITTED), seen=3)}
        verdict = told(here, remotes)
        assert (verdict.winner, verdict.check) == (
            "west",
            ("Ready", 'The workload was admitted on "west", Previously: "Pending"'),
        )

    def test_is_not_a_cluster_that_only_reserved_quota(self) -> None:
        """It may wait for checks of its own."""
        here = workload(RESERVED, nominatedClusterNames=["east"])
        assert told(here, {"east": Remote(workload=copy(RESERVED))}, nominees=["east"]).winner == ""

    def test_is_not_a_cluster_that_nobody_hears_of(self) -> None:
        """The last news of it may be old."""
        here = workload(RESERVED, nominatedClusterNames=["east"])
        assert told(here, {"east": Remote(connected=False, workload=copy(ADMITTED))}, nominees=["east"]).winner == ""

    def test_is_not_a_cluster_that_was_not_nominated(self) -> None:
        """The API server refuses such a cluster."""
        here = workload(RESERVED, nominatedClusterNames=["east"])
        assert told(here, {"west": Remote(workload=copy(ADMITTED))}, nominees=["east"]).winner == ""

    def test_gets_the_job_only_once_it_is_written_down(self) -> None:
        """A leader that is killed in between cannot have the next one send a second copy."""
        admitted = Remote(workload=copy(ADMITTED), missing=[Job(metadata=ObjectMeta(name="job"))])
        assert not on(workload(RESERVED, nominatedClusterNames=["east"]), admitted).create_jobs
        assert on(workload(RESERVED, state="Ready", clusterName="east"), admitted).create_jobs


class TestTheOtherClusters:
    """Clusters that are not to run the job."""

    def test_lose_the_workload_when_one_has_won(self) -> None:
        """Their quota is free then."""
        order = on(workload(RESERVED, state="Ready", clusterName="west"), Remote(workload=copy(RESERVED)))
        assert (order.delete_workload, order.delete_jobs) == (True, [])

    def test_lose_everything_of_a_workload_that_is_gone(self) -> None:
        """Nothing else collects what a manager has left."""
        order = on(None, Remote(workload=copy(ADMITTED), jobs=[job()]))
        assert (order.delete_jobs != (), order.delete_workload) == (True, True)

    def test_stop_a_copy_that_a_finalizer_keeps(self) -> None:
        """Its Workload is being deleted, and is taken out of use: so its pods are deleted."""
        there = copy(RESERVED, ADMITTED)
        there.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
        kept = job()
        kept.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
        assert on(None, Remote(workload=there, strays=[kept])).stop
        assert not on(None, Remote(workload=there, strays=[job()])).stop
        assert not on(None, Remote(workload=copy(RESERVED, ADMITTED), strays=[kept])).stop
        there.spec.active = False
        assert not on(None, Remote(workload=there, strays=[kept])).stop

    def test_get_no_workload_of_a_kind_that_they_lack(self) -> None:
        """The cluster is out for that kind only."""
        here = workload(RESERVED, nominatedClusterNames=["east"])
        assert on(here, Remote()).create_workload
        assert not on(here, Remote(lacks="no such kind")).create_workload

    def test_lose_a_workload_of_an_earlier_one_of_the_same_name(self) -> None:
        """It is sent anew."""
        here = workload(RESERVED, uid="uid-2", nominatedClusterNames=["east"])
        assert on(here, Remote(workload=copy(uid="uid-1"))).delete_workload

    def test_lose_a_workload_with_another_spec(self) -> None:
        """A changed priority alone is followed."""
        here = workload(RESERVED, nominatedClusterNames=["east"])
        assert on(here, Remote(workload=copy(podSets=[{"name": "main", "count": 2}]))).delete_workload
        assert on(here, Remote(workload=copy(priority=5))).follow_priority


class TestARunningJob:
    """The manager follows the cluster that has won."""

    HERE = workload(RESERVED, ADMITTED, state="Ready", clusterName="east")

    def test_has_its_status_copied_once_for_each_version(self) -> None:
        """The same version is not written twice."""
        remotes = {"east": Remote(workload=copy(ADMITTED), jobs=[job("5")])}
        assert told(self.HERE, remotes).copy_from == "east"
        assert told(self.HERE, remotes, copied={"there": "4"}).copy_from == "east"
        assert told(self.HERE, remotes, copied={"there": "5"}).copy_from == ""

    def test_ends_only_when_its_last_status_was_copied(self) -> None:
        """The job says how it ended, then its Workload."""
        done = condition("Finished", "True", "Succeeded", "Job finished successfully")
        remotes = {"east": Remote(workload=copy(ADMITTED, done), jobs=[job("5")])}
        first = told(self.HERE, remotes)
        assert (first.copy_from, first.finish) == ("east", None)
        assert told(self.HERE, remotes, copied={"there": "5"}).finish == ("Succeeded", "Job finished successfully")

    def test_is_sent_anew_when_it_is_out_of_sync(self) -> None:
        """The job on the worker was changed there: that is no end."""
        remotes = {"east": Remote(workload=copy(condition("Finished", "True", "OutOfSync")))}
        verdict = told(self.HERE, remotes)
        assert verdict.finish is None
        assert verdict.check is not None
        assert verdict.check[0] == "Retry"

    def test_is_sent_anew_when_the_worker_evicts_it(self) -> None:
        """The message is Kueue's."""
        message = 'Workload evicted on worker cluster: "east", resetting for re-admission. Previously: "Ready"'
        assert told(self.HERE, {"east": Remote(workload=copy(EVICTED))}).check == ("Retry", message)

    def test_is_sent_anew_when_its_workload_is_gone(self) -> None:
        """At once: the worker is heard of."""
        assert told(self.HERE, {"east": Remote()}).check == (
            "Retry",
            'Admitting remote no longer exists, Previously: "Ready"',
        )

    def test_stays_for_a_while_when_its_worker_is_lost(self) -> None:
        """The time is measured from when the manager last heard of it."""
        waits = told(self.HERE, {"east": Remote(connected=False, lost_seconds=100.0)}, lost_limit=900.0)
        assert (waits.check, waits.wait) == (None, 800.0)
        lost = told(self.HERE, {"east": Remote(connected=False, lost_seconds=900.0)}, lost_limit=900.0)
        assert lost.check == ("Retry", 'Admitting remote lost, Previously: "Ready"')


class TestAnEviction:
    """The manager takes the job back."""

    def test_has_the_worker_deactivate_the_copy(self) -> None:
        """Once."""
        here = workload(RESERVED, EVICTED)
        order = on(here, Remote(workload=copy(ADMITTED), jobs=[job()]))
        assert order.deactivate == "Evicted on manager: others need it"
        assert not order.delete_workload
        again = Remote(workload=copy(ADMITTED, condition("DeactivationTarget", "True", "x")), jobs=[job()])
        assert not on(here, again).deactivate

    def test_removes_a_workload_whose_job_was_not_sent(self) -> None:
        """There is nothing to stop."""
        assert on(workload(RESERVED, EVICTED), Remote(workload=copy(ADMITTED))).delete_workload

    def test_copies_the_status_until_the_job_has_stopped(self) -> None:
        """Then the quota is released, and the copies go."""
        here = workload(RESERVED, EVICTED)
        remotes = {"east": Remote(workload=copy(EVICTED), jobs=[job("6")])}
        assert told(here, remotes, job_active=True).copy_from == "east"
        assert on(workload(EVICTED), remotes["east"]).delete_jobs

    def test_waits_for_a_worker_that_cannot_be_asked_until_it_is_lost(self) -> None:
        """Pods may run there."""
        here = workload(RESERVED, EVICTED)
        waits = told(here, {"east": Remote(connected=False, lost_seconds=1.0)}, job_active=True, lost_limit=10.0)
        assert (waits.reset_job, waits.wait) == (False, 9.0)
        assert told(
            here, {"east": Remote(connected=False, lost_seconds=10.0)}, job_active=True, lost_limit=10.0
        ).reset_job

    def test_waits_until_the_worker_has_released_its_quota(self) -> None:
        """Whatever labels the copy has: a tenant of the worker may take off that of the manager."""
        here = workload(RESERVED, EVICTED)
        for held in (copy(RESERVED, ADMITTED), copy(RESERVED, EVICTED)):
            assert told(here, {"east": Remote(workload=held)}, job_active=True).reset_job is False
        assert told(here, {"east": Remote(workload=copy(EVICTED))}, job_active=True).reset_job
        assert told(here, {"east": Remote()}, job_active=True).reset_job

    def test_waits_for_no_status_that_the_manager_has_refused(self) -> None:
        """It counts as copied; the worker has released its quota, so nothing runs."""
        here = workload(RESERVED, EVICTED)
        remote = Remote(workload=copy(EVICTED), jobs=[job("6")])
        assert told(here, {"east": remote}, job_active=True, copied={"there": "6"}).reset_job
        running = Remote(workload=copy(RESERVED, EVICTED), jobs=[job("6")])
        assert not told(here, {"east": running}, job_active=True, copied={"there": "6"}).reset_job


class TestAnObjectOfTheWorkersOwn:
    """It has the name that a copy would have, and is left alone."""

    TAKEN = 'cluster east has another Job "job"'
    MISSING = (Job(metadata=ObjectMeta(name="job")),)

    def test_has_the_workload_give_its_quota_back(self) -> None:
        """For longer each time: it may have quota again, but not hold it all the time."""
        here = workload(RESERVED, ADMITTED, state="Ready", clusterName="east")
        verdict = told(here, {"east": Remote(workload=copy(ADMITTED), missing=self.MISSING, taken=self.TAKEN)})
        assert (verdict.check, verdict.again) == (("Retry", f'{self.TAKEN}, Previously: "Ready"'), 60)

    def test_does_so_before_the_job_is_sent_if_no_other_cluster_can_take_it(self) -> None:
        """The name of the Workload may be taken too."""
        here = workload(RESERVED, nominatedClusterNames=["east", "west"])
        taken, free = Remote(taken=self.TAKEN), Remote()
        assert told(here, {"east": taken, "west": free}, nominees=["east", "west"]).check == (
            "Pending",
            f"east: {self.TAKEN}",
        )
        state, _ = told(here, {"east": taken, "west": taken}, nominees=["east", "west"]).check or ("", "")
        assert state == "Retry"

    def test_has_the_job_sent_to_another_cluster(self) -> None:
        """If there is one."""
        here, options = workload(RESERVED), MultiKueueOptions()
        remotes = {"east": Remote(taken=self.TAKEN), "west": Remote()}
        assert nominees(here, ["east", "west"], remotes, options, due=True) == ["west"]
        assert nominees(here, ["east"], remotes, options, due=True) == ["east"]


class TestNominations:
    """Which clusters may take a Workload."""

    def test_all_at_once_are_those_that_are_heard_of(self) -> None:
        """Sorted; a cluster that is away for a moment stays."""
        remotes = {"c": Remote(), "a": Remote(), "b": Remote(connected=False), "d": Remote(lacks="no such kind")}
        options = MultiKueueOptions()
        assert nominees(workload(RESERVED), ["c", "b", "a", "d"], remotes, options, due=True) == ["a", "c"]
        kept = workload(RESERVED, nominatedClusterNames=["a", "b"])
        assert nominees(kept, ["c", "b", "a"], remotes, options, due=True) == ["a", "b", "c"]

    def test_incremental_are_a_few_more_each_round(self) -> None:
        """In the order of the configuration."""
        options = MultiKueueOptions(dispatcher=INCREMENTAL, step=2)
        offered = ["d", "a", "c"]
        assert nominees(workload(RESERVED), offered, {}, options, due=True) == ["d", "a"]
        first = workload(RESERVED, nominatedClusterNames=["d", "a"])
        assert nominees(first, offered, {}, options, due=False) == ["d", "a"]
        assert nominees(first, offered, {}, options, due=True) == ["d", "a", "c"]

    def test_another_dispatcher_is_left_to_itself(self) -> None:
        """Its own controller nominates."""
        assert (
            nominees(workload(RESERVED), ["a"], {}, MultiKueueOptions(dispatcher="example.com/mine"), due=True) is None
        )

    def test_wait_until_the_cluster_of_an_earlier_reservation_is_forgotten(self) -> None:
        """The API server refuses a Workload with both."""
        verdict = told(workload(RESERVED, clusterName="west"), {"east": Remote()}, nominees=["east"])
        assert (verdict.forget, verdict.nominated) == (True, None)

    def test_in_another_order_are_the_same(self) -> None:
        """Nothing is written for an order alone."""
        here, remotes = workload(RESERVED, nominatedClusterNames=["b", "a"]), {"a": Remote(), "b": Remote()}
        assert nominees(here, ["a", "b"], remotes, MultiKueueOptions(), due=True) == ["b", "a"]

    def test_wait_for_other_checks(self) -> None:
        """No worker reserves quota for what may not start."""
        here = workload(RESERVED)
        here.status.admission_checks = [*here.status.admission_checks, AdmissionCheckState(name="b", state="Pending")]
        assert told(here, {"east": Remote()}, nominees=["east"]).nominated is None

    def test_rounds_are_five_minutes_apart(self) -> None:
        """A new leader waits a whole round."""
        rounds, here = Rounds(), workload(RESERVED, nominatedClusterNames=["a"])
        assert rounds.left(here, NOW) == ROUND_SECONDS
        assert rounds.left(here, NOW + timedelta(seconds=ROUND_SECONDS)) == 0
        assert rounds.left(workload(RESERVED), NOW) == 0


class TestAWorkloadThatWaits:
    """It is nominated, and no cluster has admitted it."""

    PENDING = condition("QuotaReserved", "False", "Pending", "insufficient quota for cpu")
    HERE = workload(RESERVED, nominatedClusterNames=["east", "north", "west"])

    def verdict(self, here: Workload = HERE, **more: Any) -> manager.Verdict:
        """One cluster has no quota, one lacks the kind, and one is away."""
        remotes = {
            "east": Remote(workload=copy(self.PENDING)),
            "north": Remote(lacks="cluster north has no kind JobSet"),
            "west": Remote(connected=False),
        }
        return told(here, remotes, nominees=["east", "north", "west"], **more)

    def test_says_why_each_cluster_has_not_admitted_it(self) -> None:
        """In the message of its check, which stays pending."""
        why = "east: insufficient quota for cpu; north: cluster north has no kind JobSet; "
        assert self.verdict().check == ("Pending", f"{why}west: nothing is heard of the cluster")

    def test_says_so_again_only_after_a_while(self) -> None:
        """Each message is a write."""
        verdict = self.verdict(reports_in=12.0)
        assert (verdict.check, verdict.wait) == (None, 12.0)

    def test_says_nothing_twice(self) -> None:
        """The message is there."""
        said = self.verdict().check
        assert said is not None
        here = workload(RESERVED, nominatedClusterNames=["east", "north", "west"])
        here.status.admission_checks[0].message = said[1]
        assert self.verdict(here).check is None


class TestTheCopyOfAJob:
    """The Job that is created on the worker."""

    def test_is_suspended_and_has_nothing_of_the_manager(self) -> None:
        """Its selector and labels of its pods would be those of the manager's Job."""
        template = {"metadata": {"labels": {"controller-uid": "x", "app": "y"}}, "spec": {}}
        spec = {"managedBy": "kueue.x-k8s.io/multikueue", "suspend": False, "selector": {}, "template": template}
        metadata = {"name": "job", "namespace": "ns", "uid": "here", "labels": {ORIGIN: "forged"}, "finalizers": ["f"]}
        made = copied_job(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": {"active": 1}},
            BatchJob.copies,
            workload="wl",
            origin="multikueue",
            suspend=("spec", "suspend"),
        )
        assert made["spec"] == {"suspend": True, "template": {"metadata": {"labels": {"app": "y"}}, "spec": {}}}
        assert made["metadata"]["labels"] == {ORIGIN: "multikueue", PREBUILT: "wl"}
        assert made["metadata"]["annotations"][PREBUILT] == "wl"
        assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
        assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}

    def test_names_its_workload_by_a_label_too_unless_the_name_is_too_long(self) -> None:
        """Kueue before 0.18 reads the label alone."""
        for name, label in (("w" * 63, "w" * 63), ("w" * 64, None)):
            named = naming(name)
            assert named == {"labels": {PREBUILT: label}, "annotations": {PREBUILT: name}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "ns"}, "spec": {}}
        made = copied_job(job, BatchJob.copies, workload="w" * 64, origin="multikueue")
        assert PREBUILT not in made["metadata"]["labels"]


class TestAKubeconfig:
    """A Secret with a kubeconfig runs nothing and reads nothing here."""

    @pytest.mark.parametrize(
        ("user", "cluster"),
        [
            ({"exec": {"command": "sh"}}, {}),
            ({"auth-provider": {"name": "gcp"}}, {}),
            ({"tokenFile": "/etc/passwd"}, {}),
            ({"client-key": "/etc/key"}, {}),
            ({"client-certificate": "/etc/crt"}, {}),
            ({"username": "a", "password": "b"}, {}),
            ({}, {"insecure-skip-tls-verify": True}),
            ({}, {"certificate-authority": "/etc/ca"}),
            ({}, {"server": ""}),
            ({}, {"server": "http://worker.example"}),
            ({}, {"server": "https://not_a_name!"}),
        ],
    )
    def test_is_refused_with(self, user: dict[str, Any], cluster: dict[str, Any]) -> None:
        """Programs, files, passwords, and servers that are not verified."""
        assert fault_of(config(user, cluster))

    def test_with_a_token_or_certificates_in_it_is_taken(self) -> None:
        """The server is a name or an address."""
        assert not fault_of(config({"token": "t"}, {}))
        assert not fault_of(config({"client-certificate-data": "Y3J0"}, {"server": "https://[::1]:6443"}))

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (b"a: &a [x, x]\nclusters: [{name: c, cluster: {server: [*a, *a]}}]", "has an alias"),
            (b"clusters: [" + b"{name: c}, " * 50_000 + b"]", "more than 256 KiB"),
            (b"a: b\n---\nc: d", "not YAML"),
            (b"\xff\xfe", "not YAML"),
            (b"clusters: " + b"[" * 5_000, "not YAML"),
        ],
        ids=["aliases", "size", "two documents", "bytes", "depth"],
    )
    def test_that_costs_much_to_read_is_not_read(self, text: bytes, why: str) -> None:
        """Aliases can stand for more than memory holds, and a large text would keep the leader from its other work."""
        with pytest.raises(BadKubeConfig, match=why):
            checked(text)

    @pytest.mark.parametrize("location", ["relative", "/etc/passwd", "/etc/multikueue/kubeconfigs/../../passwd"])
    def test_in_a_file_is_below_one_folder(self, location: str) -> None:
        """Links out of it are followed first."""
        assert path_fault(location)
        assert not path_fault("/etc/multikueue/kubeconfigs/east")


def config(user: dict[str, Any], cluster: dict[str, Any]) -> dict[str, Any]:
    """A kubeconfig with one user and one cluster."""
    return {
        "users": [{"name": "u", "user": user}],
        "clusters": [{"name": "c", "cluster": {"server": "https://worker.example:6443", **cluster}}],
        "contexts": [],
        "current-context": "",
    }
