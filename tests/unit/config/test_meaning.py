"""What a file means to the engine, the jobs and the servers."""

from fractions import Fraction
from pathlib import Path

import pytest

from tests.unit.config.files import HEAD, OLD_HEAD, loaded
from turnstile.api.config.frameworks import GATED
from turnstile.api.errors import InvalidConfiguration
from turnstile.api.selectors import LabelSelector
from turnstile.controllers.metrics.labels import CustomLabel
from turnstile.engine.options import AdmissionFairSharing, FairSharing, Gates, Options, Transformation, WaitForPodsReady
from turnstile.jobs.options import JobOptions, MultiKueueOptions, PodsReadyOptions
from turnstile.process import configured
from turnstile.process.configured import Election, JobFlags


def test_how_jobs_are_sent_to_other_clusters() -> None:
    """Times in seconds; without the section Kueue's defaults, without the gate nothing is sent."""
    incremental = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
    given = configured.job_options(
        loaded(f"multiKueue: {{origin: one, workerLostTimeout: 1m, dispatcherName: {incremental}}}")
    ).multikueue
    assert given is not None
    assert (given.origin, given.worker_lost_seconds, given.dispatcher, given.step) == ("one", 60.0, incremental, 3)
    assert configured.job_options(loaded("")).multikueue == MultiKueueOptions()
    assert configured.job_options(loaded("featureGates: {MultiKueue: false}")).multikueue is None


def test_an_empty_file_is_the_engines_defaults() -> None:
    """Nothing said, nothing changed."""
    assert configured.engine_options(loaded()) == Options()


def test_sharing_and_counting_reach_the_engine() -> None:
    """Fair sharing, usage, transformations, prefixes, gates."""
    file = loaded("""
        fairSharing: {preemptionStrategies: [LessThanInitialShare]}
        admissionFairSharing: {usageHalfLifeTime: 2h, usageSamplingInterval: 1m, resourceWeights: {cpu: 2}}
        resources:
          excludeResourcePrefixes: [example.com]
          transformations:
          - {input: nvidia.com/mig-1g.5gb, strategy: Replace, multiplyBy: cpu, outputs: {credits: 1500m, memory: 5Gi}}
        featureGates: {PartialAdmission: false, PriorityBoost: true, AdmissionFairSharing: false}
    """)
    assert configured.engine_options(file) == Options(
        gates=Gates(partial_admission=False, priority_boost=True, admission_fair_sharing=False),
        fair_sharing=FairSharing(strategies=("LessThanInitialShare",)),
        admission_fair_sharing=AdmissionFairSharing(
            usage_half_life=7200.0, usage_sampling_interval=60.0, resource_weights={"cpu": 2.0}
        ),
        transformations=(
            Transformation(
                input="nvidia.com/mig-1g.5gb",
                outputs={"credits": Fraction(3, 2), "memory": Fraction(5 * 2**30)},
                strategy="Replace",
                multiply_by="cpu",
            ),
        ),
        exclude_resource_prefixes=("example.com",),
    )


def test_undeclared_resources() -> None:
    """The strategy is the engine's word."""
    file = loaded("resources: {quotaCheckStrategy: IgnoreUndeclared}")
    assert configured.engine_options(file).quota_check_strategy == "IgnoreUndeclared"


def test_jobs_are_those_of_the_file() -> None:
    """Kinds, namespaces, and jobs without a queue name; without a list batch Jobs alone, as in Kueue."""
    options = JobFlags().options(loaded("manageJobsWithoutQueueName: true"))
    assert options.manage_jobs_without_queue_name
    kinds = configured.job_kinds(loaded("manageJobsWithoutQueueName: true"))
    assert [each.framework for each in kinds.enabled] == ["batch/job"]
    assert not options.managed_jobs_namespace_selector.matches({"kubernetes.io/metadata.name": "kube-system"})
    assert options.managed_jobs_namespace_selector.matches({"kubernetes.io/metadata.name": "team"})


def test_labels_to_copy_are_an_option_of_jobs() -> None:
    """In the order of the file; none by default."""
    assert configured.job_options(loaded("integrations: {labelKeysToCopy: [team, tier]}")).label_keys_to_copy == (
        "team",
        "tier",
    )
    assert configured.job_options(loaded("")).label_keys_to_copy == ()


def test_without_a_file_every_kind_that_needs_no_gate_is_enabled() -> None:
    """A kind behind a gate that is off by default is followed, and not enabled."""
    kinds = configured.job_kinds(None)
    gated = [each.framework for each in kinds.known.values() if each.framework in GATED]
    assert [each.framework for each in kinds.enabled] == [name for name in kinds.known if name not in gated]
    assert gated == ["sparkoperator.k8s.io/sparkapplication"]


def test_a_kind_behind_a_gate_is_named_with_its_gate() -> None:
    """As in Kueue, the file is refused without it."""
    name = "sparkoperator.k8s.io/sparkapplication"
    spark = f"integrations: {{frameworks: [{name}]}}"
    with pytest.raises(InvalidConfiguration, match="only with the feature gate SparkApplicationIntegration"):
        loaded(spark, built=[name])
    kinds = configured.job_kinds(loaded(f"{spark}\nfeatureGates: {{SparkApplicationIntegration: true}}", built=[name]))
    assert [each.framework for each in kinds.enabled] == [name]


def test_flags_win() -> None:
    """What the command line says stays, whatever the file."""
    selector = LabelSelector(match_labels={"a": "b"})
    flags = JobFlags(without_queue_name=False, selector=selector)
    file = loaded("manageJobsWithoutQueueName: true")
    assert flags.options(file) == JobOptions(
        manage_jobs_without_queue_name=False, managed_jobs_namespace_selector=selector
    )


@pytest.mark.parametrize(
    ("body", "webhook", "health", "metrics"),
    [
        ("", None, None, None),
        ("webhook: {port: 9444}", ("0.0.0.0", 9444), None, None),
        ("webhook: {host: '::1'}", ("::1", 9443), None, None),
        ("health: {healthProbeBindAddress: ':8081'}", None, ("0.0.0.0", 8081), None),
        ("health: {healthProbeBindAddress: '0'}", None, None, None),
        ("metrics: {bindAddress: '[::1]:8080'}", None, None, ("::1", 8080)),
    ],
)
def test_addresses_given_are_taken(body: str, webhook: object, health: object, metrics: object) -> None:
    """Defaults of Kueue are not: flags have their own."""
    file = loaded(body)
    assert configured.webhook_address(file) == webhook
    assert configured.health_address(file) == health
    assert configured.metrics_address(file) == metrics


@pytest.mark.parametrize(
    ("body", "address"),
    [
        ("", None),
        ("visibilityServer: {}", ("0.0.0.0", 8082)),
        ("visibilityServer: {bindAddress: '127.0.0.1', bindPort: 9082}", ("127.0.0.1", 9082)),
    ],
)
def test_the_visibility_api_listens_where_the_file_says(body: str, address: object) -> None:
    """With Kueue's defaults once the section is there."""
    assert configured.visibility_address(loaded(body)) == address


def test_certificates_of_others_are_read_from_their_directory() -> None:
    """With internalCertManagement off."""
    assert configured.certificate_files(loaded()) is None
    file = loaded("internalCertManagement: {enable: false}\nwebhook: {certDir: /certs}")
    assert configured.certificate_files(file) == (Path("/certs/tls.crt"), Path("/certs/tls.key"))


def test_times_of_the_election() -> None:
    """Kueue's by default, and what a file says."""
    assert configured.election(loaded()) == Election()
    body = "leaderElection: {leaseDuration: 20s, renewDeadline: 12s, retryPeriod: 3s}"
    assert configured.election(loaded(body)) == Election(20, 12.0, 3.0)


def test_coarse_reasons_are_a_gate() -> None:
    """It changes what reconcilers write as well as what the engine says."""
    file = loaded("featureGates: {UnadmittedWorkloadsObservability: false}")
    assert not JobFlags().options(file).granular_reasons
    assert not configured.engine_options(file).gates.unadmitted_workloads_observability
    assert JobFlags().options(loaded()).granular_reasons


def test_conditions_before_the_first_decision_are_a_gate() -> None:
    """Off by default, as in Kueue."""
    assert JobFlags().options(loaded("featureGates: {UnadmittedWorkloadsExplicitStatus: true}")).explicit_status
    assert not JobFlags().options(loaded()).explicit_status


def test_how_long_what_is_over_is_kept() -> None:
    """In seconds; for ever what the file does not name. No time at all is a time."""
    kept = JobFlags().options(
        loaded("objectRetentionPolicies: {workloads: {afterFinished: 1h, afterDeactivatedByKueue: 0s}}")
    )
    assert (kept.keep_finished, kept.keep_deactivated) == (3600.0, 0.0)
    assert (JobFlags().options(loaded()).keep_finished, JobFlags().options(loaded()).keep_deactivated) == (None, None)


class TestWaitingForPods:
    """Both halves: what the reconcilers time, and what the engine orders and holds back."""

    def test_is_what_the_file_says(self) -> None:
        """Times in seconds; a limit of 0 for a recovery is none."""
        file = loaded("""
            waitForPodsReady:
              timeout: 10m
              recoveryTimeout: 0s
              blockAdmission: true
              requeuingStrategy:
                {timestamp: Creation, backoffBaseSeconds: 5, backoffMaxSeconds: 50, backoffLimitCount: 3}
        """)
        assert JobFlags().options(file).pods_ready == PodsReadyOptions(
            timeout=600.0, recovery_timeout=None, backoff_base=5, backoff_max=50, backoff_limit=3
        )
        assert configured.engine_options(file).wait_for_pods_ready == WaitForPodsReady(
            block_admission=True, requeuing_timestamp="Creation"
        )
        assert file.effective()["waitForPodsReady"]["timeout"] == "10m0s"

    def test_what_is_left_out_is_kueues_default(self) -> None:
        """A recovery may take as long as a start."""
        assert JobFlags().options(loaded("waitForPodsReady: {timeout: 5m}")).pods_ready == PodsReadyOptions(
            timeout=300.0, recovery_timeout=300.0
        )

    def test_nobody_waits_without_a_word_of_it(self) -> None:
        """Nor while the gate switches it off."""
        assert JobFlags().options(loaded()).pods_ready is None
        off = loaded("waitForPodsReady: {blockAdmission: true}\nfeatureGates: {DisableWaitForPodsReady: true}")
        assert JobFlags().options(off).pods_ready is None
        assert configured.engine_options(off) == Options()

    def test_v1beta1_has_a_switch(self) -> None:
        """Its section alone waits for nothing."""
        assert JobFlags().options(loaded("waitForPodsReady: {enable: false}", head=OLD_HEAD)).pods_ready is None
        assert JobFlags().options(loaded("waitForPodsReady: {enable: true}", head=OLD_HEAD)).pods_ready == (
            PodsReadyOptions(timeout=300.0, recovery_timeout=300.0)
        )

    @pytest.mark.parametrize(("head", "switch", "default"), [(HEAD, "", 1800.0), (OLD_HEAD, "enable: true, ", 300.0)])
    def test_a_timeout_of_zero_is_the_default(self, head: str, switch: str, default: float) -> None:
        """In both versions: a Job that had to be ready at once would be evicted for ever."""
        file = loaded(f"waitForPodsReady: {{{switch}timeout: 0s}}", head=head)
        assert JobFlags().options(file).pods_ready == PodsReadyOptions(timeout=default, recovery_timeout=default)


def test_what_is_measured() -> None:
    """Labels, LocalQueues and resources; Workloads copy what their labels are made of."""
    given = loaded(
        """metrics:
  enableClusterQueueResources: true
  customLabels:
  - {name: team, sourceLabelKey: org/team, trackedValues: [a]}
  - {name: size, sourceKind: Workload, sourceAnnotationKey: org/size, trackedValues: [big]}
  - {name: env, sourceKind: Workload, trackedValues: [prod]}
  localQueueMetrics: {enable: true, localQueueSelector: {matchLabels: {shown: yes}}}
featureGates: {CustomMetricLabels: true, MetricsForCohorts: false}
""".replace("yes", "'yes'")
    )
    options = configured.metric_options(given)
    assert (options.resources, options.local_queues, options.cohorts) == (True, True, False)
    assert options.selector == LabelSelector(match_labels={"shown": "yes"})
    assert options.custom == (
        CustomLabel("team", "ClusterQueue", "org/team", tracked=frozenset({"a"})),
        CustomLabel("size", "Workload", "org/size", from_annotation=True, tracked=frozenset({"big"})),
        CustomLabel("env", "Workload", "env", tracked=frozenset({"prod"})),
    )
    jobs = configured.job_options(given)
    assert (jobs.copied_labels, jobs.copied_annotations) == (("env",), ("org/size",))


def test_labels_without_their_gate_are_none() -> None:
    """Nor are they copied."""
    given = loaded("metrics: {customLabels: [{name: a, sourceKind: Workload, trackedValues: [b]}]}")
    assert configured.metric_options(given).custom == ()
    assert configured.job_options(given).copied_labels == ()


def test_room_on_nodes_is_not_asked_for_by_default() -> None:
    """The file may ask for it in all ClusterQueues that do not say otherwise."""
    for text, asked in (("", False), ("waitForRoom: true\n", True)):
        given = loaded(text)
        assert configured.engine_options(given).wait_for_room is asked
        assert JobFlags().options(given).wait_for_room is asked
