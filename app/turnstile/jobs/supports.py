"""Features that each job kind supports, in Turnstile and in Kueue, for the documentation.

Turnstile's side is read from the declarations and methods of the kinds; Kueue's (0.20) stands here as data. Must never
decide anything about a job.
"""

from dataclasses import dataclass
from typing import Any, Final

from turnstile.jobs.integration import Integration


@dataclass(frozen=True, slots=True)
class Supports:
    """Which features a kind has."""

    partial: bool = False
    """Admitted with fewer pods than it asks for."""
    reclaim: bool = False
    """Releases the quota of pods that have ended and are not made again, while others run."""
    elastic: bool = False
    """Changes the number of its pods while it runs, by workload slices, or pod by pod."""
    prebuilt: bool = False
    """Takes a Workload that was made before the job."""
    serves: bool = False
    """Runs until it is deleted or scaled to zero: the Workload never finishes by itself."""
    ready: bool = False
    """Reports whether its pods are ready (`waitForPodsReady`)."""


def supports(integration: Integration[Any]) -> Supports:
    """Features that a kind supports in Turnstile.

    Pods that are gated one by one are queued, and report that they are ready, by themselves or as a group of Pods.
    """
    return Supports(
        partial=integration.elasticity is not None and integration.elasticity.partial,
        elastic=(integration.elasticity is not None and integration.elasticity.grows)
        or (integration.as_set is not None and integration.as_set.grows),
        reclaim=integration.reclaim is not None,
        prebuilt=integration.handling.takes_prebuilt,
        serves=integration.handling.serves,
        ready=_reports_ready(integration) or integration.as_set is not None or not integration.handling.watched,
    )


def _reports_ready(integration: Integration[Any]) -> bool:
    return type(integration).pods_ready is not Integration.pods_ready


_TRAINING: Final = Supports(prebuilt=True, ready=True)

KUEUE: Final = {
    "batch/job": Supports(partial=True, reclaim=True, elastic=True, prebuilt=True, ready=True),
    "deployment": Supports(serves=True, ready=True),
    "jobset.x-k8s.io/jobset": Supports(reclaim=True, prebuilt=True, ready=True),
    "kubeflow.org/jaxjob": Supports(ready=True),
    "kubeflow.org/mpijob": _TRAINING,
    "kubeflow.org/paddlejob": _TRAINING,
    "kubeflow.org/pytorchjob": _TRAINING,
    "kubeflow.org/tfjob": _TRAINING,
    "kubeflow.org/xgboostjob": _TRAINING,
    "leaderworkerset.x-k8s.io/leaderworkerset": Supports(serves=True, ready=True),
    "pod": Supports(prebuilt=True, ready=True),
    "pod, group": Supports(reclaim=True, prebuilt=True, ready=True),
    "ray.io/raycluster": Supports(elastic=True, prebuilt=True, serves=True, ready=True),
    "ray.io/rayjob": Supports(elastic=True, prebuilt=True, ready=True),
    "ray.io/rayservice": Supports(elastic=True, prebuilt=True, serves=True, ready=True),
    "sparkoperator.k8s.io/sparkapplication": Supports(ready=True),
    "statefulset": Supports(serves=True, ready=True),
    "trainer.kubeflow.org/trainjob": Supports(reclaim=True, prebuilt=True, ready=True),
    "workload.codeflare.dev/appwrapper": _TRAINING,
}
"""Features that Kueue supports, by framework; a kind that is not here is not one of Kueue's."""
