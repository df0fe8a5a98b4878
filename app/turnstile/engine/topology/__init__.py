"""Topology: nodes and the domains that they form, what is free in them, and places for the pods of pod sets.

Knows no queue, no quota and no Workload. Imports `api`, and of the engine options, pace and reasons.
"""
