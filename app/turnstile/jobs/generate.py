"""Generates the job kinds' data for the chart and the documentation from the registry: `make generate`.

`python -m turnstile.jobs.generate KINDS-FILE CUSTOM-FILE DOCS-FILE NAMES-FILE`. The chart renders RBAC rules, webhook
entries, user roles and the policy of queued jobs from KINDS-FILE, and from CUSTOM-FILE together with each entry of
`integrations.customKinds`. DOCS-FILE is the table of kinds, NAMES-FILE the module of the names that the configuration
file may use, which lies on the floor below and cannot ask. Must never write anything that a kind does not declare.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from turnstile.api.config.customkinds import CustomKind
from turnstile.api.config.document import dotted
from turnstile.api.config.frameworks import GATED
from turnstile.api.meta import Kind
from turnstile.jobs.bases.configured import ConfiguredJobs
from turnstile.jobs.integration import Integration, Right
from turnstile.jobs.naming import webhook_path
from turnstile.jobs.registry import ALL
from turnstile.jobs.supports import KUEUE, Supports, supports

GENERATED: Final = "made by `make generate` from app/turnstile/jobs: change it there"

_POD: Final = ("", "Pod")


def declaration(integration: Integration[Any]) -> dict[str, Any]:
    """A kind's entry in the chart's list of kinds."""
    kind, asked, suspension = integration.kind, integration.asked, integration.suspension
    return {
        "framework": integration.framework,
        "group": kind.GROUP,
        "version": kind.VERSION,
        "kind": kind.KIND,
        "plural": kind.PLURAL,
        "webhookPath": webhook_path(integration.kind),
        "gate": GATED.get(integration.framework, ""),
        "watched": integration.handling.watched,
        "countedBelow": [{"group": each.GROUP, "plural": each.PLURAL} for each in below(integration)],
        "needs": list(integration.needs),
        "makesPods": _POD in integration.makes and "." in kind.GROUP,
        "suspend": dotted(suspension.suspend_path) if suspension is not None else "",
        "counts": [{"path": path, "default": absent} for path, absent in _counts(integration).items()],
        "defaultedOn": ["CREATE", *(["UPDATE"] if asked.updates else [])],
        "defaulting": [{"name": name, "expression": text} for name, text in asked.defaulting.items()],
        "defaultingUnlessAll": asked.defaulting_unless_all,
        "validating": [{"name": name, "expression": text} for name, text in asked.validating.items()],
        "rights": [
            {"group": right.group, "resource": right.resource, "verbs": list(right.verbs)}
            for right in _declared(integration)
        ],
    }


def below(integration: Integration[Any]) -> tuple[type[Kind], ...]:
    """Kinds of the objects between a job and pods of it that are counted."""
    return integration.counted_pods.below if integration.counted_pods is not None else ()


def _counts(integration: Integration[Any]) -> Mapping[str, int | None]:
    return integration.suspension.counts if integration.suspension is not None else {}


def _declared(integration: Integration[Any]) -> list[Right]:
    """The rights that a kind declares, each with its group."""
    group = integration.kind.GROUP
    return [replace(each, group=group) if each.group is None else each for each in integration.rights]


def all_rights(integration: Integration[Any]) -> list[Right]:
    """All that the controller may do with jobs of a kind; nothing where the webhook alone handles them."""
    kind = integration.kind
    if not integration.handling.watched:
        return []
    usual = (Right(kind.PLURAL, _VERBS, kind.GROUP), Right(f"{kind.PLURAL}/finalizers", ("update",), kind.GROUP))
    read = (Right(each.PLURAL, ("list", "watch"), each.GROUP) for each in below(integration))
    return [*usual, *_declared(integration), *read]


_VERBS: Final = ("get", "list", "watch", "patch")


def names_file(kinds: Iterable[Integration[Any]]) -> str:
    """The module with the names of all kinds."""
    found = {each.framework: f"{each.kind.KIND}.{each.kind.VERSION}.{each.kind.GROUP}" for each in kinds}
    lines = [f'    "{name}": "{found[name]}",' for name in sorted(found)]
    return "\n".join(
        (
            f'"""The job kinds that are built. {GENERATED.capitalize()}."""',
            "",
            "from typing import Final",
            "",
            "FRAMEWORKS: Final = {",
            *lines,
            "}",
            '"""`Kind.version.group` by the name of the framework."""',
            "",
        )
    )


def chart_file(kinds: Iterable[Integration[Any]]) -> str:
    """The chart's list of kinds."""
    declared = [declaration(each) for each in kinds]
    return f"# {GENERATED}\n" + yaml.safe_dump(declared, sort_keys=False, width=120)


def custom_file() -> str:
    """The part of a kind's declaration that all `customKinds` share; the rest comes from each entry."""
    described = declaration(ConfiguredJobs(CustomKind(framework="f", group="g", version="v", kind="K", plural="p")))
    own = ("framework", "group", "version", "kind", "plural", "webhookPath", "rights", "suspend", "counts", "makesPods")
    shared = {key: value for key, value in described.items() if key not in own}
    return f"# {GENERATED}\n" + yaml.safe_dump(shared, sort_keys=False, width=120)


def table(kinds: Sequence[Integration[Any]]) -> str:
    """The documentation's tables of kinds: how each is held, and what it supports."""
    rows = [
        f"| `{each.framework}` | {each.kind.KIND} | `{_api_version(each)}` | {each.summary} |"
        for each in sorted(kinds, key=lambda each: each.framework)
    ]
    return "\n".join(
        (
            "# Job kinds",
            "",
            f"<!-- {GENERATED} -->",
            "",
            "What `integrations.frameworks` of the configuration file may name. A kind whose CRD is not installed is",
            "dormant: it costs nothing, and is queued as soon as the CRD is there. Other kinds can be described in",
            "[`integrations.customKinds`](configuration.md#a-kind-of-your-own).",
            "",
            "| framework | kind | API version | how its pods are held |",
            "|---|---|---|---|",
            *rows,
            "",
            "## What each kind supports",
            "",
            "`=`: Kueue has the same. *Kueue only* is not built here, *not Kueue* is what only Turnstile has. A kind",
            "in italics is not one of Kueue's. For all kinds: the queue may change while the job waits; the priority",
            "class may change at any time, be added while the job waits, and never be removed. Not built for any",
            "kind: elastic jobs, MultiKueue, and topologies.",
            "",
            "- **in part**: may be admitted with fewer pods than it asks for",
            "- **reclaims**: the quota of pods that have ended, and are not made again, is free while others run",
            "- **elastic**: the number of pods may change while the job runs",
            "- **prebuilt**: takes a Workload that was made before the job",
            "- **serves**: runs until it is deleted or scaled to zero",
            "- **ready**: says whether its pods are ready, for `waitForPodsReady`",
            "",
            f"| kind | {' | '.join(_FEATURES.values())} |",
            f"|---|{'---|' * len(_FEATURES)}",
            *_comparisons(kinds),
            "",
            "## Rights",
            "",
            "The controller may do this with jobs of each kind, whether the kind is enabled or not. The account of the",
            "webhook may list and watch jobs of the enabled kinds. A kind that is not here only the webhook handles.",
            "",
            "| kind | rights |",
            "|---|---|",
            *(_rights(each) for each in sorted(kinds, key=lambda each: each.framework) if each.handling.watched),
            "",
        )
    )


_FEATURES: Final = {
    "partial": "in part",
    "reclaim": "reclaims",
    "elastic": "elastic",
    "prebuilt": "prebuilt",
    "serves": "serves",
    "ready": "ready",
}
"""Headings by the name of the feature."""


def _comparisons(kinds: Iterable[Integration[Any]]) -> Iterator[str]:
    for each in sorted(kinds, key=lambda each: each.framework):
        yield _comparison(each.kind.KIND, supports(each), KUEUE.get(each.framework))
        if each.groups is not None:
            yield _comparison(f"{each.kind.KIND}, group", supports(each.groups), KUEUE.get(f"{each.framework}, group"))


def _comparison(name: str, ours: Supports, kueues: Supports | None) -> str:
    if kueues is None:
        cells = ["yes" if getattr(ours, feature) else "no" for feature in _FEATURES]
        return f"| *{name}* | {' | '.join(cells)} |"
    words = {(True, True): "yes =", (False, False): "no =", (True, False): "not Kueue", (False, True): "Kueue only"}
    cells = [words[getattr(ours, feature), getattr(kueues, feature)] for feature in _FEATURES]
    return f"| {name} | {' | '.join(cells)} |"


def _rights(integration: Integration[Any]) -> str:
    """A line for each kind: resources as kubectl names them, each with its verbs."""
    cells = []
    for right in all_rights(integration):
        plural, slash, subresource = right.resource.partition("/")
        group = f".{right.group}" if right.group else ""
        cells.append(f"{', '.join(right.verbs)} `{plural}{group}{slash}{subresource}`")
    return f"| {integration.kind.KIND} | {'; '.join(cells)} |"


def _api_version(integration: Integration[Any]) -> str:
    kind = integration.kind
    return f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION


def main(arguments: list[str]) -> int:
    """Entry of `python -m turnstile.jobs.generate`."""
    match arguments:
        case [kinds, custom, docs, names]:
            Path(kinds).parent.mkdir(parents=True, exist_ok=True)
            Path(kinds).write_text(chart_file(ALL))
            Path(custom).write_text(custom_file())
            Path(docs).write_text(table(ALL))
            Path(names).write_text(names_file(ALL))
            return 0
        case _:
            print(
                "usage: python -m turnstile.jobs.generate KINDS-FILE CUSTOM-FILE DOCS-FILE NAMES-FILE", file=sys.stderr
            )
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
