"""The client for scripts and notebooks: each call waits for its answer.

The calls of AsyncClient run in an event loop of a thread of their own, because a notebook has a loop that runs already.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from turnstile.client.asynchronous import AsyncClient
from turnstile.client.standing import Standing, State
from turnstile.client.submitted import Submitted

T = TypeVar("T")


class Client:
    """A connection to a cluster; close it, or use it in `with`. Parameters and errors are those of AsyncClient."""

    def __init__(
        self, *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turnstile-client", daemon=True)
        self._thread.start()
        self._client = AsyncClient(kubeconfig=kubeconfig, context=context, namespace=namespace)
        try:
            self._do(self._client.__aenter__())
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. May be called twice."""
        if self._thread.is_alive():
            self._do(self._client.__aexit__(None, None, None))
            self._end()

    @property
    def namespace(self) -> str:
        """The namespace of jobs that name none."""
        return self._client.namespace

    def submit(self, manifest: Mapping[str, Any], *, queue: str = "") -> Submitted:
        """Create a job from its manifest (see `container_job`), in `queue` if one is given."""
        return self._do(self._client.submit(manifest, queue=queue))

    def standing(self, job: Submitted) -> Standing:
        """How the job stands now."""
        return self._do(self._client.standing(job))

    def explain(self, job: Submitted) -> str:
        """Why the job waits, or how it ended, in a sentence. `turnstile explain` says more, with more rights."""
        return self._do(self._client.explain(job))

    def watch(self, job: Submitted) -> Generator[Standing, None, None]:
        """How the job stands, each time that this changes, until it has ended."""
        return self._each(self._client.watch(job))

    def follow(self, jobs: Iterable[Submitted]) -> Generator[dict[Submitted, Standing], None, None]:
        """How several jobs stand, each time that this changes for one of them, until all have ended."""
        return self._each(self._client.follow(jobs))

    def wait(self, job: Submitted, *, until: State | None = None, timeout: float | None = None) -> Standing:
        """Wait until the job has ended, or is admitted with `until=State.ADMITTED`. Raises TimeoutError after `timeout`
        seconds."""
        return self._do(self._client.wait(job, until=until, timeout=timeout))

    def cancel(self, job: Submitted) -> None:
        """Delete the job with its pods. One that is gone already is none to complain about."""
        self._do(self._client.cancel(job))

    def logs(self, job: Submitted, *, follow: bool = True) -> Generator[str, None, None]:
        """The lines that the pods of a batch Job write, pod after pod; with `follow` until the job has ended, or some
        seconds later if a log does not end with it. A line is held in memory until its end."""
        return self._each(self._client.logs(job, follow=follow))

    def exit_code(self, job: Submitted) -> int | None:
        """The exit code of the pods of a batch Job that have ended: the largest of all containers. None if none has."""
        return self._do(self._client.exit_code(job))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread; an interrupt here ends it there."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _each(self, values: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        async def following() -> tuple[T, ...]:
            async for value in values:
                return (value,)
            return ()

        async def ended() -> None:
            await values.aclose()

        try:
            while found := self._do(following()):
                yield found[0]
        finally:
            self._do(ended())

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
