"""The nomination of a preemptor: what it was promised when its victims were chosen.

See docs/concepts/preemption.md for what it is good for, and what ends it. Must never look at usage.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from turnstile.engine.flavors.assignment import Assignment


class Nomination(Struct, frozen=True):
    """A preemptor, in that generation; the Workloads that were preempted for it, with the reasons; and the flavors and
    pods for which they were.

    A `sticky` one comes first in its ClusterQueue. The victim of a variant that waits for a migration is its sibling.
    """

    preemptor: str
    generation: int = 0
    sticky: bool = False
    victims: Mapping[str, str] = field(default_factory=dict)
    assignment: Assignment | None = None

    def of(self, key: str, generation: int) -> bool:
        """Whether it is that Workload's, and the Workload asks for the same as then."""
        return self.preemptor == key and self.generation == generation

    def widened(self, victims: Mapping[str, str], assignment: Assignment | None) -> "Nomination":
        """More Workloads were preempted, and for this."""
        return Nomination(self.preemptor, self.generation, self.sticky, {**self.victims, **victims}, assignment)
