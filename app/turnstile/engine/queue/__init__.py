"""Room 3 of the engine: the Workloads that wait.

The heap and the inadmissible Workloads of each ClusterQueue, their order, when they are tried again. May import
`quota` and `flavors`.
"""
