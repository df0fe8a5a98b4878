"""A stand-in for the notebook controller of Kubeflow, whose Go module is not to be had: Notebook.

The CRD is written by hand and checks less. `controller.py` makes the StatefulSet and the Service of a Notebook as the
notebook controller does: labels and annotations of a Notebook are those of its pods, not of its StatefulSet, and the
annotation `kubeflow-resource-stopped` scales it to nothing. It stops no idle Notebooks, and tells of no pod's state.
"""

from testbed.operators.description import StandIn, python_environment

OPERATOR = StandIn(
    name="notebook",
    module="",
    package="",
    folder="",
    kustomization="manifests",
    arguments=lambda places: ["-m", f"{__name__}.controller", str(places.health_port)],
    environment=lambda _: python_environment(),
)
