"""Floor 3: the decision engine: queues, quota, flavors, preemption. Pure.

May import `api`. No I/O, no clock, no randomness, no logging: time comes in as an argument, reasons go out as data.
`State` is fed with API objects, whose kinds `intake` lists; `cycle` (or `cycle_steps`, in slices) decides on the heads
of its queues. The rooms are `quota`, `flavors`, `queue`, `preemption` and `cycle`; each may import those before it.
"""

from turnstile.engine.cycle.cycle import Cycle, cycle, cycle_steps
from turnstile.engine.decisions import Decision, Victim
from turnstile.engine.options import Options
from turnstile.engine.state import State

__all__ = ["Cycle", "Decision", "Options", "State", "Victim", "cycle", "cycle_steps"]
