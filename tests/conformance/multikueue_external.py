"""Jobs of kinds that the configuration names to be sent to other clusters, and that another controller queues."""

import json
from typing import Any

import msgspec

from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from turnstile.api.config import features
from turnstile.api.config.v1beta2 import Configuration
from turnstile.api.config.validation import validate
from turnstile.jobs.bases.external import ExternalJobs
from turnstile.jobs.labels import prebuilt_name
from turnstile.jobs.registry import external_kinds
from turnstile.jobs.remote import copied_job

Json = Any
NAME = "TestJob.v1.test.example.com"
META = {"name": "test-job", "namespace": "default"}


def check_kinds(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The kinds that a configuration names, or that it is refused."""
    call = run["trace"][0]
    entries, results = call["args"]["configs"] or [], call["results"]
    config = Configuration.model_validate({"multiKueue": {"externalFrameworks": entries}})
    faults = [each for each in validate(config, features.enabled({})) if "externalFrameworks" in each.path]
    if results[1] is not None or faults:
        return differs("refused", results[1] is not None, bool(faults))
    found = [each.kind for each in external_kinds(each["name"] for each in entries)]
    return differs("kinds", [each["gvk"] for each in results[0]], [_gvk(each) for each in found])


def _gvk(kind: Any) -> Json:
    return {"Group": kind.GROUP, "Kind": kind.KIND, "Version": kind.VERSION}


def check_list(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The kind of a list of such jobs."""
    gvk = case.body["case"]["gvk"]
    kind = ExternalJobs(f"{gvk['Kind']}.{gvk['Version']}.{gvk['Group']}").kind
    return differs("list", case.body["case"]["want"], {**_gvk(kind), "Kind": f"{kind.KIND}List"})


def check_managed(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether a job is for other clusters, and why not."""
    table, integration = case.body["case"], ExternalJobs(NAME)
    copies = integration.copies
    assert copies is not None
    body = {"metadata": META, **(table["object"] or {})}
    job = msgspec.json.decode(json.dumps(body).encode(), type=integration.kind)
    enabled = (table["featureGates"] or {}).get("MultiKueueAdaptersForCustomJobs", True)
    found = differs("managed", table["want"], enabled and copies.dispatched(job))
    if enabled and table["wantReason"]:
        found += differs("reason", table["wantReason"], copies.refusal(job))
    return found


def check_copy(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The part of a job that its copy has."""
    source = run["trace"][0]["args"]["obj"]
    body = {"apiVersion": "test.example.com/v1", "kind": "TestJob", **source, "metadata": source.get("metadata", META)}
    copies = ExternalJobs(NAME).copies
    assert copies is not None
    made = copied_job(body, copies, workload="wl", origin="origin")
    if case.suite.endswith("RemoveManagedByField"):
        wanted = {key: value for key, value in source["spec"].items() if key != "managedBy"}
        return differs("spec", wanted, made["spec"])
    want = case.body["case"]["want"]
    meta = made.pop("metadata")
    for part in ("labels", "annotations"):
        ours = {key: value for key, value in meta.pop(part).items() if "kueue.x-k8s.io/" not in key}
        meta |= {part: ours} if ours else {}
    return differs("copy", want, {**made, "metadata": meta})


def check_workload(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The Workload that a copy names."""
    table = case.body["case"]
    copy = msgspec.json.decode(json.dumps(table["object"]).encode(), type=ExternalJobs(NAME).kind)
    name = prebuilt_name(copy)
    if table["wantErrMsg"]:
        return differs("named", "no prebuilt workload found" not in table["wantErrMsg"], bool(name))
    return differs("Workload", table["want"], [{"Name": name, "Namespace": copy.metadata.namespace}])
