"""kueuectl's commands, as recorded, done by `kubectl turnstile`: what is printed, sent, deleted and completed.

The commands run as they do for people, but what they ask for is answered from the recording, whose objects have
creation times that no API server would give them.
"""

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import typer
from typer.completion import get_completion_inspect_parameters
from typer.testing import CliRunner

from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from turnstile.api.errors import InvalidValue
from turnstile.cli import commands
from turnstile.cli.completion import variable
from turnstile.cli.queues import quotas, rows
from turnstile.cli.queues.paths import VISIBILITY, path_of

Json = Any

PROGRAM: Final = "kubectl-turnstile"
LISTED: Final = {
    "TestClusterQueueRun": ("clusterqueue",),
    "TestLocalQueueCmd": ("localqueue",),
    "TestResourceFlavorCmd": ("resourceflavor",),
    "TestWorkloadCmd": ("workload",),
    "TestListCmd": (),
}
"""The kind that a test of lists prints, where the arguments do not name it."""
COMPLETED: Final = {
    "TestClusterQueueNameCompletionFunc": ("clusterqueue", ("list", "localqueue", "--clusterqueue")),
    "TestLocalQueueNameCompletionFunc": ("localqueue", ("list", "workload", "--localqueue")),
    "TestWorkloadNameCompletionFunc": ("workload", ("delete", "workload")),
}
"""The kind whose names a test completes, and a command that takes any of them."""
PRINTED: Final[dict[str, Callable[[Json, datetime], list[str]]]] = {
    "TestLocalQueuePrint": lambda obj, now: rows.local_queue(obj, now, wide=False),
    "TestResourceFlavorPrint": lambda obj, now: rows.resource_flavor(obj, now, wide=False),
}
_PATH: Final = re.compile(
    r"/apis?/(?P<version>([^/]+/)?v\d\w*)(/namespaces/(?P<space>[^/]+))?/(?P<plural>[^/]+)(?P<rest>/.+)?"
)


def check_quotas(case: Case, run: dict[str, Json]) -> list[str]:
    """Resource groups of the quota options."""
    body = case.body["case"]
    given = {
        quotas.NOMINAL: body["quotaArgs"],
        "--borrowing-limit": body["borrowingArgs"],
        "--lending-limit": body["lendingArgs"],
    }
    want = _sorted(body["wantResourceGroups"])
    return _compare(lambda: _sorted(quotas.resource_groups(given)), want, body["wantErr"])


def _sorted(groups: Json) -> Json:
    """Groups with the resources of each flavor by name: the API server refuses any order but that of
    coveredResources, and kueuectl writes down the order of its arguments."""
    return [
        {
            **group,
            "flavors": [
                {**flavor, "resources": sorted(flavor["resources"], key=lambda each: str(each["name"]))}
                for flavor in group["flavors"]
            ],
        }
        for group in groups or ()
    ]


def check_parts(case: Case, run: dict[str, Json]) -> list[str]:
    """Taints and tolerations of a flavor's options."""
    body = case.body["case"]
    if "wantTaints" in body:
        return _compare(lambda: quotas.taints("--node-taints", body["spec"]), body["wantTaints"] or [], body["wantErr"])
    want = body["wantTolerations"] or []
    return _compare(lambda: quotas.tolerations("--tolerations", body["spec"]), want, body["wantErr"])


def _compare(read: Callable[[], Json], want: Json, error: Json) -> list[str]:
    """What is read, or that it is refused; the words of a refusal are our own."""
    try:
        found = read()
    except InvalidValue as refused:
        return [] if error else [f"refused: {refused}"]
    return [f"not refused: {error}"] if error else differs("read", want, found)


def check_rows(case: Case, run: dict[str, Json]) -> list[str]:
    """Rows of tables."""
    body, now = case.body["case"], _now(case)
    row = PRINTED[case.body["test"]]
    have = [row(obj, now) for obj in body["in"]["items"]]
    return differs("rows", [[str(cell) for cell in each["cells"]] for each in body["out"]], have)


def check_list(case: Case, run: dict[str, Json]) -> list[str]:
    """A printed list."""
    body = case.body["case"]
    kind = LISTED[case.body["test"]]
    jobs, arguments = list(body.get("job") or ()), body["args"] or ()
    if len(jobs) == 1 and "--for" in arguments:  # the recording's client answers with this job, whatever its name
        name = arguments[arguments.index("--for") + 1].rpartition("/")[2]
        jobs = [{**jobs[0], "metadata": {**jobs[0]["metadata"], "name": name}}]
    with _recorded(body, [*(body["objs"] or ()), *jobs]) as recording:
        return _invoke(case, recording, ("list", *kind, *(body["args"] or ())))


def check_filter(case: Case, run: dict[str, Json]) -> list[str]:
    """LocalQueues of a list that an option leaves; those of the recording have no names."""
    body = case.body["case"]
    named = [
        {**each, "metadata": {"name": f"queue-{index}", "namespace": "default"}}
        for index, each in enumerate(body["in"]["items"])
    ]
    chosen = (body["options"] or {}).get("ClusterQueueFilter", "")
    with _recorded(body, named) as recording:
        words = ["list", "localqueue", *(("--clusterqueue", chosen) if chosen else ()), *_where(body, recording)]
        done = CliRunner().invoke(_program(case), words, catch_exceptions=False)
    have = [line.split()[1] for line in done.stdout.splitlines()[1:]]
    return differs("ClusterQueues", [each["spec"].get("clusterQueue") for each in body["out"]["items"]], have)


def check_create(case: Case, run: dict[str, Json]) -> list[str]:
    """A flavor that is created."""
    body = case.body["case"]
    with _recorded(body, ()) as recording:
        found = _invoke(case, recording, ("create", "resourceflavor", body["rfName"], *(body["args"] or ())))
        sent = None if "--dry-run" in (body["args"] or ()) else body["wantRf"]
        return found + differs("sent", [sent] if sent else [], recording.sent)


def check_delete(case: Case, run: dict[str, Json]) -> list[str]:
    """Workloads that are deleted with their jobs. Garbage collection is not recorded: a job's Workload stays."""
    body = case.body["case"]
    objects = [*(body["workloads"] or ()), *(body["jobs"] or ())]
    with _recorded(body, objects) as recording:
        found = _invoke(case, recording, ("delete", "workload", *body["args"]), text=body["input"])
        kept = recording.of_kind("Workload"), recording.of_kind(body["gvk"].get("Kind", ""))
        jobs = (body["wantJobList"] or {}).get("items") or []
        want = [[each["metadata"]["name"] for each in left] for left in (body["wantWorkloads"] or [], jobs)]
        return found + differs("left", want, [[each["metadata"]["name"] for each in left] for left in kept])


def check_completion(case: Case, run: dict[str, Json]) -> list[str]:
    """Names that a shell completes: those of objects that can be stopped or resumed, or all."""
    body = case.body["case"]
    kind, anything = COMPLETED[case.body["test"]]
    before = {True: ("stop", kind), False: ("resume", kind), None: anything}[body["status"]]
    if body["args"]:
        takes_several = anything if body["status"] is None and anything[0] == "delete" else ("stop", kind)
        before = *takes_several, *body["args"]
    with _recorded(body, body["objs"] or ()) as recording:
        words = [before[0], before[1], *_where(body, recording), *before[2:]]
        asks = variable(PROGRAM)
        asked = {
            "COMP_WORDS": shlex.join([PROGRAM, *words, body["toComplete"]]),
            "COMP_CWORD": str(len(words) + 1),
            asks: "complete_bash",
        }
        get_completion_inspect_parameters()  # makes the shells known
        done = CliRunner().invoke(_program(case), env=asked, prog_name=PROGRAM, complete_var=asks)
    return differs("completed", body["wantNames"] or [], done.stdout.split())


# --- the command line -------------------------------------------------------------------------------------------------


def _now(case: Case) -> datetime:
    return datetime.fromisoformat((case.body["fixture"] or {}).get("testStartTime", "2026-01-02T03:04:05Z"))


def _program(case: Case) -> typer.Typer:
    return commands.create(run=asyncio.run, clock=lambda: _now(case), program=PROGRAM)


def _where(body: Json, recording: "Recording") -> tuple[str, ...]:
    return "--server", recording.url, "--kubeconfig", "/nonexistent", "--namespace", body.get("ns") or "default"


def _invoke(case: Case, recording: "Recording", arguments: Iterable[str], *, text: str = "") -> list[str]:
    """Run a command, and compare what it prints; the words of a refusal are our own."""
    body = case.body["case"]
    words = [*arguments, *_where(body, recording)]
    done = CliRunner().invoke(_program(case), words, input=text, catch_exceptions=False)
    if body["wantErr"]:
        return [] if done.exit_code else [f"not refused: {body['wantErr']}"]
    if done.exit_code and body["wantOutErr"].endswith("not found\n") and not body["wantOut"]:
        return []  # kueuectl goes on, as if what is missing had been deleted
    if done.exit_code:
        return [f"exit code {done.exit_code}: {done.stderr}"]
    if body.get("ignoreOut"):
        return []
    return differs("printed", body["wantOut"], done.stdout) + differs("errors", body["wantOutErr"], done.stderr)


# --- what it asks for -------------------------------------------------------------------------------------------------


class Recording(ThreadingHTTPServer):
    """Answers from the objects of a case, and keeps what is sent."""

    daemon_threads = True

    def __init__(self, objects: dict[str, Json], documents: dict[str, Json]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.documents = documents
        self.sent: list[Json] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def of_kind(self, kind: str) -> list[Json]:
        """The objects of a kind that are left."""
        return [obj for obj in self.objects.values() if obj["kind"] == kind]

    def read(self, path: str, query: dict[str, str]) -> Json:
        """A document, an object, or the list of a collection; None if there is no such path."""
        if path in self.documents:
            return self.documents[path]
        if path in self.objects:
            return self.objects[path]
        asked = _PATH.fullmatch(path)
        if asked is None or asked["rest"]:
            return None
        found = []
        for own, obj in self.objects.items():
            at = _PATH.fullmatch(own)
            if at is not None and (at["version"], at["plural"]) == (asked["version"], asked["plural"]):
                inside = asked["space"] in (None, at["space"])
                found += [obj] if inside and _selected(obj, query) else []
        return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": found}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recording

    def do_GET(self) -> None:
        """Answer with what is at a path."""
        url = urlsplit(self.path)
        found = self.server.read(url.path, {name: values[0] for name, values in parse_qs(url.query).items()})
        *_, kind, name = url.path.split("/")
        asked = _PATH.fullmatch(url.path)
        named = asked is not None and bool(asked["rest"])
        missing = {
            "kind": "Status",
            "code": 404,
            "reason": "NotFound",
            "status": "Failure",
            "message": f'{kind} "{name}" not found',
            "details": {"kind": kind, "name": name},
        }
        if found is None and not named:
            self._answer(404, "404 page not found")
        else:
            self._answer(404 if found is None else 200, missing if found is None else found)

    def do_POST(self) -> None:
        """Keep an object that is created."""
        body = json.loads(self._body())
        self.server.sent.append(body)
        self._answer(201, body)

    def do_DELETE(self) -> None:
        """Delete an object."""
        options = json.loads(self._body() or b"{}")
        url, objects = urlsplit(self.path), self.server.objects
        if url.path not in objects:
            self.do_GET()
        else:
            self._answer(
                200, objects[url.path] if options.get("dryRun") or "dryRun" in url.query else objects.pop(url.path)
            )

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, code: int, document: Json) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _selected(obj: Json, query: dict[str, str]) -> bool:
    """Whether the selectors of a list choose an object. Raises NotRead for one that is not only of equal signs."""
    labels = obj["metadata"].get("labels") or {}
    for text in filter(None, query.get("labelSelector", "").split(",")):
        name, equals, value = text.replace("==", "=").partition("=")
        if not equals or name.endswith("!"):
            raise NotRead(f"the label selector {text}")
        if labels.get(name) != value:
            return False
    field, _, value = query.get("fieldSelector", "").partition("=")
    if field not in ("", "metadata.name"):
        raise NotRead(f"the field selector {field}")
    return not field or obj["metadata"]["name"] == value


@contextmanager
def _recorded(body: Json, objects: Iterable[Json]) -> Iterator[Recording]:
    """A server of the objects of a case."""
    kept = {}
    for obj in objects:
        metadata = {"uid": "", "resourceVersion": "1", **obj["metadata"]}
        plural = f"{obj['kind'].lower()}s"
        kept[path_of(obj["apiVersion"], plural, metadata["name"], metadata.get("namespace", ""))] = obj | {
            "metadata": metadata
        }
    server = Recording(kept, dict(_documents(body)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _documents(body: Json) -> Iterator[tuple[str, Json]]:
    """What an API server says of its kinds, and the positions of pending Workloads."""
    kinds = [*(body.get("mapperKinds") or ()), *([body["gvk"]] if body.get("gvk") else ())]
    for each in body.get("apiResourceLists") or ():
        named = [{**one, "name": f"{one['singularName']}s"} for one in each["resources"]]
        yield path_of(each["groupVersion"], "").rstrip("/"), {"resources": named}
    if body.get("gvk"):
        for each in kinds:
            version = "/".join(filter(None, (each.get("Group"), each["Version"])))
            resource = {"name": f"{each['Kind'].lower()}s", "kind": each["Kind"], "group": each.get("Group", "")}
            yield path_of(version, "").rstrip("/"), {"resources": [resource]}
    yield "/api", {"items": [_group(each) for each in kinds if not each.get("Group")]}
    yield "/apis", {"items": [_group(each) for each in kinds if each.get("Group")]}
    pages: dict[str, list[Json]] = {}
    for each in body.get("pendingWorkloads") or ():
        path = path_of(VISIBILITY, "localqueues", each["localQueueName"], each["metadata"]["namespace"])
        pages.setdefault(path, []).append(each)
    for path, items in pages.items():
        yield f"{path}/pendingworkloads", {"items": items}


def _group(kind: Json) -> Json:
    """One kind as a group of the aggregated discovery."""
    word = kind["Kind"].lower()
    resource = {
        "resource": f"{word}s",
        "singularResource": word,
        "scope": "Namespaced",
        "responseKind": {"kind": kind["Kind"], "group": kind.get("Group", ""), "version": kind["Version"]},
    }
    return {
        "metadata": {"name": kind.get("Group", "")},
        "versions": [{"version": kind["Version"], "resources": [resource]}],
    }
