"""The capabilities of job kinds: small interfaces that an integration has or has not, beside the core that all answer.

A kind has a capability by inheriting it, as in Go a job of Kueue's jobframework has an optional interface by its
methods. Callers ask the integration, `integration.acknowledgement`, which is the integration itself or None, and never
for a class. A capability must never read a clock, a store or the network, as the core.
"""

from abc import ABC
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from turnstile.api.meta import Kind

J = TypeVar("J", bound=Kind)


class AcknowledgedStops(ABC, Generic[J]):
    """The status of a job says whether the kind's own controller has read that the job is suspended.

    The quota of a stopped job is kept until the controller has, for some seconds at most.
    """

    stays_active: ClassVar[bool] = False
    """Whether a stopped job is `active` until then, so that its quota is kept without a limit. The quota of other jobs
    that are stopped within seconds after their admission is kept until these are over."""

    def acknowledged(self, job: J) -> bool:
        """Whether the controller has read that the job is suspended."""
        return True

    def acknowledged_since(self, job: J, since: datetime) -> bool:
        """Whether the controller has said since then that the job, a suspended child of a stopped one, is suspended.
        True for a kind whose controller says before it makes pods that the job is resumed."""
        return True
