// Pins the definition of ProvisioningRequest. Fetched by testbed/build.py.
module turnstile.dev/testbed/autoscaler

go 1.26.0

require k8s.io/autoscaler/cluster-autoscaler/apis v0.0.0-20240830133931-adfbe7e45277 // indirect
