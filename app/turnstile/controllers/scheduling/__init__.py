"""Runs the engine's cycles and writes their decisions: reservations, evictions, and the reasons why Workloads wait.

Only the leader runs this.
"""
