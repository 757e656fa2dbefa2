"""Schema of the read model's file: tables, version, and the replacement of an unusable file.

Times are moments (``clock_mapping``), states are codes (``api.rows``), clusters are indices of the names in
the column ``state`` of ``meta``. A task has a row from its start on. Before that it is *placed* if a row of
``lots`` has a later attempt of it than its own row, and else blocked or queued, by the counts of its group.
"""

import logging
import sqlite3
from pathlib import Path
from typing import Final

VERSION: Final = 2
"""Version of the tables. A file with another version is set aside and rebuilt."""
ASIDE_SUFFIX: Final = ".aside"
"""Suffix of a file that was set aside; the next one replaces it."""

_LOG: Final = logging.getLogger(__name__)
_TABLES: Final = """
CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), broker TEXT NOT NULL, applied INTEGER NOT NULL,
    shut INTEGER NOT NULL, state BLOB NOT NULL, times BLOB NOT NULL);
CREATE TABLE jobs (job INTEGER PRIMARY KEY, owner TEXT NOT NULL, estate TEXT NOT NULL, name TEXT NOT NULL,
    tenant TEXT NOT NULL, priority INTEGER NOT NULL, klass TEXT NOT NULL, client_id TEXT NOT NULL,
    submitted INTEGER NOT NULL, total INTEGER NOT NULL, state INTEGER NOT NULL, blocked INTEGER NOT NULL,
    queued INTEGER NOT NULL, placed INTEGER NOT NULL, running INTEGER NOT NULL, succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL, cancelled INTEGER NOT NULL, parts BLOB, started INTEGER, ended INTEGER,
    ended_serial INTEGER, used TEXT NOT NULL, cancel INTEGER NOT NULL, cancel_reason TEXT NOT NULL,
    lots INTEGER NOT NULL);
CREATE INDEX jobs_newest ON jobs (submitted, job);
CREATE INDEX jobs_live ON jobs (submitted, job) WHERE ended_serial IS NULL;
CREATE INDEX jobs_over ON jobs (ended_serial) WHERE ended_serial IS NOT NULL;
CREATE TABLE specs (job INTEGER PRIMARY KEY, spec BLOB NOT NULL);
CREATE TABLE tasks (job INTEGER NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL,
    state INTEGER NOT NULL, cluster INTEGER NOT NULL, node INTEGER, size BLOB, started INTEGER, ended INTEGER,
    outcome TEXT, code INTEGER, cpu INTEGER, memory INTEGER, ran INTEGER, note TEXT, failures INTEGER,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE INDEX tasks_running ON tasks (cluster, node) WHERE state = 3;
CREATE TABLE lots (job INTEGER NOT NULL, number INTEGER NOT NULL, lot BLOB NOT NULL,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE TABLE decisions (job INTEGER NOT NULL, serial INTEGER NOT NULL, at INTEGER NOT NULL,
    broker TEXT NOT NULL, part INTEGER NOT NULL, answered TEXT NOT NULL, tasks INTEGER NOT NULL,
    reason TEXT NOT NULL, considered BLOB, PRIMARY KEY (job, serial)) WITHOUT ROWID;
CREATE INDEX decisions_serial ON decisions (serial);
CREATE TABLE changes (serial INTEGER PRIMARY KEY, job INTEGER NOT NULL, state INTEGER NOT NULL,
    at INTEGER NOT NULL);
CREATE TABLE durations (tenant TEXT NOT NULL, name TEXT NOT NULL, part TEXT NOT NULL, serial INTEGER NOT NULL,
    ran BLOB NOT NULL, PRIMARY KEY (tenant, name, part)) WITHOUT ROWID;
CREATE INDEX durations_oldest ON durations (serial);
"""
_ADDED_INDEX: Final = "CREATE INDEX IF NOT EXISTS decisions_serial ON decisions (serial)"
"""Index that an older file of this version may lack."""
CONTENT_TABLES: Final = ("jobs", "specs", "tasks", "lots", "decisions", "changes", "durations")
"""Tables that are built from the journal."""


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection with explicit transactions."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # safe in a crash; lost events are applied again
    connection.execute("PRAGMA cache_size = -32768")
    return connection


def open_writer(path: Path, broker: str) -> tuple[sqlite3.Connection, bool]:
    """Open the file for writing. Return True with it if it is new: the old one was missing, damaged, of
    another version or of another broker."""
    if path.exists():
        try:
            connection = connect(path)
        except sqlite3.DatabaseError as error:
            _set_aside(path, str(error))
        else:
            reason = _find_objection(connection, broker)
            if not reason:
                connection.execute(_ADDED_INDEX)
                return connection, False
            connection.close()
            _set_aside(path, reason)
    connection = connect(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection, True


def _find_objection(connection: sqlite3.Connection, broker: str) -> str:
    """Return the reason why a file is unusable; empty if it is usable."""
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            return f"its version is {version}, and this program uses {VERSION}"
        row = connection.execute("SELECT broker, shut FROM meta").fetchone()
        if row is None:
            return "it is empty"
        if row[0] != broker:
            return f"it belongs to broker {row[0]}"
        if not row[1]:  # not closed: the host or the disk may have failed
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                return str(verdict)
    except sqlite3.DatabaseError as error:
        return str(error)
    return ""


def _set_aside(path: Path, reason: str) -> None:
    aside = path.with_name(path.name + ASIDE_SUFFIX)
    _LOG.warning("the read model %s is rebuilt (the old file is kept as %s): %s", path, aside.name, reason)
    for ending in ("-wal", "-shm", ""):
        part, kept = path.with_name(path.name + ending), aside.with_name(aside.name + ending)
        if part.exists():
            part.replace(kept)
        else:
            kept.unlink(missing_ok=True)


def dump_content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Read all rows of all tables that are built from the journal, sorted, for comparisons."""
    connection = connect(path)
    try:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)  # noqa: S608 - constant names
            for table in CONTENT_TABLES
        }
    finally:
        connection.close()
