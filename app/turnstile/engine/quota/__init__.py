"""Room 1 of the engine: what Workloads request, what ClusterQueues and Cohorts own, and what is in use of it.

Amounts, the tree of quotas with its usage, the ledger of reservations, shares. May import no other room.
"""
