"""The pods that hold quota, the Workload they are charged to, and how long stopped pods may take to end.

Nothing here starts or stops a job.
"""
