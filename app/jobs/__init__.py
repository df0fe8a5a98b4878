"""Floor 4: one adapter a job kind, and what all kinds share: pod sets, names, the Workload made for a job.

Pure functions on decoded structs: an adapter says what a job is and what to write to start or stop it, and writes
nothing. May import `api` and the floors between; never `controllers` or `webhooks`. A new kind is one module here and
one line in `table`.
"""
