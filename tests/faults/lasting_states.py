"""Jobs, Pods, Deployments, StatefulSets and JobSets whose Workloads are in every state that lasts, made and compared.

Each state has a LocalQueue of its own, so that a Workload says by its queue what it is to be. Nothing here may depend
on how a version of Turnstile gets there: objects are made, and what is visible in the cluster is read.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import GROUP, QUEUE, Scenario, job
from tests.cluster.test_admission_checks import answer, check
from tests.cluster.test_pod_groups import STOP_FOR
from tests.faults.changes import FOR_JOBS
from tests.operators.rows import ROWS

BY_NAME: Final = {row.name: row for row in ROWS}
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
LONG: Final = timedelta(hours=6)
"""Back-offs and pods that stop last longer than any test."""
CONDITIONS: Final = ("QuotaReserved", "Admitted", "Evicted", "Preempted", "Requeued", "Finished")

Seen = dict[str, dict[str, Json]]
Place = tuple[str, str]
"""A queue and the state of a Workload in it."""


class LastingStates:
    """What is made of about `workloads` Workloads, and `expected`: how many of each queue are to be in which state."""

    def __init__(self, scenario: Scenario, workloads: int) -> None:
        self.scenario = scenario
        self.expected: Counter[Place] = Counter()
        self._workloads = workloads
        self._api = scenario.api

    # ---------------------------------------------------------------- what is made

    def make_of_jobs_and_pods(self) -> None:
        """States of Jobs and Pods that need neither preemption nor admission checks nor another kind."""
        scenario = self.scenario
        flavor = scenario.flavor("any", labels=FOR_JOBS)
        running, few = self._share(20), self._share(4)
        queues = {"busy": running, "held": 1000, "done": 1000, "large": 1, "backed-off": 1000, "low": few, "slow": few}
        lower = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        policies: dict[str, Json] = {"held": {"stopPolicy": "Hold"}, "low": lower, "slow": lower}
        for name, quota in queues.items():
            scenario.queue(name, {flavor: {"cpu": quota}}, **policies.get(name, {}))
        self._jobs("busy", "running", running)
        self._jobs("busy", "waiting", self._share(30))
        self._jobs("busy", "deactivated", self._share(5))
        self._jobs("held", "held", self._share(8))
        self._jobs("done", "finished", self._share(8), run_for="1s")
        self._jobs("large", "large", self._share(4), cpu="2")
        self._jobs("nowhere", "nowhere", few)
        self._jobs("backed-off", "backed-off", few)
        self._jobs("low", "low", few)
        self._jobs("slow", "slow", few, stop_for=LONG)
        self.reach({
            ("busy", "running"): running, ("busy", "pending"): self._share(30) + self._share(5),
            ("held", "pending"): self._share(8), ("done", "finished"): self._share(8),
            ("large", "pending"): self._share(4), ("nowhere", "pending"): few, ("backed-off", "running"): few,
            ("low", "running"): few, ("slow", "running"): few,
        })  # fmt: skip
        for number in range(self._share(5)):
            self._api.patch(self._workload_path(f"deactivated-{number}"), {"spec": {"active": False}})
        self.reach({("busy", "pending"): self._share(30), ("busy", "deactivated"): self._share(5)})
        for number in range(few):
            self._back_off(f"backed-off-{number}")
        self.reach({("backed-off", "running"): 0, ("backed-off", "in back-off"): few})

    def make_pods_of(self, *names: str, by_template: bool = False) -> None:
        """One of each kind that runs and one that waits; `by_template`: not the object but its pods name the queue."""
        for name in names:
            row, queue = BY_NAME[name], f"{name}-of-pods" if by_template else name
            self.scenario.queue(queue, {self.scenario.flavor(queue, labels=FOR_JOBS): {"cpu": row.pods}})
            count = row.pods if by_template or row.queued_by_pod else row.workloads
            for each, state in ((f"{queue}-0", "running"), (f"{queue}-1", "pending")):
                made = row.objects(self.scenario, each, "" if by_template else queue)
                for manifest in made:
                    if by_template:
                        manifest["spec"]["template"]["metadata"].setdefault("labels", {})[QUEUE] = queue
                        manifest["spec"] |= {"podManagementPolicy": "Parallel"} if name == "statefulset" else {}
                    self.scenario.create(manifest)
                self.reach({(queue, state): count})

    def make_preempted(self) -> None:
        """Jobs of `low` wait after a preemption; the pods of those of `slow` still stop, and their preemptor waits."""
        few = self._share(4)
        high = self.scenario.priority_class("high", 100)
        self._jobs("low", "urgent-low", few, labels={PRIORITY: high})
        self._jobs("slow", "urgent-slow", 1, cpu=str(few), labels={PRIORITY: high})
        self.reach({
            ("low", "running"): few, ("low", "pending"): few,
            ("slow", "running"): 0, ("slow", "pods stop"): few, ("slow", "pending"): 1,
        })  # fmt: skip

    def make_checked(self) -> None:
        """Jobs that hold quota and wait for both of two checks, or for one of them; and such that a check sent away."""
        scenario, few = self.scenario, self._share(4)
        names = [check(scenario, name) for name in ("budget", "licence")]
        strategy = {"admissionChecks": [{"name": name} for name in names]}
        for queue in ("checked", "sent-away"):
            quota = {scenario.flavor(queue, labels=FOR_JOBS): {"cpu": 1000}}
            scenario.queue(queue, quota, admissionChecksStrategy=strategy)
        self._jobs("checked", "checked", 2 * few)
        self._jobs("sent-away", "sent-away", few)
        for number in range(few):
            answer(scenario, f"checked-{number}", names[0], "Ready", message="granted")
            later = int(LONG.total_seconds())
            answer(scenario, f"sent-away-{number}", names[1], "Retry", requeueAfterSeconds=later)
        self.reach({
            ("checked", "reserved: Pending, Ready"): few, ("checked", "reserved: Pending, Pending"): few,
            ("sent-away", "in back-off"): few,
        })  # fmt: skip

    def go_on(self) -> None:
        """What waited for people goes on: the last check is ready, the stopped queue is started."""
        few, held = self.expected["checked", "reserved: Pending, Ready"], self.expected["held", "pending"]
        for number in range(few):
            answer(self.scenario, f"checked-{number}", self.scenario.named("licence"), "Ready")
        self.reach({("checked", "reserved: Pending, Ready"): 0, ("checked", "running"): few})
        self.scenario.patch_queue(self.scenario.named("held"), {"stopPolicy": "None"})
        self.reach({("held", "pending"): 0, ("held", "running"): held})

    def _jobs(
        self,
        queue: str,
        name: str,
        count: int,
        *,
        cpu: str = "1",
        run_for: str | None = None,
        stop_for: timedelta | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        """So many Jobs of a pod."""
        for number in range(count):
            made = job(
                f"{name}-{number}",
                namespace=self.scenario.namespace,
                queue=queue,
                cpu=cpu,
                run_for=run_for,
                labels=labels,
            )
            if stop_for is not None:
                made["spec"]["template"]["metadata"]["annotations"][STOP_FOR] = f"{int(stop_for.total_seconds())}s"
            self._api.create(made)

    def _back_off(self, name: str) -> None:
        """Evict a Job as the controller does when its pods are not ready in time."""
        now = datetime.now(UTC)
        evicted = {
            "type": "Evicted", "status": "True", "reason": "PodsReadyTimeout", "lastTransitionTime": _time(now),
            "message": "Exceeded the PodsReady timeout",
        }  # fmt: skip
        status = self._api.get(self._workload_path(name))["status"]
        status["conditions"].append(evicted)
        status["requeueState"] = {"count": 2, "requeueAt": _time(now + LONG)}
        self._api.patch(f"{self._workload_path(name)}/status", {"status": status})

    def _workload_path(self, name: str) -> str:
        workload = self.scenario.workload_of(name)["metadata"]["name"]
        return resource_path(GROUP, "workloads", workload, namespace=self.scenario.namespace)

    def _share(self, percent: int) -> int:
        return max(2, self._workloads * percent // 100)

    # ---------------------------------------------------------------- what is there

    def reach(self, expected: Mapping[Place, int]) -> None:
        """Expect this from now on, and wait until it is so."""
        self.expected.update({place: count - self.expected[place] for place, count in expected.items()})
        self.expected = +self.expected
        wait_until(lambda: self.census() == self.expected, timeout=self._workloads / 4 + 60, describe=self._unexpected)

    def _unexpected(self) -> str:
        """Which places have too few Workloads, and the Workloads of those that have too many."""
        census = self.census()
        surplus = [each for each in self._items(GROUP, "workloads") if _place(each) in census - self.expected]
        told = [f"{_place(each)}: {each['metadata']['name']} {each['status']}" for each in surplus[:5]]
        return "\n".join([f"missing: {dict(self.expected - census)}", *told])

    def census(self) -> Counter[Place]:
        """How many Workloads of each queue are in which state."""
        return Counter(_place(each) for each in self._items(GROUP, "workloads"))

    def at_rest(self) -> Seen:
        """What is there once nothing changes any more, all of it as expected."""
        previous: Seen = {}
        same = 0

        def look() -> bool:
            nonlocal previous, same
            seen = self.seen()
            same = same + 1 if seen == previous else 0
            previous = seen
            return same > 20

        wait_until(look, timeout=self._workloads / 4 + 60, describe=lambda: "Workloads, jobs or pods change still")
        assert self.census() == self.expected
        assert {each["phase"] for each in previous["pods"].values() if each["node"]} <= {"Running", "Succeeded"}
        return previous

    def seen(self) -> Seen:
        """All that must stay as it is while nobody asks for a change, by kind and name."""
        read: dict[tuple[str, str], Callable[[Json], Json]] = {
            (GROUP, "workloads"): _workload, ("v1", "pods"): _pod, ("batch/v1", "jobs"): _job,
        }  # fmt: skip
        for name in ("deployment", "statefulset", "jobset"):
            read[BY_NAME[name].api_version, BY_NAME[name].plural] = _suspended
        return {
            plural: {
                each["metadata"]["name"]: {"uid": each["metadata"]["uid"], **parts(each)}
                for each in self._items(version, plural)
            }
            for (version, plural), parts in read.items()
        }

    def _items(self, version: str, plural: str) -> list[Json]:
        found = self._api.find(resource_path(version, plural, namespace=self.scenario.namespace))
        items: list[Json] = found["items"] if found is not None else []
        return items


def state_of(workload: Json) -> str:
    """The state of a Workload in a few words."""
    status = workload.get("status", {})
    told = {kind: condition(workload, kind).get("status") == "True" for kind in CONDITIONS}
    if told["Finished"]:
        return "finished"
    if told["Evicted"] and told["QuotaReserved"]:
        return "pods stop"
    if not workload["spec"].get("active", True):
        return "deactivated" if not told["QuotaReserved"] and told["Evicted"] else "being deactivated"
    if told["Admitted"]:
        return "running"
    if told["QuotaReserved"]:
        return "reserved: " + ", ".join(sorted(each["state"] for each in status.get("admissionChecks", ())))
    due = status.get("requeueState", {}).get("requeueAt")
    if due is not None and due > _time(datetime.now(UTC)) and condition(workload, "Requeued").get("status") == "False":
        return "in back-off"
    return "pending"


def _place(workload: Json) -> Place:
    return workload["spec"]["queueName"], state_of(workload)


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _workload(workload: Json) -> Json:
    status = workload.get("status", {})
    return {
        "active": workload["spec"].get("active", True),
        "conditions": {kind: condition(workload, kind).get("status", "False") for kind in CONDITIONS},
        **{field: status.get(field) for field in ("admission", "requeueState", "admissionChecks")},
    }


def _pod(pod: Json) -> Json:
    status = pod["status"]
    return {
        "phase": status.get("phase"),
        "restarts": sum(each["restartCount"] for each in status.get("containerStatuses", ())),
        "node": pod["spec"].get("nodeName"),
        "gates": pod["spec"].get("schedulingGates"),
        "deleted": pod["metadata"].get("deletionTimestamp"),
    }


def _job(found: Json) -> Json:
    return {**_suspended(found), "started": found["status"].get("startTime")}


def _suspended(found: Json) -> Json:
    return {"suspend": found["spec"].get("suspend"), "replicas": found["spec"].get("replicas")}


def differences(before: Seen, after: Seen) -> dict[str, tuple[object, object]]:
    """What is another now, by kind and name."""
    return {
        f"{kind}/{name}": (before[kind].get(name), after[kind].get(name))
        for kind in before
        for name in before[kind].keys() | after[kind].keys()
        if before[kind].get(name) != after[kind].get(name)
    }
