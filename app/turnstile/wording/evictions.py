"""A sentence for people for each reason for which a Workload has to give its quota back, and what helps.

A sentence that is none of the engine's (an operator's, a person's) is passed on as it is.
"""

from collections.abc import Mapping
from typing import Final

from turnstile.engine.causes import Eviction, Sentence
from turnstile.engine.reasons import PREEMPTION_TEXT
from turnstile.wording.grammar import sentence
from turnstile.wording.reading import Given, Words, read
from turnstile.wording.standing import PREEMPTORS

WORDS: Final[Mapping[Sentence, Words]] = {
    Eviction.PREEMPTED: Words(
        "Preempted by another Workload, {rule}.",
        "wait: it starts again when there is room; `turnstile explain` names the preemptor",
    ),
    Eviction.MIGRATED: Words(
        "Stopped for a variant of the job that has a better flavor.", "nothing: the job goes on as that variant"
    ),
    Eviction.QUEUE_DRAINED: Words(
        "Its {kind} was stopped and drained.", "whoever stopped it resumes it: `kubectl turnstile resume`"
    ),
    Eviction.PODS_LATE: Words(
        "Its pods were not ready in time.",
        "see why they do not become ready; `waitForPodsReady` of the configuration has the limit",
    ),
    Eviction.PODS_IDLE: Words("No pod of it has run for {seconds} s.", "see why its pods do not run"),
    Eviction.NODES_FAILED: Words(
        "Nodes on which it ran have failed ({hosts}).", "wait: it starts again when there is room on other nodes"
    ),
    Eviction.NODES_IRREPLACEABLE: Words(
        "Nodes on which it ran have failed ({hosts}), and no others have room for its pods.",
        "wait: it is in its queue again",
    ),
    Eviction.DEACTIVATED: Words(
        "It was deactivated: its `spec.active` is false.", "set `spec.active` of the Workload to true, if it should run"
    ),
    Eviction.RETRIES_USED_UP: Words(
        "Deactivated: its pods were not ready in time, as often as it may be tried.",
        "mend what keeps its pods from becoming ready, then set `spec.active` of the Workload to true",
    ),
    Eviction.TIME_USED_UP: Words(
        "Deactivated: it ran for as long as its maximum execution time.",
        "submit it again, with a larger `kueue.x-k8s.io/max-exec-time-seconds` if it needs more",
    ),
    Eviction.CHECK_ANSWERED: Words(
        "Admission check {answers} {does}.", "see the message of the check in `status.admissionChecks`"
    ),
    Eviction.CHECKS_ANSWERED: Words(
        "Admission checks {answers}: each {does}.", "see the messages of the checks in `status.admissionChecks`"
    ),
    Eviction.ON_MANAGER: Words(
        "Stopped by the cluster that sent it here.", "see the Workload of the same name in that cluster"
    ),
    Eviction.VARIANT_EVICTED: Words(
        "The variant of the job that ran was evicted.", "wait: it starts again when a variant is admitted"
    ),
    Eviction.VARIANTS_GONE: Words(
        "No variant of the job holds quota any more.", "wait: it starts again when a variant is admitted"
    ),
}
_RULES: Final = {text: PREEMPTORS[reason] for reason, text in PREEMPTION_TEXT.items()}
_DOES: Final = {"Retry": "asks to try again later", "Rejected": "rejected it"}


def evicted(message: str) -> str:
    """Why a Workload has to give its quota back, by the message of its condition Evicted; another's as a sentence."""
    given = list(read(Eviction, message))
    of_it = [each for each in given if each.cause is not Eviction.DEACTIVATED] or given
    most = 2 if of_it and of_it[0].cause is Eviction.ON_MANAGER else 1
    return " ".join(map(_said, of_it[:most])) or sentence(message)


def _said(given: Given) -> str:
    cause, data = given.cause, dict(given.data)
    if cause is Eviction.PREEMPTED:
        data["rule"] = _RULES.get(data["why"], "for a reason that is not known here")
    if "state" in data:
        data["does"] = _DOES.get(data["state"], f"is {data['state']}")
    return sentence(WORDS[cause].says.format_map({name: value.rstrip(".") for name, value in data.items()}))
