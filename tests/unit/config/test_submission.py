"""What the section `submission` must say, and what becomes of it."""

import pytest

from tests.unit.config.files import HEAD, OLD_HEAD, loaded, told
from turnstile.jobs.options import SubmissionOptions
from turnstile.process.configured import RELOADED, JobFlags


@pytest.mark.parametrize("head", [HEAD, OLD_HEAD], ids=["v1beta2", "v1beta1"])
def test_what_is_refused_and_ignored(head: str) -> None:
    """By default jobs are accepted with warnings of everything."""
    text = "submission: {refuse: [NeverFits], ignore: [LocalQueueStopped]}"
    assert JobFlags().options(loaded(text, head=head)).submission == SubmissionOptions(
        refused=frozenset({"NeverFits"}), ignored=frozenset({"LocalQueueStopped"})
    )
    assert JobFlags().options(loaded(head=head)).submission == SubmissionOptions()


def test_it_is_read_again_when_the_file_changes() -> None:
    """It needs no restart."""
    assert "submission" in RELOADED


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("{refuse: [neverFits]}", 'submission.refuse[0]: Unsupported value: "neverFits": supported values: "Cluster'),
        ("{ignore: [Quota]}", 'submission.ignore[0]: Unsupported value: "Quota"'),
        ("{refuse: [NeverFits, NeverFits]}", 'submission.refuse[1]: Duplicate value: "NeverFits"'),
        (
            "{refuse: [NeverFits], ignore: [NeverFits]}",
            "submission.ignore[0]: Forbidden: must not be ignored and refused",
        ),
    ],
)
def test_faults_name_the_field(section: str, fault: str) -> None:
    """One fault each."""
    (found,) = told(f"submission: {section}")
    assert fault in found
