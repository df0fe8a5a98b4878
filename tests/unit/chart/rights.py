"""Writes what the rendered roles of both accounts say into docs/install.md: `python -m tests.unit.chart.rights`."""

import re
import subprocess
from collections.abc import Iterable, Iterator

import yaml

from testbed import build
from testbed.chart import with_image
from tests.documents import ROOT
from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest
from turnstile.jobs.generate import below
from turnstile.jobs.registry import ALL

PAGE = ROOT / "docs" / "install.md"
KINDS = frozenset((kind.GROUP, kind.PLURAL) for each in ALL for kind in (each.kind, *below(each)) if kind.GROUP)
"""Job kinds and what is counted below them, whose rights the generated table of kinds has. Pods, of the core group, the
page names itself."""
BEGIN, END = "<!-- rights of the chart's default values -->\n", "<!-- end of rights -->\n"


def table(manifests: Iterable[Manifest]) -> str:
    """The rights of the two accounts, a line for each set of verbs; exactly what their roles allow beside job kinds."""
    roles = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "ClusterRole"}
    local = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "Role"}
    lines = ["| account | may | what |", "|---|---|---|"]
    for account in ("turnstile-controller", "turnstile-webhook"):
        for where, role in (("", roles[account]), (", in its own namespace", local[account])):
            lines += [
                f"| `{account}` | {verbs}{where} | {', '.join(dict.fromkeys(what))} |"
                for verbs, what in _gathered(role).items()
                if what
            ]
    return "\n".join(lines) + "\n"


def _gathered(role: Manifest) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rule in role["rules"]:
        found.setdefault(", ".join(rule["verbs"]), []).extend(_resources(rule))
    return found


def _resources(rule: Manifest) -> Iterator[str]:
    """As kubectl names them: `jobs.batch/status`; the names of objects follow where only these are allowed."""
    names = rule.get("resourceNames", [])
    suffix = f" ({', '.join(f'`{name}`' for name in names)} only)" if names else ""
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            plural, slash, subresource = resource.partition("/")
            if (group, plural) not in KINDS:
                yield f"`{plural}{'.' if group else ''}{group}{slash}{subresource}`{suffix}"


def of_kinds(manifests: Iterable[Manifest], account: str) -> set[tuple[str, str, str]]:
    """What an account may do with job kinds: group, resource and verb."""
    (role,) = (each for each in manifests if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", account))
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if (group, resource.partition("/")[0]) in KINDS
    }


def written() -> str:
    """The table on the page."""
    found = re.search(re.escape(BEGIN) + "(.*?)" + re.escape(END), PAGE.read_text(), re.DOTALL)
    return found[1] if found else ""


def main() -> None:
    """Render the chart and write the table."""
    command = [build.ensure()["helm"], *with_image(("template", "turnstile", str(CHART), "--namespace", NAMESPACE))]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    made = table([manifest for manifest in yaml.safe_load_all(rendered) if manifest is not None])
    text = PAGE.read_text()
    PAGE.write_text(text.replace(BEGIN + written() + END, BEGIN + made + END))


if __name__ == "__main__":
    main()
