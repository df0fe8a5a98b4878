"""Topology-aware scheduling: the levels of a data center, where pods want to be in it, and where they were put.

An assignment is compact: runs of domains, with what their names have in common said once. Any valid form is as good,
so readers expand it and never compare two by their text.
"""

from typing import Annotated, ClassVar, Final

from turnstile.api import names
from turnstile.api.meta import Kind, Object
from turnstile.api.schema import NODE_KEY_PATTERN, Field, Rule, Text63, Text256, Text317, always

HOSTNAME: Final = "kubernetes.io/hostname"


def _ends_in_hosts(levels: str) -> str:
    """CEL: the lowest level is the host."""
    return f"{levels}[size({levels}) - 1].nodeLabel == '{HOSTNAME}'"


LEVEL_RULES: Final = (
    Rule("self.all(x, self.exists_one(y, x.nodeLabel == y.nodeLabel))", "must be unique"),
    Rule(
        f"!self.exists(x, x.nodeLabel == '{HOSTNAME}') || {_ends_in_hosts('self')}",
        f"the {HOSTNAME} label can only be used at the lowest level of topology",
    ),
)


class TopologyLevel(Object):
    """One level of the data center."""

    node_label: Annotated[
        str, Field("Node label with the name of the domain.", min_length=1, max_length=316, pattern=NODE_KEY_PATTERN)
    ]


class TopologySpec(Object):
    """The levels of the data center."""

    levels: Annotated[
        list[TopologyLevel],
        Field(
            "Levels, the widest first.",
            min_items=1,
            max_items=16,
            list_type="atomic",
            rules=(
                Rule(
                    f"self == oldSelf || ({_ends_in_hosts('self')} && {_ends_in_hosts('oldSelf')})",
                    f"levels are mutable only when {HOSTNAME} is the lowest level both before and after the change",
                ),
                *LEVEL_RULES,
            ),
        ),
    ]


class Topology(Kind):
    """kueue.x-k8s.io Topology. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "Topology"
    PLURAL: ClassVar = "topologies"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("topo",)

    spec: Annotated[TopologySpec | None, Field("Levels.")] = None

    @property
    def levels(self) -> tuple[str, ...]:
        """Node labels, the widest first."""
        return tuple(level.node_label for level in self.spec.levels) if self.spec is not None else ()


class SliceConstraint(Object):
    """One layer of a multi-layer topology request."""

    topology: Annotated[str, Field("Node label of the level.", min_length=1, max_length=63)]
    size: Annotated[int, Field("Pods that stay together.", required=True, minimum=1)] = always(int)


class TopologyRequest(Object):
    """Where the pods of a pod set want to be, relative to each other."""

    required: Annotated[Text63 | None, Field("Level within which all pods must be.")] = None
    preferred: Annotated[Text63 | None, Field("Level within which all pods should be.")] = None
    unconstrained: Annotated[bool | None, Field("Any domains with free capacity will do.")] = None
    pod_index_label: Annotated[Text317 | None, Field("Label with the index of a pod.")] = None
    sub_group_index_label: Annotated[Text317 | None, Field("Label with the index of a replicated job.")] = None
    sub_group_count: Annotated[int | None, Field("Number of replicated jobs.", minimum=0)] = None
    pod_set_group_name: Annotated[Text256 | None, Field("Pod sets of one group get the same flavor and domains.")] = (
        None
    )
    pod_set_slice_required_topology: Annotated[Text63 | None, Field("Level within which each slice must be.")] = None
    pod_set_slice_size: Annotated[int | None, Field("Pods of a slice.", minimum=1)] = None
    podset_slice_required_topology_constraints: Annotated[
        list[SliceConstraint], Field("Layers of slices, the outermost first.", max_items=3, list_type="atomic")
    ] = []

    @property
    def is_explicit(self) -> bool:
        """Whether a pod set asks for a topology, and does not only say how its pods are numbered."""
        return (
            self.required is not None
            or self.preferred is not None
            or self.unconstrained is not None
            or self.pod_set_slice_required_topology is not None
            or self.pod_set_slice_size is not None
            or bool(self.podset_slice_required_topology_constraints)
        )


class IndividualValues(Object):
    """Values that differ by domain: prefix + root + suffix."""

    roots: Annotated[
        list[Text63],
        Field("Middle part, a domain each.", required=True, min_items=1, max_items=100_000, list_type="atomic"),
    ] = always(list)
    prefix: Annotated[Text63 | None, Field("Common beginning.")] = None
    suffix: Annotated[Text63 | None, Field("Common end.")] = None


_EXACTLY_ONE = Rule(
    "has(self.universal) != has(self.individual)", "exactly one of the fields in [universal individual] must be set"
)


class LevelValues(Object):
    """Value of one level, for all domains of the slice or one by one."""

    RULES: ClassVar = (_EXACTLY_ONE,)

    universal: Annotated[Text63 | None, Field("The same value for all domains.")] = None
    individual: Annotated[IndividualValues | None, Field("A value a domain.")] = None


class SlicePodCounts(Object):
    """Pods a domain, the same for all or one by one."""

    RULES: ClassVar = (_EXACTLY_ONE,)

    universal: Annotated[int | None, Field("The same number for all domains.", minimum=1)] = None
    individual: Annotated[
        list[Annotated[int, Field(minimum=1)]],
        Field("A number a domain.", min_items=1, max_items=100_000, list_type="atomic"),
    ] = []


class TopologyAssignmentSlice(Object):
    """A run of domains."""

    RULES: ClassVar = (
        Rule(
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            "podCounts.individual must have length equal to domainCount",
        ),
        Rule(
            "self.valuesPerLevel.all(level, "
            "!has(level.individual) || size(level.individual.roots) == self.domainCount)",
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this "
            "TopologyAssignmentSlice",
        ),
    )

    domain_count: Annotated[int, Field("Number of domains.", minimum=1)]
    values_per_level: Annotated[
        list[LevelValues],
        Field("Values of the domains, a level each.", required=True, min_items=1, max_items=16, list_type="atomic"),
    ] = always(list)
    pod_counts: Annotated[SlicePodCounts, Field("Pods a domain.", required=True)] = always(SlicePodCounts)


class TopologyAssignment(Object):
    """Domains and how many pods each gets."""

    RULES: ClassVar = (
        Rule(
            "self.slices.all(slice, size(slice.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
        ),
    )

    levels: Annotated[
        list[Text317],
        Field("Node labels, the widest first.", required=True, min_items=1, max_items=16, list_type="atomic"),
    ] = always(list)
    slices: Annotated[
        list[TopologyAssignmentSlice], Field("Runs of domains.", required=True, max_items=1000, list_type="atomic")
    ] = always(list)
