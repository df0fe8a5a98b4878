"""A sentence for people for each reason for which a ClusterQueue admits nothing, and what helps."""

from collections.abc import Mapping
from typing import Final

from turnstile.engine.causes import Inactive, Sentence
from turnstile.wording.grammar import clause, listed, sentence
from turnstile.wording.reading import Given, Words, read

WORDS: Final[Mapping[Sentence, Words]] = {
    Inactive.STOPPED: Words("It is stopped.", "whoever stopped it resumes it: `kubectl turnstile resume`"),
    Inactive.FLAVORS_MISSING: Words(
        "There is no ResourceFlavor {missing}.", "create the ResourceFlavor, or take it out of the ClusterQueue"
    ),
    Inactive.CHECKS_MISSING: Words(
        "There is no AdmissionCheck {named}.", "create the AdmissionCheck, or take it out of the ClusterQueue"
    ),
    Inactive.CHECKS_INACTIVE: Words(
        "It asks for AdmissionChecks that are not active: {named}.", "see why: `kubectl describe admissioncheck`"
    ),
    Inactive.SEVERAL_MULTIKUEUE: Words(
        "Several of its AdmissionChecks send jobs to other clusters, and only one may: {named}.", "leave one of them"
    ),
    Inactive.MULTIKUEUE_BY_FLAVOR: Words(
        "An AdmissionCheck that sends jobs to other clusters is for some of its flavors only: {named}.",
        "let the AdmissionCheck be for all flavors",
    ),
    Inactive.MULTIKUEUE_PROVISIONS: Words(
        "Its AdmissionChecks send jobs to other clusters ({named}), and provision nodes in this one ({others}).",
        "leave one of the two kinds",
    ),
    Inactive.TOPOLOGY_MISSING: Words(
        "There is no Topology {topology}, which ResourceFlavor {flavor} names.",
        "create the Topology, or take it out of the ResourceFlavor",
    ),
    Inactive.COHORT_CYCLE: Words("Cohorts form a cycle: {cohorts}.", "change `spec.parentName` of one of them"),
    Inactive.COHORTS_DEEP: Words(
        "More than {most} Cohorts are above one another.", "change `spec.parentName` of some of them"
    ),
    Inactive.TERMINATING: Words("It is being deleted.", "use another ClusterQueue"),
}


def inactive(message: str) -> str:
    """Why a ClusterQueue admits nothing, by the message of its condition Active; another's message as a sentence."""
    return " ".join(map(_said, read(Inactive, message))) or sentence(message)


def admits_nothing(message: str) -> str:
    """`admits nothing: there is no ResourceFlavor spot`, to stand after the name of a ClusterQueue."""
    return f"admits nothing: {clause(inactive(message))}"


def _said(given: Given) -> str:
    data = {name: value.rstrip(".") for name, value in given.data.items()}
    for names in data.keys() & {"missing", "named", "others"}:
        data[names] = listed(data[names].split(","), joint="or" if names == "missing" else "and")
    return WORDS[given.cause].says.format_map(data)
