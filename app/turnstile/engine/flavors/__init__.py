"""Room 2 of the engine: the flavors of a Workload.

Which flavors suit its pods, how well their quota does, where the search stops. May import `quota`.
"""
