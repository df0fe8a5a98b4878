"""Generates the job kinds' data for the chart and the documentation from the registry: `make generate`.

`python -m app.jobs.generate KINDS-FILE CUSTOM-FILE DOCS-FILE`. The chart renders RBAC rules, webhook entries and user
roles from KINDS-FILE, and from CUSTOM-FILE together with each entry of `integrations.customKinds`; DOCS-FILE is the
table of kinds. Must never write anything that a kind does not declare.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from app.api.config.customkinds import CustomKind
from app.jobs.bases.configured import ConfiguredJobs
from app.jobs.integration import Integration
from app.jobs.registry import ALL

GENERATED: Final = "made by `make generate` from app/jobs: change it there"


def declaration(integration: Integration[Any]) -> dict[str, Any]:
    """A kind's entry in the chart's list of kinds."""
    kind, asked = integration.kind, integration.asked
    return {
        "framework": integration.framework,
        "group": kind.GROUP,
        "version": kind.VERSION,
        "kind": kind.KIND,
        "plural": kind.PLURAL,
        "webhookPath": integration.webhook_path,
        "gate": integration.gate,
        "watched": integration.watched,
        "needs": list(integration.needs),
        "defaultedOn": sorted(integration.defaulted_on),
        "defaulting": [{"name": name, "expression": text} for name, text in asked.defaulting.items()],
        "defaultingUnlessAll": asked.defaulting_unless_all,
        "validating": [{"name": name, "expression": text} for name, text in asked.validating.items()],
        "rights": [
            {
                "group": kind.GROUP if right.group is None else right.group,
                "resource": right.resource,
                "verbs": list(right.verbs),
            }
            for right in integration.rights
        ],
    }


def chart_file(kinds: Iterable[Integration[Any]]) -> str:
    """The chart's list of kinds."""
    declared = [declaration(each) for each in kinds]
    return f"# {GENERATED}\n" + yaml.safe_dump(declared, sort_keys=False, width=120)


def custom_file() -> str:
    """The part of a kind's declaration that all `customKinds` share; the rest comes from each entry."""
    described = declaration(ConfiguredJobs(CustomKind(framework="f", group="g", version="v", kind="K", plural="p")))
    own = ("framework", "group", "version", "kind", "plural", "webhookPath", "rights")
    shared = {key: value for key, value in described.items() if key not in own}
    return f"# {GENERATED}\n" + yaml.safe_dump(shared, sort_keys=False, width=120)


def table(kinds: Iterable[Integration[Any]]) -> str:
    """The documentation's table of kinds."""
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
        )
    )


def _api_version(integration: Integration[Any]) -> str:
    kind = integration.kind
    return f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION


def main(arguments: list[str]) -> int:
    """Entry of `python -m app.jobs.generate`."""
    match arguments:
        case [kinds, custom, docs]:
            Path(kinds).parent.mkdir(parents=True, exist_ok=True)
            Path(kinds).write_text(chart_file(ALL))
            Path(custom).write_text(custom_file())
            Path(docs).write_text(table(ALL))
            return 0
        case _:
            print("usage: python -m app.jobs.generate KINDS-FILE CUSTOM-FILE DOCS-FILE", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
