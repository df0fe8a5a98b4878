"""The pinned control plane that tests, the bench and `make run` use.

A Go module (go.mod) pins every binary; `build` compiles them once into a cache outside the tree; `ControlPlane` starts
them on loopback. Nothing here imports `turnstile`: the bed must be able to judge Turnstile from outside. Never point
any of this at a cluster that matters: etcd runs without fsync and all data ends with the process.
"""

from testbed.client import Api, resource_path
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError, BuildError, ComponentFailed, TestbedError

__all__ = ["Api", "ApiError", "BuildError", "ComponentFailed", "ControlPlane", "TestbedError", "resource_path"]
