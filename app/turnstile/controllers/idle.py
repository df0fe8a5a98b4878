"""Since when no pod of a Workload that holds quota has run. Remembered by uid, while the Workload is admitted.

Measured by this process: a new leader begins anew, so that nothing has to be written about healthy jobs. The times are
those that `ClusterView.measured` gives, which never go back. Must never decide anything.
"""

from datetime import datetime


class Idle:
    """Of one process."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def __len__(self) -> int:
        return len(self._since)

    def seen(self, uid: str, now: datetime) -> float:
        """No pod of the Workload runs: seconds for which that is so already."""
        return (now - self._since.setdefault(uid, now)).total_seconds()

    def ended(self, uid: str, now: datetime) -> None:
        """A pod of the Workload, which was idle, has run since, and does not run any more."""
        if uid in self._since:
            self._since[uid] = now

    def forget(self, uid: str) -> None:
        """The Workload holds no quota, or a pod of it runs."""
        self._since.pop(uid, None)
