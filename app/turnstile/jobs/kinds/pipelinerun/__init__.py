"""The PipelineRun of Tekton, and the number of pods that the tasks of a run need at a time."""
