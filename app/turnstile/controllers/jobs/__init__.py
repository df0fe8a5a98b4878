"""The reconcilers of jobs, groups and serving sets: their Workloads, their start, their stop, their end.

Nothing here reserves quota: `controllers.scheduling` does.
"""
