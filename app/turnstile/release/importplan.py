"""Plans the import of jobs that run without a queue: the Workload that each of them would get, or why it gets none.

The plan follows the rules of the controllers: a Workload is what they would make of the job, its requests are what the
engine counts, its quota is charged to a ClusterQueue. The flavors are those of the nodes that the pods run on, whatever
quota these have left: what runs, runs already. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from turnstile.api import names
from turnstile.api.core import Pod, PriorityClass
from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, OwnerReference
from turnstile.api.pods import PodSpec
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Admission, Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.status.admissionchecks import required
from turnstile.engine import Options
from turnstile.engine.decisions import admission_of
from turnstile.engine.flavors.eligibility import mismatch
from turnstile.engine.instants import stamp
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.quota.amounts import text
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.quota.tree import available
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs import pods
from turnstile.jobs import workload as build
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import identifier, prebuilt_name, queue_name
from turnstile.jobs.options import JobOptions
from turnstile.jobs.podsets import infos_of
from turnstile.jobs.registry import Registry
from turnstile.release.findings import Finding, danger, listed, warning
from turnstile.release.imports import Charge, Check, Import, Plain, Planned, Refused, Running
from turnstile.release.queuemapping import QueueMapping
from turnstile.release.scope import Scope, resource_name

_PODS: Final = "pods"
_MIRROR: Final = "kubernetes.io/config.mirror"
_AGAIN: Final = "and import again"


@dataclass
class Importer:
    """Plans imports one after the other, each with the quota that those before it have taken."""

    snapshot: Snapshot
    scope: Scope
    registry: Registry
    options: JobOptions
    mapping: QueueMapping
    running: Running
    now: float
    engine: Options = field(default_factory=Options)
    findings: list[Finding] = field(default_factory=list)
    queued: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self._state, _ = self.snapshot.state(self.engine, self.now)
        self._owned = {
            owner.uid
            for each in self.snapshot.of(Workload)
            if not each.finished
            for owner in each.metadata.owner_references
        }
        self._pods_by_owner: dict[str, list[Pod]] = {}
        for pod in self.running.pods:
            if (owner := pod.metadata.controller) is not None:
                self._pods_by_owner.setdefault(owner.uid, []).append(pod)
        self._children: dict[str, dict[str, tuple[Integration[Any], Kind]]] = {}
        for integration, job in (*self.running.jobs, *self.running.made):
            owner = job.metadata.controller
            if owner is not None and not isinstance(job, Pod) and self.registry.made(job):
                self._children.setdefault(owner.uid, {})[job.metadata.uid] = integration, job
        self._later: Counter[tuple[str, str, str]] = Counter()

    def plan(self) -> list[Planned]:
        """The jobs that can be imported; `findings` are about the others, and about what to know of these."""
        found: list[Planned] = []
        for integration, job in self.running.jobs:
            if not self._concerns(integration, job):
                continue
            title = f"{job.KIND} {job.metadata.key}"
            try:
                planned = self._plan(integration, job)
            except Refused as error:
                self.findings.append(danger(error.check, f"{title}: {error.says}", error.cure))
                continue
            if planned is not None:
                found.append(planned)
        self.findings += self._exceeded({each.admission.cluster_queue for each in found})
        self.findings += self._made_later()
        return found

    def _concerns(self, integration: Integration[Any], job: Kind) -> bool:
        """Whether a job runs, is no part of another one, and has no Workload yet."""
        meta = job.metadata
        if meta.deletion_timestamp or integration.finished(job) is not None or integration.suspended(job):
            return False
        if not isinstance(job, Pod) and integration.exceptions.skip(job):
            return False
        if isinstance(job, Pod):
            owner = meta.controller
            if _MIRROR in meta.annotations or (owner is not None and self._charged_by(owner)):
                return False
        elif self.registry.made(job):
            return False
        if meta.uid in self._owned:
            self.queued += 1
            return False
        return True

    def _charged_by(self, owner: OwnerReference) -> bool:
        """Whether the Workload of its controller charges for a pod. A set that was queued before has gated its pods; of
        one that was not, the pods are imported one by one."""
        made_by = self.registry.known_owner(owner)
        return made_by is not None and made_by.handling.watched and made_by.as_set is None

    def _plan(self, integration: Integration[Any], job: Kind) -> Planned | None:
        self._check_kind(integration, job)
        job = self._rendered(integration, job)
        try:
            pod_sets = integration.pod_sets(job)
            priority_class = integration.priority_class_name(job) or ""
        except PermanentError as error:
            raise Refused(Check.JOB, str(error), f"mend the job, {_AGAIN}") from None
        bare = Workload.decoder()(
            orjson.dumps(self._stamped({"spec": {"podSets": [each.body(topologies=False) for each in pod_sets]}}))
        )
        requested = self._info(bare, job).totals
        asked = {resource for each in requested for resource, amount in each.requests.items() if amount}
        mapped = self.mapping.of(job.metadata.labels, priority_class, asked)
        if mapped is None:
            raise Refused(
                Check.MAPPING, "no rule maps it to a LocalQueue", "add a rule for it, or one with `skip: true`"
            )
        if mapped.skip:
            self.skipped += 1
            return None
        local, cluster_queue = self._queues(job, mapped.queue)
        job.metadata.labels = {**job.metadata.labels, names.QUEUE_LABEL: local}
        body = self._body(integration, job, pod_sets)
        workload = Workload.decoder()(orjson.dumps(self._stamped(body)))
        info = self._info(workload, job)
        self._check_children(integration, job, info)
        for totals in info.totals:
            self._give(totals, cluster_queue, self._nodes_of(integration, job, totals.name))
        admission = admission_of(info, cluster_queue.name)
        self._check_admission(cluster_queue, admission)
        planned = Planned(job, body, admission, _entry(job, info, local, cluster_queue.name, body["metadata"]["name"]))
        status = {"status": planned.status(workload, datetime.fromtimestamp(self.now, UTC))}
        workload = Workload.decoder()(orjson.dumps(self._stamped({**body, **status})))
        self._check_marks(integration, job, workload)
        self._state.put_workload(workload, self.now)
        owner = job.metadata.controller
        if isinstance(job, Pod) and owner is not None:
            self._later[job.metadata.namespace, owner.kind, owner.name] += 1
        return planned

    def _check_kind(self, integration: Integration[Any], job: Kind) -> None:
        """Whether jobs like this can be imported at all."""
        meta, kind = job.metadata, type(job)
        namespaces = self._state.queues.namespaces
        if resource_name(kind.GROUP, kind.PLURAL) not in self.scope.manages(namespaces.get(meta.namespace, {})):
            selector = self.scope.selectors.get(resource_name(kind.GROUP, kind.PLURAL))
            if selector is None:
                cure = "enable its kind in `integrations.frameworks`, or skip it"
                raise Refused(Check.KIND, f"Turnstile does not manage {kind.PLURAL} here", cure)
            cure = f"label the namespace as your installation asks (kueue-managed=true by default), {_AGAIN}"
            raise Refused(Check.NAMESPACE, f"namespace {meta.namespace} is not managed", cure)
        if not integration.may_be_imported or integration.as_set is not None:
            cure = "give it the label kueue.x-k8s.io/queue-name when it is created the next time; skip it until then"
            says = "pods that its controller makes later would lack the marks of an admission, and wait for ever"
            raise Refused(Check.KIND, says, cure)
        if isinstance(job, Pod):
            if not self.registry.queues_pods:
                raise Refused(Check.KIND, "single pods are not queued", "enable the framework `pod`, or skip it")
            if identifier(meta, names.POD_GROUP_NAME)[0]:
                raise Refused(Check.JOB, "it says that it is of a pod group", "create the group anew with a queue")
        if build.elastic(integration, job, self.options):
            cure = "create it anew with a queue, or without the annotation kueue.x-k8s.io/elastic-job"
            raise Refused(Check.JOB, "an elastic job needs gates on its pods, which running pods cannot get", cure)
        if prebuilt_name(job):
            raise Refused(Check.JOB, "it names a Workload that does not exist", "create it anew with a queue")

    def _queues(self, job: Kind, queue: str) -> tuple[str, ClusterQueue]:
        """The LocalQueue and the ClusterQueue of a job."""
        namespace, named = job.metadata.namespace, queue_name(job)
        if named and named != queue:
            cure = f"map it to {named}, or take the label off"
            raise Refused(Check.MAPPING, f"its label names LocalQueue {named}, the rules name {queue}", cure)
        local = self.snapshot.get(LocalQueue, f"{namespace}/{queue}")
        if local is None:
            cure = f"create it (turnstile create localqueue {queue} -n {namespace} --clusterqueue ...)"
            raise Refused(Check.QUEUE, f"there is no LocalQueue {queue} in namespace {namespace}", cure)
        name = local.spec.cluster_queue or ""
        cluster_queue = self._state.cluster_queues.get(name)
        if cluster_queue is None:
            says = f"LocalQueue {queue} leads to ClusterQueue {name or '(none)'}, which does not exist"
            raise Refused(Check.QUEUE, says, "create the ClusterQueue")
        if not cluster_queue.selects(self._state.queues.namespaces.get(namespace, {})):
            cure = "let its `namespaceSelector` select the namespace"
            raise Refused(Check.QUEUE, f"ClusterQueue {name} does not take jobs of namespace {namespace}", cure)
        if "HoldAndDrain" in (local.spec.stop_policy, cluster_queue.api.spec.stop_policy):
            says = f"the queue is drained: LocalQueue {queue}, ClusterQueue {name}"
            raise Refused(Check.QUEUE, says, "set its `stopPolicy` to None or Hold: it would be stopped at once")
        return queue, cluster_queue

    def _body(self, integration: Integration[Any], job: Kind, pod_sets: Any) -> Plain:
        classes = build.PriorityClasses(
            {each.metadata.name: each for each in self.snapshot.of(WorkloadPriorityClass)},
            {each.metadata.name: each for each in self.snapshot.of(PriorityClass)},
        )
        try:
            priority = build.priority_of(integration, job, classes)
        except build.PriorityClassMissing as error:
            raise Refused(Check.JOB, str(error), "create the priority class") from None
        return build.body(integration, job, pod_sets, priority, self.options)

    def _stamped(self, body: Plain) -> Plain:
        """A Workload as if it existed."""
        meta = body.get("metadata", {})
        given = {"uid": f"new-{meta.get('name', '')}", "creationTimestamp": stamp(self.now), "generation": 1}
        return {**body, "metadata": {**meta, **given}}

    def _info(self, workload: Workload, job: Kind) -> Info:
        workload.metadata.namespace = job.metadata.namespace
        try:
            info = Info(workload, self._state.surroundings)
        except InvalidValue as error:
            raise Refused(Check.JOB, str(error), "mend the job") from None
        if info.problem is not None:
            raise Refused(Check.JOB, info.problem.message, "mend what it says, or skip the job")
        return info

    def _rendered(self, integration: Integration[Any], job: Kind) -> Kind:
        """A job with the pod templates that an object has which its controller has made."""
        if (rendering := integration.rendering) is None:
            return job
        for _, child in self._made_by(job):
            if isinstance(child, rendering.templates_in) and child.metadata.name == job.metadata.name:
                job = rendering.joined(job, child)
        if why := rendering.unread(job):
            raise Refused(Check.JOB, why, f"wait for that, {_AGAIN}")
        return job

    def _made_by(self, job: Kind) -> list[tuple[Integration[Any], Kind]]:
        """The jobs that a job's controller has made."""
        return list(self._children.get(job.metadata.uid, {}).values())

    def _check_children(self, integration: Integration[Any], job: Kind, info: Info) -> None:
        """Whether the Workload would charge for the jobs that a job's controller has made, and for those below them, as
        the controllers ask: each is of a pod set by the marks of the controller that made it, and requests no more."""
        left = {each.name: each.count for each in info.totals}
        templates = {each.name: each.template.spec for each in info.workload.spec.pod_sets}
        cure = "wait until it has ended, or skip the job"
        for made_by, child in self._made_by(job):
            if made_by.finished(child) is not None or made_by.suspended(child):
                continue
            named, title = integration.importing.pod_sets_of(child), f"{child.KIND} {child.metadata.name} of it"
            try:
                claims = made_by.claims(child)
                singles = [self._single(each.spec, job) for each in claims]
            except (InvalidValue, PermanentError) as error:
                raise Refused(Check.JOB, f"{title} cannot be read: {error}", cure) from None
            if len(named) != len(claims) or any(name not in left for name in named):
                raise Refused(Check.JOB, f"{title} has pods that are of none of its pod sets", cure)
            for name, claim, single in zip(named, claims, singles, strict=True):
                charged = self._single(templates[name], job)
                left[name] -= claim.count
                if more := sorted(each for each, amount in single.items() if amount > charged.get(each, 0)):
                    raise Refused(Check.JOB, f"{title} requests more {listed(more)} than its pod set {name}", cure)
                if left[name] < 0:
                    raise Refused(Check.JOB, f"{title} has more pods than its pod set {name} is to have", cure)
            self._check_children(made_by, child, info)

    def _single(self, spec: PodSpec, job: Kind) -> dict[str, int]:
        """The requests of one pod in the namespace of a job. Raises InvalidValue."""
        return self._state.surroundings.counted(spec, job.metadata.namespace).single

    def _nodes_of(self, integration: Integration[Any], job: Kind, pod_set: str) -> dict[str, Mapping[str, str]]:
        """The labels of the nodes that the pods of a pod set run on, as far as nodes were read: the pods of the jobs
        that the job's controller has made for it, or those that it has made itself."""
        made = list(self._pods_of(integration, job, pod_set))
        own = self._pods_by_owner.get(job.metadata.uid, ())
        mine = [job] if isinstance(job, Pod) else made or own
        bound = {pods.node_name(each) for each in mine if not pods.is_over(each) and pods.is_bound(each)}
        known = self.running.nodes
        return {} if known is None else {name: known[name] for name in sorted(bound) if name in known}

    def _pods_of(self, integration: Integration[Any], job: Kind, pod_set: str) -> Iterator[Pod]:
        """The pods of a pod set of the jobs that a job's controller has made, and of those below them."""
        for made_by, child in self._made_by(job):
            for pod in self._pods_by_owner.get(child.metadata.uid, ()):
                if integration.importing.pod_set_of(pod, child) == pod_set:
                    yield pod
            yield from self._pods_of(made_by, child, pod_set)

    def _give(self, totals: PodSetTotals, queue: ClusterQueue, nodes: Mapping[str, Mapping[str, str]]) -> None:
        """Give a pod set the flavors of the nodes that it runs on."""
        if queue.covers_pods:
            totals.requests = {**totals.requests, _PODS: totals.count}
        flavors: dict[str, str] = {}
        for group in queue.api.spec.resource_groups:
            wanted = {name: totals.requests[name] for name in group.covered_resources if name in totals.requests}
            if wanted:
                candidates = [each.name for each in group.flavors]
                flavor = self._flavor(totals, queue, candidates, wanted, nodes)
                flavors |= dict.fromkeys(wanted, flavor)
        ignored = self.engine.gates.quota_check_strategy and self.engine.quota_check_strategy == "IgnoreUndeclared"
        missing = sorted(name for name, amount in totals.requests.items() if amount and name not in flavors)
        if missing and not ignored:
            cure = "add the resource to the ClusterQueue, or leave it out by `resources.excludeResourcePrefixes`"
            raise Refused(Check.FLAVOR, f"ClusterQueue {queue.name} has no quota for {listed(missing)}", cure)
        totals.flavors = flavors

    def _flavor(
        self,
        totals: PodSetTotals,
        queue: ClusterQueue,
        candidates: Sequence[str],
        wanted: Mapping[str, int],
        nodes: Mapping[str, Mapping[str, str]],
    ) -> str:
        """The first flavor that suits the nodes and has room; without room, the first that suits."""
        found, why = [], dict[str, str]()
        for name in candidates:
            flavor = self.snapshot.get(ResourceFlavor, name)
            problem = f"ResourceFlavor {name} does not exist" if flavor is None else _unfit(totals, flavor, nodes)
            if problem:
                why[name] = problem
            else:
                found.append(name)
        if not found:
            cure = "give the ClusterQueue a flavor of these nodes without a Topology, or map the job elsewhere"
            reasons = "; ".join(why.values()) or "it has none"
            says = f"no flavor of ClusterQueue {queue.name} is that of its pods: {reasons}"
            raise Refused(Check.FLAVOR, says, cure)
        self._state.ledger.settle()
        pair = self._state.surroundings.catalog.pair
        roomy = (
            name
            for name in found
            if all(available(queue.node, pair(name, resource)) >= amount for resource, amount in wanted.items())
        )
        return next(roomy, found[0])

    def _check_admission(self, queue: ClusterQueue, admission: Admission) -> None:
        if checks := required(queue.api, admission):
            says = f"ClusterQueue {queue.name} has admission checks, which nobody has asked for it: {listed(checks)}"
            raise Refused(Check.QUEUE, says, "map it to a queue without admission checks, or skip it")

    def _check_marks(self, integration: Integration[Any], job: Kind, workload: Workload) -> None:
        """Whether the job can get the marks of the admission while it runs."""
        try:
            infos = infos_of(
                workload,
                lambda name: self.snapshot.get(ResourceFlavor, name),
                queue_labels=self.options.queue_labels_on_pods,
                topologies=self.options.topologies,
            )
            integration.importing.mark_running(job, infos)
            given = {each.name: each for each in infos}
            for made_by, child in self._made_by(job):
                named = [given[each] for each in integration.importing.pod_sets_of(child) if each in given]
                if named and made_by.finished(child) is None:
                    made_by.importing.mark_running(child, named)
        except (LookupError, PermanentError) as error:
            raise Refused(Check.JOB, str(error), "create it anew with a queue, or skip it") from None

    def _exceeded(self, queues: Collection[str]) -> Iterator[Finding]:
        """Quotas that the jobs of their queues exceed once these jobs are imported."""
        self._state.ledger.settle()
        for name in sorted(queues):
            queue = self._state.cluster_queues[name]
            over = {
                pair: -rest for pair in sorted(queue.node.usage, key=repr) if (rest := available(queue.node, pair)) < 0
            }
            for pair, amount in over.items():
                used = text(pair.resource, queue.node.usage[pair])
                beyond = text(pair.resource, amount)
                says = (
                    f"ClusterQueue {name} then uses {used} {pair.resource} of flavor {pair.flavor}, {beyond} more than"
                    " it may have: no more of it is given until that is given back, and its Cohort may reclaim it"
                )
                yield warning(Check.QUOTA, says, "raise the quota, or map some of the jobs elsewhere")

    def _made_later(self) -> Iterator[Finding]:
        """Controllers whose next pods are in no queue."""
        for (namespace, kind, name), count in sorted(self._later.items()):
            if self.snapshot.get(LocalQueue, f"{namespace}/{names.DEFAULT_LOCAL_QUEUE}") is not None:
                continue
            says = (
                f"{kind} {namespace}/{name}: pods that it makes later run without quota ({count} of now are imported)"
            )
            cure = (
                "give the Deployment, StatefulSet or other object behind it the label kueue.x-k8s.io/queue-name, which"
                " rolls it out, when a restart suits"
            )
            yield warning(Check.LATER, says, cure)


def _unfit(totals: PodSetTotals, flavor: ResourceFlavor, nodes: Mapping[str, Mapping[str, str]]) -> str:
    """Why a flavor is not that of pods on these nodes; empty if it is. Without nodes, because the pods have
    none or nodes were not read, the node selector and the tolerations of the pods decide."""
    name, labels = flavor.metadata.name, flavor.spec.node_labels
    if flavor.spec.topology_name:
        return f"flavor {name} has a Topology, in which running pods get no places"
    for node, has in nodes.items():
        lacks = next((f"{key}={value}" for key, value in labels.items() if has.get(key) != value), "")
        if lacks:
            return f"flavor {name} is for nodes with {lacks}, and a pod runs on {node}"
    if not nodes and totals.shape is not None:
        try:
            return mismatch(totals.shape, flavor) or ""
        except ValueError as error:
            return str(error)
    return ""


def _entry(job: Kind, info: Info, local: str, cluster_queue: str, workload: str) -> Import:
    amounts: Counter[tuple[str, str]] = Counter()
    for totals in info.totals:
        for resource, flavor in (totals.flavors or {}).items():
            amounts[flavor, resource] += totals.requests[resource]
    charges = tuple(Charge(flavor, resource, text(resource, amount)) for (flavor, resource), amount in amounts.items())
    meta, count = job.metadata, sum(each.count for each in info.totals)
    return Import(job.KIND, meta.namespace, meta.name, count, local, cluster_queue, charges, workload)
