"""The table of rules, and how they are run."""

from collections.abc import Collection, Mapping
from typing import Final

from turnstile.insight.lint import cohorts, jobs, queues
from turnstile.insight.lint.findings import Finding, Rule, Severity
from turnstile.insight.lint.world import Place, World

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

RULES: Final[tuple[Rule, ...]] = (
    *jobs.RULES,
    Rule(
        "UnreadableAmount",
        _ERROR,
        "an amount cannot be read",
        "write a quantity, such as 4, 500m or 8Gi",
        queues.unreadable,
    ),
    Rule(
        "AnnotatedDuration",
        _WARNING,
        "an annotation with a duration cannot be read, or is longer than it may be",
        "write a duration such as 30m, or raise preemption.longestMinimumRunTime of the configuration",
        queues.durations,
    ),
    Rule(
        "AnnotatedSwitch",
        _WARNING,
        "the annotation that asks for room on nodes cannot be read",
        'write "true" or "false"',
        queues.switches,
    ),
    Rule(
        "AnnotatedDurationIgnored",
        _WARNING,
        "an annotation of ClusterQueues is on a Workload, where it means nothing",
        "let an administrator annotate the ClusterQueue",
        queues.durations_of_tenants,
    ),
    Rule(
        "MissingClusterQueue",
        _ERROR,
        "a LocalQueue leads to no ClusterQueue",
        "correct spec.clusterQueue, or make the ClusterQueue",
        queues.missing_cluster_queue,
    ),
    Rule(
        "MissingFlavor",
        _ERROR,
        "a ClusterQueue has quota of a flavor that does not exist",
        "make the ResourceFlavor, or correct its name",
        queues.missing_flavor,
    ),
    Rule("CohortCycle", _ERROR, "cohorts form a cycle", "change spec.parentName of one of them", cohorts.cycles),
    Rule(
        "LimitWithoutCohort",
        _ERROR,
        "a ClusterQueue without a cohort has limits or policies of cohorts",
        "set spec.cohortName, or remove the field",
        queues.borrows_without_cohort,
    ),
    Rule(
        "UnreachableQuota",
        _WARNING,
        "a ClusterQueue has a flavor of which it can never be given anything",
        "raise nominalQuota or borrowingLimit, or remove the flavor",
        queues.nothing_to_give,
    ),
    Rule(
        "UnreachableClusterQueue",
        _WARNING,
        "no LocalQueue leads to a ClusterQueue that lends nothing",
        "make a LocalQueue, or delete the ClusterQueue",
        queues.no_local_queue,
    ),
    Rule(
        "UnreachableCohort",
        _WARNING,
        "a Cohort has quota, and no ClusterQueue is below it",
        "set spec.cohortName of a ClusterQueue, or delete the Cohort",
        cohorts.no_members,
    ),
    Rule(
        "UnreachableBorrowingLimit",
        _INFO,
        "a borrowingLimit is above what the cohort can ever lend",
        "lower it, or raise the quota of the cohort",
        queues.limit_out_of_reach,
    ),
    Rule(
        "SelectsNoNamespace",
        _WARNING,
        "the namespaceSelector of a ClusterQueue matches no namespace",
        "write {} for all namespaces, or label a namespace",
        queues.no_namespace,
    ),
    Rule(
        "CohortLendsNothing",
        _WARNING,
        "nobody lends or nobody borrows in a cohort",
        "raise a lendingLimit or borrowingLimit, or leave the cohort",
        cohorts.lends_nothing,
    ),
    Rule(
        "CohortOfOne",
        _INFO,
        "a cohort has a single ClusterQueue and no quota of its own",
        "add another ClusterQueue, or remove spec.cohortName",
        cohorts.of_one,
    ),
    Rule(
        "FlavorWithoutNodes",
        _WARNING,
        "no node has the labels of a flavor",
        "correct spec.nodeLabels, or label nodes; nothing, if an autoscaler makes them",
        queues.no_nodes,
    ),
    Rule(
        "ContradictingFlavors",
        _WARNING,
        "flavors of two resource groups of a ClusterQueue have different values of a node label",
        "let spec.nodeLabels of both agree, or put both resources into one resource group",
        queues.contradicting_flavors,
    ),
    Rule(
        "UnusedFlavor",
        _INFO,
        "nobody has quota of a flavor",
        "add it to a ClusterQueue, or delete it",
        queues.unused_flavor,
    ),
    Rule(
        "UnusedResource",
        _INFO,
        "a ClusterQueue has quota of a resource for which no Workload asks",
        "correct the name of the resource, or remove it",
        queues.unasked_resource,
    ),
    Rule(
        "QuotaSetElsewhere",
        _INFO,
        "another controller has written the quota of a ClusterQueue or Cohort into its status",
        "change the quota where that controller takes it from; without status.effectiveQuotas the spec holds again",
        queues.set_elsewhere,
    ),
    Rule(
        "PriorityNeverDiffers",
        _WARNING,
        "preemption compares priorities, and all are equal",
        "make a WorkloadPriorityClass, or let withinClusterQueue and reclaimWithinCohort be Never or Any",
        cohorts.priority_never_differs,
    ),
    Rule(
        "PriorityOnlyOrders",
        _INFO,
        "there are priorities, and a ClusterQueue never preempts by them",
        "set preemption.withinClusterQueue to LowerPriority, if it should",
        cohorts.priority_only_orders,
    ),
    Rule(
        "EqualPriorityClasses",
        _INFO,
        "two WorkloadPriorityClasses have the same value",
        "give them different values, or delete one",
        cohorts.equal_classes,
    ),
)
"""All rules; their names can be switched off."""
NAMES: Final = tuple(rule.name for rule in RULES)


def lint(world: World, *, off: Collection[str] = (), files: Mapping[Place, str] | None = None) -> list[Finding]:
    """The findings of the rules, but for those that are `off`; with `files` only about the objects that these name."""
    found = {
        Finding(files[about] if files is not None else "", about, rule.name, rule.severity, sentence, rule.fix)
        for rule in RULES
        if rule.name not in off
        for about, sentence in rule.find(world)
        if files is None or about in files
    }
    return sorted(found)
