"""What is remembered of events ends with the time in which they may be repeated."""

import pytest

from turnstile.api.core import Job
from turnstile.api.meta import ObjectMeta
from turnstile.kube import auth
from turnstile.kube.events import Recorder
from turnstile.kube.transport import Transport

WINDOW = 360.0


def job(number: int) -> Job:
    """One of many Jobs."""
    return Job(metadata=ObjectMeta(name=f"job-{number}", namespace="team", uid=f"uid-{number}"))


@pytest.mark.asyncio
async def test_of_jobs_that_come_and_go_only_the_latest_are_remembered() -> None:
    """A process that has seen a hundred thousand Jobs holds what the Jobs of six minutes need."""
    seconds = 0.0
    async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed("Bearer t"))) as transport:
        recorder = Recorder(transport, instance="one", window=WINDOW, clock=lambda: seconds)
        for number in range(1000):
            seconds += 10.0
            recorder.emit(job(number), type="Normal", reason="Started", note="Admitted")
            recorder.emit(job(0), type="Normal", reason="Started", note="Admitted")  # goes on, and is in no one's way
    assert recorder.remembered <= WINDOW / 10.0 + 3
