"""Takes over the configuration of a Kueue that ran until now, without what Turnstile would refuse. Pure.

Each option left out is named with its meaning for the jobs of the cluster: nothing is dropped in silence.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from turnstile.api.config import features
from turnstile.api.config.defaults import Installation
from turnstile.api.config.document import Document, Path, Problem, split
from turnstile.api.config.frameworks import DEFAULT, FRAMEWORKS_PATH
from turnstile.api.config.loading import judge, parse
from turnstile.api.errors import InvalidConfiguration

FILE: Final = "controller_manager_config.yaml"
"""The key of the configuration in Kueue's ConfigMap."""
SYSTEM_NAMESPACE: Final = "kueue-system"
_CONFIG_MAP: Final = "ConfigMap"
_GATES: Final = "featureGates"
_NEVER: Final[tuple[Path, ...]] = (("apiVersion",), ("kind",), (_GATES,))
"""Options without which no value can be taken over: a fault of these is reported, and nothing is left out."""
_NOTHING: Final = "nothing depends on it"

RETIRED: Final[Mapping[str, bool]] = {
    "ConfigurableResourceTransformations": True,
    "FlavorFungibilityImplicitPreferenceDefault": False,
    "HierarchicalCohorts": True,
    "LendingLimit": True,
    "LocalQueueDefaulting": True,
    "ManagedJobsNamespaceSelector": True,
    "ObjectRetentionPolicies": True,
    "PropagateBatchJobLabelsToWorkload": True,
    "SanitizePodSets": True,
    "TASProfileLeastFreeCapacity": False,
}
"""Gates of older Kueues that later ones do not know any more, and whether what they switched is on for good."""

_MEANS: Final[Mapping[Path, str]] = {
    FRAMEWORKS_PATH: (
        "jobs of this kind will not be queued, and start at once: let them end before you move, or describe the kind in"
        " integrations.customKinds"
    ),
    ("multiKueue",): "this is not how jobs are sent to other clusters here: keep Kueue where you need it",
    ("pprofBindAddress",): f"{_NOTHING}: a profiler for Python, such as py-spy, takes its place",
    ("tls",): "set what you need at a proxy, or in the policy of the host's TLS library",
    ("leaderElection", "leaderElect"): f"{_NOTHING}: the only replica holds the Lease",
    ("health",): f"{_NOTHING}: the chart's probes ask the paths that are there",
    ("namespace",): f"{_NOTHING}: the Lease and the certificate are in the namespace of the release",
}
"""The meaning of an option left out, by path or a path above it; of others the fault itself says what to do."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """A configuration that Turnstile takes, as plain values, and what it lacks.

    `left_out` changes what happens in the cluster; `without_effect` was left out or has no effect, and nothing depends
    on it.
    """

    config: Mapping[str, Any]
    left_out: tuple[Problem, ...]
    without_effect: tuple[Problem, ...]

    def values(self) -> dict[str, Any]:
        """Values of the chart: the configuration, and what the chart has values of its own for."""
        config = dict(self.config)
        values: dict[str, Any] = {}
        if "managedJobsNamespaceSelector" not in config:
            # Kueue's default; without the value the chart manages namespaces with a label only.
            values["managedNamespaces"] = {"mode": "exclude", "exclude": [SYSTEM_NAMESPACE]}
        if config.get("internalCertManagement", {}).get("enable") is False:
            values["webhook"] = {"certs": {"mode": "certManager"}}
        return {**values, "config": config}

    def text(self) -> str:
        """The values as YAML."""
        return yaml.safe_dump(self.values(), sort_keys=False, allow_unicode=True)


def configuration_in(text: str) -> str:
    """The configuration in `text`: the text itself, or what Kueue's ConfigMap holds if it is that.

    Raises InvalidConfiguration.
    """
    document = parse(text)
    if document.data.get("kind") != _CONFIG_MAP:
        return text
    data = document.data.get("data", {})
    files = data if isinstance(data, dict) else {}
    if not isinstance(files.get(FILE), str):
        found = ", ".join(map(str, files)) or "nothing"
        cure = "give the ConfigMap kueue-manager-config, or the file in it"
        raise InvalidConfiguration([
            Problem("data", document.line(("data",)), f"the ConfigMap has no {FILE}, but {found}", cure)
        ])  # fmt: skip
    return str(files[FILE])


def take_over(text: str, *, installation: Installation, frameworks: Collection[str]) -> Takeover:
    """The part of a Kueue's configuration that Turnstile can take. `frameworks` are the job kinds that are built.

    Raises InvalidConfiguration with the faults that leaving something out does not mend.
    """
    document = parse(configuration_in(text))
    _name_frameworks(document.data)
    dropped: list[Problem] = list(_strip(document, _about_gates(document, installation)))
    while True:
        try:
            loaded = judge(document, installation=installation, frameworks=frameworks)
        except InvalidConfiguration as error:
            removed = list(_strip(document, error.problems))
            if not removed:
                raise
            dropped += removed
            continue
        break
    # Of a section that was left out, what was left out within it before says nothing more.
    reported = [each for each in dropped if not any(_is_within(each, other) for other in dropped)]
    reported.sort(key=lambda each: each.line)
    harmless = [each for each in reported if each.cure.startswith(_NOTHING)]
    return Takeover(
        document.data,
        tuple(each for each in reported if each not in harmless),
        (*harmless, *loaded.warnings),
    )


def _name_frameworks(data: dict[str, Any]) -> None:
    """Write down the default of a file that names no job kinds: the chart takes a `config` without them for all."""
    section, name = FRAMEWORKS_PATH
    integrations = data.setdefault(section, {})
    if isinstance(integrations, dict):
        integrations.setdefault(name, list(DEFAULT))


def _about_gates(document: Document, installation: Installation) -> Iterator[Problem]:
    """Facts about an older Kueue's file before it is judged: its gates, and its namespace."""
    namespace = document.data.get("namespace")
    if namespace is not None and namespace != installation.namespace:
        yield Problem("namespace", document.line(("namespace",)), f"the release is in {installation.namespace}")
    gates = document.data.get(_GATES)
    for name, on in gates.items() if isinstance(gates, dict) else ():
        gate = features.BY_NAME.get(name)
        if name in features.GROUPS or (gate is not None and not gate.locked):
            continue
        fixed = RETIRED.get(name, gate.default if gate is not None else None)
        message = "is no gate that Turnstile knows" if fixed is None else f"is {'on' if fixed else 'off'} for good"
        same = on is (fixed or False)
        cure = _NOTHING if same else f"it was {'on' if on else 'off'}: see that no queue and no job depends on that"
        yield Problem(f"{_GATES}.{name}", document.line((_GATES, name)), message, cure)


def _strip(document: Document, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Take out of the document what the problems are about, as far as it stands there; those that were mended so."""
    found = [(split(each.path), each) for each in problems]
    # Items of a list from the last to the first, so that the places of the others stay.
    for path, problem in sorted(found, key=lambda each: [str(part).zfill(8) for part in each[0]], reverse=True):
        if path not in _NEVER and (value := _remove(document.data, path)) is not None:
            means = next((text for above, text in _MEANS.items() if path[: len(above)] == above), problem.cure)
            message = f"{value} is not built" if path[:-1] == FRAMEWORKS_PATH else problem.message
            yield Problem(problem.path, problem.line, message, means)


def _remove(data: Any, path: Path) -> Any:
    """Take out what stands at a path, and return it; None if nothing does. The section around it stays, for its
    presence may mean something."""
    head, *rest = path
    if isinstance(head, int):
        if not isinstance(data, list) or head >= len(data):
            return None
    elif not isinstance(data, dict) or head not in data:
        return None
    return _remove(data[head], tuple(rest)) if rest else data.pop(head)


def _is_within(one: Problem, other: Problem) -> bool:
    own, above = split(one.path), split(other.path)
    return len(own) > len(above) and own[: len(above)] == above
