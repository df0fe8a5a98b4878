"""The Pod that is queued by itself, and the group of Pods that is queued as one job."""
