"""The manager configuration, `config.kueue.x-k8s.io`: a Kueue file read strictly, defaulted, validated, converted.

`load` is the way in; `loading` has the steps. Everything here is a function of a text: no file is read, no clock, no
API server. Uses of a configuration are wired in `turnstile.cli` and `turnstile.main`. Imports nothing
above `turnstile.api`.
"""

from turnstile.api.config.defaults import Installation, of_release
from turnstile.api.config.document import Problem
from turnstile.api.config.loading import Loaded, differences, load
from turnstile.api.config.v1beta2 import Configuration

__all__ = ["Configuration", "Installation", "Loaded", "Problem", "differences", "load", "of_release"]
