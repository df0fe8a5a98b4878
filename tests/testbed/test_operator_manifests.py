"""What is made of the manifests that an operator's module carries."""

import base64
import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.build import Edit, Module, Tool
from testbed.errors import BuildError
from testbed.operators import OPERATORS
from testbed.operators.description import StandIn
from testbed.operators.manifests import at_loopback, read, through_services

RENDERED = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trains.example.com}
spec:
  group: example.com
  names: {kind: Train}
  conversion:
    strategy: Webhook
    webhook:
      clientConfig: {service: {name: webhook, namespace: trains, path: /convert}}
      conversionReviewVersions: [v1]
---
apiVersion: v1
kind: Namespace
metadata: {name: trains}
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: trains}
spec: {ports: [{port: 443}]}
---
apiVersion: example.com/v1
kind: Train
metadata: {name: thomas}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: trains}
spec: {template: {spec: {serviceAccountName: driver}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: trains}
webhooks:
- name: train.example.com
  clientConfig: {service: {name: webhook, namespace: trains, path: /mutate}}
  failurePolicy: Fail
"""


def test_documents_are_sorted() -> None:
    """The Deployment is set apart, and says whose rights the process has; so are objects of the operator's kinds."""
    manifests = read(RENDERED)
    assert [document["kind"] for document in manifests.definitions] == ["CustomResourceDefinition"]
    assert [document["kind"] for document in manifests.objects] == ["Train"]
    assert [document["kind"] for document in manifests.others] == [
        "Namespace",
        "Service",
        "MutatingWebhookConfiguration",
    ]
    assert (manifests.namespace, manifests.service_account()) == ("trains", "driver")
    assert manifests.service_account("manager") == "driver"
    assert manifests.webhook_paths() == ["/mutate"]


def test_webhooks_are_called_at_loopback() -> None:
    """Only the address and whom to trust change, in webhook configurations and in conversions of CRDs."""
    manifests = read(RENDERED)
    definition, _, _, webhooks = (
        at_loopback(document, port=4711, authority=b"ca") for document in (*manifests.definitions, *manifests.others)
    )
    bundle = base64.b64encode(b"ca").decode()
    assert webhooks["webhooks"] == [
        {
            "name": "train.example.com",
            "clientConfig": {"url": "https://127.0.0.1:4711/mutate", "caBundle": bundle},
            "failurePolicy": "Fail",
        }
    ]
    conversion: dict[str, Any] = definition["spec"]["conversion"]["webhook"]
    assert conversion["clientConfig"] == {"url": "https://127.0.0.1:4711/convert", "caBundle": bundle}
    assert manifests.others[2]["webhooks"][0]["clientConfig"] != conversion["clientConfig"]


def test_webhooks_are_called_through_a_service() -> None:
    """The Service is another name of this host; the operator adds its authority, and the path where it is left out."""
    manifests = read(RENDERED)
    assert manifests.services() == {"webhook"}
    _, _, service, webhooks = (
        through_services(document, port=4711, services=manifests.services())
        for document in (*manifests.definitions, *manifests.others)
    )
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    called = {"name": "webhook", "namespace": "trains", "path": "/mutate", "port": 4711}
    assert webhooks["webhooks"][0]["clientConfig"] == {"service": called}


@pytest.mark.parametrize("name", [name for name, made in OPERATORS.items() if not isinstance(made, StandIn)])
def test_every_operator_is_pinned(name: str) -> None:
    """Its folder has a go.mod that builds its packages as tools, and requires its module."""
    operator = OPERATORS[name]
    pins = (operator.go_module.directory / "go.mod").read_text()
    for program in operator.programs:
        assert re.search(rf"^(tool |\t){re.escape(program.package)}$", pins, re.MULTILINE)
    assert re.search(rf"^(require |\t){re.escape(operator.module)} v", pins, re.MULTILINE)
    assert (operator.go_module.directory / "go.sum").exists()


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """A program of a module of its own, which an edit has say something else."""
    # Not below the new cache: Go would build its standard library first.
    go = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("GOCACHE", go.stdout.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "go.mod").write_text("module example.com/greeter\n\ngo 1.26.0\n")
    (source / "main.go").write_text('package main\n\nfunc main() { println("port 9443") }\n')
    pins = tmp_path / "pins"
    pins.mkdir()
    (pins / "go.mod").write_text(
        "module example.com/pins\n\ngo 1.26.0\n\ntool example.com/greeter\n\n"
        f"require example.com/greeter v0.0.0 // indirect\n\nreplace example.com/greeter => {source}\n"
    )
    (pins / "go.sum").touch()
    edit = Edit("example.com/greeter", "main.go", "port 9443", "another port")
    return Module(pins, (Tool("greeter", "example.com/greeter"),), edits=(edit,))


def test_an_edit_changes_what_is_built(edited: Module) -> None:
    """The program says what the edit made of it; the module that it was made from is as it was."""
    greeter = edited.ensure()["greeter"]
    said = subprocess.run([greeter], capture_output=True, text=True, check=True).stderr
    assert said == "another port\n"
    assert "port 9443" in (edited.directory.parent / "source" / "main.go").read_text()


def test_an_edit_that_fits_nowhere_is_an_error(edited: Module) -> None:
    """A new version of the operator may have moved what was edited: then nothing is built."""
    (edit,) = edited.edits
    misfit = dataclasses.replace(edited, edits=(dataclasses.replace(edit, old="port 8443"),))
    with pytest.raises(BuildError, match=r"main\.go of example\.com/greeter has 'port 8443' 0 times instead of once"):
        misfit.ensure()


def test_an_edit_is_built_anew(edited: Module) -> None:
    """Another edit has another place in the cache."""
    (edit,) = edited.edits
    other = dataclasses.replace(edited, edits=(dataclasses.replace(edit, new="no port"),))
    assert len({module.cache() for module in (edited, other, dataclasses.replace(edited, edits=()))}) == 3
