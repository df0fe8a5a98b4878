"""Waits for the older versions of our kinds: the leader lets them be served, which restarts their storage."""

from app.api.kinds import KINDS
from testbed import Api, ApiError
from testbed.client import wait_until


def wait_served(api: Api, *, timeout: float = 30) -> None:
    """Return once every version of every kind answers; until then requests may get a 429."""
    paths = [
        f"/apis/{kinds.stored.GROUP}/{version}/{kinds.stored.PLURAL}"
        for kinds in KINDS
        for version in (kinds.stored.VERSION, *kinds.older)
    ]
    missing = paths

    def look() -> bool:
        nonlocal missing
        missing = [path for path in paths if not _answers(api, path)]
        return not missing

    wait_until(look, timeout=timeout, describe=lambda: f"not served: {missing}")


def _answers(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError:
        return False
    return True
