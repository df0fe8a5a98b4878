"""Floor 5: the flight recorder: what happened to each Workload, kept in a file that outlives the objects.

`facts` derives facts from what the leader sees, `writer` stores them from a thread of its own, `reading` reads them
back, and `accounts` adds them up. May import the floors below. Must never decide anything, and never hold up the
process that decides.
"""
