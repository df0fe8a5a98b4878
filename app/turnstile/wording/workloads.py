"""The name by which people know a Workload, and the quantities as they wrote them."""

from collections.abc import Mapping

from turnstile.api.workload import Workload


def job_of(workload: Workload) -> tuple[str, str]:
    """Kind and name that people know a Workload by: those of its job, or its own if it has none, or several owners."""
    owners = workload.metadata.owner_references
    owner = workload.metadata.controller or (owners[0] if len(owners) == 1 else None)
    return (owner.kind, owner.name) if owner is not None else (Workload.KIND, workload.metadata.name)


def called(workload: Workload) -> str:
    """Namespace and name of the job of a Workload, as its owner knows it: `team-a/simulation`."""
    return f"{workload.metadata.namespace}/{job_of(workload)[1]}"


def written(workload: Workload) -> Mapping[str, str]:
    """The quantity of each resource as the containers of the Workload have it; the first one of several."""
    found: dict[str, str] = {}
    for item in workload.spec.pod_sets:
        spec = item.template.spec
        for container in (*spec.containers, *spec.init_containers):
            if (given := container.resources) is not None:
                for resource, quantity in {**given.limits, **given.requests}.items():
                    found.setdefault(resource, str(quantity))
    return found
