"""Two candidates for one Lease whose requests are lost, delayed and swallowed at random: never may both write."""

import asyncio
import random
import time

import pytest

from testbed import ControlPlane
from tests.faults.proxy import Exchange, Fault, Proxy, black_hole, delay, drop, lose_answer, passed
from turnstile.kube import auth
from turnstile.kube.fence import Fence
from turnstile.kube.lease import Elector
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

STORM_SECONDS = 12.0
"""At least: on a busy machine the storm goes on until a second term has begun or one was taken up again."""
CALM_SECONDS = 45.0
"""From the end of the storm until one of the two leads, at most, however busy the machine is."""


class Weather:
    """What happens to each request of one candidate: spells of all but nothing, of some trouble and of no answer."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._until = 0.0
        self._faults: list[Fault] = [passed]
        self.over = False

    async def __call__(self, exchange: Exchange) -> bool:
        """Deal with a request."""
        now, dice = time.monotonic(), self._dice
        if now > self._until:
            self._until = now + dice.uniform(0.3, 2.5)
            late = delay(dice.uniform(0.05, 1.5))
            self._faults = dice.choice([[passed], [passed, drop, lose_answer, late], [lose_answer, late], [black_hole]])
        return await (passed if self.over else dice.choice(self._faults))(exchange)


class Candidate:
    """An elector that notes its terms, and who could write when each began."""

    def __init__(self, transport: Transport, namespace: str, identity: str, fences: list[Fence]) -> None:
        self.elector = Elector(
            transport,
            namespace=namespace,
            name="contested",
            identity=identity,
            lease_duration=2,
            renew_deadline=1.0,
            renew_period=0.2,
            retry_period=0.1,
        )
        self._fences = fences

    async def lead(self, fence: Fence) -> None:
        """Lead until cancelled."""
        self._fences.append(fence)
        assert at_most_one(self._fences)
        await asyncio.Event().wait()


def at_most_one(fences: list[Fence]) -> bool:
    """Whether at most one fence is open, and no later term has begun than that one's."""
    opened = [fence for fence in fences if fence.remaining > 0]
    return len(opened) <= 1 and all(fence.epoch == max(each.epoch for each in fences) for fence in opened)


@pytest.mark.parametrize("seed", range(3))
async def test_never_two_may_write(schema_server: ControlPlane, seed: int) -> None:
    """Terms are suspended, go on and are taken over; when the storm is over one of the two writes, and goes on so."""
    namespace = schema_server.namespace("storm")
    dice = random.Random(seed)
    access = await auth.connect(str(schema_server.kubeconfig()))
    fences: list[Fence] = []
    async with (
        Proxy(access) as one,
        Proxy(access) as two,
        Transport(one.access) as first,
        Transport(two.access) as second,
    ):
        weathers = [Weather(random.Random(dice.random())) for _ in range(2)]
        for proxy, weather in zip((one, two), weathers, strict=True):
            proxy.plan(weather, times=float("inf"))
        candidates = [Candidate(each, namespace, name, fences) for name, each in (("first", first), ("second", second))]
        runs = [asyncio.ensure_future(each.elector.run(each.lead)) for each in candidates]
        try:
            calm_at = time.monotonic() + STORM_SECONDS
            resumed = 0
            suspended: set[int] = set()
            while time.monotonic() < calm_at or len(fences) + resumed <= 1:
                assert at_most_one(fences), seed
                now = {fence.epoch for fence in fences if fence.suspended}
                resumed += len([fence for fence in fences if fence.epoch in suspended and fence.remaining > 0])
                suspended = now
                await asyncio.sleep(0.001)
            for weather in weathers:
                weather.over = True
            async with asyncio.timeout(CALM_SECONDS):
                while not any(fence.remaining > 0 for fence in fences):
                    assert at_most_one(fences), seed
                    await asyncio.sleep(0.001)
            assert not any(run.done() for run in runs), seed
        finally:
            for run in runs:
                run.cancel()
            await asyncio.wait(runs)
