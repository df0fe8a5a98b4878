"""The webhook of Cohort: it refuses inconsistent quota. Nothing is defaulted."""

from typing import Final

from app.api.cohort import Cohort
from app.api.validation import validate_cohort
from app.webhooks.handlers import checking

VALIDATE: Final = checking(Cohort, lambda _, new, old: validate_cohort(new, old))
