"""Floor 4: one integration for each job kind, and what all kinds share: pod sets, names, the Workload of a job.

Pure functions on decoded structs: an integration describes a job and returns the writes that start or stop it, but
never sends them. May import `api` only; never `engine`, `kube`, `http`, `controllers` or `webhooks`. A new kind is one
module in `kinds` and one line in `registry`.
"""
