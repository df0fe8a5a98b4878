"""Jobs of kinds that another controller queues, which are sent to other clusters by the name of their kind."""

import pytest

from tests.unit.config.files import loaded
from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.worlds import decode
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.sources import Sources
from turnstile.controllers.view.clusterview import NotRead
from turnstile.controllers.view.multikueue import MultiKueue, index_multikueue
from turnstile.jobs.bases.external import ExternalJob, ExternalJobs, plural_of
from turnstile.jobs.registry import Registry, external_kinds
from turnstile.jobs.remote import copied_job
from turnstile.kube.store import Store
from turnstile.process import configured

NAME = "Workflow.v1alpha1.argoproj.io"
RUNS = ExternalJobs(NAME)
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def run(managed_by: object = MULTIKUEUE) -> ExternalJob:
    """A job of the kind."""
    meta = {"name": "run", "namespace": "team", "uid": "u"}
    found: ExternalJob = decode(RUNS.kind, {"metadata": meta, "spec": {"managedBy": managed_by}})
    return found


class TestItsKind:
    """By the configuration file."""

    def test_is_named_as_kubernetes_names_it(self) -> None:
        """Its name in URLs is the one that Kubernetes guesses."""
        kind = RUNS.kind
        assert (kind.GROUP, kind.VERSION, kind.KIND, kind.PLURAL) == (
            "argoproj.io",
            "v1alpha1",
            "Workflow",
            "workflows",
        )
        assert kind.GUESSED
        named = ExternalJobs(f"{NAME}=flows")
        assert (named.framework, named.kind.PLURAL, named.kind.GUESSED) == (NAME, "flows", False)
        assert [plural_of(each) for each in ("Policy", "Ingress", "Job")] == ["policies", "ingresses", "jobs"]

    def test_needs_the_gate(self) -> None:
        """Which is on by default."""
        file = f"multiKueue: {{externalFrameworks: [{{name: {NAME}}}]}}"
        assert configured.external_frameworks(loaded(file)) == (NAME,)
        named = f"multiKueue: {{externalFrameworks: [{{name: {NAME}, plural: flows}}]}}"
        assert configured.external_frameworks(loaded(named)) == (f"{NAME}=flows",)
        off = f"{file}\nfeatureGates: {{MultiKueueAdaptersForCustomJobs: false}}"
        assert configured.external_frameworks(loaded(off)) == ()


class TestItsJobs:
    """On the manager."""

    def test_are_sent_if_they_say_so(self) -> None:
        """Else the check says what they say."""
        copies = RUNS.copies
        assert copies is not None
        assert copies.dispatched(run())
        for other in ("tekton", None, 7):
            assert not copies.dispatched(run(other))
        assert copies.refusal(run("tekton")) == f'Expecting .spec.managedBy to be "{MULTIKUEUE}" not "tekton"'

    def test_are_copied_without_what_is_of_the_manager(self) -> None:
        """Neither `managedBy`, nor status, owners and finalizers."""
        copies = RUNS.copies
        assert copies is not None
        meta = {"name": "run", "namespace": "team", "uid": "u", "finalizers": ["f"], "ownerReferences": [{}]}
        body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "status": {"phase": "x"}}
        made = copied_job({**body, "spec": {"managedBy": MULTIKUEUE, "a": 1}}, copies, workload="wl", origin="one")
        assert made["spec"] == {"a": 1}
        assert "status" not in made
        assert sorted(made["metadata"]) == ["annotations", "labels", "name", "namespace"]
        assert made["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] == "wl"


class TestTheirWorkloads:
    """Their own controller has made them."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        """A job, and the Workload that it owns."""
        cluster = Cluster()
        registry = Registry(kinds=external_kinds([NAME]))
        runs: Store[ExternalJob] = Store()
        (known,) = registry.enabled
        cluster.world.multikueue = MultiKueue(external=registry, external_jobs={known.kind: runs})
        index_multikueue(Store(), cluster.world.admission_checks, cluster.world.workloads, registry)
        owner = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "name": "run",
            "uid": "u",
            "controller": True,
        }
        meta = {"name": "workflow-run", "namespace": "team", "ownerReferences": [owner]}
        cluster.put(Workload, {"metadata": meta, "spec": {"queueName": "main", "podSets": []}})
        return cluster

    def test_are_found_by_their_job_and_find_it(self, cluster: Cluster) -> None:
        """Only to be sent: the job is none that is queued here."""
        sources, workload = Sources(cluster.world), cluster.world.workloads.get(cluster.workload_key)
        assert workload is not None
        (key,) = sources.jobs_of(workload)
        known = sources.known(key.partition(":")[0])
        assert known is not None
        assert known.framework == NAME
        assert sources.workloads_of(key) == [workload.metadata.key]
        assert known.kind in {each.kind for each in sources.kinds}
        assert cluster.world.registry.jobs_of(workload) == []

    def test_wait_until_their_kind_is_read(self, cluster: Cluster) -> None:
        """A job that is not read yet is not gone."""
        sources = Sources(cluster.world)
        (kind,) = cluster.world.multikueue.external_jobs
        sources.stores[kind].complete = False
        with pytest.raises(NotRead):
            sources.get(kind, "team/run")
