"""Rules of MultiKueue beside what becomes of one Workload: kubeconfigs, nominations, leftovers on workers."""

import base64
import json
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import store
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterprofile import ClusterProfile
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.config.defaults import ALL_AT_ONCE, INCREMENTAL
from turnstile.api.core import Secret
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueConfig
from turnstile.api.quantity import to_int
from turnstile.api.workload import AdmissionCheckState, Workload
from turnstile.controllers.multikueue import kubeconfigs, manager, profiles, quotas, worker
from turnstile.controllers.multikueue.clusters import CONNECTED
from turnstile.controllers.multikueue.dispatchers import nominees
from turnstile.controllers.multikueue.kubeconfigs import BadKubeConfig, Standing
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, Situation, WorkerQueues, is_ours
from turnstile.controllers.view.clusterview import checks_in
from turnstile.controllers.view.multikueue import clusters_in, configs_in, dispatching, is_multikueue
from turnstile.jobs.options import AccessProvider, MultiKueueOptions

Json = Any
K = TypeVar("K", bound=Kind)
NAMESPACE = "ns"
RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "r", "lastTransitionTime": "2026-01-02T03:04:05Z"}


def check_kubeconfig(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Which kubeconfigs are refused, and with which words."""
    found: list[str] = []
    for step in run["trace"]:
        wanted = next(iter(step.get("results") or ()), None)
        text = step["args"]["kubeconfig"]
        said = _standing(text.encode() if isinstance(text, str) else base64.b64decode(text or ""))
        have = "" if said.active else said.message.removeprefix("load client config failed: ")
        found += differs("fault", wanted["message"] if wanted else "", have)
    return found


def _in_profile(table: Json, seen: MultiKueueCluster) -> bytes | Standing:
    """What a ClusterProfile says. The recorded provider, a stand-in, names the server; here the profile does. The gate
    is on where there are profiles: the recording does not say so."""
    assert seen.spec is not None
    reference, there = seen.spec.cluster_source.cluster_profile_ref, table["clusterprofiles"]
    if reference is None or there is None:
        return kubeconfigs.NO_PROFILES
    profile = _named(there, reference.name)
    for each in profile["status"]["accessProviders"] if profile else ():
        each["cluster"]["server"] = each["cluster"]["server"] or "https://worker1"
    supported = table["cpAccessProvider"]["supportedProviders"]
    providers = [AccessProvider(name=name, command="program") for name, known in supported.items() if known]
    return profiles.in_profile(reference.name, _read(ClusterProfile, profile) if profile else None, providers)


def _standing(data: bytes | Standing) -> Standing:
    """The standing of a cluster whose server answers."""
    try:
        if not isinstance(data, Standing) and data.startswith(b'{"provider"'):
            return Standing(kubeconfigs.ACTIVE, CONNECTED)
        if not isinstance(data, Standing):
            kubeconfigs.checked(data)
            return Standing(kubeconfigs.ACTIVE, CONNECTED)
    except BadKubeConfig as error:
        return error.standing
    return data


def check_source(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The condition of a cluster by the source of its kubeconfig."""
    table, name = case.body["case"], case.body["case"]["reconcileFor"]
    seen = _read(MultiKueueCluster, _named(table["clusters"], name))
    assert seen.spec is not None
    given, gates = (
        seen.spec.cluster_source.kube_config,
        {**(case.body.get("featureGates") or {}), **run.get("gates", {})},
    )
    if given is None:
        found = _in_profile(table, seen)
    elif given.location_type == "Secret":
        secret = _named(table["secrets"], given.location)
        found = kubeconfigs.in_secret(given.location, NAMESPACE, _read(Secret, secret) if secret else None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            client = (table["wantRemoteClients"] or {}).get(name)
            if client:
                (Path(folder) / Path(given.location).name).write_text(client["config"]["Kubeconfig"])
            path = given.location.replace("TMPDIR", folder)
            safe = gates.get("MultiKueueKubeConfigPathValidation", False)
            found = kubeconfigs.in_file(path, safe=safe, folder=Path(folder))
    standing = _standing(found)
    wanted = _named(table["wantClusters"], name)["status"]["conditions"][0]
    message = wanted["message"].replace("secrets ", "Secret ")
    return differs("condition", (wanted["reason"], message), (standing.reason, standing.message))


def check_incremental(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The clusters that the incremental dispatcher nominates."""
    table, gates = case.body["case"], {**(case.body.get("featureGates") or {}), **run.get("gates", {})}
    step = (table["cfg"] or {}).get("stepSize") if gates.get("MultiKueueIncrementalDispatcherConfig", True) else None
    options = MultiKueueOptions(
        dispatcher=INCREMENTAL,
        step=step or MultiKueueOptions().step,
        in_config_order=gates.get("MultiKueueIncrementalDispatcherRespectConfigOrder", True),
    )
    here = _read(Workload, table["workload"])
    due = table.get("advanceRoundTime", False) or not here.status.nominated_cluster_names
    found = nominees(here, table["remoteClusters"] or [], {}, options, due=due)
    return differs("nominated", table["wantNominatedClusters"] or [], found)


def check_dispatcher(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether the incremental dispatcher nominates anything for a Workload."""
    table = case.body["case"]
    states = [_struct(AdmissionCheckState, table["mkAcState"])] if table["mkAcState"] else []
    here = _read(Workload, table["workload"]) if table["workload"] else None
    nominated = [
        each["status"]["nominatedClusterNames"]
        for each in run.get("finalObjects") or ()
        if each["kind"] == Workload.KIND and "nominatedClusterNames" in (each.get("status") or {})
    ]
    if here is None or not states:
        return differs("nominated", nominated, [])
    options = MultiKueueOptions(dispatcher=INCREMENTAL)
    offered = table["remoteClusters"] or []
    verdict = manager.decide(
        Situation(workload=here, check=states[0], nominees=nominees(here, offered, {}, options, due=True))
    )
    return differs("nominated", nominated, [list(verdict.nominated)] if verdict.nominated else [])


def check_skipped(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether a Workload is nominated for no cluster now."""
    table = case.body["case"]
    here = _reserved(table["wl"])
    state = _struct(AdmissionCheckState, {"name": "ac", **table["acs"]}) if table["acs"] else None
    if state is None:
        return differs("skipped", table["want"], dispatching(here, store([])) is None)
    verdict = manager.decide(Situation(workload=here, check=state, nominees=["worker1"]))
    return differs("skipped", table["want"], verdict.nominated is None)


def check_sent(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The clusters that a Workload is nominated for, and on which its copy is created."""
    table = case.body["case"]
    names_ = case.body["fixture"]["remoteNames"]
    state = AdmissionCheckState(name="ac", state="Pending")
    there = table["remotes"] or {}
    clients = [step for step in run["trace"] if step["op"].endswith("NewNeverCachingClient")]
    remotes = {
        name: Remote(workload=_workload(there[name]) if there.get(name) else None) for name in names_[: len(clients)]
    }
    status = {"nominatedClusterNames": table["nominatedWorkers"] or []}
    here = _reserved({"metadata": {"name": "wl", "namespace": NAMESPACE}, "status": status})
    options = MultiKueueOptions(dispatcher=table["dispatcherMode"])
    found = nominees(here, list(remotes), remotes, options, due=True)
    verdict = manager.decide(Situation(workload=here, check=state, remotes=remotes, nominees=found))
    present = list(verdict.nominated or here.status.nominated_cluster_names)
    here.status.nominated_cluster_names = present
    created = [
        name for name, remote in remotes.items() if worker.decide(name, here, remote, dispatched=True).create_workload
    ]
    # Where the manager nominates nothing new, the recorded table has what it wants at times, and at times nothing.
    wanted = table["wantNominatedClusterNames"] or table["nominatedWorkers"] or (present if there else [])
    assert options.dispatcher == ALL_AT_ONCE or verdict.nominated is None
    return [*differs("nominated", wanted, present), *differs("created", table["wantCreated"] or [], created)]


def check_quotas(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Quota and condition of a ClusterQueue that sends Workloads away."""
    table = case.body["case"]
    checks = [_read(AdmissionCheck, each) for each in table["acs"] or ()]
    queue = _read(ClusterQueue, table["cq"])
    wanted = table["wantCondition"]
    if not any(is_multikueue(each) and each.metadata.name in checks_in(queue) for each in checks):
        return differs("condition", wanted, None)
    configs = {each["metadata"]["name"]: _read(MultiKueueConfig, each) for each in table["configs"] or ()}
    config = next((configs.get(name) for each in checks for name in configs_in(each)), None)
    away = table.get("disconnectedWorkers") or ()
    workers = [
        WorkerQueues(
            [_read(LocalQueue, each) for each in found["lqs"] or ()],
            [_read(ClusterQueue, each) for each in found["cqs"] or ()],
        )
        for name, found in (table["workers"] or {}).items()
        if config is not None and name in clusters_in(config) and name not in away and not found.get("disconnected")
    ]
    keys = [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in table["lqs"] or ()]
    found = quotas.answer(queue, keys, config, workers)
    have = {"type": quotas.CONDITION, "status": found.status, "reason": found.reason, "message": found.message}
    plain = {key: wanted[key] for key in have} if wanted else None
    amounts = {name: to_int(name, each) for name, each in (found.quotas or {}).items()}
    want = {name: to_int(name, each) for name, each in (table["wantNominalQuotas"] or {}).items()}
    return [*differs("condition", plain, have), *(differs("quotas", want, amounts) if found.quotas else [])]


def check_leftovers(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Objects on a worker whose Workload the manager does not have."""
    table, found = case.body["case"], list[str]()
    here = {each["metadata"]["name"] for each in table["managersWorkloads"] or ()}
    for item in table["workersWorkloads"] or ():
        name = item["metadata"]["name"]
        ours = is_ours(_read(RemoteJob, item), "multikueue")
        if name in here:
            continue  # it is decided about with the manager's Workload
        owner = item["metadata"]["ownerReferences"][0]["name"]
        job = _named(table["workersJobs"], owner)
        copy = _read(RemoteJob, job) if job is not None else None
        remote = Remote(
            workload=_read(Workload, item) if ours else None,
            jobs=[copy] if copy is not None and is_ours(copy, "multikueue") else [],
        )
        order = worker.decide("worker1", None, remote, dispatched=False)
        kept = _named(table["wantWorkersWorkloads"], name), _named(table["wantWorkersJobs"], owner)
        found += differs("Workload deleted", kept[0] is None, order.delete_workload)
        found += differs("job deleted", job is not None and kept[1] is None, bool(order.delete_jobs))
    return found


def check_lookups(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The check of a Workload that sends it away, and the clusters of its configuration."""
    table = case.body["case"]
    if "workloadACS" in table:
        checks = store(_read(AdmissionCheck, each) for each in table["admissionChecks"] or ())
        here = _read(Workload, {"metadata": {"name": "wl"}, "status": {"admissionChecks": table["workloadACS"] or []}})
        state = dispatching(here, checks)
        wanted = table["wantResult"]
        return differs("check", wanted["name"] if wanted else None, state.name if state else None)
    config = table["multiKueueConfig"]
    found = clusters_in(_read(MultiKueueConfig, config)) if config and config.get("spec") else []
    return [
        *differs("clusters", table["wantResult"] or [], found),
        *differs("none", table["wantErr"] is not None, not found),
    ]


def _reserved(item: Json) -> Workload:
    """A Workload with quota."""
    status = {**(item.get("status") or {}), "conditions": [RESERVED]}
    return _workload({"metadata": {"name": "wl"}, **item, "status": status})


def _workload(item: Json) -> Workload:
    """A Workload, whose pod sets the recording may leave null."""
    return _read(Workload, {**item, "spec": {key: part for key, part in (item.get("spec") or {}).items() if part}})


def _named(items: Json, name: str) -> Json:
    return next((each for each in items or () if each["metadata"]["name"] == name), None)


def _struct(kind: type[Any], item: Json) -> Any:
    return msgspec.json.decode(json.dumps(item).encode(), type=kind)


def _read(kind: type[K], item: Json) -> K:
    found: K = _struct(kind, item)
    return found
