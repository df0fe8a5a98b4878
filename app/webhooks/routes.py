"""Which path reviews what, by Kueue's names. A new kind is a module beside this one and its two lines here."""

from collections.abc import Collection
from typing import Final

from app.api import gates as known
from app.api import names
from app.webhooks import clusterqueue, cohort, resourceflavor, workload
from app.webhooks.batch_job import BATCH_JOB
from app.webhooks.jobs import mutating, validating
from app.webhooks.pod import POD, mutating_pods
from app.webhooks.review import ALLOWED, Answer, Handler, Request
from app.webhooks.world import World

_OURS: Final = f"{names.GROUP.replace('.', '-')}-{names.VERSION}"


def routes(world: World, *, gates: Collection[str] = known.ON_BY_DEFAULT) -> dict[str, Handler]:
    """The handler of each path; `gates` are the feature gates that are on. Jobs of disabled kinds pass untouched."""

    def enabled(framework: str, handler: Handler) -> Handler:
        return handler if world.options.enabled(framework) else _pass

    return {
        "/mutate-batch-v1-job": enabled("batch/job", mutating(BATCH_JOB, world)),
        "/validate-batch-v1-job": enabled("batch/job", validating(BATCH_JOB, world)),
        "/mutate--v1-pod": enabled("pod", mutating_pods(world)),
        "/validate--v1-pod": enabled("pod", validating(POD, world)),
        f"/mutate-{_OURS}-resourceflavor": resourceflavor.MUTATE,
        f"/validate-{_OURS}-resourceflavor": resourceflavor.VALIDATE,
        f"/mutate-{_OURS}-clusterqueue": clusterqueue.MUTATE,
        f"/validate-{_OURS}-clusterqueue": clusterqueue.validating(gates),
        f"/mutate-{_OURS}-workload": workload.mutating(gates),
        f"/validate-{_OURS}-workload": workload.validating(gates),
        f"/validate-{_OURS}-cohort": cohort.VALIDATE,
    }


def _pass(_: Request) -> Answer:
    return ALLOWED
