"""WorkloadPriorityClass: a priority in the queue, apart from the priority of pods."""

from typing import Annotated, ClassVar

from turnstile.api import names
from turnstile.api.meta import Kind
from turnstile.api.schema import Column, Field


class WorkloadPriorityClass(Kind, kw_only=True):
    """kueue.x-k8s.io WorkloadPriorityClass. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "WorkloadPriorityClass"
    PLURAL: ClassVar = "workloadpriorityclasses"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("wpc",)
    COLUMNS: ClassVar = (Column("Value", ".value", type="integer"),)

    value: Annotated[int, Field("Priority of workloads of this class; higher goes first.")]
    description: Annotated[str, Field("When to use this class.", max_length=2048)] = ""
