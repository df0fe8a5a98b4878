"""A write whose outcome has to be known: it is repeated until the API server has answered.

Only the leader uses this. Must never decide what is written.
"""

import asyncio
import random
from collections.abc import Callable

from turnstile.api.errors import NotFound, NotLeading
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.refusals import IN_DOUBT, RETRY
from turnstile.kube.gate import Rank


async def settle(
    executor: Executor, key: str, patch: Callable[[Workload], Patch | None], rank: Rank, *, priority: int = 0
) -> tuple[Workload | None, Exception | None]:
    """Write until the outcome is known. Returns the Workload as the API server has it (None if it is gone), and the
    server's refusal if that is why nothing was written. An error of Turnstile itself ends like a refusal: the
    Workload is read, and shows whether anything was written.

    A write without an answer may still arrive after any later read of the object. So the write is repeated with the
    same precondition instead: the API server refuses one of the two, which reveals the outcome. While the repeated
    write fails too, retries go on and the ledger's assumption stands.
    """
    attempt = 0
    while True:
        try:
            return await executor.update(Workload, key, patch, rank=rank, priority=priority), None
        except NotFound:
            return None, None
        except NotLeading:
            raise
        except Exception as error:
            executor.report(Workload, key, error)
            refused = error
        if not isinstance(refused, IN_DOUBT):
            try:
                return await executor.refresh(Workload, key), refused
            except NotFound:
                return None, None
            except NotLeading:
                raise
            except Exception as error:
                executor.report(Workload, key, error)
        await asyncio.sleep(RETRY.delay(attempt, random.random))
        attempt += 1
