"""The statuses and figures of ClusterQueues, LocalQueues and Cohorts, default queues, and finalizers of objects in use.

Nothing here admits a Workload.
"""
