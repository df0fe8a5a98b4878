"""The reconcilers of Workloads and WorkloadPriorityClasses: checks, time limits, deactivation, requeueing.

Nothing here reserves quota: `controllers.scheduling` does.
"""
