"""Which path reviews what, by Kueue's names. A new kind is a module beside this one and its two lines here."""

from typing import Final

from app.api import names
from app.webhooks import clusterqueue, cohort, resourceflavor, workload
from app.webhooks.batch_job import BATCH_JOB
from app.webhooks.jobs import mutating, validating
from app.webhooks.pod import POD, mutating_pods
from app.webhooks.review import Handler
from app.webhooks.world import World

_OURS: Final = f"{names.GROUP.replace('.', '-')}-{names.VERSION}"


def routes(world: World) -> dict[str, Handler]:
    """The handler of each path."""
    return {
        "/mutate-batch-v1-job": mutating(BATCH_JOB, world),
        "/validate-batch-v1-job": validating(BATCH_JOB, world),
        "/mutate--v1-pod": mutating_pods(world),
        "/validate--v1-pod": validating(POD, world),
        f"/mutate-{_OURS}-resourceflavor": resourceflavor.MUTATE,
        f"/validate-{_OURS}-resourceflavor": resourceflavor.VALIDATE,
        f"/mutate-{_OURS}-clusterqueue": clusterqueue.MUTATE,
        f"/validate-{_OURS}-clusterqueue": clusterqueue.VALIDATE,
        f"/mutate-{_OURS}-workload": workload.MUTATE,
        f"/validate-{_OURS}-workload": workload.VALIDATE,
        f"/validate-{_OURS}-cohort": cohort.VALIDATE,
    }
