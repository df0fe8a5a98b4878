"""A leader as its own process, to be killed, stopped and terminated by the tests of the Lease.

    python lease_holder.py KUBECONFIG NAMESPACE NAME IDENTITY

While it leads it writes its identity into the ConfigMap NAME every few milliseconds, each write after a check of the
fence. It prints what happens: `leading EPOCH`, `refused WHY` when the fence keeps it from writing, `ended`.
"""

import asyncio
import signal
import sys
from typing import Any

from turnstile.api.core import Namespace
from turnstile.api.errors import Conflict, NotLeading
from turnstile.kube.fence import Fence
from turnstile.kube.lease import Elector
from turnstile.kube.transport import Transport

PAUSE = 0.02
QUICK: dict[str, Any] = {"lease_duration": 4, "renew_deadline": 3.0, "renew_period": 1.0, "retry_period": 0.4}
"""Times of an election in which a silent leader is followed within 5 s."""


class ConfigMap(Namespace):
    """v1 ConfigMap."""

    KIND = "ConfigMap"
    PLURAL = "configmaps"
    NAMESPACED = True

    data: dict[str, str] = {}  # noqa: RUF012


def say(line: str) -> None:
    """One line to the test."""
    print(line, flush=True)


async def main(kubeconfig: str, namespace: str, name: str, identity: str) -> None:
    """Campaign and lead until SIGTERM."""
    async with await Transport.connect(kubeconfig) as transport:

        async def write(fence: Fence) -> None:
            seen = await transport.get(ConfigMap, name, namespace)
            body = {
                "metadata": {"resourceVersion": seen.metadata.resource_version},
                "data": {"writer": identity, "epoch": str(fence.epoch)},
            }
            try:
                fence.check()
            except NotLeading as refused:
                say(f"refused {refused}")
                raise
            await transport.patch(ConfigMap, name, namespace, body, retry="never")

        async def lead(fence: Fence) -> None:
            say(f"leading {fence.epoch}")
            try:
                while True:
                    try:
                        await write(fence)
                    except Conflict:
                        continue
                    await asyncio.sleep(PAUSE)
            except asyncio.CancelledError:
                await write(fence)  # what a careless clean-up would do
                raise

        elector = Elector(transport, namespace=namespace, name=name, identity=identity, **QUICK)
        campaign = asyncio.ensure_future(elector.run(lead))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, campaign.cancel)
        try:
            await campaign
        except asyncio.CancelledError:
            say("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
