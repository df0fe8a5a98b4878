"""Reads a configuration file; `process.configured` says what each option means to the process. Must never write."""

import json
import sys
from pathlib import Path

from turnstile.api.config import Loaded, features, load, of_release
from turnstile.api.config.frameworks import GATED
from turnstile.api.config.v1beta2 import API_VERSION, KIND
from turnstile.api.errors import InvalidValue
from turnstile.jobs import registry


def read_configuration(path: Path | None, *, name: str, namespace: str, feature_gates: str = "") -> Loaded:
    """The configuration in a file, or without a file with defaults and all frameworks whose feature gates are on, for
    the release `name`.

    Raises InvalidConfiguration with every fault of the text, InvalidValue if the file cannot be read.
    """
    frameworks = [integration.framework for integration in registry.ALL]
    if path is None:
        enabled = [each.framework for each in registry.ALL if GATED.get(each.framework) in (None, *_on(feature_gates))]
        everything = {"apiVersion": API_VERSION, "kind": KIND, "integrations": {"frameworks": enabled}}
        text = json.dumps(everything)
    else:
        text = text_of(path, "--config")
    return load(text, installation=of_release(name, namespace), frameworks=frameworks, feature_gates=feature_gates)


def text_of(path: Path, option: str) -> str:
    """The text of a file that an option names; - is standard input. Raises InvalidValue."""
    try:
        return sys.stdin.read() if path == Path("-") else path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValue(option, str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidValue(option, str(path), "is not UTF-8 text") from None


def _on(feature_gates: str) -> frozenset[str]:
    """The gates that the flag leaves on; a flag that cannot be read switches none."""
    try:
        return features.enabled(features.parse_flag(feature_gates))
    except ValueError:
        return features.enabled({})  # `load` reports the fault
