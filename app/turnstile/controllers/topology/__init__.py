"""Puts the pods of admitted Workloads onto the domains of their topology assignments.

`ranks` decides which pod goes to which domain, `ungater` reads the pods of a Workload and lifts their topology gates.
Nothing here decides where pods may be put: the engine does, and the assignment says it.
"""
