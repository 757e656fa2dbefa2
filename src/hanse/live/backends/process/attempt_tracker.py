"""Attempts of a runner from their start until they are forgotten, as the launcher reports them.

``launcher_recovery`` brings requests and reports together again after the loss of a launcher.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.backends.interface import BackendListener
from hanse.live.backends.process.default_memory import explain_out_of_memory
from hanse.live.backends.process.devices.device_table import DeviceTable
from hanse.live.backends.process.kept_outputs import AttemptId
from hanse.live.backends.process.launch_requests import decode_metadata
from hanse.live.backends.process.launcher_protocol import (
    ENDED,
    FORGET,
    FOUND_ENDED,
    STARTED,
    STOP,
    WATCH,
    LauncherReport,
    simple_request,
)
from hanse.live.backends.process.stray_processes import kill_strays
from hanse.model.messages import AttemptEnd, Outcome

NOTE_LENGTH_MAX: Final = 200
"""Characters of a note on an end; longer notes are cut."""


class ProcessAttempt:
    """The daemon's knowledge of an attempt until it is forgotten."""

    __slots__ = ("default_memory", "end", "kill_reason", "output_bytes", "request", "started", "stop_at")

    def __init__(self, request: bytes | None, default_memory: int = 0) -> None:
        self.default_memory = default_memory
        """Its limit in bytes if it did not ask for memory; 0 also for one that an earlier daemon started."""
        self.request = request
        """The request to start it, until the launcher has a record of it."""
        self.started = False
        self.stop_at: int | None = None
        self.kill_reason = ""
        """Reason for which the backend itself ends it; empty: none."""
        self.end: AttemptEnd | None = None
        self.output_bytes = 0


class AttemptTracker:
    """Attempts of one runner. ``send`` sends a request to the launcher; False: too many wait already."""

    def __init__(
        self,
        send: Callable[[bytes], bool],
        wake_followers: Callable[[AttemptId], None],
        devices: DeviceTable,
    ) -> None:
        self._send = send
        self._wake_followers = wake_followers
        self._devices = devices
        self.attempts: dict[AttemptId, ProcessAttempt] = {}
        self.hunts_strays = False
        """True if no control group lists what is left of an attempt."""
        self.listener: BackendListener | None = None
        self.closed = False

    def on_reports(self, batch: list[LauncherReport]) -> None:
        """Handle reports of the launcher."""
        for report in batch:
            if self.closed:
                return
            key = (report.task, report.attempt)
            attempt = self.attempts.get(key)
            if attempt is None:
                if report.kind == ENDED:
                    self._devices.release(key, not report.is_alive)
                    self._send(simple_request(FORGET, *key))  # forgotten here, and not yet there
            elif report.kind == STARTED:
                self._on_started(key, attempt)
            elif report.kind == ENDED:
                self._on_ended(key, attempt, report)

    def _on_started(self, key: AttemptId, attempt: ProcessAttempt) -> None:
        attempt.request = None
        if not attempt.started and attempt.end is None:
            attempt.started = True
            assert self.listener is not None, "news before reconcile"
            self.listener.on_attempt_started(*key)

    def _on_ended(self, key: AttemptId, attempt: ProcessAttempt, report: LauncherReport) -> None:
        assert report.end is not None, "an end without an end"
        if attempt.end is not None:
            return  # reported twice: by the supervisor and by its record
        if report.ran:
            self._on_started(key, attempt)
        attempt.output_bytes = report.output_bytes
        end = explain_out_of_memory(report.end, attempt.default_memory)
        if attempt.kill_reason and end.outcome is Outcome.CANCELLED:
            end = msgspec.structs.replace(end, outcome=Outcome.FAILED, note=attempt.kill_reason)
        self.finish(attempt, end, not report.is_alive)

    def finish(self, attempt: ProcessAttempt, end: AttemptEnd, is_gone: bool = True) -> None:
        """Set the end of an attempt, and report it. Its devices are free before the warden knows of its end,
        unless not ``is_gone``: some of its processes could not be killed."""
        attempt.request = None
        attempt.end = end
        self._release_devices(end, is_gone)
        self._wake_followers((end.task, end.attempt))
        assert self.listener is not None, "news before reconcile"
        self.listener.on_attempt_ended(end)

    def _release_devices(self, end: AttemptEnd, is_gone: bool) -> None:
        key = (end.task, end.attempt)
        if self.hunts_strays and end.outcome is Outcome.LOST and self._devices.names_of(key):
            is_gone = kill_strays(*key)
        self._devices.release(key, is_gone)

    def finish_soon(self, end: AttemptEnd) -> None:
        """Report an end that only this daemon knows, in a later turn of the loop."""

        def finish() -> None:
            attempt = self.attempts.get((end.task, end.attempt))
            if attempt is not None and attempt.end is None and not self.closed:
                self.finish(attempt, end)

        asyncio.get_running_loop().call_soon(finish)

    def give_up_unstarted(self, records: Path, reason: str, disk_full: bool) -> bool:
        """End the attempts that never started; return True if others may still run, so that more tries are
        due. ``records`` is the directory of the launcher's records. ``disk_full``: the reason is a full disk,
        so no attempt counts as lost."""
        may_run = False
        outcome = Outcome.UNSTARTED if disk_full else Outcome.LOST
        for (task, number), attempt in self.attempts.items():
            if attempt.end is not None:
                continue
            if attempt.started or (records / f"{task}.{number}").exists():
                may_run = True
            else:
                self.finish_soon(
                    AttemptEnd(task, number, outcome, note=f"no launcher: {reason}"[:NOTE_LENGTH_MAX])
                )
        return may_run

    def reconcile(self, found: list[LauncherReport]) -> None:
        """Bring the requests and the launcher's records together again.

        1. A launcher dies with unread requests. 2. Those attempts have no record: they never ran, and are
        requested again. 3. Those with a record run or have ended. No other process writes records meanwhile.
        """
        reported = {(report.task, report.attempt): report for report in found}
        for key, attempt in list(self.attempts.items()):
            report = reported.pop(key, None)
            if attempt.end is not None:
                continue
            if report is not None and report.kind == FOUND_ENDED:
                self._on_ended(key, attempt, report)
            elif report is not None:
                self._on_started(key, attempt)
            elif attempt.request is not None:
                self._send(attempt.request)
            else:
                self.finish(attempt, AttemptEnd(*key, Outcome.LOST, note="its record has vanished"))
            if attempt.end is None and attempt.stop_at is not None:
                self._send(simple_request(STOP, *key, max(0, attempt.stop_at - now())))
        for key, report in reported.items():
            if report.kind != FOUND_ENDED:
                self._devices.restore(key, decode_metadata(report.extra).devices)
            # forgotten here and the request was lost, or never requested
            self._send(simple_request(FORGET if report.kind == FOUND_ENDED else STOP, *key))
        self._send(simple_request(WATCH))  # an earlier one may be unread


def now() -> int:
    """Return the time since boot in microseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
