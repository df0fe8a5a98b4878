"""Limits the connections of a server: how many there are, how long each may take, and which one gives way to another.

Anybody who reaches the port can connect, so connections that are not used must cost the others nothing. Each connection
is in one state, and each state has a deadline. Connections over the limit are not refused: they wait to be accepted
until a place is free. When no place is free, the connection that has been longest in the first state of `State` gives
way, but none does within its first second in that state: a client that sends at all has done so by then. A connection
whose request is being answered never gives way.

Has no I/O: `turnstile.http.listener` accepts and closes the connections.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Final


class State(IntEnum):
    """The state of a connection, in the order in which connections give way."""

    HANDSHAKE = 0  # TLS is not established
    HEAD = 1  # a part of the headers of a request has arrived
    BODY = 2  # the headers of a request have arrived and its body has not, or the body of a refused request
    SILENT = 3  # nothing was sent yet: API servers open spare connections
    IDLE = 4  # waits for the next request
    TRUSTED = 5  # one of the above, and the client has a certificate that the server knows
    ANSWERING = 6  # a request has arrived whole, its answer is not written


DEADLINES: Final = {
    State.HANDSHAKE: 10.0,
    State.HEAD: 30.0,
    State.BODY: 33.0,  # longer than WAIT_SECONDS, TURN_SECONDS and LINGER_SECONDS of bodies together
    State.SILENT: 120.0,
    State.IDLE: 120.0,
    State.TRUSTED: 120.0,
    State.ANSWERING: 30.0,
}
"""Seconds for which a connection may be in a state.

No API server waits for a webhook for longer than 30 s. An unfinished connection is kept as long while there are places:
a client that means harm would only open another one, and a handshake costs more than a connection that is kept.
SILENT and IDLE are longer than the 90 s for which the API server keeps idle connections, so that the API server closes
them first: a review sent while the webhook closes its connection is not retried, and the write under review fails.
For the same reason a server that stops leaves idle connections alone for `idle_seconds` (`turnstile.http.server`).
"""

LIMIT: Final = 1536
"""Connections of one server. The API server opens one for each review in flight, a few hundred at most."""
HANDSHAKES: Final = 512
"""Those of these connections whose TLS handshake has not ended."""
GRACE: Final = 1.0
"""Seconds in a state before which no connection gives way."""
SWEEP_SECONDS: Final = 0.05
"""Seconds between two looks for connections that are past their deadline."""


class Connection:
    """One place. `cut` closes the connection at once; `trusted` is whether its client has a known certificate."""

    __slots__ = ("cut", "since", "state", "trusted")

    def __init__(self, cut: Callable[[], object], since: float) -> None:
        self.cut = cut
        self.since = since
        self.state = State.HANDSHAKE
        self.trusted = False


class Connections:
    """All connections of one server, by state, the longest in its state first."""

    def __init__(
        self,
        *,
        limit: int = LIMIT,
        handshakes: int = HANDSHAKES,
        deadlines: Mapping[State, float] = DEADLINES,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limit = limit
        self._deadlines = deadlines
        self.handshakes = handshakes
        self.dropped: Counter[tuple[State, str]] = Counter()
        """Connections that were closed, by their state and the cause: `full` or `late`."""
        self._clock = clock if clock is not None else lambda: asyncio.get_running_loop().time()
        self._members: dict[State, dict[Connection, None]] = {state: {} for state in State}
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(members) for members in self._members.values())

    def counts(self) -> Iterator[tuple[State, int]]:
        """How many connections are in each state."""
        return ((state, len(members)) for state, members in self._members.items())

    def enter(self, cut: Callable[[], object]) -> Connection:
        """Take a place for a connection that begins its handshake."""
        connection = Connection(cut, self._clock())
        self._members[State.HANDSHAKE][connection] = None
        return connection

    def move(self, connection: Connection, state: State) -> None:
        """The connection now does something else. Without effect once it has left."""
        members = self._members[connection.state]
        if connection not in members:
            return
        del members[connection]
        if connection.trusted and state is not State.ANSWERING:
            state = State.TRUSTED
        connection.state = state
        connection.since = self._clock()
        self._members[state][connection] = None

    def leave(self, connection: Connection) -> None:
        """Give the place back."""
        if self._members[connection.state].pop(connection, connection) is None:
            self._freed.set()

    async def left(self, seconds: float) -> None:
        """Wait until every client has closed its connection, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self):
                    self._freed.clear()
                    await self._freed.wait()

    async def place(self) -> None:
        """Wait until there is a place for one more connection; the connections are asked in their order to give way."""
        while wait := self.make_place():
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._freed.wait()

    def make_place(self) -> float:
        """0 if there is a place, by dropping a connection if need be; else the seconds until one can be dropped."""
        if len(self) >= self.limit:
            candidates = [state for state in State if state is not State.ANSWERING]
        elif len(self._members[State.HANDSHAKE]) >= self.handshakes:
            candidates = [State.HANDSHAKE]
        else:
            return 0.0
        now = self._clock()
        wait = GRACE
        for state in candidates:
            longest = next(iter(self._members[state]), None)
            if longest is None:
                continue
            if now - longest.since >= GRACE:
                self._drop(longest, "full")
                return 0.0
            wait = min(wait, longest.since + GRACE - now)
        return max(wait, 0.001)

    def sweep(self) -> None:
        """Drop every connection that is past the deadline of its state."""
        now = self._clock()
        for state, members in self._members.items():
            late = now - self._deadlines[state]
            while (longest := next(iter(members), None)) is not None and longest.since <= late:
                self._drop(longest, "late")

    def _drop(self, connection: Connection, cause: str) -> None:
        self.dropped[connection.state, cause] += 1
        self.leave(connection)
        connection.cut()
