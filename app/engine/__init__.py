"""Floor 3: the decision engine: queues, quota, flavors, preemption. Pure.

May import `api`. No I/O, no clock, no randomness, no logging: time comes in as an argument, reasons go out as data.
"""
