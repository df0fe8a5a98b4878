"""Which adapter runs a suite."""

import traceback
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.conformance import (
    api_server,
    api_validation,
    concurrent,
    configuration,
    core_objects,
    devices,
    elastic_slices,
    engine_amounts,
    engine_assign,
    engine_cache,
    engine_cycles,
    engine_parts,
    engine_preemption,
    engine_queues,
    engine_scheduler,
    engine_shares,
    engine_tables,
    job_framework,
    job_kinds,
    job_priorities,
    job_reconcile,
    job_rules,
    job_webhooks,
    kind_kubeflow,
    kind_ray,
    kind_serving,
    kind_trainjob,
    kind_wraps,
    metric_cases,
    multikueue,
    multikueue_copies,
    multikueue_external,
    multikueue_rules,
    pod_parts,
    pod_reconcile,
    pod_recovery,
    priorities,
    provisioning,
    queue_commands,
    topology_assignments,
    topology_failures,
    topology_outside,
    topology_places,
    topology_pods,
    topology_second,
    topology_tables,
    visibility,
    workload_calls,
    workload_reconcile,
)
from tests.conformance.cases import Case, NotRead

Adapter = Callable[[Case, dict[str, Any]], list[str] | None]
"""Differences of one recorded run; None if nothing in it has a counterpart here."""

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

NO_COUNTERPART = "nothing in the case has a counterpart here: Go internals"


def _by_kind(case: Case, run: dict[str, Any]) -> list[str] | None:
    """Any other case of the scheduler."""
    match case.body.get("kind"):
        case "cycle":
            return engine_cycles.check(case, run)
        case "targets":
            return engine_preemption.check(case, run)
        case "assign":
            return engine_assign.check(case, run)
        case _:
            return engine_scheduler.check(case, run)


ADAPTERS: tuple[tuple[str, Adapter], ...] = (
    ("cache.queue.TestQueueSecondPassIfNeeded", topology_second.queued),
    ("config.TestValidate*", configuration.check_validation),
    ("config.TestLoadAndValidateFeatureGates", configuration.check_gates),
    ("config.TestLoad", configuration.check_load),
    ("config.TestTLSOptions", configuration.check_load),
    ("config.TestEncode", configuration.check_encoding),
    ("config.TestWaitForPodsReadyIsEnabled", configuration.check_waiting),
    ("apis.config.*.TestSetDefaults_Configuration", configuration.check_defaults),
    ("apis.config.*.TestConfigurationQueueConvertTo", configuration.check_conversion_to),
    ("apis.config.*.TestConfigurationQueueConvertFrom", configuration.check_conversion_from),
    ("apis.config.*.TestConfigurationQueueConversion_RoundTrip", configuration.check_round_trip),
    ("apis.config.*.TestClusterProfileCredentialsProviderAlias", configuration.check_alias),
    ("util.tlsconfig.TestConvert*", configuration.check_tls),
    ("util.tlsconfig.TestParseTLSOptions", configuration.check_tls),
    ("cmd.kueuectl.app.create.TestParseResourceQuotas", queue_commands.check_quotas),
    ("cmd.kueuectl.app.create.TestResourceFlavorOptions_parse*", queue_commands.check_parts),
    ("cmd.kueuectl.app.create.TestResourceFlavorCmd", queue_commands.check_create),
    ("cmd.kueuectl.app.delete.TestWorkloadCmd", queue_commands.check_delete),
    ("cmd.kueuectl.app.list.Test*Print", queue_commands.check_rows),
    ("cmd.kueuectl.app.list.TestLocalQueueFilter", queue_commands.check_filter),
    ("cmd.kueuectl.app.list.Test[CLRW]*", queue_commands.check_list),
    ("cmd.kueuectl.app.completion.*", queue_commands.check_completion),
    ("webhooks.TestValidate*", api_validation.validation),
    ("apis.kueue.v1beta1.*", api_validation.conversion),
    ("integration.webhook.core.*", api_server.check),
    ("dra.TestIsExtendedResourceName", devices.extended_names),
    ("dra.*", devices.check),
    ("controller.core.indexer.TestIndexDeviceClassExtendedResourceName", devices.check),
    ("util.resource.TestIsExtendedResourceName", devices.check),
    ("resources.TestResourceQuantityRoundTrips", api_validation.quantities),
    ("resources.TestSliceRequests_*ResourceList", api_validation.quantities),
    ("util.resource.TestMerge*", api_validation.quantities),
    ("util.resource.TestQuantityToFloat", api_validation.quantities),
    ("scheduler.TestSchedule*", engine_cycles.check),
    ("scheduler.TestLastSchedulingContext", engine_cycles.check),
    ("cache.hierarchy.*", engine_parts.graph),
    ("cache.scheduler.TestLocalQueueUsage", engine_parts.local_usage),
    ("cache.scheduler.TestClusterQueuesUsing*", engine_parts.used_by),
    ("cache.scheduler.TestDeleteCohortUpdatesAncestorSubtreeQuota", engine_parts.subtree_quota),
    ("cache.scheduler.TestSnapshotAddRemoveWorkload*", engine_parts.snapshot),
    ("scheduler.TestLastAssignmentOutdated", engine_parts.last_assignment_outdated),
    ("scheduler.TestEntryOrdering", engine_parts.entry_order),
    ("scheduler.TestResourcesToReserve", engine_parts.reserve),
    ("scheduler.preemption.TestCandidatesOrdering", engine_parts.candidates_order),
    ("scheduler.flavorassigner.TestAssignment_TotalRequestsFor", engine_parts.total_requests),
    ("workload.TestAssignmentClusterQueueState", engine_parts.pending_flavors),
    ("util.priority.TestPriorityBoost", engine_parts.boost),
    ("util.priority.TestParseEffectivePriority", engine_parts.boost),
    ("scheduler.preemption.fairsharing.TestMakeClusterQueueOrdering", engine_shares.target_order),
    ("workload.TestResourceUsage", engine_shares.held),
    ("podset.TestMergeRestore", engine_shares.merged),
    ("podset.TestFromAssignment", engine_shares.given),
    ("cache.queue.afs.*", engine_tables.calls_of_usage),
    ("metrics.TestCustomLabels", metric_cases.labels),
    ("metrics.TestStoreCustomLabels", metric_cases.stored_labels),
    ("metrics.TestShouldExposeLocalQueueMetrics", metric_cases.shown),
    ("metrics.TestGenerateExponentialBuckets", metric_cases.buckets),
    ("controller.core.TestRecordResourceMetrics", metric_cases.quotas),
    ("cache.queue.TestUpdateUnadmittedWorkload", metric_cases.why_unadmitted),
    ("cache.queue.TestPendingResourceMetrics", metric_cases.requested),
    ("cache.queue.Test*", engine_queues.check),
    ("cache.scheduler.TestFindTopologyAssignments*", topology_places.check),
    ("workload.TestNeedsSecondPass", topology_second.needed),
    ("workload.TestUsedNodes", topology_second.used),
    ("scheduler.flavorassigner.TestWorkloadsTopologyRequests_*", topology_second.asked),
    ("cache.scheduler.TestNewTopologyTree", topology_tables.trees),
    ("cache.scheduler.TestHasLevel", topology_tables.trees),
    ("cache.scheduler.TestTASCachingRemainingResourcesFeatureGate", topology_tables.trees),
    ("cache.scheduler.TestMergeTopologyAssignments", topology_tables.assignments),
    ("cache.scheduler.TestIsTopologyAssignmentStale", topology_tables.assignments),
    ("cache.scheduler.TestTruncateAssignment", topology_tables.assignments),
    ("cache.scheduler.TestNonTas*", topology_tables.outside),
    ("cache.scheduler.TestNodesCache*", topology_tables.nodes),
    ("resources.TestCountIn*", topology_tables.counted),
    ("resources.TestSliceRequests_CountIn", topology_tables.counted),
    ("cache.scheduler.TestAvailable", engine_tables.available),
    ("cache.scheduler.TestDominantResourceShare", engine_tables.dominant_share),
    ("cache.scheduler.TestIsBorrowingOn", engine_tables.dominant_share),
    ("cache.scheduler.TestClusterQueueUpdateWithAdmissionCheck", engine_tables.check_readiness),
    ("cache.scheduler.TestClusterQueueUsage", engine_tables.queue_usage),
    ("cache.scheduler.*", engine_cache.check),
    ("workload.TestNewInfo", engine_tables.new_info),
    ("workload.TestAdjustResources", engine_tables.adjusted),
    ("workload.TestSchedulingHash", engine_tables.scheduling_hash),
    ("workload.TestGetQueueOrderTimestamp", engine_tables.order_timestamp),
    ("workload.TestValidateResources", engine_tables.violations),
    ("workload.TestShouldSkipClusterNomination", multikueue_rules.check_skipped),
    ("workload.TestValidateLimitRange", engine_tables.range_violations),
    ("workload.TestApplyPodSetCounts", elastic_slices.check),
    ("workload.TestExtractPodSetCounts*", elastic_slices.check),
    ("workload.TestPodSetsCounts_*", elastic_slices.check),
    ("workload.*", workload_calls.check),
    ("controller.core.TestReconcileSyncAdmissionChecks", workload_calls.check),
    ("controller.core.TestReconcile*", workload_reconcile.check),
    ("controller.core.TestSyncCheckStates", workload_calls.check),
    ("controller.core.TestAdmittedNotReadyWorkload", workload_calls.check),
    ("controller.core.*", core_objects.check),
    ("util.limitrange.TestValidatePodSpec", engine_tables.range_violations),
    ("util.limitrange.TestSummarize", engine_tables.summarize),
    ("util.priority.TestEffectivePriority", engine_tables.priority),
    ("util.priority.TestPriority", engine_tables.priority),
    ("util.priority.TestGetPriority*", priorities.of_a_class),
    ("util.priority.TestDefault*Exist", priorities.default_exists),
    ("util.admissionfairsharing.*", engine_tables.calls_of_usage),
    ("util.resource.TestMulByFloat*", engine_tables.calls_of_usage),
    ("resources.TestAmountFromQuantity", engine_tables.quantities),
    ("resources.TestResourceValueClampsOutsideInt64", engine_tables.single_value),
    ("scheduler.preemption.TestPreemption", engine_preemption.check),
    ("scheduler.preemption.TestFairPreemption*", engine_preemption.check),
    ("scheduler.preemption.TestHierarchicalPreemptions", engine_preemption.check),
    ("scheduler.preemption.TestIssuePreemptionsSkipsDuplicate", engine_preemption.check),
    ("scheduler.preemption.Test*WhenWorkloadModifiedConcurrently", engine_preemption.check),
    ("scheduler.preemption.common.TestSatisfiesPreemptionPolicy", engine_preemption.check_policy),
    ("scheduler.preemption.TestPreemptionMessage", engine_preemption.check_message),
    ("scheduler.flavorassigner.TestSearch", engine_assign.check_search),
    ("scheduler.flavorassigner.TestIsPreferred", engine_assign.check_preferred),
    ("scheduler.flavorassigner.TestAssignFlavors*", engine_assign.check),
    ("scheduler.flavorassigner.Test*FlavorIdx", engine_assign.check),
    ("scheduler.flavorassigner.TestReclaimBeforePriorityPreemption", engine_assign.check),
    ("scheduler.flavorassigner.TestIsNoFitDueToCapacityAndLimits", engine_assign.check),
    ("scheduler.flavorassigner.TestDeletedFlavors", engine_assign.check),
    ("scheduler.flavorassigner.TestHierarchical", engine_assign.check),
    ("scheduler.*", _by_kind),
    ("controller.tas.TestReconcile", topology_pods.ungated),
    ("controller.tas.TestBelongsToNonTASCache", topology_outside.check),
    ("controller.tas.TestPodUsageReconciler*", topology_outside.check),
    ("controller.tas.TestNodeFailureReconciler", topology_failures.reconciled),
    ("controller.failurerecovery.*", pod_recovery.check),
    ("controller.admissionchecks.multikueue.externalframeworks.TestNewAdapters*", multikueue_external.check_kinds),
    ("controller.admissionchecks.multikueue.externalframeworks.*GetEmptyList", multikueue_external.check_list),
    ("controller.admissionchecks.multikueue.externalframeworks.*ManagedByKueue", multikueue_external.check_managed),
    ("controller.admissionchecks.multikueue.externalframeworks.*KeysFor", multikueue_external.check_workload),
    ("controller.admissionchecks.multikueue.externalframeworks.*", multikueue_external.check_copy),
    ("controller.admissionchecks.multikueue.TestReconcile", multikueue.check_conditions),
    ("controller.admissionchecks.multikueue.TestValidateKubeConfigPath", multikueue.check_path),
    ("controller.admissionchecks.multikueue.TestWlReconcile", multikueue.check_group),
    ("controller.admissionchecks.multikueue.TestValidateKubeconfig", multikueue_rules.check_kubeconfig),
    ("controller.admissionchecks.multikueue.TestUpdateConfig", multikueue_rules.check_source),
    ("controller.admissionchecks.multikueue.TestCQReconcile", multikueue_rules.check_quotas),
    ("controller.admissionchecks.multikueue.TestRemoteClientGC", multikueue_rules.check_leftovers),
    ("controller.admissionchecks.multikueue.TestNominateAndSynchronizeWorkers_*", multikueue_rules.check_sent),
    ("controller.workloaddispatcher.TestIncrementalDispatcherNominateWorkers", multikueue_rules.check_incremental),
    ("controller.workloaddispatcher.TestIncrementalDispatcherReconciler_*", multikueue_rules.check_dispatcher),
    ("util.admissioncheck.TestGetMultiKueueAdmissionCheck", multikueue_rules.check_lookups),
    ("util.admissioncheck.TestGetRemoteClusters", multikueue_rules.check_lookups),
    ("controller.jobframework.TestDeleteRemoteObjectIfOwned", multikueue_copies.check_owned),
    ("controller.jobframework.TestValidateRemoteObjectOwnership", multikueue_copies.check_owned),
    ("controller.jobs.*.TestMultiKueueAdapter", multikueue_copies.check_adapter),
    ("controller.tas.TestGetWorkloadStatus", topology_failures.judged),
    ("workloadslicing.*", elastic_slices.check),
    ("controller.elasticjobs.TestReconcile", elastic_slices.ungated),
    ("controller.elasticjobs.TestShouldUngate", elastic_slices.should_ungate),
    ("controller.jobs.job.Test_applyWorkloadSliceSchedulingGate", elastic_slices.gated),
    ("controller.jobs.job.TestReconciler", job_reconcile.check),
    ("controller.jobs.jobset.TestReconciler", job_reconcile.check),
    ("controller.jobs.appwrapper.TestReconciler", job_reconcile.check),
    ("controller.jobs.appwrapper.TestPodSets", kind_wraps.check),
    ("controller.jobs.sparkapplication.TestReconciler", job_reconcile.check),
    ("controller.jobs.sparkapplication.Test[APR]*", kind_wraps.check),
    ("controller.jobs.statefulset.TestReconciler", kind_serving.check),
    ("controller.jobs.statefulset.TestPodReconciler", kind_serving.check),
    ("controller.jobs.statefulset.TestReleaseScaleDownReservation", kind_serving.check_released),
    ("controller.jobs.leaderworkerset.TestReconciler", kind_serving.check),
    ("controller.jobframework.TestValidateImmutablePodSpec", kind_serving.check_immutable),
    ("controller.jobframework.TestReconcileGenericJob*", job_reconcile.check_mocked),
    ("controller.jobs.job.Test[PRT]*", job_kinds.check),
    ("controller.jobs.jobset.Test[PR]*", job_kinds.check),
    ("controller.jobs.pod.TestGetRoleHash", job_kinds.check),
    ("controller.jobs.pod.TestPodSets", job_kinds.check),
    ("controller.jobs.pod.TestRun", job_kinds.check),
    ("controller.jobs.pod.TestIsPodOwnerManagedByQueue", job_framework.check_owner),
    ("controller.jobs.pod.TestReconciler_ErrorFinalizingPod", pod_reconcile.check_interrupted),
    ("controller.jobs.raycluster.TestReconciler", job_reconcile.check),
    ("controller.jobs.raycluster.TestComparePodSetCounts", elastic_slices.check),
    ("controller.jobs.raycluster.TestUpdatePodSets", kind_ray.sized),
    ("controller.jobs.raycluster.TestGetWorkloadslicingCustomAnnotations", kind_ray.generation),
    ("controller.jobs.raycluster.TestValidateCreateRayClusterSpec", kind_ray.check),
    ("controller.jobs.ray*.Test[BINPRU_]*", kind_ray.check),
    ("controller.jobs.kubeflow.jobs.*.TestReconciler", job_reconcile.check),
    ("controller.jobs.kubeflow.jobs.*", kind_kubeflow.check),
    ("controller.jobs.mpijob.TestReconciler", job_reconcile.check),
    ("controller.jobs.mpijob.Test[CPR]*", kind_kubeflow.check_mpi),
    ("controller.jobs.trainjob.TestReconciler", job_reconcile.check),
    ("controller.jobs.trainjob.TestRunWithPodsetsInfo", kind_trainjob.check),
    ("controller.jobs.*.TestDefault", job_webhooks.check),
    ("controller.jobs.*.TestValidate*", job_webhooks.check),
    ("controller.jobs.pod.TestReconciler", pod_reconcile.check),
    ("controller.jobs.pod.TestPod*", pod_reconcile.check_calls),
    ("controller.jobs.pod.TestIndexPodGroupName", pod_reconcile.check_calls),
    ("controller.jobs.pod.TestWorkloadHandlerDelete", pod_reconcile.check_calls),
    ("controller.jobframework.TestApplyDefault*", job_rules.check_defaults),
    ("controller.jobframework.TestBaseWebhookDefault", job_rules.check_defaulting),
    ("controller.jobframework.TestWorkloadShouldBeSuspended", job_rules.check_suspension),
    ("controller.jobframework.TestValidateJobOn*", job_rules.check_rules),
    ("controller.jobframework.TestValidateOn*", job_rules.check_validation),
    ("controller.jobframework.TestExtractPriority*", job_priorities.of_a_job),
    ("controller.jobframework.TestUpdateWorkloadPriority", job_priorities.changed),
    ("controller.jobframework.TestGetWorkloadNameForVariant", concurrent.named),
    ("controller.jobframework.*", job_framework.check),
    ("controller.concurrentadmission.TestReconcile", concurrent.reconciled),
    ("controller.concurrentadmission.TestCreateVariantsAlreadyExists", concurrent.generated),
    ("controller.concurrentadmission.TestClusterQueueFlavorsChanged", concurrent.flavors_changed),
    ("util.equality.*", pod_parts.check),
    ("util.tas.*", topology_assignments.check),
    ("util.tolerations.*", pod_parts.check),
    ("util.pod.*", pod_parts.check),
    ("apis.visibility.*", visibility.check_options),
    ("visibility.TestCreateVisibilityServerOptions", visibility.check_server),
    ("visibility.storage.TestNewPendingWorkloadPriority", visibility.check_priority),
    ("visibility.storage.*", visibility.check_pages),
    ("controller.admissionchecks.provisioning.TestReconcile", provisioning.reconcile),
    ("controller.admissionchecks.provisioning.TestReconcileAdmissionCheck", provisioning.check_active),
    ("controller.admissionchecks.provisioning.*", provisioning.check_calls),
    ("util.admissioncheck.*", provisioning.check_calls),
    ("resources.*", engine_amounts.check),
    ("util.resource.*", api_validation.quantities),
)


ON_A_SERVER = ("integration.*",)
"""Suites whose cases start an API server."""


def needs_server(suite: str) -> bool:
    """Whether cases of the suite need the test bed."""
    return any(fnmatchcase(suite, pattern) for pattern in ON_A_SERVER)


def adapter(suite: str) -> Adapter | None:
    """The first whose pattern matches."""
    return next((found for pattern, found in ADAPTERS if fnmatchcase(suite, pattern)), None)


def differences(case: Case) -> list[str] | None:
    """All differences of a case, over every run that was recorded; None if no run has anything to compare. Raises
    NotRead if a run holds what its adapter does not know."""
    check = adapter(case.suite)
    assert check is not None
    found: list[str] = []
    compared = False
    for run in case.body.get("runs", [case.body]) or ():
        label = ",".join(f"{name}={on}" for name, on in (run.get("gates") or {}).items())
        try:
            texts = check(case, run)
            compared = compared or texts is not None
            found += [f"[{label}] {text}" for text in texts or ()]
        except NotRead:
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            told = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            if _of_the_runner(error):
                raise NotRead(f"an adapter stumbled over it: {told}") from error
            compared = True
            found.append(f"[{label}] {told}")
    return found if compared else None


def _of_the_runner(error: Exception) -> bool:
    """Whether an adapter met something of another shape than it knows, or handed it on, rather than our code failing.
    The types of our code are checked: nobody but an adapter gives it None for a value, or text for a number."""
    ours = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    last = next((path for path in reversed(ours) if path.is_relative_to(ROOT / "app") or path.parent == HERE), HERE)
    return not last.is_relative_to(ROOT / "app") or isinstance(error, TypeError | AttributeError)
