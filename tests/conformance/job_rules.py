"""Recorded calls of the webhooks that all job kinds share: defaults, suspension, and why a job is refused.

The Jobs are batch Jobs; a kind that a case names and Turnstile does not have is stood in for.
"""

import json
from typing import Any

import jsonpatch

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_framework import decoded, stand_ins
from tests.conformance.job_webhooks import Cluster, faults_of, gated, options_of, request_of, texts_of
from tests.conformance.workload_calls import bare
from turnstile.api.meta import OwnerReference
from turnstile.api.validation.errors import OMITTED, FieldError
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.webhooks.job_rules import create_errors, update_errors
from turnstile.webhooks.jobreview import mutating, validating
from turnstile.webhooks.review import Answer, GroupVersionKind

Json = Any


def check_defaults(case: Case, run: dict[str, Json]) -> list[str]:
    """Labels that a new Job gets: the default queue and the default priority class."""
    table, fixture = case.body["case"], case.body.get("fixture") or {}
    cluster = _cluster(case, run)
    queued = "wantQueueLabel" in table
    if queued:
        # The recorded function asks a function of the test whether there is a default queue, which says yes.
        for namespace in [each for each in cluster.objects if each["kind"] == "Namespace"]:
            metadata = {"name": "default", "namespace": namespace["metadata"]["name"]}
            cluster.objects.append({"kind": "LocalQueue", "metadata": metadata})
        selector = world.selector(fixture.get("ls"))
        cluster.options = options_of({"managedJobsNamespaceSelector": selector})
    after, _ = _defaulted(cluster, table["job"])
    label, want = (
        ("kueue.x-k8s.io/queue-name", table["wantQueueLabel"])
        if queued
        else ("kueue.x-k8s.io/priority-class", table["wantPriorityClassLabel"])
    )
    return differs(label, want, (after["metadata"].get("labels") or {}).get(label, ""))


def check_defaulting(case: Case, run: dict[str, Json]) -> list[str] | None:
    """A new Job after all defaults; None without the table of kinds, which no webhook here is without."""
    if case.body["case"].get("withoutIntegrationManager"):
        return None
    cluster = _cluster(case, run)
    after, answer = _defaulted(cluster, case.body["case"]["job"])
    return differs("object", bare(case.body["case"]["want"]), bare(after)) + differs("error", 0, answer.code)


def check_suspension(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether a new Job is suspended. Only the webhook asks here, and leaves alone what is being deleted."""
    table = case.body["case"]
    deleting = bool(table["obj"]["metadata"].get("deletionTimestamp"))
    if deleting and not table["tolerateDeleting"]:
        return None
    cluster = _cluster(case, run)
    cluster.options = options_of(
        {
            "managedJobsNamespaceSelector": world.selector(case.body["fixture"].get("ls")),
            "manageJobsWithoutQueueName": table["manageJobsWithoutQueueName"],
        }
    )
    running = {**table["obj"], "spec": {**table["obj"]["spec"], "suspend": False}}
    after, answer = _defaulted(cluster, running)
    have = bool(after["spec"].get("suspend"))
    failed = differs("error", bool(table["wantErr"]), bool(answer.code))
    return differs("suspended", table["wantSuspend"], have) + failed


def check_rules(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Faults that the rules of all kinds find in a new or a changed job."""
    table = case.body["case"]
    found: list[str] = []
    for step in run.get("trace") or ():
        want = sorted(faults_of(step.get("results") or ()))
        match step["op"].rpartition(".")[2]:
            case "ValidateJobOnCreate":
                gvk = table["gvk"]
                kind = GroupVersionKind(group=gvk["Group"], version=gvk["Version"], kind=gvk["Kind"])
                integration = Registry(kinds=stand_ins()).by_owner(
                    OwnerReference(api_version=f"{kind.group}/{kind.version}", kind=kind.kind, name="", uid="")
                )
                assert integration is not None
                have = create_errors(
                    decoded(BatchJob(), table["job"]).metadata, kind, integration, gated(JobOptions(), case, run)
                )
            case "ValidateJobOnUpdate":
                old, new = (decoded(BatchJob(), table[name]) for name in ("oldJob", "newJob"))
                have = update_errors(
                    old.metadata,
                    new.metadata,
                    GroupVersionKind(group="batch", version="v1", kind="Job"),
                    BatchJob(),
                    JobOptions(),
                    was_suspended=BatchJob().suspended(old),
                    suspended=BatchJob().suspended(new),
                    default_queue=table["nsHasDefaultQueue"],
                )
            case _:
                continue
        found += differs(step["op"], want, sorted(map(str, have)))
    return found


def check_validation(case: Case, run: dict[str, Json]) -> list[str]:
    """Faults by the rules of all kinds together with those of one kind, here one with the rules of the test."""
    table = case.body["case"]
    args = table.get("args") or {"newObj": table["job"], "customValidationFailure": table["customValidationFailure"]}
    of_kind = [_error(each) for each in args.get("customValidationFailure") or ()]

    class Ruled(BatchJob):
        """With the faults of the test, whatever the Job is."""

        def create_errors(self, job: Any) -> list[FieldError]:
            return of_kind

        def update_errors(self, old: Any, new: Any) -> list[FieldError]:
            return of_kind

    cluster = Cluster(JobOptions(), Registry(["batch/job"], kinds=[Ruled()]))
    answer = validating(Ruled(), cluster)(request_of(args["newObj"], args.get("oldObj")))
    want = sorted(faults_of([table["wantError"]])) if table["wantError"] else []
    return differs("faults", want, sorted(texts_of(answer.message)))


def _error(recorded: Json) -> FieldError:
    value = OMITTED if recorded.get("badValue") == {} else recorded.get("badValue")
    return FieldError(recorded["field"], recorded["type"], value, recorded.get("detail", ""))


def _cluster(case: Case, run: dict[str, Json]) -> Cluster:
    """What a trace and a fixture put into the API and into the queues."""
    cluster = Cluster(gated(options_of(case.body["case"]), case, run), Registry(["batch/job"]))
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        match step["op"]:
            case "client.build":
                cluster.objects += args.get("objects") or []
            case "cache/queue.Manager.AddLocalQueue":
                cluster.objects.append(args["q"])
            case "cache/queue.Manager.AddClusterQueue":
                cluster.objects.append(args["cq"])
            case "cache/scheduler.Cache.AddOrUpdateAdmissionCheck":
                cluster.objects.append(args["ac"])
    return cluster


def _defaulted(cluster: Cluster, job: Json) -> tuple[Json, Answer]:
    answer = mutating(BatchJob(), cluster)(request_of(job))
    return (jsonpatch.apply_patch(job, json.loads(answer.patch.encode())) if answer.patch else job), answer
