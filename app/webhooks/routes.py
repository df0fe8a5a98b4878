"""Which path reviews what, by Kueue's names."""

from collections.abc import Mapping

from app.webhooks.batch_job import BATCH_JOB
from app.webhooks.jobs import mutating, validating
from app.webhooks.pod import POD, mutating_pods
from app.webhooks.review import Handler
from app.webhooks.world import World


def routes(world: World) -> Mapping[str, Handler]:
    """The handler of each path."""
    return {
        "/mutate-batch-v1-job": mutating(BATCH_JOB, world),
        "/validate-batch-v1-job": validating(BATCH_JOB, world),
        "/mutate--v1-pod": mutating_pods(world),
        "/validate--v1-pod": validating(POD, world),
    }
