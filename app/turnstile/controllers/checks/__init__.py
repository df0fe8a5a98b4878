"""The controller of admission checks named `kueue.x-k8s.io/provisioning-request`: capacity from a cluster autoscaler.

For each Workload that holds quota and has such a check it creates a ProvisioningRequest with its PodTemplates, and sets
the state of the check to the answer of the autoscaler. `requests` builds what is created, `states` translates the
answer, `checks` decides about the AdmissionChecks themselves, `workloads` about one Workload. Nothing here reserves or
releases quota: `controllers.workloads.workload` evicts, deactivates and admits by the states of the checks.

Names, messages and the order of the rules are those of Kueue's pkg/controller/admissionchecks/provisioning.
"""
