"""The tour's script: which files of examples/ are applied when, and what must follow.

Says nothing of how it is shown or run.
"""

from fractions import Fraction
from typing import Any

from testbed.promises import (
    Act,
    Invariant,
    Judge,
    Promise,
    Question,
    all_of,
    borrows,
    is_in,
    never_over,
    never_overtakes,
    nothing_reserved,
    on_one,
    only_its_rights,
    queues_are_active,
    runs,
    waits_although_it_fits,
)
from testbed.snapshot import GPU, State

BESIDE = "left-alone"
"""A namespace that did not opt in."""

ON_DEMAND = {"capacity": "on-demand"}
SPOT = {"capacity": "spot"}
A100 = {"accelerator": "a100"}
RACKED = {"example.com/pool": "racked"}
RACK = "example.com/rack"
TOTAL = {"on-demand": Fraction(8), "spot": Fraction(6), "a100": Fraction(8)}
"""CPUs that the two ClusterQueues of the quickstart own together, and GPUs of the three teams with some."""

_STRANGER: tuple[dict[str, Any], ...] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BESIDE}},
    {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "stranger", "namespace": BESIDE},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox:1.37", "command": ["sleep", "5"]}],
                }
            }
        },
    },
)


def _ray_pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.52.0", "resources": resources}]}}


_RAYJOB: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "tuning", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "default"}},
    "spec": {
        "entrypoint": "python tune.py",
        "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": {}, "template": _ray_pod("head")},
            "workerGroupSpecs": [
                {"groupName": "workers", "replicas": 3, "rayStartParams": {}, "template": _ray_pod("worker")}
            ],
        },
    },
}


def _job(name: str, *, pods: int, seconds: int, team: str = "team-a", gpus: int = 0) -> dict[str, Any]:
    """A Job of a team, each pod with a CPU and some GPUs."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, **({"limits": {GPU: str(gpus)}} if gpus else {})}
    container = {
        "name": "main",
        "image": "busybox:1.37",
        "command": ["sleep", str(seconds)],
        "resources": resources,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": team, "labels": {"kueue.x-k8s.io/queue-name": "default"}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


LEFT = (
    _job("simulation", pods=4, seconds=3600),
    _job("analysis", pods=6, seconds=60),
    _job("finetune", pods=3, seconds=3600, team="vision", gpus=2),
    _job("score", pods=1, seconds=3600, team="speech", gpus=2),
    _job("label", pods=1, seconds=60, team="speech", gpus=2),
)
"""Jobs that are there after the tour, to be looked at: analysis and label wait for the others."""

_ANY: tuple[State, ...] = ("Waiting", "Admitted", "Running", "Finished")
_ALL = (
    *(("team-a", name) for name in ("training", "report", "sweep", "features")),
    *(("team-b", name) for name in ("notebook", "etl", "migration", "archive", "hotfix")),
)
_GPU_JOBS = ("vision/pretrain", "speech/evaluate", "speech/transcribe", "language/translate")
_RING = ("team-a/ring-0", "team-a/ring-1")
_OTHERS = (*_RING, "team-a/pretraining", "team-a/tuning")
"""What is neither a Job nor a Pod by itself."""


def _on_demand(key: str) -> Judge:
    return runs(key, "on-demand", node_labels=ON_DEMAND)


def _on_a100(key: str) -> Judge:
    return runs(key, "a100", node_labels=A100)


def acts() -> list[Act]:
    """The tour, act by act. Each begins when the promises of the one before have come true or run out of time."""
    return [*_gpus(), *_two_teams(), *_racks()]


def _gpus() -> list[Act]:
    """Three teams share eight GPUs."""
    return [
        Act(
            "Three teams share eight GPUs: vision owns four, language two, speech two",
            ("gpus/01-teams.yaml", "gpus/02-queues.yaml"),
            [Promise("Their three ClusterQueues are Active", queues_are_active("vision", "language", "speech"))],
        ),
        Act(
            "pretrain of vision asks for six GPUs, evaluate of speech for two",
            ("gpus/10-pretrain.yaml", "gpus/11-evaluate.yaml"),
            [
                Promise(
                    "pretrain runs on four GPUs of its own and two borrowed from language",
                    all_of(_on_a100("vision/pretrain"), borrows("vision", "a100")),
                ),
                Promise("evaluate runs: all eight GPUs are in use", _on_a100("speech/evaluate")),
            ],
        ),
        Act(
            "transcribe asks for two more: why does it wait, and until when?",
            ("gpus/12-transcribe.yaml",),
            [
                Promise(
                    "transcribe waits and says that GPUs are missing",
                    is_in("speech/transcribe", "Waiting", saying=("insufficient", GPU)),
                )
            ],
            questions=(
                Question(
                    "explain says what is short, and who holds it",
                    ("explain", "transcribe", "-n", "speech"),
                    (GPU, "a100", "vision 6", "speech/evaluate"),
                ),
                Question(
                    "when forecasts its start from the week before, whose Jobs ran for hours (here for seconds)",
                    ("when", "job/transcribe", "-n", "speech"),
                    ("start",),
                ),
            ),
        ),
        Act(
            "translate of language wants back the two GPUs that were lent",
            ("gpus/20-translate.yaml",),
            [
                Promise(
                    "pretrain is preempted, and says that what it borrowed was reclaimed",
                    is_in("vision/pretrain", "Waiting", saying=("Preempted", "reclamation within the cohort")),
                ),
                Promise("translate runs on GPUs of its own", _on_a100("language/translate")),
                Promise("transcribe starts on GPUs that are free now", _on_a100("speech/transcribe")),
            ],
        ),
    ]


def _two_teams() -> list[Act]:
    """Two more teams, with nodes of two kinds, priorities, and jobs of several kinds."""
    return [
        Act("Two more teams opt in, without GPUs", ("quickstart/01-namespaces.yaml",)),
        Act(
            "Two kinds of nodes, what each team owns of them, and two priorities",
            ("quickstart/02-flavors.yaml", "quickstart/03-queues.yaml", "quickstart/04-priorities.yaml"),
            [
                Promise(
                    "Both ClusterQueues and both LocalQueues are Active",
                    queues_are_active("team-a", "team-b", "team-a/default", "team-b/batch"),
                )
            ],
        ),
        Act(
            "training fits into what team-a owns",
            ("quickstart/10-training.yaml",),
            [
                Promise(
                    "training starts on nodes of its flavor on-demand",
                    _on_demand("team-a/training"),
                )
            ],
        ),
        Act(
            "report names no queue",
            ("quickstart/11-report.yaml",),
            [
                Promise(
                    "report gets the namespace's queue named default",
                    is_in("team-a/report", *_ANY, queue="default"),
                ),
                Promise(
                    "report runs: team-a now uses all it owns",
                    _on_demand("team-a/report"),
                ),
            ],
        ),
        Act(
            "notebook is a plain Pod",
            ("quickstart/12-notebook.yaml",),
            [
                Promise(
                    "notebook is held by a gate, admitted and let onto an on-demand node",
                    _on_demand("team-b/notebook"),
                )
            ],
        ),
        Act(
            "sweep selects spot nodes and tolerates their taint",
            ("quickstart/13-sweep.yaml",),
            [Promise("sweep runs on spot nodes, with the flavor spot", runs("team-a/sweep", "spot", node_labels=SPOT))],
        ),
        Act(
            "A Job in a namespace that did not opt in",
            (),
            [
                Promise(
                    "it is left alone: no queue, running at once", is_in(f"{BESIDE}/stranger", "Unmanaged", queue="")
                )
            ],
            objects=_STRANGER,
        ),
        Act(
            "features is more than team-a owns",
            ("quickstart/14-features.yaml",),
            [
                Promise(
                    "features runs on CPUs borrowed from team-b",
                    all_of(_on_demand("team-a/features"), borrows("team-a", "on-demand")),
                )
            ],
        ),
        Act(
            "etl needs two CPUs that team-b owns while one is left",
            ("quickstart/20-etl.yaml",),
            [
                Promise(
                    "features is stopped and says that what it borrowed was reclaimed",
                    is_in("team-a/features", "Waiting", saying=("Preempted", "reclamation within the cohort")),
                ),
                Promise(
                    "etl runs on the CPUs that team-a had borrowed",
                    _on_demand("team-b/etl"),
                ),
            ],
        ),
        Act(
            "migration needs three CPUs while one is left and nothing is lent",
            ("quickstart/21-migration.yaml",),
            [
                Promise(
                    "migration waits and says that cpu in flavor on-demand is missing",
                    is_in("team-b/migration", "Waiting", queue="batch", saying=("insufficient", "cpu", "on-demand")),
                )
            ],
        ),
        Act(
            "archive stands behind migration in a StrictFIFO queue",
            ("quickstart/22-archive.yaml",),
            [
                Promise(
                    "archive waits for its turn although its CPU is free",
                    waits_although_it_fits("team-b/archive", "on-demand", TOTAL["on-demand"]),
                )
            ],
        ),
        Act(
            "hotfix is urgent",
            ("quickstart/23-hotfix.yaml",),
            [
                Promise(
                    "etl is stopped and says that a higher priority took its place",
                    is_in("team-b/etl", "Waiting", saying=("Preempted", "prioritization in the ClusterQueue")),
                ),
                Promise(
                    "hotfix runs ahead of all that waited before it",
                    all_of(
                        _on_demand("team-b/hotfix"),
                        is_in("team-b/migration", "Waiting"),
                        is_in("team-b/archive", "Waiting"),
                    ),
                ),
            ],
        ),
        Act(
            "Work ends, and what waits is let in",
            (),
            [
                Promise("etl starts again", _on_demand("team-b/etl"), seconds=60),
                Promise("migration is let in when there is room", _on_demand("team-b/migration"), seconds=60),
                Promise("archive is let in after it", _on_demand("team-b/archive"), seconds=60),
                Promise("features starts again", _on_demand("team-a/features"), seconds=60),
                *(Promise(f"{name} finishes", is_in(f"{team}/{name}", "Finished"), seconds=90) for team, name in _ALL),
                *(Promise(f"{key.split('/')[1]} finishes", is_in(key, "Finished"), seconds=90) for key in _GPU_JOBS),
                Promise(
                    "When all has finished, no ClusterQueue has anything reserved",
                    all_of(
                        *(is_in(f"{team}/{name}", "Finished") for team, name in _ALL),
                        *(is_in(key, "Finished") for key in _GPU_JOBS),
                        nothing_reserved(),
                    ),
                    seconds=100,
                ),
            ],
        ),
        Act(
            "Not only Jobs: a group of two Pods and a JobSet (its operator is played here: to build it takes minutes)",
            ("kinds/pod-group.yaml", "kinds/jobset.yaml"),
            [
                Promise("both Pods of the group ring run", all_of(*map(_on_demand, _RING))),
                Promise("pretraining, a JobSet of three pods, runs", _on_demand("team-a/pretraining")),
            ],
            stand_ins=True,
        ),
        Act(
            "tuning is a RayJob of four pods (KubeRay is played too), and three CPUs are left",
            (),
            [
                Promise(
                    "tuning waits, suspended, and says which of its pod sets has no flavor",
                    is_in("team-a/tuning", "Waiting", saying=("couldn't assign flavors to pod set",)),
                ),
                Promise("tuning runs when ring has ended", _on_demand("team-a/tuning"), seconds=60),
                *(Promise(f"{key.split('/')[1]} finishes", is_in(key, "Finished"), seconds=60) for key in _OTHERS),
                Promise(
                    "Again nothing is reserved",
                    all_of(*(is_in(key, "Finished") for key in _OTHERS), nothing_reserved()),
                    seconds=70,
                ),
            ],
            objects=(_RAYJOB,),
        ),
        Act(
            "weekly needs six CPUs while nightly leaves four: what its owner would ask",
            (),
            [
                Promise("nightly runs", _on_demand("team-a/nightly")),
                Promise(
                    "weekly waits for two CPUs more",
                    is_in("team-a/weekly", "Waiting", saying=("insufficient", "2 more needed")),
                ),
            ],
            objects=(_job("nightly", pods=4, seconds=30), _job("weekly", pods=6, seconds=5)),
            questions=(
                Question(
                    "explain says what is short, who holds it, and what would help",
                    ("explain", "job/weekly", "-n", "team-a"),
                    ("on-demand", "Each of these alone would admit it now", "team-a/nightly"),
                ),
                Question(
                    "what-if says that weekly would start with four pods",
                    ("what-if", "job/weekly", "-n", "team-a", "--set", "count=4"),
                    ("would be admitted now",),
                ),
            ),
        ),
        Act(
            "nightly ends",
            (),
            [
                Promise("weekly runs", _on_demand("team-a/weekly"), seconds=60),
                Promise("weekly finishes", is_in("team-a/weekly", "Finished"), seconds=60),
            ],
        ),
    ]


def _racks() -> list[Act]:
    """A queue that knows where its nodes are. Its Jobs stay, to be looked at on the page of nodes."""
    return [
        Act(
            "research has three racks of 16 CPUs, and gang asks for all of one",
            ("racks/01-queue.yaml", "racks/10-gang.yaml"),
            [
                Promise(
                    "gang runs, all of it on one rack",
                    all_of(runs("research/gang", "racked", node_labels=RACKED), on_one("research/gang", RACK)),
                )
            ],
        ),
        Act(
            "wide asks for six such pods on one rack: 32 CPUs are free, and a rack has 16",
            ("racks/11-wide.yaml",),
            [
                Promise(
                    "wide waits, and says that four of its six pods fit",
                    is_in("research/wide", "Waiting", saying=("topology", "only 4 out of 6")),
                )
            ],
            questions=(
                Question(
                    "explain says how many of its pods a rack has room for, and what would help",
                    ("explain", "job/wide", "-n", "research"),
                    ("on one rack", "run 4 pods instead of 6"),
                ),
            ),
        ),
    ]


def invariants() -> list[Invariant]:
    """What must hold at every look."""
    return [
        *(
            Invariant(
                f"Never more than {total} {'GPUs' if flavor == 'a100' else 'CPUs'} of {flavor} in use",
                never_over(flavor, total),
            )
            for flavor, total in TOTAL.items()
        ),
        Invariant("archive never overtakes migration", never_overtakes("team-b/archive", "team-b/migration")),
        Invariant("Turnstile never needs a right that the chart does not give it", only_its_rights()),
    ]
