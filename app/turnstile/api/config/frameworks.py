"""How the configuration file names job kinds in `integrations.frameworks`. Must never list the kinds, which
`turnstile.api.config.kinds` does."""

from typing import Final

FRAMEWORKS_PATH: Final = ("integrations", "frameworks")
"""The field of the configuration file that names the enabled ones."""

DEFAULT: Final = ("batch/job",)
"""The frameworks of a file without that field, as in Kueue."""

GATED: Final = {"sparkoperator.k8s.io/sparkapplication": "SparkApplicationIntegration"}
"""Feature gates without which a framework may not be named."""

WITHOUT_MULTIKUEUE: Final = frozenset(("deployment",))
"""Frameworks whose jobs have no adapter of their own for dispatch to other clusters."""


def is_kind(text: str) -> bool:
    """Whether a text has the form `Kind.version.group`."""
    return text.count(".") >= 2


def external_name(text: str) -> tuple[str, str, str]:
    """Group, version and kind of `Kind.version.group`."""
    kind, _, rest = text.partition(".")
    version, _, group = rest.partition(".")
    return group, version, kind


def group_kind(text: str) -> tuple[str, str]:
    """Group and kind of `Kind.version.group`."""
    kind, _, rest = text.partition(".")
    return rest.partition(".")[2], kind
