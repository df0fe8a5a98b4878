"""What a file switches on and nobody would carry out is refused with a sentence; what changes nothing is warned of."""

import pytest

from tests.unit.config.files import BUILT, loaded, told, warned

COUNTER = "{counter: {name: m, driver: d, deviceSelector: {cel: {expression: 'true'}}}}"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (
            (
                "multiKueue: {clusterProfile: {accessProviders: [{name: p, execConfig: "
                "{command: c, apiVersion: v, interactiveMode: Always}}]}}"
            ),
            "line 3: multiKueue.clusterProfile.interactiveMode: the program of provider p gets no terminal",
        ),
        ("pprofBindAddress: :6060", "line 3: pprofBindAddress: there is no Go profiler here"),
        ("tls: {curvePreferences: [29, 23]}", "line 3: tls.curvePreferences: Python's ssl can be given one curve"),
        ("tls: {curvePreferences: [4588]}", "line 3: tls.curvePreferences: Python's ssl can be given one curve"),
        (
            "integrations:\n  frameworks:\n  - batch/job\n  - ray.io/rayjob",
            (
                "line 6: integrations.frameworks[1]: jobs of the framework ray.io/rayjob cannot be queued yet "
                "(take it out; built are batch/job, pod)"
            ),
        ),
        ("leaderElection: {leaderElect: false}", "line 3: leaderElection.leaderElect: cannot be changed"),
        ("leaderElection: {resourceLock: configmaps}", "line 3: leaderElection.resourceLock: cannot be changed"),
        ("leaderElection: {leaseDuration: 1500ms}", "line 3: leaderElection.leaseDuration: must be whole seconds"),
        ("leaderElection: {renewDeadline: 15s}", "line 3: leaderElection.renewDeadline: must be above 0s and at least"),
        ("leaderElection: {retryPeriod: 10s}", "line 3: leaderElection.retryPeriod: must be above 0s and below"),
        ("health: {readinessEndpointName: ok}", "line 3: health.readinessEndpointName: cannot be changed"),
        ("health: {healthProbeBindAddress: '8081'}", "line 3: health.healthProbeBindAddress: must be host:port"),
        ("webhook: {port: 70000}", "line 3: webhook.port: must be 1 to 65535"),
    ],
)
def test_a_section_that_needs_it_is_refused(body: str, fault: str) -> None:
    """With the line and what would do."""
    (found,) = told(body)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    "body",
    [
        "tls: {minVersion: VersionTLS12}",
        "metrics: {localQueueMetrics: {enable: false}}",
        "metrics: {localQueueMetrics: {enable: true, localQueueSelector: {matchLabels: {env: prod}}}}",
        "metrics: {enableClusterQueueResources: true}",
        "metrics: {customLabels: [{name: team}]}\nfeatureGates: {CustomMetricLabels: true}",
        "leaderElection: {leaderElect: true, resourceLock: leases}",
        "health: {readinessEndpointName: /readyz, livenessEndpointName: healthz}",
        "integrations: {frameworks: [pod]}",
        "integrations: {externalFrameworks: [Foo.v1.example.com]}",
        "internalCertManagement: {enable: false}",
        f"resources: {{deviceClassMappings: [{{name: a, deviceClassNames: [b], sources: [{COUNTER}]}}]}}",
        "objectRetentionPolicies: {}",
        (
            "featureGates: {TopologyAwareScheduling: false, TASFailedNodeReplacement: false, "
            "TASFailedNodeReplacementFailFast: false, TASHandleOverlappingFlavors: false, "
            "TASMultiLayerTopology: false, "
            "TASProfileMixed: false, TASRecomputeAssignmentWithinSchedulingCycle: false, "
            "TASReplaceNodeOnNodeTaints: false, TASReplaceNodeOnPodTermination: false}"
        ),
    ],
)
def test_what_asks_for_nothing_more_passes(body: str) -> None:
    """Sections that say what is so anyway, and things that are switched off."""
    assert told(body) == []


@pytest.mark.parametrize("body", ["", "integrations: {}", "integrations: {frameworks: null}"])
def test_a_file_without_job_kinds_says_which_are_left(body: str) -> None:
    """Kueue's default for it, `batch/job` alone, switches quota off for every other kind: never without a word."""
    (warning,) = [str(each) for each in loaded(body).warnings]
    assert "integrations.frameworks: is missing: as by Kueue, batch/job alone is queued" in warning


def test_a_gate_takes_a_section_back() -> None:
    """With DisableWaitForPodsReady the section may stay, with a warning."""
    body = "waitForPodsReady: {timeout: 5m}\nfeatureGates: {DisableWaitForPodsReady: true}"
    assert warned(body) == ["line 3: waitForPodsReady: is switched off by the gate DisableWaitForPodsReady"]


def test_a_kind_that_is_built_later_is_accepted_then() -> None:
    """Which frameworks are built is not written down twice."""
    body = "integrations: {frameworks: [jobset.x-k8s.io/jobset]}"
    assert loaded(body, built=(*BUILT, "jobset.x-k8s.io/jobset")).configuration.integrations is not None


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("clientConnection: {qps: 50}", "clientConnection: has no effect: the rate of requests follows"),
        ("controller: {groupKindConcurrency: {Job.batch: 5}}", "controller.groupKindConcurrency: has no effect"),
        (
            "leaderElection: {resourceName: c1f6bfd2.kueue.x-k8s.io}",
            "leaderElection.resourceName: has no effect: the release names its objects, here turnstile-controller",
        ),
        (
            "internalCertManagement: {webhookServiceName: kueue-webhook-service}",
            "internalCertManagement.webhookServiceName: has no effect",
        ),
        ("webhook: {certDir: /certs}", "webhook.certDir: has no effect while internalCertManagement"),
        (
            "admissionFairSharing: {usageHalfLifeTime: 1h}\nfeatureGates: {AdmissionFairSharing: false}",
            "admissionFairSharing: is switched off by the gate",
        ),
        (
            "visibilityServer: {bindPort: 9082}\nfeatureGates: {VisibilityOnDemand: false}",
            "visibilityServer: is switched off by the gate",
        ),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared}\nfeatureGates: {QuotaCheckStrategy: false}",
            "resources.quotaCheckStrategy: is switched off by the gate",
        ),
        ("metrics: {customLabels: [{name: team}]}", "metrics.customLabels: is switched off by the gate"),
        (
            "metrics: {localQueueMetrics: {enable: true}}\nfeatureGates: {LocalQueueMetrics: false}",
            "metrics.localQueueMetrics: is switched off by the gate",
        ),
    ],
)
def test_what_changes_nothing_is_warned_of(body: str, warning: str) -> None:
    """A file of Kueue's holds, and nothing in it is passed over in silence."""
    (found,) = warned(body)
    assert found.startswith(f"line 3: {warning}")


def test_effective_configuration_shows_no_empty_promises() -> None:
    """Defaults of what is not built are left out of what holds."""
    effective = loaded("").effective()
    assert not {"waitForPodsReady", "multiKueue", "visibilityServer", "clientConnection"} & effective.keys()
    assert effective["metrics"] == {"bindAddress": ":8443", "localQueueMetrics": {"enable": True}}


def test_effective_configuration_is_a_configuration() -> None:
    """What is printed loads as what it was printed from."""
    first = loaded("""
        namespace: quota
        fairSharing: {preemptionStrategies: [LessThanInitialShare]}
        resources: {transformations: [{input: cpu, outputs: {credits: 1.5}}], excludeResourcePrefixes: [x.io]}
        featureGates: {PartialAdmission: false}
    """)
    assert loaded(first.text(), head="").effective() == first.effective()
