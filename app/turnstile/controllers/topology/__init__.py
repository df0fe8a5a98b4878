"""Puts the pods of admitted Workloads onto the domains of their topology assignments, and finds nodes that have failed.

`ranks` decides which pod goes to which domain, `ungater` reads the pods of a Workload and lifts their topology gates,
`failures` says which nodes of an assignment have failed. Nothing here decides where pods may be put, or put instead:
the engine does, and the assignment says it.
"""
