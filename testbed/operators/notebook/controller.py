"""Plays the notebook controller: `python -m testbed.operators.notebook.controller HEALTH_PORT`, KUBECONFIG in the
environment."""

import contextlib
import copy
import http.client
import http.server
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path

from testbed.client import Api, Json, resource_path
from testbed.errors import ApiError
from testbed.kubeconfig import service_account_client

_NOTEBOOKS = "kubeflow.org/v1"
_STOPPED = "kubeflow-resource-stopped"

Key = tuple[str, str]


def stateful_set(notebook: Json, existing: Json | None = None) -> Json:
    """The StatefulSet of a Notebook. Labels and annotations of a template that exists are left as they are."""
    meta = notebook["metadata"]
    name, namespace = meta["name"], meta["namespace"]
    spec = copy.deepcopy(notebook["spec"]["template"]["spec"])
    first = spec["containers"][0]
    first.setdefault("workingDir", "/home/jovyan")
    first.setdefault("ports", [{"name": "notebook-port", "containerPort": 8888, "protocol": "TCP"}])
    first["env"] = [*(first.get("env") or []), {"name": "NB_PREFIX", "value": f"/notebook/{namespace}/{name}"}]
    spec.setdefault("securityContext", {"fsGroup": 100})
    labels = {"statefulset": name, "notebook-name": name, **(meta.get("labels") or {})}
    annotations = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if "kubectl" not in key and "notebook" not in key
    }
    template = {"labels": labels, "annotations": annotations}
    if existing is not None:
        found = existing["spec"]["template"]["metadata"]
        template = {key: found.get(key) or {} for key in template}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [_owner(notebook)]},
        "spec": {
            "replicas": 0 if _STOPPED in (meta.get("annotations") or {}) else 1,
            "selector": {"matchLabels": {"statefulset": name}},
            "template": {"metadata": template, "spec": spec},
        },
    }


def service(notebook: Json) -> Json:
    """The Service of a Notebook."""
    name = notebook["metadata"]["name"]
    (port, *_) = stateful_set(notebook)["spec"]["template"]["spec"]["containers"][0]["ports"]
    ports = [{"name": f"http-{name}", "port": 80, "targetPort": port["containerPort"], "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": notebook["metadata"]["namespace"],
            "ownerReferences": [_owner(notebook)],
        },
        "spec": {"type": "ClusterIP", "selector": {"statefulset": name}, "ports": ports},
    }


def _owner(notebook: Json) -> Json:
    meta = notebook["metadata"]
    owner = {"apiVersion": _NOTEBOOKS, "kind": "Notebook", "name": meta["name"], "uid": meta["uid"]}
    return {**owner, "controller": True, "blockOwnerDeletion": True}


def reconcile(api: Api, key: Key) -> None:
    """Make what a Notebook lacks, change what differs, report how many replicas are ready."""
    namespace, name = key
    path = resource_path(_NOTEBOOKS, "notebooks", name, namespace=namespace)
    notebook = api.find(path)
    if notebook is None or "deletionTimestamp" in notebook["metadata"]:
        return
    existing = api.find(resource_path("apps/v1", "statefulsets", name, namespace=namespace))
    made = api.apply(stateful_set(notebook, existing), field_manager="notebook-controller")
    api.apply(service(notebook), field_manager="notebook-controller")
    ready = made.get("status", {}).get("readyReplicas", 0)
    if notebook.get("status", {}).get("readyReplicas", 0) != ready:
        api.patch(f"{path}/status", {"status": {"readyReplicas": ready}})


def follow(api: Api, path: str, keys: "queue.SimpleQueue[Key]") -> None:
    """Ask for a reconcile of each object that there is, and of each that changes; for ever. A StatefulSet has the name
    of its Notebook."""
    while True:
        with contextlib.suppress(ApiError, OSError, http.client.HTTPException):  # the kind is away, or the API server
            listed = api.get(path)
            for item in listed["items"]:
                keys.put(_key(item))
            for event in api.watch(path, resource_version=listed["metadata"]["resourceVersion"]):
                if event["type"] == "ERROR":
                    break
                keys.put(_key(event["object"]))
        time.sleep(0.2)


def _key(item: Json) -> Key:
    return item["metadata"]["namespace"], item["metadata"]["name"]


class _Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    """Follow Notebooks and StatefulSets, and reconcile one Notebook after another."""
    api = service_account_client(Path(os.environ["KUBECONFIG"]))
    keys: queue.SimpleQueue[Key] = queue.SimpleQueue()
    for path in (resource_path(_NOTEBOOKS, "notebooks"), resource_path("apps/v1", "statefulsets")):
        threading.Thread(target=follow, args=(api, path, keys), daemon=True).start()
    health = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Healthy)
    threading.Thread(target=health.serve_forever, daemon=True).start()
    while True:
        key = keys.get()
        try:
            reconcile(api, key)
        except (ApiError, OSError, http.client.HTTPException) as error:
            print(json.dumps({"notebook": "/".join(key), "error": str(error)}), flush=True)
            threading.Timer(0.2, keys.put, (key,)).start()


if __name__ == "__main__":
    main()
