"""WorkloadPriorityClass: a priority in the queue, apart from the priority of pods."""

from typing import ClassVar

from app.api import names
from app.api.meta import Kind


class WorkloadPriorityClass(Kind, kw_only=True):
    """kueue.x-k8s.io WorkloadPriorityClass. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "WorkloadPriorityClass"
    PLURAL: ClassVar = "workloadpriorityclasses"
    NAMESPACED: ClassVar = False

    value: int
    description: str = ""
