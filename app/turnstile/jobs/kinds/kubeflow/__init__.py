"""The kinds of Kubeflow's training operators, which describe their pods by a map of replica types."""
