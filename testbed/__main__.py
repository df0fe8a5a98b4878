"""Commands: `build` compiles the tools, `up` starts a bare control plane and keeps it until Ctrl-C."""

import argparse
import signal
import sys
from collections.abc import Sequence

from testbed import autoscaler, build
from testbed.controlplane import ControlPlane
from testbed.errors import TestbedError
from testbed.operators import OPERATORS, Operator


def main() -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="build what is missing and print where it is")
    builder.add_argument(
        "--operators",
        nargs="*",
        metavar="NAME",
        choices=list(OPERATORS),
        help=f"build job operators instead: these, or all of {', '.join(OPERATORS)}",
    )
    up = commands.add_parser("up", help="start a bare control plane, print its kubeconfig, stay until Ctrl-C")
    up.add_argument("--nodes", type=int, default=2, help="simulated nodes (default: 2)")
    up.add_argument("--pod-seconds", type=float, help="end a Job's pods after so many seconds (default: never)")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            for built in _asked(arguments.operators):
                print(built.ensure().directory)
        else:
            _up(arguments.nodes, arguments.pod_seconds)
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _asked(operators: list[str] | None) -> Sequence[build.Module | Operator]:
    """What `build` is to build: if no operators are asked for, the bed's own tools and the autoscaler's definition."""
    if operators is None:
        return [*build.modules(), autoscaler.MODULE]
    return [OPERATORS[name] for name in operators or OPERATORS]


def _up(node_count: int, pod_seconds: float | None) -> None:
    with ControlPlane(pod_seconds=pod_seconds) as cp:
        for number in range(node_count):
            cp.add_node(f"node-{number}")
        print(f"export KUBECONFIG={cp.kubeconfig()}")
        print(f"export PATH={cp.tools['kubectl'].parent}:$PATH")
        print(f"# logs: {cp.log('kube-apiserver').parent}", "# Ctrl-C ends it", sep="\n", flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        while True:
            signal.pause()


if __name__ == "__main__":
    sys.exit(main())
