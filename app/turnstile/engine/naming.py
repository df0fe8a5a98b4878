"""Names of Workloads in texts that tenants read: conditions of a Workload, and events of an object.

Whoever may read a namespace reads them, and queues are shared: a text that is stored in one namespace never names a
Workload, job or pod of another. Every text that is written for readers takes the name from here.
"""

from typing import Final

OTHER: Final = "a Workload of another namespace"
OTHERS: Final = "Workloads of other namespaces"


def name_for(readers: str, key: str, *, noun: str = "Workload") -> str:
    """How a text in the namespace `readers` names a Workload (`namespace/name`), after `noun`."""
    return f"{noun} {key}" if key.startswith(f"{readers}/") else OTHER
