"""Tasks as processes of this machine: the embedded backend.

The compiled supervisors (``supervisor.c``) do everything that must survive a daemon. This module is the
daemon's side: it keeps the requests and the reports, and brings both together again after an absence of the
daemon or the launcher. It awaits nothing, touches no file and makes no thread per task.

``supervisor.c`` lists the files of the runner's directory. Records are not synced to the disk: they must
survive the death of every process, and after a crash of the machine nothing runs, so an attempt without a
readable end is lost.
"""

import asyncio
import logging
import mmap
import os
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import Found, Living, OutputDroppedError, Reports, Stream, Wait
from hanse.live.backends.process.cgroups import choose
from hanse.live.backends.process.default_memory import MemoryDefault, explained
from hanse.live.backends.process.disk_quota import DiskWatch
from hanse.live.backends.process.host_nodes import default_nodes
from hanse.live.backends.process.launch_requests import CommandEncoder, Meta, Refused, TaskUser, task_user
from hanse.live.backends.process.launcher_client import LauncherGoneError, LauncherLink
from hanse.live.backends.process.launcher_protocol import (
    DROP,
    ENDED,
    FORGET,
    FOUND_ENDED,
    FOUND_RUNNING,
    GRACE_MAX,
    SILENT,
    STARTED,
    STOP,
    WATCH,
    News,
    simple,
)
from hanse.live.backends.process.output_files import KeptOutputs, Key, Outputs
from hanse.live.backends.process.runner_directory import DEADLINE, GUARD_AT, lock_directory, open_guard
from hanse.live.backends.process.sandbox import Walls, bubblewrap, can_hide, check_reach, namespace
from hanse.live.backends.process.task_disk import KEPT_BYTES_MAX, KEPT_COUNT_MAX, TaskDisk
from hanse.live.backends.process.task_users import JobUsers, UserRange
from hanse.live.disk_space import NO_ROOM, Room
from hanse.live.supervisor import SupervisorMissingError, supervisor_program
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import JobId, TaskId, task_text
from hanse.model.messages import AttemptEnd, Outcome

OUTPUT_BYTES_MAX: Final = 64 << 20
"""Bytes kept of each stream of an attempt; the rest is dropped, with a note at its end."""
PIDS_MAX: Final = 1_024
"""Processes and threads of an attempt."""
RETRY_SECONDS: Final = (0.0, 0.05, 0.2, 1.0, 3.0)
"""Delays before each try to find or start a launcher; when all have failed, attempts that never started end
as lost, and the last delay repeats for as long as an attempt runs."""
NOTE_LENGTH_MAX: Final = 200
"""Characters of a note on an end; longer notes are cut."""
NO_USER: Final = "all user ids for jobs are in use here: give the backend more ('users' in the league file)"

log = logging.getLogger(__name__)


class _Attempt:
    """The daemon's knowledge of an attempt until it is forgotten."""

    __slots__ = ("default_memory", "end", "output_bytes", "request", "started", "stop_at", "verdict")

    def __init__(self, request: bytes | None, default_memory: int = 0) -> None:
        self.default_memory = default_memory
        """Its limit in bytes if it did not ask for memory; 0 also for one that an earlier daemon started."""
        self.request = request
        """The request to start it, until the launcher has a record of it."""
        self.started = False
        self.stop_at: int | None = None
        self.verdict = ""
        """Reason for which the backend itself ends it; empty: none."""
        self.end: AttemptEnd | None = None
        self.output_bytes = 0


class ProcessBackend:
    """Runner of the tasks of one runner; see ``interface.Backend``.

    ``directory`` belongs to the runner and survives it. ``user`` is the account of the tasks if the daemon is
    root; None: root; a ``UserRange``: a user id of its own for each job. ``sandbox`` puts bubblewrap around
    tasks; in the mode ``namespace`` it hides this directory and those in ``hidden``. ``driver`` selects the
    kind of limits (``cgroups``); ``warnings`` lists missing limits. ``memory_default`` is the limit in bytes
    of tasks that asked for no memory; 0: a share of their node's.
    """

    kept_bytes_max = KEPT_BYTES_MAX
    kept_count_max = KEPT_COUNT_MAX

    def __init__(  # noqa: PLR0913  the settings of the league file, by name
        self,
        directory: Path,
        cluster: str,
        nodes: tuple[NodeConfig, ...],
        *,
        user: str | int | UserRange | None = "nobody",
        sandbox: Walls = "none",
        hidden: tuple[Path, ...] = (),
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        pids_max: int = PIDS_MAX,
        driver: Literal["auto", "v2", "v1", "rlimit"] = "auto",
        memory_default: int = 0,
        disk_quota: int = 0,
        files_quota: int = 0,
    ) -> None:
        supervisor_program()
        directory = directory.absolute()
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._directory = directory
        self._nodes = nodes
        self._limits = choose(driver, directory)
        self.driver = self._limits.driver
        self.sandbox = sandbox
        self.warnings = self._limits.warnings
        for warning in self.warnings:
            log.warning("%s", warning)
        self._range = user if isinstance(user, UserRange) and os.geteuid() == 0 else None
        self._users: JobUsers | None = None
        who = task_user("nobody" if isinstance(user, UserRange) else user)
        wrapper = _walls(sandbox, directory, hidden, who)
        memory = MemoryDefault(nodes, memory_default)
        self._encoder = CommandEncoder(
            directory, cluster, who, self._limits, wrapper, output_bytes_max, pids_max, memory
        )
        self._encoder.alone = self._range is not None and sandbox == "none" and can_hide()
        bases = tuple(base.path for base in self._limits.bases)
        self._link = LauncherLink(directory, bases, self._heard, self._lost)
        self._attempts: dict[Key, _Attempt] = {}
        self._outputs = Outputs(directory / "output")
        self._kept = KeptOutputs(self.kept_bytes_max, self.kept_count_max)
        self._reports: Reports | None = None
        self._recovery: asyncio.Task[None] | None = None
        watch = DiskWatch(directory, disk_quota, files_quota)
        self._disk = TaskDisk(watch, self._kept, nodes, self)
        self._watching: asyncio.Task[None] | None = None
        self._lock = -1
        self._guard: mmap.mmap | None = None
        self._closed = False

    @property
    def launcher_pid(self) -> int:
        """The process number of the launcher, for operators; 0 before ``reconcile``."""
        return self._link.pid

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """Return the configured nodes."""
        return self._nodes

    async def reconcile(self, reports: Reports) -> Found:
        """Take over the directory; raise ``OSError`` if another daemon has it, or if it cannot be used."""
        assert self._reports is None, "reconcile is called once"
        self._lock = await lock_directory(self._directory)
        self._guard = open_guard(self._directory / "guard")
        if self._range is not None:
            self._users = JobUsers(self._range, self._directory)
        found = await self._link.open()
        self._limits.make()  # after the greeting: a launcher that exits removes them
        self._reports = reports
        running, ended = [], []
        for news in found:
            key = (news.task, news.attempt)
            attempt = self._attempts[key] = _Attempt(None)
            attempt.started = True
            if news.kind == FOUND_RUNNING:
                meta = msgspec.msgpack.decode(news.extra, type=Meta)
                running.append(Living(news.task, news.attempt, meta.estate, meta.moves))
                if self._users is not None:
                    self._users.hold(key, meta.uid)
            else:
                assert news.end is not None, "an end without an end"
                attempt.end, attempt.output_bytes = news.end, news.output_bytes
                ended.append(news.end)
        if self._users is not None:
            self._users.begin()
        self._take_kept()
        self._watching = asyncio.get_running_loop().create_task(self._disk.keep(self._directory, reports))
        return Found(tuple(running), tuple(ended))

    def start(self, launch: LaunchAttempt) -> None:
        """Ask the launcher to start an attempt; it writes the record before it makes a process."""
        key = (launch.task, launch.attempt)
        assert key not in self._attempts, f"start called twice for {task_text(key[0])} attempt {key[1]}"
        uid = -1 if self._users is None else self._users.take(key)
        if uid is None:
            self._attempts[key] = _Attempt(None)
            self._end_soon(AttemptEnd(launch.task, launch.attempt, Outcome.LOST, note=NO_USER))
            return
        request = self._encoder.encode(launch, uid)
        if isinstance(request, Refused):
            self._attempts[key] = _Attempt(None)
            self._end_soon(AttemptEnd(launch.task, launch.attempt, Outcome.FAILED, 126, note=request.note))
            return
        self._attempts[key] = _Attempt(request, self._encoder.default_memory(launch))
        if not self._link.send(request):
            note = "too many requests wait for the launcher"
            self._end_soon(AttemptEnd(launch.task, launch.attempt, Outcome.LOST, note=note))
        elif not self._link.is_open:
            self._lost("it was away")

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Have its supervisor send SIGTERM now and SIGKILL after ``grace`` microseconds."""
        live = self._attempts.get((task, attempt))
        if live is None or live.end is not None:
            return
        grace = min(max(grace, 0), GRACE_MAX)
        at = _now() + grace
        live.stop_at = at if live.stop_at is None else min(at, live.stop_at)
        self._link.send(simple(STOP, task, attempt, grace))
        if not self._link.is_open:
            self._lost("it was away")

    def guard(self, until: int) -> None:
        """Move the deadline in the memory that all supervisors share."""
        assert self._guard is not None, "guard before reconcile"
        before = DEADLINE.unpack_from(self._guard, GUARD_AT)[0]
        if until > before:
            DEADLINE.pack_into(self._guard, GUARD_AT, until)
        if before == 0:
            self._link.send(simple(WATCH))  # supervisors that found no deadline set no timer

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop the record and the working directory; the output stays for a while."""
        key = (task, attempt)
        over = self._attempts.get(key)
        if over is None or over.end is None:
            return
        del self._attempts[key]
        if self._users is not None:
            self._users.release(key)
        self._link.send(simple(FORGET, task, attempt, 0 if over.output_bytes else SILENT))
        if not self._kept.was_dropped(key):
            for dropped in self._kept.add(key, over.output_bytes):
                self.drop(dropped)

    def waits(self, job: JobId) -> tuple[Wait, ...]:  # noqa: ARG002  no job has any
        """Return nothing: there is no queue between this machine and its tasks."""
        return ()

    def closures(self) -> Mapping[int, str]:
        """Return all nodes while the disk of their tasks is nearly full: no other program assigns them."""
        return self._disk.closures()

    @property
    def room(self) -> Room | None:
        """The disk under the tasks, as of the latest measurement; None: there was none."""
        return self._disk.room

    async def output(
        self, task: TaskId, attempt: int, stream: Stream, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the attempt's output; see ``interface.Backend.output``."""
        key = (task, attempt)
        if self._kept.was_dropped(key):
            raise OutputDroppedError(f"the output of {task_text(task)} attempt {attempt} was dropped")
        if key not in self._attempts and key not in self._kept:
            raise FileNotFoundError(f"no output of {task_text(task)} attempt {attempt} is kept here")

        def alive() -> bool:
            live = self._attempts.get(key)
            return live is not None and live.end is None and not self._closed

        pieces = self._outputs.read(key, stream, offset, follow, alive)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    async def close(self) -> None:
        """Disconnect. Supervisors go on, and the launcher as long as a supervisor runs."""
        self._closed = True
        for task in (self._recovery, self._watching):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._link.close()
        for key in self._attempts:
            self._outputs.ended(key)
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- reports of the launcher --------------------------------------------------------------------------

    def _heard(self, batch: list[News]) -> None:
        for news in batch:
            if self._closed:
                return
            key = (news.task, news.attempt)
            attempt = self._attempts.get(key)
            if attempt is None:
                if news.kind == ENDED:
                    self._link.send(simple(FORGET, *key))  # forgotten here, and not yet there
            elif news.kind == STARTED:
                self._began(key, attempt)
            elif news.kind == ENDED:
                self._over(key, attempt, news)

    def _began(self, key: Key, attempt: _Attempt) -> None:
        attempt.request = None
        if not attempt.started and attempt.end is None:
            attempt.started = True
            assert self._reports is not None, "news before reconcile"
            self._reports.started(*key)

    def _over(self, key: Key, attempt: _Attempt, news: News) -> None:
        assert news.end is not None, "an end without an end"
        if attempt.end is not None:
            return  # reported twice: by the supervisor and by its record
        if news.ran:
            self._began(key, attempt)
        attempt.output_bytes = news.output_bytes
        end = explained(news.end, attempt.default_memory)
        if attempt.verdict and end.outcome is Outcome.CANCELLED:
            end = msgspec.structs.replace(end, outcome=Outcome.FAILED, note=attempt.verdict)
        self._exited(attempt, end)

    def _exited(self, attempt: _Attempt, end: AttemptEnd) -> None:
        attempt.request = None
        attempt.end = end
        self._outputs.ended((end.task, end.attempt))
        assert self._reports is not None, "news before reconcile"
        self._reports.exited(end)

    def _end_soon(self, end: AttemptEnd) -> None:
        """Report an end that only this daemon knows, in a later turn of the loop."""

        def report() -> None:
            attempt = self._attempts.get((end.task, end.attempt))
            if attempt is not None and attempt.end is None and not self._closed:
                self._exited(attempt, end)

        asyncio.get_running_loop().call_soon(report)

    # --- ``task_disk.AttemptControl`` -----------------------------------------------------------------------

    def running(self) -> list[Key]:
        """Return the attempts that have started and not ended."""
        return [key for key, live in self._attempts.items() if live.started and live.end is None]

    def ended(self) -> dict[Key, int]:
        """Return the ended, not yet forgotten attempts that have output, with its bytes."""
        return {
            key: over.output_bytes
            for key, over in self._attempts.items()
            if over.end is not None and not self._kept.was_dropped(key)
        }

    def drop(self, key: Key) -> None:
        """Remove an output."""
        self._link.send(simple(DROP, *key))

    def judge(self, key: Key, why: str) -> None:
        """End an attempt that has too many or too large files."""
        live = self._attempts.get(key)
        if live is not None and live.end is None and live.stop_at is None:
            log.warning("%s attempt %d is ended: %s", task_text(key[0]), key[1], why)
            live.verdict = why
            self.stop(*key, 0)

    # --- loss of the launcher -----------------------------------------------------------------------------

    def _lost(self, why: str) -> None:
        if self._closed or self._recovery is not None:
            return
        log.warning("the launcher of %s is gone (%s): starting another", self._directory, why)
        self._recovery = asyncio.get_running_loop().create_task(self._recover())
        self._recovery.add_done_callback(self._recovered)

    def _recovered(self, task: asyncio.Task[None]) -> None:
        self._recovery = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            context = {"message": "recovering a launcher failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    async def _recover(self) -> None:
        tries = 0
        while True:
            await asyncio.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            tries += 1
            try:
                found = await self._link.open()
                self._limits.make()
            except (OSError, LauncherGoneError, SupervisorMissingError) as error:
                log.error("the launcher of %s cannot be started: %s", self._directory, error)  # noqa: TRY400  the sentence says it all
                await self._link.close()
                full = isinstance(error, OSError) and error.errno in NO_ROOM
                if tries >= len(RETRY_SECONDS) and not self._give_up(str(error), full):
                    return
                continue
            self._compare(found)
            return

    def _give_up(self, why: str, full: bool) -> bool:
        """End the attempts that never started; return True if others may still run, so that more tries are
        due. ``disk_full``: the reason is a full disk, so no attempt counts as lost."""
        may_run = False
        outcome = Outcome.UNSTARTED if full else Outcome.LOST
        for (task, number), attempt in self._attempts.items():
            if attempt.end is not None:
                continue
            if attempt.started or (self._directory / "records" / f"{task}.{number}").exists():
                may_run = True
            else:
                self._end_soon(
                    AttemptEnd(task, number, outcome, note=f"no launcher: {why}"[:NOTE_LENGTH_MAX])
                )
        return may_run

    def _compare(self, found: list[News]) -> None:
        """Bring the requests and the launcher's records together again.

        1. A launcher dies with unread requests. 2. Those attempts have no record: they never ran, and are
        requested again. 3. Those with a record run or have ended. No other process writes records meanwhile.
        """
        there = {(news.task, news.attempt): news for news in found}
        for key, attempt in list(self._attempts.items()):
            news = there.pop(key, None)
            if attempt.end is not None:
                continue
            if news is not None and news.kind == FOUND_ENDED:
                self._over(key, attempt, news)
            elif news is not None:
                self._began(key, attempt)
            elif attempt.request is not None:
                self._link.send(attempt.request)
            else:
                self._exited(attempt, AttemptEnd(*key, Outcome.LOST, note="its record has vanished"))
            if attempt.end is None and attempt.stop_at is not None:
                self._link.send(simple(STOP, *key, max(0, attempt.stop_at - _now())))
        for key, news in there.items():
            # forgotten here and the request was lost, or never requested
            self._link.send(simple(FORGET if news.kind == FOUND_ENDED else STOP, *key))
        self._link.send(simple(WATCH))  # an earlier one may be unread
        self._take_kept()

    def _take_kept(self) -> None:
        """Count the outputs on the disk that are not counted yet: requests to drop some may be lost."""

        def counted(key: Key) -> bool:
            return key in self._attempts or key in self._kept

        for key in self._kept.load(self._directory / "output", counted):
            self.drop(key)


def _walls(sandbox: Walls, directory: Path, hidden: tuple[Path, ...], who: TaskUser) -> tuple[bytes, ...]:
    """Return the words before each command that set up the sandbox; empty: no sandbox."""
    if sandbox == "none":
        return ()
    words = bubblewrap() if sandbox == "bwrap" else namespace((directory, *hidden))
    if who.uid > 0:
        check_reach(directory, who.uid, who.gids)
    return words


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000


__all__ = ["ProcessBackend", "default_nodes"]
