"""Fork of this process that checks and dumps a large machine, so that the loop goes on meanwhile.

A broker with 100,000 live jobs needs about 0.1 s to dump its state and more to check it, and no event may
keep the loop that long. The memory of a forked child holds the machine as it was at the fork. The child works
on that and writes the result into a pipe, which a thread of the parent reads. The child uses nothing else of
the parent.
"""

import gc
import os
import select
import signal
import struct
import time
import traceback
from typing import Final, NoReturn

from hanse.core.machine import Machine

FORK_SECONDS_MAX: Final = 60.0
"""Seconds after which a child is killed: thousands of times what it needs."""
_READ_BYTES: Final = 1 << 20
_HEAD: Final = struct.Struct("<?d")
"""True if the checks passed, and the seconds of processor time that the work took."""
_CHILD_PRIORITY: Final = 5
"""Nice value of the child: the members of the league go first."""


class ForkError(Exception):
    """Child that ended without a result: killed for want of memory, for example."""


class MachineFork:
    """Child process that checks a machine, and dumps it if asked to. ``read`` is called once, in a thread."""

    def __init__(self, machine: Machine, wants_state: bool) -> None:
        """Fork; raises ``OSError`` if the system has no process or memory left."""
        self._reader, writer = os.pipe()
        self._ended = False
        try:
            self._pid = os.fork()
        except OSError:
            os.close(self._reader)
            os.close(writer)
            raise
        if self._pid == 0:
            _work_in_child(machine, wants_state, writer)
        os.close(writer)

    def read(self) -> tuple[float, bytes]:
        """Return the seconds that the work took, and the state (empty: not asked for).

        Raises ``AssertionError`` if the machine's invariants do not hold, ``ForkError`` without a result.
        """
        try:
            data = self._read_all()
        finally:
            os.close(self._reader)
            self.kill()
            _, status = os.waitpid(self._pid, 0)
            self._ended = True
        if status or len(data) < _HEAD.size:
            raise ForkError(f"the process that checks and dumps the state ended early (status {status})")
        passed, seconds = _HEAD.unpack_from(data)
        if not passed:
            raise AssertionError(data[_HEAD.size :].decode())
        return seconds, data[_HEAD.size :]

    def _read_all(self) -> bytes:
        end = time.monotonic() + FORK_SECONDS_MAX
        parts: list[bytes] = []
        while True:
            ready, _, _ = select.select([self._reader], [], [], max(end - time.monotonic(), 0.0))
            if not ready:
                raise ForkError(
                    f"the process that checks and dumps the state took longer than {FORK_SECONDS_MAX:.0f} s"
                )
            part = os.read(self._reader, _READ_BYTES)
            if not part:
                return b"".join(parts)
            parts.append(part)

    def kill(self) -> None:
        """Kill the child if it still works; ``read`` then returns soon."""
        if not self._ended:
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the number is still the child's


def _work_in_child(machine: Machine, wants_state: bool, writer: int) -> NoReturn:
    """Check and dump, write the result, and end without any clean-up of the parent's objects."""
    status = 1
    try:
        gc.disable()  # a collection would copy the whole memory
        signal.set_wakeup_fd(-1)  # the parent's loop must not be told of the child's signals
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, writer)  # sockets and locks of a parent that may die before the child
        os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
        os.nice(_CHILD_PRIORITY)
        begun = time.process_time()
        passed, data = True, b""
        try:
            machine.check()
            if wants_state:
                data = machine.dump()
        except Exception:  # noqa: BLE001  whatever it is, the parent reports it
            passed, data = False, traceback.format_exc().encode()
        _write_all(writer, _HEAD.pack(passed, time.process_time() - begun) + data)
        status = 0
    finally:
        os._exit(status)


def _write_all(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]
