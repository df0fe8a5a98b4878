"""Other releases of Kubernetes than the one that testbed/go.mod pins: a Go module each, built by testbed/build.py."""
