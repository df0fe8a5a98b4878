"""Room 4 of the engine: which Workloads are preempted so that another one fits.

Candidates, the classical and the fair search. May import `quota`, `flavors` and `queue`.
"""
