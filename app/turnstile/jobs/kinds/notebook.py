"""kubeflow.org Notebook: its pod is gated and queued by itself; the Notebook itself is never suspended.

The notebook controller makes a StatefulSet of one replica, or none while the Notebook has the annotation
`kubeflow-resource-stopped` (set by its user, or by the notebook controller when it is idle), and copies the Notebook's
labels and annotations to the pod. So a queue label on the Notebook reaches the pod, and so does the annotation that
gets the pod gated. A Notebook that is stopped has no pod and holds no quota; one that is started waits for it again.

The StatefulSet belongs to the tenant too. More replicas are more pods, each of which waits for quota, until the
notebook controller takes the replicas back; what gets the pods gated a policy of the chart keeps in its template. The
notebook controller compares only the spec of the pod template: a queue label that is added to a Notebook later takes
effect when its StatefulSet is made anew. A Notebook that is preempted loses its pod, and with it what was not saved.
Kueue has no such kind: there the label works through that of plain Pods.
"""

from typing import ClassVar

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.jobs.bases.pod_parent import MetadataParent


class _Status(Object):
    ready_replicas: int = 0


class Notebook(Kind):
    """The fields of a Notebook that are read."""

    GROUP: ClassVar = "kubeflow.org"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Notebook"
    PLURAL: ClassVar = "notebooks"
    NAMESPACED: ClassVar = True

    status: _Status = msgspec.field(default_factory=_Status)


class Notebooks(MetadataParent[Notebook]):
    """`kubeflow.org/notebook`."""

    kind = Notebook
    framework = "kubeflow.org/notebook"
    summary = "its pod held by a scheduling gate and queued by itself"
    makes = frozenset({("apps", "StatefulSet")})

    def runs(self, job: Notebook) -> bool:
        """Whether `status.readyReplicas` is above zero."""
        return job.status.ready_replicas > 0
