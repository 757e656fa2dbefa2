"""Tasks as processes of this machine: the embedded backend.

The compiled supervisors (``live/supervisor``) do everything that must survive a daemon. This module is the
daemon's side: it keeps the requests and the reports, and brings both together again after an absence of the
daemon or the launcher. It awaits nothing, touches no file and makes no thread per task.

``live/supervisor/main.c`` lists the files of the runner's directory. Records are not synced to the disk: they
must survive the death of every process, and after a crash of the machine nothing runs, so an attempt without
a readable end is lost.
"""

import asyncio
import logging
import mmap
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Final, Literal

from hanse.core.config import NodeConfig
from hanse.league.config import UserRange
from hanse.live.backends.interface import (
    BackendListener,
    OutputDroppedError,
    PendingAttempt,
    ReconcileResult,
    RunningAttempt,
    Stream,
)
from hanse.live.backends.process.attempt_tracker import AttemptTracker, ProcessAttempt, now
from hanse.live.backends.process.cgroups import choose_limits, with_device_group
from hanse.live.backends.process.default_memory import MemoryDefault
from hanse.live.backends.process.devices.device_fence import DeviceFence, device_warnings
from hanse.live.backends.process.devices.device_plan import DevicePlan, plan_devices
from hanse.live.backends.process.devices.device_table import DeviceTable
from hanse.live.backends.process.directory_lock import lock_directory
from hanse.live.backends.process.disk_monitor import DiskMonitor
from hanse.live.backends.process.disk_pressure import KEPT_BYTES_MAX, KEPT_COUNT_MAX, DiskPressureManager
from hanse.live.backends.process.host_nodes import default_nodes
from hanse.live.backends.process.kept_outputs import AttemptId, KeptOutputs
from hanse.live.backends.process.launch_requests import (
    AttemptDevices,
    LaunchRefusal,
    StartRequestEncoder,
    decode_metadata,
    find_task_user,
)
from hanse.live.backends.process.launcher_client import LauncherClient
from hanse.live.backends.process.launcher_protocol import (
    DROP,
    FORGET,
    FOUND_RUNNING,
    GRACE_MAX,
    SILENT,
    STOP,
    WATCH,
    simple_request,
)
from hanse.live.backends.process.launcher_recovery import LauncherRecovery
from hanse.live.backends.process.output_reader import OutputReader
from hanse.live.backends.process.sandbox import (
    SandboxMode,
    can_hide_processes,
    wrapper_command,
)
from hanse.live.backends.process.stray_processes import kill_strays
from hanse.live.backends.process.task_users import JobUserPool
from hanse.live.backends.process.watchdog_deadline import DEADLINE_FORMAT, GUARD_AT, open_watchdog_memory
from hanse.live.backends.process.withheld_capacity import WithheldCapacity
from hanse.live.disk_space import FilesystemSpace
from hanse.live.supervisor import supervisor_program
from hanse.model.effects import LaunchAttempt
from hanse.model.hardware.devices import Device
from hanse.model.ids import JobId, TaskId, task_text
from hanse.model.messages import AttemptEnd, Outcome

OUTPUT_BYTES_MAX: Final = 64 << 20
"""Bytes kept of each stream of an attempt; the rest is dropped, with a note at its end."""
PIDS_MAX: Final = 1_024
"""Processes and threads of an attempt."""
NO_USER: Final = "all user ids for jobs are in use here: give the backend more ('users' in the league file)"

NO_DEVICE: Final = "too few of its node's devices are free here"

log = logging.getLogger(__name__)


class ProcessBackend:
    """Runner of the tasks of one runner; see ``interface.Backend``.

    ``directory`` belongs to the runner and survives it. ``user`` is the account of the tasks if the daemon is
    root; None: root; a ``UserRange``: a user id of its own for each job. ``sandbox`` puts bubblewrap around
    tasks; in the mode ``namespace`` it hides this directory and those in ``hidden``. ``driver`` selects the
    kind of limits (``cgroups``); ``warnings`` lists missing limits. ``memory_default`` is the limit in bytes
    of tasks that asked for no memory; 0: a share of their node's. ``devices`` are those that are assigned;
    None: those that the nodes list.
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
        sandbox: SandboxMode = "none",
        hidden: tuple[Path, ...] = (),
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        pids_max: int = PIDS_MAX,
        driver: Literal["auto", "v2", "v1", "rlimit"] = "auto",
        memory_default: int = 0,
        disk_quota: int = 0,
        files_quota: int = 0,
        devices: DevicePlan | None = None,
    ) -> None:
        supervisor_program()
        directory = directory.absolute()
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._directory = directory
        self._nodes = nodes
        self._plan = plan = plan_devices(nodes) if devices is None else devices
        limits = choose_limits(driver, directory)
        self._limits = with_device_group(limits, directory) if plan.fenced else limits
        self.driver = self._limits.driver
        self.sandbox = sandbox
        self.warnings = (*self._limits.warnings, *device_warnings(plan, sandbox, self._limits))
        for warning in self.warnings:
            log.warning("%s", warning)
        self._user_range = user if isinstance(user, UserRange) and os.geteuid() == 0 else None
        self._user_pool: JobUserPool | None = None
        memory = MemoryDefault(nodes, memory_default)
        self._encoder = self._make_encoder(cluster, user, hidden, output_bytes_max, pids_max, memory)
        self._output_reader = OutputReader(directory / "output")
        self._withheld = WithheldCapacity()
        self._devices = DeviceTable(plan, self._withheld.on_devices_withheld)
        self._tracker = AttemptTracker(self._send, self._output_reader.wake_followers, self._devices)
        bases = tuple(base.path for base in self._limits.bases)
        self._launcher = LauncherClient(directory, bases, self._tracker.on_reports, self._on_launcher_lost)
        self._recovery = LauncherRecovery(
            directory, self._launcher, self._limits, self._tracker, self._load_kept_outputs
        )
        self._kept_outputs = KeptOutputs(self.kept_bytes_max, self.kept_count_max)
        self._disk_manager = DiskPressureManager(
            DiskMonitor(directory, disk_quota, files_quota), self._kept_outputs, nodes, self
        )
        self._disk_task: asyncio.Task[None] | None = None
        self._lock = -1
        self._watchdog_memory: mmap.mmap | None = None

    def _make_encoder(
        self,
        cluster: str,
        user: str | int | UserRange | None,
        hidden: tuple[Path, ...],
        output_bytes_max: int,
        pids_max: int,
        memory: MemoryDefault,
    ) -> StartRequestEncoder:
        directory = self._directory
        run_as = find_task_user("nobody" if isinstance(user, UserRange) else user)
        wrapper = wrapper_command(self.sandbox, directory, hidden, run_as.uid, run_as.gids)
        encoder = StartRequestEncoder(
            directory, cluster, run_as, self._limits, wrapper, output_bytes_max, pids_max, memory
        )
        encoder.fence = DeviceFence(self._plan.fenced, self.sandbox, directory)
        has_job_users = self._user_range is not None and self.sandbox == "none"
        encoder.hides_processes = has_job_users and can_hide_processes()
        return encoder

    @property
    def launcher_pid(self) -> int:
        """The process number of the launcher, for operators; 0 before ``reconcile``."""
        return self._launcher.pid

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """Return the configured nodes."""
        return self._nodes

    async def reconcile(self, listener: BackendListener) -> ReconcileResult:
        """Take over the directory; raise ``OSError`` if another daemon has it, or if it cannot be used."""
        assert self._tracker.listener is None, "reconcile is called once"
        self._lock = await lock_directory(self._directory)
        self._watchdog_memory = open_watchdog_memory(self._directory / "guard")
        if self._user_range is not None:
            self._user_pool = JobUserPool(self._user_range, self._directory)
        found = await self._launcher.open()
        self._tracker.hunts_strays = self._limits.driver == "rlimit"
        self._limits.make_directories()  # after the greeting: a launcher that exits removes them
        self._tracker.listener = self._withheld.listener = listener
        running, ended = [], []
        for report in found:
            key = (report.task, report.attempt)
            attempt = self._tracker.attempts[key] = ProcessAttempt(None)
            attempt.started = True
            if report.kind == FOUND_RUNNING:
                meta = decode_metadata(report.extra)
                self._devices.restore(key, meta.devices)
                running.append(RunningAttempt(report.task, report.attempt, meta.shard, meta.is_movable))
                if self._user_pool is not None:
                    self._user_pool.assign(key, meta.uid)
            else:
                assert report.end is not None, "an end without an end"
                attempt.end, attempt.output_bytes = report.end, report.output_bytes
                if self._plan.by_node and self._tracker.hunts_strays and report.end.outcome is Outcome.LOST:
                    kill_strays(*key)
                ended.append(report.end)
        if self._user_pool is not None:
            self._user_pool.rescan()
        self._load_kept_outputs()
        self._disk_task = asyncio.get_running_loop().create_task(
            self._disk_manager.run(self._directory, self._withheld)
        )
        self._devices.report_withheld()
        return ReconcileResult(tuple(running), tuple(ended))

    def start(self, launch: LaunchAttempt) -> None:
        """Ask the launcher to start an attempt; it writes the record before it makes a process."""
        key = (launch.task, launch.attempt)
        assert key not in self._tracker.attempts, (
            f"start called twice for {task_text(key[0])} attempt {key[1]}"
        )
        uid = -1 if self._user_pool is None else self._user_pool.allocate(key)
        if uid is None:
            self._tracker.attempts[key] = ProcessAttempt(None)
            self._tracker.finish_soon(AttemptEnd(launch.task, launch.attempt, Outcome.LOST, note=NO_USER))
            return
        assigned = self._devices.assign(key, launch.node, launch.size)
        if assigned is None:
            self._tracker.attempts[key] = ProcessAttempt(None)
            self._tracker.finish_soon(AttemptEnd(*key, Outcome.UNSTARTED, note=NO_DEVICE))
            return
        devices = AttemptDevices(
            assigned, self._devices.names_of(key), self._plan.by_node.get(launch.node, ())
        )
        request = self._encoder.encode(launch, uid, devices)
        if isinstance(request, LaunchRefusal):
            self._tracker.attempts[key] = ProcessAttempt(None)
            self._tracker.finish_soon(
                AttemptEnd(launch.task, launch.attempt, Outcome.FAILED, 126, note=request.note)
            )
            return
        self._tracker.attempts[key] = ProcessAttempt(request, self._encoder.default_memory(launch))
        if not self._launcher.send(request):
            note = "too many requests wait for the launcher"
            self._tracker.finish_soon(AttemptEnd(launch.task, launch.attempt, Outcome.LOST, note=note))
        elif not self._launcher.is_open:
            self._recovery.start("it was away")

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Have its supervisor send SIGTERM now and SIGKILL after ``grace`` microseconds."""
        record = self._tracker.attempts.get((task, attempt))
        if record is None or record.end is not None:
            return
        grace = min(max(grace, 0), GRACE_MAX)
        at = now() + grace
        record.stop_at = at if record.stop_at is None else min(at, record.stop_at)
        self._launcher.send(simple_request(STOP, task, attempt, grace))
        if not self._launcher.is_open:
            self._recovery.start("it was away")

    def extend_watchdog(self, until: int) -> None:
        """Move the deadline in the memory that all supervisors share."""
        assert self._watchdog_memory is not None, "guard before reconcile"
        before = DEADLINE_FORMAT.unpack_from(self._watchdog_memory, GUARD_AT)[0]
        if until > before:
            DEADLINE_FORMAT.pack_into(self._watchdog_memory, GUARD_AT, until)
        if before == 0:
            self._launcher.send(simple_request(WATCH))  # supervisors that found no deadline set no timer

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop the record and the working directory; the output stays for a while."""
        key = (task, attempt)
        record = self._tracker.attempts.get(key)
        if record is None or record.end is None:
            return
        del self._tracker.attempts[key]
        if self._user_pool is not None:
            self._user_pool.release(key)
        self._launcher.send(simple_request(FORGET, task, attempt, 0 if record.output_bytes else SILENT))
        if not self._kept_outputs.was_dropped(key):
            for oldest in self._kept_outputs.add(key, record.output_bytes):
                self.drop_output(oldest)

    def pending_attempts(self, job: JobId) -> tuple[PendingAttempt, ...]:  # noqa: ARG002  no job has any
        """Return nothing: there is no queue between this machine and its tasks."""
        return ()

    def device_uses(self, node: int) -> tuple[tuple[Device, TaskId | None], ...]:
        """Return the devices of a node that are assigned here, each with the task that has it."""
        return self._devices.uses(node)

    def closed_nodes(self) -> Mapping[int, str]:
        """Return all nodes while the disk of their tasks is nearly full: no other program assigns them."""
        return self._disk_manager.closed_nodes()

    @property
    def disk_space(self) -> FilesystemSpace | None:
        """The disk under the tasks, as of the latest measurement; None: there was none."""
        return self._disk_manager.disk_space

    async def output(
        self, task: TaskId, attempt: int, stream: Stream, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the attempt's output; see ``interface.Backend.output``."""
        key = (task, attempt)
        if self._kept_outputs.was_dropped(key):
            raise OutputDroppedError(f"the output of {task_text(task)} attempt {attempt} was dropped")
        if key not in self._tracker.attempts and key not in self._kept_outputs:
            raise FileNotFoundError(f"no output of {task_text(task)} attempt {attempt} is kept here")

        def is_alive() -> bool:
            record = self._tracker.attempts.get(key)
            return record is not None and record.end is None and not self._tracker.closed

        chunks = self._output_reader.read(key, stream, offset, follow, is_alive)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    async def close(self) -> None:
        """Disconnect. Supervisors go on, and the launcher as long as a supervisor runs."""
        self._tracker.closed = True
        await self._recovery.cancel()
        if self._disk_task is not None:
            self._disk_task.cancel()
            await asyncio.wait([self._disk_task])
        await self._launcher.close()
        for key in self._tracker.attempts:
            self._output_reader.wake_followers(key)
        if self._watchdog_memory is not None:
            self._watchdog_memory.close()
            self._watchdog_memory = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- ``disk_pressure.AttemptControl`` ---------------------------------------------------------------

    def running_attempts(self) -> list[AttemptId]:
        """Return the attempts that have started and not ended."""
        return [
            key for key, record in self._tracker.attempts.items() if record.started and record.end is None
        ]

    def ended_attempts(self) -> dict[AttemptId, int]:
        """Return the ended, not yet forgotten attempts that have output, with its bytes."""
        return {
            key: record.output_bytes
            for key, record in self._tracker.attempts.items()
            if record.end is not None and not self._kept_outputs.was_dropped(key)
        }

    def drop_output(self, key: AttemptId) -> None:
        """Remove an output."""
        self._launcher.send(simple_request(DROP, *key))

    def evict(self, key: AttemptId, reason: str) -> None:
        """End an attempt that has too many or too large files."""
        record = self._tracker.attempts.get(key)
        if record is not None and record.end is None and record.stop_at is None:
            log.warning("%s attempt %d is ended: %s", task_text(key[0]), key[1], reason)
            record.kill_reason = reason
            self.stop(*key, 0)

    # --- the launcher --------------------------------------------------------------------------------------

    def _send(self, request: bytes) -> bool:
        return self._launcher.send(request)

    def _on_launcher_lost(self, reason: str) -> None:
        self._recovery.start(reason)

    def _load_kept_outputs(self) -> None:
        """Count the outputs on the disk that are not counted yet: requests to drop some may be lost."""

        def is_counted(key: AttemptId) -> bool:
            return key in self._tracker.attempts or key in self._kept_outputs

        for key in self._kept_outputs.load(self._directory / "output", is_counted):
            self.drop_output(key)


__all__ = ["ProcessBackend", "default_nodes"]
