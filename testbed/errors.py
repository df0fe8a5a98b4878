"""Every error of the test bed.

TestbedError
├── BuildError         a tool cannot be built; says what to install or change
├── ComponentFailed    a process of the control plane ended or is not ready in time; carries the end of its log
├── WaitTimeout        a condition did not come true in time; shows what was seen last
└── ApiError           the API server answered with a Status
"""


class TestbedError(Exception):
    """Root of the tree."""

    __test__ = False  # the name begins like a test class; pytest must not collect it


class BuildError(TestbedError):
    """A pinned tool is missing and cannot be built."""


class ComponentFailed(TestbedError):
    """A process ended by itself, answered with failure or was not ready in time."""


class WaitTimeout(TestbedError):
    """A condition did not come true within its deadline."""


class ApiError(TestbedError):
    """The API server refused. `code` is the HTTP status, `reason` the machine word (`NotFound`)."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
