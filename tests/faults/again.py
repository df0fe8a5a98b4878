"""A kept history, judged again: `python -m tests.faults.again DIRECTORY [WORD ...]`.

Every history leaves its recording and the decision logs behind; one that fails says where. This judges them anew, after
the judge was changed, say, and tells the events in which all of the words occur. Must never need a cluster.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path

from testbed.client import Json
from tests.faults.evidence import looks
from tests.faults.moments import Replay
from tests.faults.narrative import narrate
from tests.faults.promises import Judge
from tests.faults.recording import Event, Recorder

RECORDING = "history.jsonl"


@contextmanager
def keeping(directory: Path, recorder: Recorder, *, fair: bool) -> Iterator[None]:
    """Keep what was recorded beside the decision logs in a directory, however this ends."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"see: python -m tests.faults.again {directory}")
        raise
    finally:
        keep(directory, recorder.history(), fair=fair)


def keep(directory: Path, history: list[Event], *, fair: bool) -> None:
    """Write a history; each version of an object once."""
    with (directory / RECORDING).open("w") as file:
        print(json.dumps({"fair": fair}), file=file)
        for event in history:
            uid = event.obj["metadata"]["uid"]
            line = {"revision": event.revision, "at": event.at, "kind": event.kind, "uid": uid, "new": event.new}
            print(json.dumps(line), file=file)


def kept(directory: Path) -> tuple[list[Event], bool]:
    """The history that was kept there, and whether ClusterQueues shared by weight in it."""
    first, *lines = (json.loads(line) for line in (directory / RECORDING).read_text().splitlines())
    now: dict[str, Json | None] = {}
    history = []
    for line in lines:
        old = now.get(line["uid"])
        now[line["uid"]] = line["new"]
        history.append(Event(line["revision"], line["at"], line["kind"], old, line["new"]))
    return history, first["fair"]


def decision_logs(directory: Path) -> list[Path]:
    """Those that were written there, in the order their processes were started."""
    numbered = (directory / f"decisions-{number}.jsonl" for number in count())
    return list(takewhile(Path.exists, numbered))


def main() -> None:
    """Judge and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.again")
    parser.add_argument("directory", type=Path)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    history, fair = kept(given.directory)
    moments = Replay().moments(history)
    verdict = Judge(moments, looks(decision_logs(given.directory), history), fair=fair).judge()
    for line in narrate(moments, 0, len(moments)).splitlines() if given.words else ():
        if all(word in line for word in given.words):
            print(line)
    print("\n".join(verdict.wrong))
    print(", ".join(f"{number} {what}" for what, number in sorted(verdict.figures.items())))


if __name__ == "__main__":
    main()
