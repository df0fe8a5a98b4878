"""Questions to the page in the cluster, for users whose own rights do not suffice to answer them.

The page reads all that decisions depend on, and leaves out the names that its asker may not see. Must never write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnstile.api.errors import ApiError, TurnstileError
from turnstile.api.names import INSIGHT_GROUP, INSIGHT_VERSION

if TYPE_CHECKING:
    from turnstile.kube.transport import Transport

SECONDS: Final = 60.0
"""The API server gives a question up after so long."""
_NO_PAGE: Final = (403, 404, 503)
"""Codes of an API server without a page, with one that is not available, and of a page that this user may not ask."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a namespace: `explain`, `when`, `what-if`, `timeline` or `usage`, with its parameters. One with
    a body (manifests in YAML) is sent by POST."""

    what: str
    namespace: str
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: str | None = None

    @property
    def path(self) -> str:
        """The path below the API server."""
        return f"/apis/{INSIGHT_GROUP}/{INSIGHT_VERSION}/namespaces/{self.namespace}/{self.what}"


async def ask(transport: "Transport", question: Question) -> bytes | None:
    """The answer as JSON; None if the cluster serves no page, or none that this user may ask. Raises
    TurnstileError for a question that is wrong, and ApiError for one that is not answered."""
    given = {name: tuple(each for each in values if each) for name, values in question.parameters.items()}
    params = {name: values for name, values in given.items() if values}
    method, body = ("GET", None) if question.body is None else ("POST", question.body.encode())
    try:
        return await transport.request(
            method,
            question.path,
            params=params,
            body=body,
            content_type="application/yaml",
            timeout=SECONDS,
            retry="never",
        )
    except ApiError as error:
        if error.code in _NO_PAGE:
            return None
        if error.code == 400:
            raise TurnstileError(error.message) from None
        raise
