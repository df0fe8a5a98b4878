"""The controller of AppWrapper.

Makes the objects that an AppWrapper holds, follows their pods, and removes or makes them again after failures. Its
webhooks give an AppWrapper its defaults, validate it, and ask whether its user may make what it holds.

The port of its webhooks is fixed and its own management of certificates cannot be switched off, so both are edited. Its
configuration is a ConfigMap.
"""

import json

from testbed.build import Edit
from testbed.client import Json
from testbed.operators.description import Operator, Places

_MODULE = "github.com/project-codeflare/appwrapper"
_MAIN = "cmd/main.go"


def _kustomization(places: Places) -> Json:
    settings = {
        "controllerManager": {
            "health": {"bindAddress": f"127.0.0.1:{places.health_port}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": False,  # there is one replica
        }
    }
    change = [{"op": "replace", "path": "/data/config.yaml", "value": json.dumps(settings)}]
    target = {"kind": "ConfigMap", "name": "appwrapper-operator-config"}
    return {"resources": ["default"], "patches": [{"target": target, "patch": json.dumps(change)}]}


OPERATOR = Operator(
    name="appwrapper",
    module=_MODULE,
    package=f"{_MODULE}/cmd",
    folder="config",
    kustomization=_kustomization,
    arguments=lambda places: [f"--webhook-port={places.webhook_port}"],
    environment=lambda _: {"NAMESPACE": "appwrapper-system"},
    edits=(
        Edit(_MODULE, _MAIN, "flag.Parse()", 'webhookPort := flag.Int("webhook-port", 9443, "")\n\tflag.Parse()'),
        Edit(_MODULE, _MAIN, "Port:    9443,", 'Host: "127.0.0.1", Port: *webhookPort,'),
        Edit(
            _MODULE,
            _MAIN,
            'exitOnError(controller.SetupCertManagement(mgr, cfg.CertManagement, certsReady), "Unable to set up cert '
            'rotation")',
            "close(certsReady)",
        ),
    ),
)
