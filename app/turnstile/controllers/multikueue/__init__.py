"""MultiKueue on the manager: Workloads with an admission check named `kueue.x-k8s.io/multikueue` run on other clusters.

The manager reserves its own quota first. Then it sends the bare Workload to the clusters that are nominated; the first
one that the manager sees to have admitted it has won, gets the job, and the other clusters lose the Workload. The
status of the job that runs there is copied back until it ends.

`manager` decides what is written to the manager, `worker` what is written to one worker cluster; both are pure, and
read a worker only from the stores that its watches fill. `clusters` holds the connections, one for each
MultiKueueCluster, each with a transport, stores, work queue and gate of its own: a worker that fails or is slow delays
nothing but what is meant for it. `orders` makes the writes there, `workloads` those on the manager. `dispatchers`
nominates, `fit` says which worker has room, `openings` which may preempt; `quotas` adds up the quotas of workers,
`kubeconfigs` says what a kubeconfig may contain, `checks` decides about AdmissionChecks and MultiKueueClusters. Nothing
here reserves or releases quota: that is done by the states of the checks, as for every other check.

Names, messages and reasons are those of Kueue's pkg/controller/admissionchecks/multikueue.
"""
