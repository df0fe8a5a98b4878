"""A flood of jobs for another cluster, and another tenant beside it: `python -m tests.bench.clusters`.

A manager and a worker on control planes of their own. The flood's Jobs all get quota on the manager and are sent, and
the worker has room for four of them. A probe is a Job of another tenant, from its creation until its copy is started;
then it is deleted. At last the flooding tenant creates Jobs on the worker that look like the manager's copies, each
with 128 KiB of annotations and a finalizer that keeps it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from testbed import ControlPlane
from testbed.client import Api, resource_path, wait_until
from tests.bench.figures import HEADER, Figure, Gauge, peak_memory_mib, percentile
from tests.cluster.scenario import GROUP, job, job_path
from tests.cluster.sites import Site, Sites, Team, a_team, connect
from turnstile.api import names

JOBS = 1000
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


def main() -> None:
    """Print the figures; the number of Jobs may be given."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    without_pods = ("etcd", "kube-apiserver", "kube-controller-manager")
    with ControlPlane(components=without_pods) as first, ControlPlane() as second:
        sites = connect(Site(first), {"east": Site(second)})
        print(HEADER)
        for figure in measure(sites, jobs):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
