"""A sentence for people for each cause for which a Workload is not admitted, and what helps.

A sentence that is no cause of the engine (an operator's, an admission check's) is passed on as it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from turnstile.api.errors import InvalidValue
from turnstile.api.quantity import to_int
from turnstile.engine.causes import Cause, Sentence
from turnstile.engine.quota.amounts import UNLIMITED
from turnstile.wording.amounts import nodes
from turnstile.wording.evictions import evicted
from turnstile.wording.grammar import counted, sentence
from turnstile.wording.reading import Given, Words, read
from turnstile.wording.shortage import Short, headline

NAMED: Final = 3
"""Flavors whose refusal a sentence tells at most."""


WORDS: Final[Mapping[Sentence, Words]] = {
    Cause.QUOTA_IN_USE: Words(
        "Waits for {more} more {resource} on {nodes}.",
        "wait; or ask for less, or for a higher priority",
    ),
    Cause.BEYOND_MAXIMUM: Words(
        "Can never start as it is: it asks for {asked} {resource} on {nodes}, where its queue can have {most} at most.",
        "ask for less, or for a larger quota",
    ),
    Cause.FLAVOR_MISSING: Words(
        "ResourceFlavor {flavor} does not exist.", "an administrator creates it, or takes it out of the ClusterQueue"
    ),
    Cause.TAINT: Words(
        "Its pods do not tolerate the taint {taint} of {nodes}.",
        "add the toleration, if the job may run there",
    ),
    Cause.AFFINITY: Words(
        "Its node selector or node affinity rules out {nodes}.", "change the selector, if the job may run there"
    ),
    Cause.AFFINITY_TOGETHER: Words(
        "No node has the labels of all of the flavors {flavors}, which its node affinity needs together.",
        "change the node affinity",
    ),
    Cause.CONTRADICTION: Words(
        "No node is of both flavors {flavor} and {other}: label {key} is {ours} in one and {theirs} in the other.",
        "an administrator makes the labels of the two flavors agree",
    ),
    Cause.ONLY_TOPOLOGY: Words(
        "Only pods that ask for a topology may run on {nodes}.", "ask for a topology, or use another queue"
    ),
    Cause.NO_TOPOLOGY: Words(
        "Its pods ask for a topology, and {nodes} have none.", "leave the topology out, or use another queue"
    ),
    Cause.TOPOLOGY_UNKNOWN: Words(
        "The Topology of {nodes} is not known.", "an administrator creates the Topology that the flavor names"
    ),
    Cause.LEVEL_MISSING: Words(
        "The Topology of {nodes} does not have the level that its pods ask for.", "ask for a level that it has"
    ),
    Cause.SLICE_FLAVOR: Words(
        "It replaces a Workload that runs in flavor {given}, so {nodes} are not for it.",
        "wait until there is room on those nodes",
    ),
    Cause.CLAIM_FLAVOR: Words(
        "Its ResourceClaim {claim} is in use on {given} nodes, so {nodes} are not for it.",
        "wait until there is room on those nodes, or name another claim",
    ),
    Cause.OTHER_NOMINATION: Words("Not tried for {resource} on {nodes}: others are kept for it already.", "wait"),
    Cause.VARIANT_FLAVOR: Words("This variant of the job may not have {nodes}.", "nothing: another variant may"),
    Cause.NOT_COVERED: Words(
        "Its queue has no quota for {resource}.", "take it out of the requests, or have the ClusterQueue cover it"
    ),
    Cause.AFFINITY_MALFORMED: Words("Its node affinity cannot be read: {error}.", "correct the node affinity"),
    Cause.TOPOLOGY_FLAVORS: Words(
        "Its pods would need nodes of several flavors with a topology: {flavors}.",
        "ask for resources of one resource group, or have the ClusterQueue changed",
    ),
    Cause.TOPOLOGY_NO_FLAVOR: Words(
        "Its pods ask for a topology, and got no flavor that has one.", "leave the topology out, or use another queue"
    ),
    Cause.PLACES_NONE: Words(
        "Topology {topology} has no place for any of its {needed} {unit}s.",
        "wait; or ask for a wider level, or for smaller pods",
    ),
    Cause.PLACES_FEW: Words(
        "Topology {topology} has places for {fit} of its {needed} {unit}s.",
        "wait; or ask for a wider level, for fewer pods, or for smaller ones",
    ),
    Cause.PLACES_BY_LAYER: Words(
        "Topology {topology} has too few places for its slices: {layers}.", "wait; or ask for smaller slices"
    ),
    Cause.ROOM_FEW: Words(
        "Waits for room on {nodes}: they have room for {fit} of its {needed} pod(s).",
        "wait; or ask for fewer or smaller pods. The annotation `turnstile.dev/wait-for-room` of the ClusterQueue asks"
        " for room",
    ),
    Cause.ROOM_NO_NODE: Words(
        "Waits for a node: no node that is ready has the labels of {nodes}.",
        "wait; or an administrator adds nodes, or labels them",
    ),
    Cause.NODES_EXCLUDED: Words(
        "Nodes that take none of its pods, out of {total}: {excluded}.",
        "see whether a selector, a taint or one resource rules them out",
    ),
    Cause.DOMAINS_NONE: Words(
        "No node has the label of topology level {level}.",
        "an administrator labels the nodes",
    ),
    Cause.SLICES_BROKEN: Words(
        "Its {pods} pods make no whole slices of {size} pods.", "make the number of pods a multiple of the slice size"
    ),
    Cause.GROUP_TOO_LARGE: Words(
        "Group {group} has {count} members: only a leader and its workers are placed together.",
        "give two pod sets the same group, not more",
    ),
    Cause.PLACE_STALE: Words(
        "Its failed node cannot be replaced: the place {domain} of its other pods is gone.", "have it evicted"
    ),
    Cause.TOPOLOGY_LEVEL: Words("The Topology has no level {level}.", "ask for a level that it has"),
    Cause.SLICE_LEVEL: Words("The Topology has no level {level} for its slices.", "ask for a level that it has"),
    Cause.SLICE_SIZE: Words("It asks for slices without saying how many pods each has.", "add the slice size"),
    Cause.SLICE_ABOVE: Words(
        "The level {slice} of its slices is wider than {level}, that of its pods.",
        "ask for slices at a lower level",
    ),
    Cause.LAYER_LEVEL: Words("The Topology has no level {level} for its inner slices.", "ask for a level that it has"),
    Cause.LAYER_ORDER: Words(
        "The level {layer} of its inner slices is not below {before}.", "order the slice constraints by level"
    ),
    Cause.LAYER_SIZE: Words(
        "Inner slices of {size} pods do not fill slices of {before}.", "choose a size that divides the outer one"
    ),
    Cause.FAULT: Words(
        "Turnstile failed to look at it ({fault}).", "report the lines of the leader's log about this Workload"
    ),
    Cause.CHECKS_FAILED: Words(
        "An admission check refused it.", "see the message of the check in `status.admissionChecks`"
    ),
    Cause.NAMESPACE_MISSING: Words("Namespace {namespace} does not exist.", "create the namespace"),
    Cause.NAMESPACE_NOT_SELECTED: Words(
        "Its ClusterQueue is not for this namespace.",
        "an administrator changes `namespaceSelector` of the ClusterQueue, or the labels of the namespace",
    ),
    Cause.LIMITS_CONTRADICT: Words(
        "The requests of its pods are above their limits: {violations}.", "correct the requests or the limits"
    ),
    Cause.LIMIT_RANGE: Words(
        "A LimitRange of the namespace does not allow its pods: {violations}.", "keep within the LimitRange"
    ),
    Cause.PREEMPTS: Words("Preempts {victims}, and starts when {they} ended.", "wait until the victims' pods ended"),
    Cause.MIGRATES: Words(
        "Moves to a better flavor when the variant that runs has ended.", "wait until the pods of that variant ended"
    ),
    Cause.PROTECTED: Words(
        "Workloads that it could preempt are protected by their minimum run time: the first of them until {at}.",
        "wait; their ClusterQueue or priority class says it, by the annotation `turnstile.dev/minimum-run-time`",
    ),
    Cause.KEPT: Words(
        "ClusterQueue {queue} keeps what comes free for it since {at}.",
        "wait: no Workload behind it is admitted before",
    ),
    Cause.VICTIM_LATE: Words(
        "{victim} was preempted for it at {at} and still holds its quota.",
        "see why the victim's pods do not end (a finalizer, a node that is gone)",
    ),
    Cause.PREEMPTION_GATED: Words(
        "It would have to preempt, and a preemption gate forbids that.", "whoever set the preemption gate opens it"
    ),
    Cause.SHARED_VICTIMS_SUFFICE: Words(
        "Starts when Workloads that were preempted for another one have ended: there is room for both.", "wait"
    ),
    Cause.SHARED_VICTIMS: Words(
        "Another Workload preempts those that it would have to preempt.", "wait: it is tried again after that"
    ),
    Cause.OVERTAKEN: Words(
        "Another Workload took in the same moment what it needs.", "wait: it is tried again at once"
    ),
    Cause.BESIDE_PREEMPTOR: Words(
        "Starts when preempted Workloads have ended: a Workload before it waits for the same quota.", "wait"
    ),
    Cause.SLICE_STOPS: Words(
        "The job is being stopped, and its pods have not gone yet.", "wait: it is tried again when they have gone"
    ),
    Cause.SLICE_PLACED: Words(
        "The pods of the job have places in a topology, with which a running job cannot grow.",
        "suspend the job: it is queued again with all its pods",
    ),
    Cause.PODS_NOT_READY: Words(
        "Waits until the pods of all admitted Workloads are ready.",
        "see why those pods are not ready; `waitForPodsReady` of the configuration asks for it",
    ),
    Cause.BETTER_VARIANT_RUNS: Words("A variant of the job with a better flavor runs already.", "nothing"),
    Cause.VARIANT_NOT_ACCEPTABLE: Words(
        "The flavor of this variant is not one to move to while another variant runs.", "nothing"
    ),
    Cause.LOCAL_QUEUE_MISSING: Words(
        "There is no LocalQueue {queue} in its namespace.", "correct the queue name, or have the LocalQueue created"
    ),
    Cause.LOCAL_QUEUE_STOPPED: Words(
        "LocalQueue {queue} is stopped.", "whoever stopped it resumes it; see `kubectl describe localqueue`"
    ),
    Cause.CLUSTER_QUEUE_MISSING: Words(
        "There is no ClusterQueue {queue}.", "an administrator creates it, or corrects the LocalQueue"
    ),
    Cause.CLUSTER_QUEUE_INACTIVE: Words(
        "ClusterQueue {queue} admits nothing now.", "see why: `kubectl describe clusterqueue`"
    ),
    Cause.QUEUE_STOPPED: Words(
        "{kind} {queue} was stopped before it could start.", "whoever stopped it resumes it: `kubectl turnstile resume`"
    ),
    Cause.QUEUE_GONE: Words("{kind} {queue} is gone, or is being deleted.", "use another queue, or have it created"),
    Cause.ADMISSION_GATED: Words(
        "Its admission is gated by {gates}.",
        "whoever set the annotation `kueue.x-k8s.io/admission-gated-by` removes it",
    ),
    Cause.GATE_CLEARED: Words("Its admission is not gated any more, and its turn comes soon.", "wait"),
    Cause.EQUAL_FAILED: Words(
        "Waits like an equal Workload of its queue, which was tried and did not fit.",
        "wait: both are tried again when quota is free",
    ),
    Cause.KEPT_FOR_ANOTHER: Words(
        "ClusterQueue {queue} keeps what comes free for a Workload that has waited for long, and comes before it.",
        "wait; the annotation `turnstile.dev/keep-quota-after` of the ClusterQueue says after how long it does that",
    ),
    Cause.NOT_TRIED: Words(
        "Not tried yet: its turn comes in one of the next cycles.", "wait; if it stays so, see whether a replica leads"
    ),
}


_OF_WORKLOAD: Final = frozenset((Cause.AFFINITY_MALFORMED, Cause.PROTECTED, Cause.KEPT))
"""Causes that are told beside the amounts, though they may stand behind the name of a pod set."""


def waiting(message: str) -> str:
    """Why a Workload waits, by the message of its condition QuotaReserved; another's message as a sentence. One that
    was evicted waits for that until a cycle has tried it again."""
    given = list(read(Cause, message))
    if not given:
        return evicted(message)
    preempts = [each for each in given if each.cause in (Cause.PREEMPTS, Cause.MIGRATES)]
    if preempts:
        late = [each for each in given if each.cause is Cause.VICTIM_LATE]
        return " ".join(map(said, (*preempts, *late)))
    shorts = list(_shorts(given))
    rest = [each for each in given if each.cause not in (Cause.QUOTA_IN_USE, Cause.BEYOND_MAXIMUM)]
    whole = [each for each in rest if not each.pod_set or each.cause in _OF_WORKLOAD]
    if whole or (shorts and not _never(shorts)):
        return " ".join(([] if not shorts else [headline(shorts)]) + list(map(said, whole)))
    refused = list(dict.fromkeys(map(said, rest)))
    sentences = ([headline(shorts)] if shorts else []) + refused
    return " ".join(sentences[:NAMED])


def lacking(message: str) -> list[Short]:
    """The amounts that are short by the message of a condition."""
    return list(_shorts(read(Cause, message)))


def said(given: Given) -> str:
    """The sentence of one cause."""
    cause, data = given.cause, dict(given.data)
    if cause in (Cause.QUOTA_IN_USE, Cause.BEYOND_MAXIMUM):
        return headline(list(_shorts([given])))
    if cause is Cause.AFFINITY_MALFORMED:  # Kueue's sentence is the same for whatever is wrong with a pod set
        inner = next(read(Cause, data["error"]), None)
        if inner is not None and inner.cause is not cause and inner.cause.says(**inner.data) == data["error"]:
            return said(inner)
    if "flavor" in data:
        data["nodes"] = nodes(data["flavor"])
    if cause is Cause.TAINT:
        data["taint"] = f"{data['key']}={data['value']}" if data["value"] else data["key"]
    if cause is Cause.PREEMPTS:
        count = int(data["count"])
        data |= {"victims": counted(count, "Workload"), "they": "it has" if count == 1 else "they have"}
    return sentence(WORDS[cause].says.format_map({name: value.rstrip(".") for name, value in data.items()}))


def _shorts(given: Iterable[Given]) -> Iterator[Short]:
    for each in given:
        data = each.data
        try:
            if each.cause is Cause.QUOTA_IN_USE:
                resource = data["resource"]
                yield Short(data["flavor"], resource, _amount(resource, data["more"]), like=data["more"])
            elif each.cause is Cause.BEYOND_MAXIMUM:
                resource = data["resource"]
                asked, most = (_amount(resource, data[name]) for name in ("asked", "most"))
                asked += _amount(resource, data["assumed"])
                yield Short(data["flavor"], resource, asked - most, asked, most=most)
        except InvalidValue:  # no quantity: the text is of another program
            continue


def _amount(resource: str, quantity: str) -> int:
    return UNLIMITED if quantity == "Unlimited" else to_int(resource, quantity)


def _never(shorts: Iterable[Short]) -> bool:
    return all(each.most is not None for each in shorts)
