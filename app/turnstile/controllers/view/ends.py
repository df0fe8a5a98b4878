"""When jobs were deleted or stopped of whose pods some had not been seen. Remembered for seconds, by uid.

A controller that has read a job may make pods, or jobs that make pods, right before the job is deleted or suspended,
however long after the job's admission; and the watch of those may be behind the watch of the job. So what the job was
charged for is kept for some seconds from its end (`charges.unseen_seconds`). The times are those that
`ClusterView.measured` gives, which never go back. Must never decide anything.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

UNSEEN_SECONDS: Final = 5.0
"""Seconds after its admission, or after its end, in which a job that was deleted, or was stopped and does not
acknowledge that, may have pods that no watch has reported yet: its controller may have read the job before, and creates
pods until it reads the job again."""


class Ends:
    """For one process."""

    def __init__(self) -> None:
        self._at: dict[str, datetime] = {}
        self._began: datetime | None = None

    def __len__(self) -> int:
        return len(self._at)

    def begin(self, now: datetime) -> None:
        """From now on all ends are noted. The jobs that are gone already have ended by now."""
        self._began = now

    def note(self, uid: str, now: datetime) -> None:
        """A job is deleted or stopped: its controller may not have heard of that, and makes pods."""
        while self._at and self._at[oldest := next(iter(self._at))] + timedelta(seconds=UNSEEN_SECONDS) < now:
            del self._at[oldest]
        self._at.pop(uid, None)  # an earlier stop: the entries are in the order of their times
        self._at[uid] = now

    def seconds_left(self, uids: Iterable[str], now: datetime) -> float:
        """For how long pods may still be made, or be on their way here, of jobs that are gone; at most 0 if for no
        longer."""
        noted = (*(self._at.get(uid) for uid in uids), self._began)
        last = max((each for each in noted if each is not None), default=None)
        return (last + timedelta(seconds=UNSEEN_SECONDS) - now).total_seconds() if last is not None else 0.0
