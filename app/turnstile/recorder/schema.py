"""The tables of the recorder, the same in SQLite and PostgreSQL, and how older ones become today's."""

from typing import Final

from turnstile.api.errors import InvalidValue
from turnstile.recorder.connection import Connection

_STEPS: Final = (
    """
CREATE TABLE workloads (
    uid TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_name TEXT NOT NULL,
    local_queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    labels TEXT NOT NULL,
    over DOUBLE PRECISION,          -- when it finished or was deleted: it holds no quota since
    gone DOUBLE PRECISION           -- when it was deleted
) {keyed};
CREATE INDEX workloads_by_name ON workloads (namespace, name);
CREATE INDEX workloads_by_owner ON workloads (namespace, owner_name);
CREATE INDEX workloads_by_end ON workloads (over);
CREATE TABLE facts (
    seq {serial},                   -- in the order of recording
    uid TEXT NOT NULL,
    what TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    attempt INTEGER NOT NULL,
    mark TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    detail TEXT,
    UNIQUE (uid, what, mark)
);
CREATE INDEX facts_by_workload ON facts (uid, what, seq);
CREATE TABLE quotas (
    seq {serial},
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    parent TEXT NOT NULL,
    amounts TEXT NOT NULL,
    gone INTEGER NOT NULL
);
CREATE INDEX quotas_by_name ON quotas (kind, name, seq)
""",
    """
CREATE TABLE kept (
    since DOUBLE PRECISION NOT NULL -- what was over before is not recorded, or was deleted
);
CREATE TABLE decisions (
    seq {serial},
    term TEXT NOT NULL,
    number INTEGER NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    line TEXT NOT NULL,
    UNIQUE (term, number)
);
CREATE INDEX decisions_by_time ON decisions (at)
""",
)
"""Steps that make version 1 of the tables, version 2 of version 1, and so on. A released step is never changed."""
VERSION: Final = len(_STEPS)


def migrate(connection: Connection, name: str) -> None:
    """Make the tables, or those of an older version today's. Raises InvalidValue for a newer version."""
    if connection.version == VERSION:
        return
    with connection.transaction():
        version = connection.version  # another process may have been first
        require_known(version, name)
        for step in _STEPS[version:]:
            for statement in step.split(";"):
                connection.run(statement)
        connection.set_version(VERSION)


def require_known(version: int, name: str) -> None:
    """Raises InvalidValue for tables of a newer version."""
    if version > VERSION:
        cure = f"was written by a newer Turnstile (tables {version}, this one knows {VERSION}): name another one"
        raise InvalidValue("--recorder", name, cure)
