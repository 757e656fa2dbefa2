"""The file of the read models: its tables, its version, and what happens to a file that is not ours.

Moments are machine time (``clock_mapping``), states are codes (``api.rows``), clusters are numbers into the
names that the state record holds. A task has a row from its start on; before that it is *placed* if a lot
names it with a later attempt than its row, and else blocked or queued, as the counts of its group say.
"""

import logging
import sqlite3
from pathlib import Path
from typing import Final

VERSION: Final = 1
"""Of the tables. A file with another one is set aside and built anew."""
ASIDE: Final = ".aside"
"""Ending of a file that was set aside; the next one replaces it."""

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
    lots INTEGER NOT NULL, waits BLOB);
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
_SINCE: Final = "CREATE INDEX IF NOT EXISTS decisions_serial ON decisions (serial)"
"""What a file of this version may lack, because it came later."""
CONTENT: Final = ("jobs", "specs", "tasks", "lots", "decisions", "changes", "durations")
"""The tables that are built from the journal."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection as all of ours are: transactions are begun and ended by hand."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # never damaged; what was lost is applied again
    connection.execute("PRAGMA cache_size = -32768")
    return connection


def open_writer(path: Path, broker: str) -> tuple[sqlite3.Connection, bool]:
    """The file for writing, and whether it is new: it was missing, damaged, of another version or of another
    broker."""
    if path.exists():
        try:
            connection = connect(path)
        except sqlite3.DatabaseError as error:
            _set_aside(path, str(error))
        else:
            why = _objection(connection, broker)
            if not why:
                connection.execute(_SINCE)
                return connection, False
            connection.close()
            _set_aside(path, why)
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


def _objection(connection: sqlite3.Connection, broker: str) -> str:
    """Why a file cannot be used; empty if it can."""
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            return f"its version is {version}, and this is version {VERSION}"
        row = connection.execute("SELECT broker, shut FROM meta").fetchone()
        if row is None:
            return "it was never filled"
        if row[0] != broker:
            return f"it is broker {row[0]}'s"
        if not row[1]:  # nobody closed it: what a crash of the host or the disk did to it shows now
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                return str(verdict)
    except sqlite3.DatabaseError as error:
        return str(error)
    return ""


def _set_aside(path: Path, why: str) -> None:
    aside = path.with_name(path.name + ASIDE)
    _LOG.warning("read models %s are built anew (the old file is kept as %s): %s", path, aside.name, why)
    for ending in ("-wal", "-shm", ""):
        part, kept = path.with_name(path.name + ending), aside.with_name(aside.name + ending)
        if part.exists():
            part.replace(kept)
        else:
            kept.unlink(missing_ok=True)


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables that are built from the journal, in the order of their keys: for comparisons."""
    connection = connect(path)
    try:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)  # noqa: S608 - our own names
            for table in CONTENT
        }
    finally:
        connection.close()
