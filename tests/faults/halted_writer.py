"""A leader that is stopped right before its write goes out, as its own process.

    python -m tests.faults.halted_writer SERVER NAMESPACE JOB LOOP

It holds a term of `SPAN` seconds, decides to label the Job, and stops itself (SIGSTOP) when its transport asks for
credentials: after the executor has asked the fence, before there is a connection. It prints what came of the write.
"""

import asyncio
import json
import os
import signal
import ssl
import sys

import uvloop

from turnstile.api.core import Job
from turnstile.api.errors import NotLeading, WireError
from turnstile.controllers.runtime.actions import Patch, ReconcileResult
from turnstile.controllers.runtime.executor import Executor
from turnstile.kube import auth
from turnstile.kube.events import Recorder
from turnstile.kube.fence import Fence, monotonic
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.kube.workqueue import WorkQueue

SPAN = 0.5


class Halting:
    """Credentials that stop the process when they are asked for, once they are armed."""

    armed = False

    def authorization(self) -> str:
        """As `Credentials`."""
        if self.armed:
            self.armed = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return ""

    async def refresh(self, context: ssl.SSLContext | None) -> bool:
        """As `Credentials`."""
        return False


async def main(server: str, namespace: str, name: str) -> None:
    """Write one label."""
    credentials = Halting()
    async with Transport(auth.Access(server=server, tls=None, credentials=credentials)) as transport:
        await transport.get(Job, name, namespace)  # a connection is open and idle from now on
        fence = Fence(clock=monotonic, epoch=1, renewed_at=monotonic(), span=SPAN)
        executor = Executor(transport, {Job: Store()}, Recorder(transport, instance="halted"), fence=fence)
        body = json.dumps({"metadata": {"labels": {"l": "late"}}}).encode()
        credentials.armed = True
        try:
            await executor.carry_out(Job, "key", ReconcileResult([Patch(Job, namespace, name, body)]), WorkQueue())
        except (NotLeading, WireError) as error:
            print(f"not written: {type(error).__name__}: {error}", flush=True)
        else:
            print("written", flush=True)


if __name__ == "__main__":
    *arguments, loop = sys.argv[1:]
    run = uvloop.run if loop == "uvloop" else asyncio.run
    run(main(*arguments))
