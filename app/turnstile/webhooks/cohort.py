"""The webhook of Cohort: it refuses inconsistent quota. Nothing is defaulted."""

from typing import Final

from turnstile.api.cohort import Cohort
from turnstile.api.validation import validate_cohort
from turnstile.webhooks.handlers import checking

VALIDATE: Final = checking(Cohort, lambda _, new, old: validate_cohort(new, old))
