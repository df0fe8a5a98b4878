"""A cluster in virtual time: nodes in racks, and as much of its own controllers as Jobs and their pods need.

Each controller acts once when it is called, on each object unless a lot says otherwise (`late`, a likelihood): the Job
controller, kube-scheduler with the kubelets, the node lifecycle controller and the garbage collector. kube-scheduler
never binds more to a node than fits, so an overshoot is judged from what was assigned.
"""

import random
from typing import Final

from tests.faults.virtual_server import Json, Server, key_of
from turnstile.api import names
from turnstile.api.core import Job, Node, Pod
from turnstile.api.topology import HOSTNAME

NAMESPACE: Final = "team"
SYSTEM: Final = "kube-system"
RACK: Final = "example.com/rack"
RACKS: Final = {"r1": [2, 2, 1], "r2": [1, 1, 2], "r3": [3, 1, 2]}
NODES: Final = {f"{rack}-{number}": cpus for rack, hosts in RACKS.items() for number, cpus in enumerate(hosts)}
_OVER: Final = ("Succeeded", "Failed")
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_UNREACHABLE: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def true(body: Json, kind: str) -> bool:
    """Whether a condition of an object is True."""
    return any(
        each["type"] == kind and each["status"] == "True" for each in body.get("status", {}).get("conditions") or ()
    )


def host_of(pod: Json) -> str:
    """The node to which a pod is bound, or which it selects."""
    return str(pod["spec"].get("nodeName") or (pod["spec"].get("nodeSelector") or {}).get(HOSTNAME, ""))


def is_over(pod: Json) -> bool:
    """Whether a pod has ended."""
    return pod["status"].get("phase") in _OVER


def is_going(pod: Json) -> bool:
    """Whether a pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def workload_of(pod: Json) -> str:
    """The name of the Workload that a pod is charged to."""
    return str(pod["metadata"]["annotations"].get(names.WORKLOAD, ""))


def cpus(pod: Json) -> int:
    """The CPUs that a pod requests."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


class Cluster:
    """The nodes, and the controllers that are not Turnstile's."""

    def __init__(self, server: Server, lots: random.Random) -> None:
        self.server = server
        self.bound = 0
        """Pods that were bound to a node."""
        self._lots = lots
        self._pods = 0
        self._done: dict[str, set[str]] = {}
        """Indexes of pods that have succeeded, by the uid of the Job: they count, whether the pods are left or not."""
        for name in NODES:
            self._add(name)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _add(self, name: str) -> None:
        labels = {RACK: name.partition("-")[0], HOSTNAME: name, "pool": "gpu"}
        status = {"allocatable": {"cpu": str(NODES[name]), "pods": "110"}, "conditions": [self._state("True")]}
        self.server.create(Node, {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})

    def _state(self, ready: str) -> Json:
        return {"type": "Ready", "status": ready, "lastTransitionTime": self.server.stamp}

    def down(self, name: str) -> None:
        """Nothing is heard of a node any more."""

        def change(draft: Json) -> None:
            draft["status"]["conditions"] = [self._state("Unknown")]
            draft["spec"]["taints"] = [_UNREACHABLE]

        self.server.edit(Node, name, change)

    def cordon(self, name: str) -> None:
        """A node takes no more pods."""
        self.server.edit(Node, name, lambda draft: draft["spec"].update(unschedulable=True, taints=[_CORDONED]))

    def taint(self, name: str, effect: str) -> None:
        """A node takes no more pods, and with NoExecute keeps none."""
        taint = {"key": "maintenance", "value": "x", "effect": effect}
        self.server.edit(Node, name, lambda draft: draft["spec"].update(taints=[taint]))

    def repair(self, name: str) -> None:
        """A node works and takes pods."""

        def change(draft: Json) -> None:
            draft["spec"] = {}
            if not true(draft, "Ready"):
                draft["status"]["conditions"] = [self._state("True")]

        if self.server.edit(Node, name, change) is None:
            self._add(name)

    def beat(self) -> None:
        """Each kubelet writes something that decides nothing."""
        for name in NODES:
            self.server.edit(Node, name, lambda draft: draft["status"].update(beat=self.server.revision))

    def takes_pods(self, name: str) -> bool:
        """Whether kube-scheduler may bind pods to a node."""
        node = self.server.find(Node, name)
        return node is not None and true(node, "Ready") and not node["spec"].get("taints")

    def is_up(self, pod: Json) -> bool:
        """Whether the kubelet of a pod works."""
        node = self.server.find(Node, pod["spec"].get("nodeName") or "")
        return node is not None and true(node, "Ready")

    def free(self, name: str) -> int:
        """CPUs of a node that no pod on it requests."""
        used = [each for each in self.server.all(Pod) if each["spec"].get("nodeName") == name and not is_over(each)]
        return NODES[name] - sum(map(cpus, used))

    # --- pods ---------------------------------------------------------------------------------------------------------

    @property
    def pods(self) -> list[Json]:
        """Pods of Jobs."""
        return [each for each in self.server.all(Pod) if each["metadata"]["namespace"] == NAMESPACE]

    @property
    def others(self) -> list[Json]:
        """Pods that Turnstile does not manage."""
        return [each for each in self.server.all(Pod) if each["metadata"]["namespace"] == SYSTEM]

    def add_other(self, name: str) -> None:
        """A pod that Turnstile does not manage takes a CPU of a node, if there is one."""
        if self.takes_pods(name) and self.free(name):
            self._pods += 1
            container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
            meta = {"name": f"agent-{self._pods}", "namespace": SYSTEM}
            spec = {"nodeName": name, "containers": [container]}
            self.server.create(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

    def end(self, pod: Json, phase: str) -> None:
        """A pod succeeds or fails."""
        self.server.edit(Pod, key_of(pod), lambda draft: draft["status"].update(phase=phase))

    # --- controllers --------------------------------------------------------------------------------------------------

    def collect(self, late: float) -> None:
        """The garbage collector."""
        if self._lots.random() >= late:
            self.server.collect()

    def follow_jobs(self, late: float) -> None:
        """The Job controller."""
        for job in self.server.all(Job):
            if self._lots.random() >= late:
                self._follow(job)

    def _follow(self, job: Json) -> None:
        spec, uid = job["spec"], job["metadata"]["uid"]
        done = self._done.setdefault(uid, set())
        done |= {_index(each) for each in self._of(uid) if each["status"]["phase"] == "Succeeded"}
        status: Json = dict(job.get("status") or {})
        if spec["suspend"] or true(job, "Complete"):
            for pod in self._of(uid):
                if not is_over(pod) and not is_going(pod):
                    self.server.delete(Pod, key_of(pod))
        else:
            status.setdefault("startTime", self.server.stamp)
            early = spec.get("podReplacementPolicy") != "Failed"
            here = [each for each in self._of(uid) if not is_over(each) and not (early and is_going(each))]
            taken = {_index(each) for each in here} | done
            for index in range(spec["completions"]):
                if str(index) not in taken:
                    self._create_pod(job, index)
        if spec["suspend"]:
            status.pop("startTime", None)
        live = [each for each in self._of(uid) if not is_over(each)]
        going = sum(map(is_going, live))
        ready = sum(bool(each["spec"].get("nodeName")) and not is_going(each) for each in live)
        status |= {"active": len(live) - going, "terminating": going, "succeeded": len(done), "ready": ready}
        wanted = {"Suspended": "True" if spec["suspend"] else "False"}
        if true(job, "Complete") or (len(done) == spec["completions"] and not live):
            wanted["Complete"] = "True"
        old = {each["type"]: each for each in status.get("conditions", ())}
        status["conditions"] = [
            old[kind]
            if kind in old and old[kind]["status"] == state
            else {"type": kind, "status": state, "lastTransitionTime": self.server.stamp}
            for kind, state in wanted.items()
        ]
        self.server.edit(Job, key_of(job), lambda draft: draft.update(status=status))

    def _of(self, uid: str) -> list[Json]:
        return [each for each in self.pods if each["metadata"]["ownerReferences"][0]["uid"] == uid]

    def _create_pod(self, job: Json, index: int) -> None:
        self._pods += 1
        template, meta = job["spec"]["template"], job["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        labels = {**(template["metadata"].get("labels") or {}), "job-name": meta["name"], "index": str(index)}
        if job["spec"]["completionMode"] == "Indexed":
            labels[_INDEX] = str(index)
        made = {"name": f"{meta['name']}-{index}-{self._pods}", "namespace": NAMESPACE, "ownerReferences": [owner]}
        made |= {"labels": labels, "annotations": dict(template["metadata"].get("annotations") or {})}
        spec = {each: value for each, value in template["spec"].items() if value is not None}
        self.server.create(Pod, {"metadata": made, "spec": spec, "status": {"phase": "Pending"}})

    def bind(self, late: float) -> None:
        """kube-scheduler, and the kubelets that start what it binds."""
        for pod in self.pods:
            spec = pod["spec"]
            if spec.get("nodeName") or spec.get("schedulingGates") or is_over(pod) or self._lots.random() < late:
                continue
            fitting = [name for name in NODES if self._selects(pod, name) and self.free(name) >= cpus(pod)]
            if fitting:
                name = self._lots.choice(fitting)
                self.server.edit(Pod, key_of(pod), lambda draft, name=name: _started(draft, name))
                self.bound += 1

    def _selects(self, pod: Json, name: str) -> bool:
        node = self.server.find(Node, name)
        if node is None or not self.takes_pods(name):
            return False
        labels = node["metadata"]["labels"]
        return all(labels.get(key) == value for key, value in (pod["spec"].get("nodeSelector") or {}).items())

    def stop_pods(self, late: float) -> None:
        """Kubelets stop the pods that are deleted, and pods of nodes that are gone are removed. Without `late` those of
        nodes that are down are removed too."""
        for pod in self.pods:
            name = pod["spec"].get("nodeName")
            if not name or self._lots.random() < late:
                continue
            stopped = is_going(pod) and (not late or self.is_up(pod))
            if stopped or self.server.find(Node, name) is None:
                self.server.remove(Pod, key_of(pod))

    def watch_nodes(self, late: float) -> None:
        """The node lifecycle controller deletes pods where a taint lets none run."""
        for pod in self.pods:
            node = self.server.find(Node, pod["spec"].get("nodeName") or "")
            if node is None or is_going(pod) or self._lots.random() < late:
                continue
            if any(each["effect"] == "NoExecute" for each in node["spec"].get("taints") or ()):
                self.server.delete(Pod, key_of(pod))


def _index(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["index"])


def _started(draft: Json, name: str) -> None:
    draft["spec"]["nodeName"] = name
    draft["status"]["phase"] = "Running"
