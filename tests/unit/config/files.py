"""Words for the tests of the configuration: a file, what it comes to, and what is wrong with it."""

import textwrap
from collections.abc import Collection

from turnstile.api.config import Loaded, Problem, load, of_release
from turnstile.api.errors import InvalidConfiguration

INSTALLATION = of_release("turnstile", "turnstile-system")
BUILT = ("batch/job", "pod")
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
OLD_HEAD = HEAD.replace("v1beta2", "v1beta1")


def loaded(body: str = "", *, head: str = HEAD, feature_gates: str = "", built: Collection[str] = BUILT) -> Loaded:
    """What a file comes to; its first two lines are `head`."""
    text = head + textwrap.dedent(body)
    return load(text, installation=INSTALLATION, frameworks=built, feature_gates=feature_gates)


def faults(body: str, *, head: str = HEAD, feature_gates: str = "") -> list[Problem]:
    """What is wrong with a file."""
    try:
        loaded(body, head=head, feature_gates=feature_gates)
    except InvalidConfiguration as error:
        return list(error.problems)
    return []


def told(body: str, *, head: str = HEAD, feature_gates: str = "") -> list[str]:
    """The same as text."""
    return [str(fault) for fault in faults(body, head=head, feature_gates=feature_gates)]


def warned(body: str, *, head: str = HEAD) -> list[str]:
    """Warnings of a file that holds, and names the job kinds of BUILT if it does not name any itself."""
    if "integrations:" not in body:
        body = f"{textwrap.dedent(body)}\nintegrations: {{frameworks: [{', '.join(BUILT)}]}}"
    return [str(warning) for warning in loaded(body, head=head).warnings]
