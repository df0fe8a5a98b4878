"""Real job operators (JobSet's controller and its like) on the bed's control plane.

A folder each: go.mod and go.sum pin the operator, `OPERATOR` says how it is started. What is installed comes out of
the operator's own Go module: the kustomization that its releases are made from, with CRDs, roles and webhooks.
`RunningOperator` changes two things of that: instead of the Deployment there is a process beside the cluster, with the
rights of the Deployment's service account, and webhooks are called at an address of this host.
"""

from testbed.operators.appwrapper import OPERATOR as APPWRAPPER
from testbed.operators.argo import OPERATOR as ARGO
from testbed.operators.description import Operator, Places
from testbed.operators.jobset import OPERATOR as JOBSET
from testbed.operators.kserve import OPERATOR as KSERVE
from testbed.operators.kuberay import OPERATOR as KUBERAY
from testbed.operators.lws import OPERATOR as LWS
from testbed.operators.mpioperator import OPERATOR as MPI_OPERATOR
from testbed.operators.notebook import OPERATOR as NOTEBOOK
from testbed.operators.running import RunningOperator
from testbed.operators.sparkoperator import OPERATOR as SPARK_OPERATOR
from testbed.operators.tekton import OPERATOR as TEKTON
from testbed.operators.trainer import OPERATOR as TRAINER
from testbed.operators.trainingoperator import OPERATOR as TRAINING_OPERATOR

_ALL = (
    APPWRAPPER,
    ARGO,
    JOBSET,
    KSERVE,
    KUBERAY,
    LWS,
    MPI_OPERATOR,
    NOTEBOOK,
    SPARK_OPERATOR,
    TEKTON,
    TRAINER,
    TRAINING_OPERATOR,
)

OPERATORS = {operator.name: operator for operator in _ALL}
"""All there are, by name."""

__all__ = ["OPERATORS", "Operator", "Places", "RunningOperator"]
