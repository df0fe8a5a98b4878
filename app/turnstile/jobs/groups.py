"""Groups: kinds whose objects, such as Pods, name a group, and are handled together as one job with one Workload.

The reconciler composes the group from the cached objects; the kind of the objects themselves says by `groups` who
handles it. Must never decide about an object that is a job by itself.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.jobs.integration import Integration, Step

J = TypeVar("J", bound=Kind)


class GroupIntegration(Integration[J]):
    """A kind whose objects are handled in groups: `J` is the group, composed from the cached objects."""

    @property
    def as_group(self) -> "GroupIntegration[J]":
        """The integration itself."""
        return self

    @abstractmethod
    def group_of(self, member: Any) -> str:
        """Name of the group that an object belongs to; empty if the object is a job by itself."""

    @abstractmethod
    def members(self, job: J) -> Sequence[Kind]:
        """The objects of the group."""

    @abstractmethod
    def owners(self, job: J) -> Sequence[Kind]:
        """The members that own the group's Workload."""

    @abstractmethod
    def waits(self, job: J) -> bool:
        """Whether the group has held pods that an admission would start, though others may run."""

    @abstractmethod
    def due(self, job: J) -> float | None:
        """Seconds until an answer of this integration changes without a change of the group; None if never."""

    @abstractmethod
    def follows_queue(self, job: J) -> bool:
        """Whether the Workload changes its queue when the group names another queue."""

    @abstractmethod
    def compose(
        self,
        name: str,
        members: Sequence[Any],
        workload: Workload | None,
        *,
        now: datetime,
        covers: Callable[[str, Any], bool] | None = None,
        prebuilt: bool = False,
        early: bool = False,
    ) -> J:
        """The group `name`, with the Workload of the same name. There is at least one member.

        `covers` is given where the Workload was not made from the members (it was made for their owner, or is
        `prebuilt`): whether it charges for a member, as one of the pod set of that name. With `early` no quota is
        kept for a member that is being deleted.
        """

    @abstractmethod
    def uncovered(self, job: J) -> Sequence[Kind]:
        """Members that wait in vain: no pod set of the group's prebuilt Workload charges for what they request."""

    @abstractmethod
    def fits(self, job: J) -> bool:
        """Whether the group's Workload charges for the existing pods."""

    @abstractmethod
    def tidy(self, job: J) -> Sequence[Step]:
        """Writes that delete excess members and release replaced members."""

    @abstractmethod
    def roles(self, job: J) -> Mapping[str, str]:
        """Name of the pod set of each member that has one, by the member's uid."""

    @abstractmethod
    def idle(self, job: J) -> bool:
        """Whether no member may run, now or when the group is admitted, and members are not replaced by a controller
        that Turnstile knows."""

    @abstractmethod
    def incomplete(self, job: J) -> bool:
        """Whether the group lacks members."""

    @abstractmethod
    def dissolve(self, job: J) -> Sequence[Step]:
        """Writes that remove the finalizer from deleted members of a group without a Workload."""
