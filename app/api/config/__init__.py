"""The manager configuration, `config.kueue.x-k8s.io`: a Kueue file read strictly, defaulted, validated, converted.

`load` is the way in; `loading` has the steps. Everything here is a function of a text: no file is read, no clock, no
API server. What Turnstile does with a configuration is wired in `app.cli` and `app.main`. Imports nothing above
`app.api`.
"""

from app.api.config.defaults import Installation, of_release
from app.api.config.document import Problem
from app.api.config.loading import Loaded, differences, load
from app.api.config.v1beta2 import Configuration

__all__ = ["Configuration", "Installation", "Loaded", "Problem", "differences", "load", "of_release"]
