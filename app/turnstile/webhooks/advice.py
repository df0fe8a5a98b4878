"""The answer of a review to the user who submits or changes a job: warnings, or a refusal where that is wanted.

Warnings are of jobs that users make; an object that a controller makes is not reviewed for them, because no user reads
the answer. A change brings only what was not true of the job before. Must never raise: a review does not depend on it.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import structlog

from turnstile.advice.submission import Notice, asked_of, notices, refused_by
from turnstile.api.meta import Kind
from turnstile.jobs.integration import Integration
from turnstile.webhooks.lookups import Lookups

LONGEST: Final = 256
"""Characters of a warning; the API server cuts longer ones."""
MOST: Final = 5
"""Warnings of one review, at most."""

_log = structlog.get_logger(__name__)


class Advice(NamedTuple):
    """Warnings, and why the job is refused; empty if it is not."""

    warnings: tuple[str, ...] = ()
    refusal: str = ""


NONE: Final = Advice()


def advice(integration: Integration[Any], job: Kind, lookups: Lookups, *, old: Kind | None = None) -> Advice:
    """The advice about a new job, or about what is new in a changed one. Nothing while the caches lack something."""
    offer, options = lookups.offer, lookups.options.submission
    if offer is None or job.metadata.controller is not None:
        return NONE
    try:
        found = [each for each in notices(offer, asked_of(integration, job)) if each.about not in options.ignored]
        if found and old is not None:
            known = {each.sentence for each in notices(offer, asked_of(integration, old))}
            found = [each for each in found if each.sentence not in known]
        return _advice(found, [each for each in found if refused_by(offer, options, each)]) if found else NONE
    except Exception:
        _log.exception("review.without_advice", kind=job.KIND, job=job.metadata.key)
        return NONE


def _advice(found: Sequence[Notice], refused: Sequence[Notice]) -> Advice:
    warnings = tuple(_cut(each.sentence) for each in found if each not in refused)[:MOST]
    if not refused:
        return Advice(warnings)
    reasons = "; ".join(f"{each.sentence} ({each.about})" for each in refused[:MOST])
    return Advice(warnings, f"such jobs are refused here: {reasons}")


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1]}…"
