"""Encoding of the messages between the process backend and its launcher.

The layouts are those of the structures in ``live/supervisor/protocol.h``, in the machine's own byte order:
both ends are on one machine. Every request is a multiple of 8 bytes long.
"""

import sys
from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

import msgspec

from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd, Outcome, ResourceUsage

HELLO: Final = 1
START: Final = 2
STOP: Final = 3
FORGET: Final = 4
DROP: Final = 5
WATCH: Final = 6

SILENT: Final = 1
"""The number of a ``FORGET``: the attempt wrote nothing, and a restarted daemon must know that."""

FOUND_RUNNING: Final = 1
FOUND_ENDED: Final = 2
READY: Final = 3
STARTED: Final = 4
ENDED: Final = 5

FRESH_DIRECTORY: Final = 1
SANDBOXED: Final = 2
NO_NEW_PRIVILEGES: Final = 4
HAS_KEY: Final = 8
"""The last text is the attempt's key, which it reads on its standard input."""
ALONE: Final = 16
"""It sees no processes of other users in ``/proc``."""

SANDBOX_REPORT: Final = 3
"""The descriptor on which bubblewrap reports to the supervisor of a ``SANDBOXED`` start."""

REQUEST_BYTES_MAX: Final = 4 << 20
"""The longest request; no kernel could run a longer command."""
EXTRA_BYTES_MAX: Final = 1 << 16
"""The longest data behind a report."""

_REQUEST: Final = Struct("=IIqqq")
_START: Final = Struct("=IIqqqqqqiiIIIIII")
_REPORT: Final = Struct("=IIqqiIIIiIqqqqqq176s")
REPORT_BYTES: Final = _REPORT.size
GRACE_MAX: Final = 1 << 60

_EXITED, _STOPPED, _LEASE_OVER, _NO_LEASE, _UNFIT, _LOST = range(1, 7)
_OUTCOMES: Final = {
    _STOPPED: Outcome.CANCELLED,
    _LEASE_OVER: Outcome.LOST,
    _NO_LEASE: Outcome.UNSTARTED,
    _UNFIT: Outcome.FAILED,
    _LOST: Outcome.LOST,
}
_NOTES: Final = {_LEASE_OVER: "the lease it ran under is over", _NO_LEASE: "no lease to start it under"}
_OUT_OF_MEMORY, _STDOUT_CUT, _STDERR_CUT, _STILL_ALIVE = 1, 2, 4, 8
_REMARKS: Final = (
    (_OUT_OF_MEMORY, "out of memory"),
    (_STDOUT_CUT, "stdout was cut"),
    (_STDERR_CUT, "stderr was cut"),
)


class LauncherReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A report of the launcher about one attempt."""

    kind: int
    task: TaskId
    attempt: int
    """With ``READY``: the checksum of the launcher's source."""
    end: AttemptEnd | None = None
    ran: bool = False
    """True if it ever started."""
    output_bytes: int = 0
    extra: bytes = b""
    is_alive: bool = False
    """True if some of its processes cannot be killed, though it has ended for the league."""


def simple_request(
    kind: int, task: int = 0, attempt: int = 0, number: int = 0, texts: Iterable[bytes] = ()
) -> bytes:
    """Return a request without parameters of its own, or with texts behind it (``HELLO``)."""
    tail = b"".join(text + b"\0" for text in texts)
    tail += bytes(-len(tail) % 8)
    return _REQUEST.pack(_REQUEST.size + len(tail), kind, task, attempt, number) + tail


class StartTemplate(msgspec.Struct, frozen=True):
    """The fields that are the same for many starts."""

    output_max: int
    data_max: int
    """RLIMIT_DATA in bytes; 0: none."""
    processes_max: int
    """RLIMIT_NPROC; 0: none."""
    uid: int
    """-1: the launcher's."""
    gid: int
    gids: tuple[int, ...]
    flags: int
    meta: bytes
    """Returned with ``FOUND_RUNNING``."""
    groups: tuple[bytes, ...]
    """Each: role and directory, settings, an empty text; all ended by NUL."""


def start_request(
    task: int,
    attempt: int,
    until: int,
    template: StartTemplate,
    workdir: bytes,
    argv: tuple[bytes, ...],
    env: list[bytes],
    key: bytes = b"",
) -> bytes:
    """Return the request to start an attempt. From ``until`` on (CLOCK_BOOTTIME, microseconds; 0: never) the
    launcher ignores it. No text may contain NUL. ``key``: if the flags say that it has one."""
    assert bool(key) == bool(template.flags & HAS_KEY), "a key and the flag that says so belong together"
    gids = b"".join(gid.to_bytes(4, sys.byteorder) for gid in template.gids)
    texts = [*argv, *env, key] if key else [*argv, *env]
    body = b"".join([gids, template.meta, workdir, b"\0", *template.groups, b"\0".join(texts), b"\0"])
    padding = -len(body) % 8
    head = _START.pack(
        _START.size + len(body) + padding,
        START,
        task,
        attempt,
        until,
        template.output_max,
        template.data_max,
        template.processes_max,
        template.uid,
        template.gid,
        template.flags,
        len(template.gids),
        len(template.meta),
        len(template.groups),
        len(argv),
        len(env),
    )
    return head + body + bytes(padding)


def read_reports(data: bytes | bytearray) -> tuple[list[LauncherReport], int]:
    """Return all complete reports at the front of ``data``, and the number of their bytes."""
    found: list[LauncherReport] = []
    at = 0
    while len(data) - at >= REPORT_BYTES:
        values = _REPORT.unpack_from(data, at)
        kind, extra = values[0], values[1]
        if len(data) - at < REPORT_BYTES + extra:
            break
        at += REPORT_BYTES
        task, attempt = TaskId(values[2]), values[3]
        if kind in (ENDED, FOUND_ENDED):
            end = _decode_end(task, attempt, values)
            is_alive = bool(values[9] & _STILL_ALIVE)
            found.append(
                LauncherReport(
                    kind, task, attempt, end, values[12] > 0, values[14] + values[15], is_alive=is_alive
                )
            )
        else:
            tail = bytes(data[at : at + extra]) if extra else b""
            found.append(LauncherReport(kind, task, attempt, extra=tail))
        at += extra
    return found, at


def _decode_end(task: TaskId, attempt: int, values: tuple[Any, ...]) -> AttemptEnd:
    end_kind, code, flags, cpu, memory, began, ended = values[7:14]
    note = values[16].partition(b"\0")[0].decode("utf-8", "replace")
    outcome = _OUTCOMES.get(end_kind)
    if outcome is None:
        assert end_kind == _EXITED, f"an attempt ended in a way unknown here: {end_kind}"
        outcome = Outcome.SUCCEEDED if code == 0 else Outcome.FAILED
    note = note or _NOTES.get(end_kind, "")
    if flags:
        remarks = [remark for flag, remark in _REMARKS if flags & flag]
        note = "; ".join([note, *remarks] if note else remarks)
    usage = ResourceUsage(cpu, memory, ended - began) if began else None
    return AttemptEnd(task, attempt, outcome, code, usage, note)
