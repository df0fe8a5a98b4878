"""Finds where a job runs, here or on the worker clusters of MultiKueue, and connects there with the user's own rights.

The manager's credentials for its workers are never used: they reach the jobs of all tenants. A worker is reached by a
context of the user's kubeconfig, which has the name of the MultiKueueCluster unless an option names another. A context
that leads to some other cluster is found out: there is no copy there that was made of this very job.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from turnstile.api import names
from turnstile.api.errors import ApiError, InvalidValue, NotFound, NotServed, TurnstileError
from turnstile.api.nearest import proposed
from turnstile.cli.connection import Where, contexts
from turnstile.cli.queues import rows
from turnstile.cli.queues.jobs import find_job, pod_selectors
from turnstile.cli.queues.paths import VERSION, path_of
from turnstile.cli.queues.session import Session, session
from turnstile.client.standing import Standing, State, standing
from turnstile.wording.absence import no_such_job

Plain = dict[str, Any]

OPTION: Final = "--worker-context"
Contexts = Annotated[
    list[str] | None,
    typer.Option(
        OPTION,
        metavar="CLUSTER=CONTEXT",
        help="Context of the kubeconfig for a worker cluster; by default that of its name. Repeatable.",
    ),
]
_WORKLOADS: Final = ("workload", "workloads", "wl")
_OF_PODS: Final = ("Deployment", "ReplicaSet")
"""Kinds that have no Workload and no copy: each of their pods has."""
_UIDS: Final = 50
"""Jobs that are asked for by their uids at most; beyond that, all Workloads of the namespace are read."""
_PARAMS: Final = {"--selector": "labelSelector", "--field-selector": "fieldSelector"}


class NoCopy(TurnstileError):
    """A cluster has no copy of a job: not yet, or it is another cluster than the one on which the job runs."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job on the cluster that the user asks, and its Workloads there, the newest last."""

    obj: Plain
    workloads: Sequence[Plain] = ()

    @property
    def name(self) -> str:
        """`job/train`."""
        return f"{self.obj['kind'].lower()}/{self.obj['metadata']['name']}"

    @property
    def current(self) -> Sequence[Plain]:
        """The Workloads that have not finished; all of them if none is left."""
        return [each for each in self.workloads if not rows.holds(each, "Finished")] or self.workloads

    @property
    def clusters(self) -> list[str]:
        """The worker clusters on which it runs; more than one only if each of its pods has a Workload."""
        found = (each.get("status", {}).get("clusterName") for each in self.current)
        return list(dict.fromkeys(name for name in found if name))

    @property
    def standing(self) -> Standing:
        """How it stands: it is admitted if a part of it is."""
        found = [standing(self.obj, each) for each in self.current or (None,)]
        return next((each for each in found if each.state is State.ADMITTED), found[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The pods of a job on one cluster."""

    at: Session
    params: Mapping[str, str]
    """The selectors by which they are listed."""
    cluster: str = ""
    """The name of the worker cluster; empty for the cluster that the user asks."""

    @property
    def path(self) -> str:
        """The collection that they are in."""
        return path_of("v1", "pods", namespace=self.at.namespace)

    async def pods(self) -> tuple[list[Plain], str]:
        """The pods, and the version of the list."""
        return await self.at.list_all(self.path, dict(self.params))


# --- the job ----------------------------------------------------------------------------------------------------------


async def job_of(at: Session, target: str) -> Job:
    """The job that `KIND/NAME` means, or the name of a job or a Workload alone. Raises TurnstileError if there is
    none."""
    kind, slash, name = target.partition("/")
    if not slash or kind.lower() in _WORKLOADS:
        target = _named(await _workloads(at), name or kind, at.namespace)
    obj = await find_job(at, target, every_namespace=False, asked="TARGET")
    if obj is None:
        kind, _, name = target.partition("/")
        raise TurnstileError(no_such_job(kind, name, at.namespace, (), ""))
    return await with_workloads(at, obj)


def _named(workloads: Iterable[Plain], name: str, namespace: str) -> str:
    """The job, as `KIND.GROUP/NAME`, of the newest Workload that has this name, or is for a job that does."""
    found = [
        (each, owner)
        for each in workloads
        for owner in rows.owners(each)
        if name in (owner["name"], each["metadata"]["name"])
    ]
    if not found:
        raise TurnstileError(f"{no_such_job('', name, namespace, (), '')} Give KIND/NAME, as job/{name}.")
    _, owner = max(found, key=lambda pair: _age(pair[0]))
    group, slash, _ = owner["apiVersion"].partition("/")
    return f"{owner['kind'].lower()}{'.' + group if slash else ''}/{owner['name']}"


def _age(workload: Plain) -> str:
    return workload["metadata"].get("creationTimestamp") or ""


async def with_workloads(at: Session, obj: Plain) -> Job:
    """A job with its Workloads. For a pod these are those of its owners too, for a Deployment those of its pods."""
    meta = obj["metadata"]
    uids, held_by = {meta["uid"]}, ""
    if obj["kind"] == "Pod":
        uids |= {owner["uid"] for owner in rows.owners(obj)}
        held_by = (meta.get("annotations") or {}).get(names.WORKLOAD, "")
    if obj["kind"] in _OF_PODS:
        pods, _ = await at.list_all(path_of("v1", "pods", namespace=at.namespace), selectors(obj) or {})
        uids |= {pod["metadata"]["uid"] for pod in pods}
    found = await _workloads(at, uids) if len(uids) <= _UIDS and not held_by else []
    if not found:
        found = [
            each
            for each in await _workloads(at)
            if each["metadata"]["name"] == held_by or any(rows.is_for(each, uid) for uid in uids)
        ]
    return Job(obj, sorted(found, key=_age))


async def _workloads(at: Session, uids: Iterable[str] = ()) -> list[Plain]:
    """The Workloads of the namespace, of jobs with these uids if any is given; none where the kind is not served."""
    chosen = {"labelSelector": f"{names.JOB_UID_LABEL} in ({','.join(sorted(uids))})"} if uids else {}
    try:
        found, _ = await at.list_all(path_of(VERSION, "workloads", namespace=at.namespace), chosen)
    except NotServed:
        return []
    return found


async def again(at: Session, job: Job) -> Job | None:
    """The job as it is now; None if it is gone, or is another one of its name."""
    found = await _read(at, job.obj)
    same = found is not None and found["metadata"]["uid"] == job.obj["metadata"]["uid"]
    return await with_workloads(at, found) if found is not None and same else None


async def _read(at: Session, obj: Plain) -> Plain | None:
    """The object of the same kind and name as one that was read before, here or on another cluster."""
    resource = await at.resource(obj["apiVersion"], obj["kind"])
    if resource is None:
        return None
    try:
        return await at.get(path_of(obj["apiVersion"], resource["name"], obj["metadata"]["name"], at.namespace))
    except NotFound:
        return None


def selectors(obj: Plain) -> dict[str, str] | None:
    """Parameters of the list of a job's pods; of a pod alone, also if it is one of a group. None if a job has no pods
    yet."""
    if obj["kind"] == "Pod":
        return {"fieldSelector": f"metadata.name={obj['metadata']['name']}"}
    found = pod_selectors(obj, asked="TARGET")
    return {_PARAMS[option]: text for option, text in found.items()} if found is not None else None


# --- the worker -------------------------------------------------------------------------------------------------------


def given_contexts(options: Iterable[str] | None) -> dict[str, str]:
    """The context for each cluster that the option names. Raises InvalidValue."""
    found = {}
    for each in options or ():
        cluster, sign, context = each.partition("=")
        if not (cluster and sign and context):
            raise InvalidValue(
                OPTION, each, "give CLUSTER=CONTEXT: a MultiKueueCluster and a context of the kubeconfig"
            )
        found[cluster] = context
    return found


def context_for(cluster: str, job: str, given: Mapping[str, str], known: Sequence[str]) -> str:
    """The context by which the user reaches a worker cluster. Raises TurnstileError with what to do if there is
    none."""
    if cluster in given:
        return given[cluster]
    if cluster in known:
        return cluster
    raise TurnstileError(
        f"{job} runs on the worker cluster {cluster}, where its logs are read with your own rights, and the kubeconfig"
        f" has no context of that name ({proposed(cluster, known)}): name yours by {OPTION} {cluster}=CONTEXT, or add"
        f" one (kubectl config set-context {cluster} --cluster=... --user=...)"
    )


def there(where: Where, context: str, namespace: str) -> Where:
    """The connection to a worker: that of the context, and of the options only whom the user acts as. A token or a
    server that was given for the manager is not for the worker."""
    return replace(
        where,
        context=context,
        namespace=namespace,
        cluster=None,
        user=None,
        server=None,
        token=None,
        certificate_authority=None,
        insecure_skip_tls_verify=False,
    )


@asynccontextmanager
async def on_worker(
    where: Where, namespace: str, job: Job, cluster: str, given: Mapping[str, str]
) -> AsyncIterator[Place | None]:
    """The pods of a job's copy on a worker cluster; None if the copy has none yet, or is not there any more because the
    job has ended. A refusal of the worker names the cluster."""
    context = context_for(cluster, job.name, given, contexts(where))
    try:
        async with session(there(where, context, namespace), "logs") as at:
            chosen = await _copied(at, job, cluster, context)
            yield Place(at=at, params=chosen, cluster=cluster) if chosen is not None else None
    except ApiError as error:
        raise TurnstileError(f"cluster {cluster} (context {context}) refuses: {error}") from error


async def _copied(at: Session, job: Job, cluster: str, context: str) -> dict[str, str] | None:
    """The selectors of the pods of a job's copy."""
    if job.obj["kind"] in _OF_PODS:
        chosen = selectors(job.obj) or {}
        labels = (chosen.get("labelSelector"), names.MULTIKUEUE_ORIGIN)
        return {**chosen, "labelSelector": ",".join(filter(None, labels))}
    copy = await _read(at, job.obj)
    if copy is not None and is_copy(copy, job):
        return selectors(copy)
    if job.standing.ended:
        return None
    raise NoCopy(
        f"{job.name} runs on the worker cluster {cluster}, but context {context} of the kubeconfig leads to a cluster"
        f" without a copy of it in namespace {at.namespace}: the copy is not there yet, or the context is of another"
        f" cluster. Name the right one by {OPTION} {cluster}=CONTEXT"
    )


def is_copy(copy: Plain, job: Job) -> bool:
    """Whether an object of a worker was made by a manager from this very job. Copies that Kueue made do not say so, but
    name one of the job's Workloads."""
    labels, annotations = copy["metadata"].get("labels") or {}, copy["metadata"].get("annotations") or {}
    if names.MULTIKUEUE_ORIGIN not in labels:
        return False
    if origin := annotations.get(names.MULTIKUEUE_ORIGIN_UID):
        return bool(origin == job.obj["metadata"]["uid"])
    named = annotations.get(names.PREBUILT_WORKLOAD) or labels.get(names.PREBUILT_WORKLOAD)
    return copy["kind"] == "Pod" or named in {each["metadata"]["name"] for each in job.workloads}
