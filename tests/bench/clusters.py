"""Jobs for other clusters, at a steady rate and as a flood: `python -m tests.bench.clusters`.

First two workers get Jobs at each of some rates (`dispatch`). Then a flood, with one worker: its Jobs all get quota on
the manager and are sent, and the worker has room for four of them. A probe is a Job of another tenant, from its
creation until its copy is started; then it is deleted. At last the flooding tenant creates Jobs on the worker that look
like the manager's copies, each with 128 KiB of annotations and a finalizer that keeps it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from testbed import ControlPlane
from testbed.client import Api, resource_path, wait_until
from tests.bench import dispatch
from tests.bench.bed import KUBE_API_QPS, add_nodes
from tests.bench.figures import HEADER, Figure, Gauge, peak_memory_mib, percentile
from tests.cluster.scenario import GROUP, job, job_path
from tests.cluster.sites import Site, Sites, Team, a_team, connect
from turnstile.api import names

JOBS = 1000
PACED = {2.0: 120, 20.0: 1000}
"""How many Jobs there are at a rate, unless `--full` or `--jobs` says otherwise: 1,000 at 2 a second take 500 s."""
WITHOUT_PODS = ("etcd", "kube-apiserver", "kube-controller-manager")
CREATORS = 8
PROBES = 10
PATIENCE = 1800.0


def probe(team: Team, name: str) -> float:
    """Seconds from the creation of a Job until its copy is started."""
    path, there = job_path(team.here.namespace, name), team.there["east"].api
    began = time.perf_counter()
    team.here.api.create(job(name, namespace=team.here.namespace, queue="team", cpu="1"))

    def started() -> bool:
        found = there.find(path)
        return found is not None and not found["spec"].get("suspend")

    wait_until(started, timeout=PATIENCE, every=0.02, describe=lambda: f"{name} is not started")
    seconds = time.perf_counter() - began
    team.here.api.delete(path)
    there.wait_gone(path, timeout=PATIENCE)
    return seconds


def probes(team: Team, prefix: str, *, going: Callable[[int], bool]) -> list[float]:
    """One probe after the other while `going` of their number."""
    found: list[float] = []
    while going(len(found)):
        found.append(probe(team, f"{prefix}-{len(found)}"))
    return found


def flood(api: Api, namespace: str, jobs: int) -> tuple[ThreadPoolExecutor, list[Future[object]]]:
    """Begin to create so many Jobs."""
    pool = ThreadPoolExecutor(CREATORS)
    bodies = (job(f"flood-{number}", namespace=namespace, queue="team", cpu="1") for number in range(jobs))
    return pool, [pool.submit(api.create, each) for each in bodies]


def forged(number: int, namespace: str) -> dict[str, object]:
    """A Job on the worker that looks like a copy of a Workload that the manager does not have."""
    found = job(f"forged-{number}", namespace=namespace, queue=None, cpu="0")
    found["metadata"]["labels"] = {names.MULTIKUEUE_ORIGIN: "multikueue", names.PREBUILT_WORKLOAD: f"no-{number}"}
    found["metadata"]["annotations"] = {"example.com/a": "x" * (128 << 10)}
    found["metadata"]["finalizers"] = ["example.com/kept"]
    return found


def timed(name: str, found: list[float], floor: list[float] | None = None) -> Iterator[Figure]:
    """The median and the longest wait of some probes."""
    note = f"{len(found)} Jobs"
    yield Figure(
        name=f"{name}: p50",
        value=percentile(found, 50),
        unit="s",
        floor=percentile(floor, 50) if floor else None,
        note=note,
    )
    yield Figure(name=f"{name}: longest", value=max(found), unit="s", floor=max(floor) if floor else None)


def measure(sites: Sites, jobs: int) -> Iterator[Figure]:
    """All figures."""
    manager, worker = sites.manager, sites.workers["east"]
    assert manager.process is not None
    assert worker.process is not None
    pids = {"manager": manager.process.pid, "worker": worker.process.pid}
    # Their ends would delete thousands of objects, on control planes that end as well.
    teams = a_team(manager, sites.workers, sends=2 * jobs), a_team(manager, sites.workers)
    crowd, quiet = (each.__enter__() for each in teams)
    calm = probes(quiet, "calm", going=lambda done: done < PROBES)
    yield from timed("another tenant's Job, alone", calm)
    for name, pid in pids.items():
        yield Figure(name=f"peak memory of the {name} before", value=peak_memory_mib(pid), unit="MiB")
    namespace, path = crowd.here.namespace, resource_path(GROUP, "workloads", namespace=crowd.here.namespace)
    gauge, began = Gauge(pids), time.perf_counter()
    pool, created = flood(manager.api, namespace, jobs)
    beside = probes(quiet, "beside", going=lambda _: not all(each.done() for each in created))
    for each in created:
        each.result()
    pool.shutdown()
    took = time.perf_counter() - began
    yield Figure(name=f"{jobs} Jobs of one tenant: created in", value=took, unit="s")
    yield from timed("another tenant's Job, beside their creation", beside, calm)
    last = probes(quiet, "sent", going=lambda _: len(worker.api.items(path)) < jobs)
    yield Figure(name="their Workloads are on the worker after", value=time.perf_counter() - began, unit="s")
    if last:
        yield from timed("another tenant's Job until then", last, calm)
    waiting = probes(quiet, "waiting", going=lambda done: done < PROBES)
    yield from timed(f"another tenant's Job, while {jobs} wait", waiting, calm)
    seconds = gauge.seconds()
    for name, pid in pids.items():
        yield Figure(name=f"peak memory of the {name}", value=peak_memory_mib(pid), unit="MiB")
        yield Figure(name=f"CPU of the {name} for a Job", value=1000 * seconds[name] / jobs, unit="ms")
    count = jobs // 3
    with ThreadPoolExecutor(CREATORS) as makers:
        made = [makers.submit(worker.api.create, forged(number, namespace)) for number in range(count)]
        for forgery in made:
            forgery.result()
    after = probes(quiet, "forged", going=lambda done: done < PROBES)
    yield from timed(f"another tenant's Job, beside {count} forged copies", after, calm)
    yield Figure(
        name=f"peak memory of the manager with {count * 128 // 1024} MiB of annotations on them",
        value=peak_memory_mib(pids["manager"]),
        unit="MiB",
    )


def paced(rates: list[float], jobs: int | None) -> bool:
    """Print the figures of two workers at each of these rates; whether all targets are met."""
    met = True
    with (
        ControlPlane(components=WITHOUT_PODS, kube_api_qps=KUBE_API_QPS, audit=True) as here,
        ControlPlane(kube_api_qps=KUBE_API_QPS, audit=True) as east,
        ControlPlane(kube_api_qps=KUBE_API_QPS, audit=True) as west,
    ):
        for each in (east, west):
            add_nodes(each)
        sites = connect(Site(here), {"east": Site(east), "west": Site(west)})
        for rate in rates:
            for line in dispatch.measure(sites, jobs or PACED.get(rate, JOBS), rate):
                if isinstance(line, Figure):
                    met &= line.met is not False
                    print(line, flush=True)
                else:
                    print(f"\n{line}\n{HEADER}", flush=True)
    return met


def flooded(jobs: int) -> None:
    """Print the figures of a flood."""
    with ControlPlane(components=WITHOUT_PODS) as first, ControlPlane() as second:
        sites = connect(Site(first), {"east": Site(second)})
        print(HEADER)
        for figure in measure(sites, jobs):
            print(figure, flush=True)


def main() -> int:
    """Print the figures; 1 if a Job was lost, or ran twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clusters", description=__doc__)
    parser.add_argument("--rates", type=float, nargs="*", default=list(PACED), help="Jobs a second for two workers")
    parser.add_argument("--jobs", type=int, help="Jobs at each rate")
    parser.add_argument("--full", action="store_true", help=f"{JOBS:,} Jobs at each rate")
    parser.add_argument("--flood", type=int, default=JOBS, help="Jobs of the flood; 0 for none")
    chosen = parser.parse_args()
    met = paced(chosen.rates, JOBS if chosen.full else chosen.jobs) if chosen.rates else True
    if chosen.flood:
        flooded(chosen.flood)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
