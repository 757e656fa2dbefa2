"""Tasks as jobs of a Slurm cluster: the backend of a warden whose cluster has administrators of its own.

The truth about an attempt is in the shared directory, where its script records start and end
(``batch_script``, ``shared_directory``). Slurm is asked to run scripts; its word counts only where scripts
cannot know. So a controller may crash, forget jobs or run them twice: an attempt begins at most once, and
none counts as lost before it certainly does not run (``attempt_tracker``, ``reconciler``).
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from hanse.core.config import NodeConfig
from hanse.live.backends.async_files import ThreadedFiles
from hanse.live.backends.interface import (
    BackendListener,
    PendingAttempt,
    ReconcileResult,
    RunningAttempt,
    Stream,
)
from hanse.live.backends.process.kept_outputs import KeptOutputs
from hanse.live.backends.process.launch_requests import LaunchRefusal, TaskUser
from hanse.live.backends.process.output_reader import OutputReader
from hanse.live.backends.slurm.attempt_store import NO_PROGRAM, AttemptStore, EndReason, SlurmAttempt
from hanse.live.backends.slurm.attempt_tracker import SlurmAttemptTracker, now
from hanse.live.backends.slurm.batch_script import BatchScriptWriter
from hanse.live.backends.slurm.capacity import SlurmCapacity, wait_for_nodes
from hanse.live.backends.slurm.driver import SlurmDriver, SlurmJob, SlurmRefusedError, SlurmUnavailableError
from hanse.live.backends.slurm.exit_status import end_without_record
from hanse.live.backends.slurm.fs_thread import FsThread, report_failure
from hanse.live.backends.slurm.inotify import DirectoryWatch, make_inotify
from hanse.live.backends.slurm.job_names import AttemptId, name_prefix
from hanse.live.backends.slurm.pending_report import find_pending_attempt
from hanse.live.backends.slurm.poller import IDLE_FACTOR, PollResult, SlurmPoller
from hanse.live.backends.slurm.reconciler import SlurmReconciler
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.live.backends.slurm.submitter import START_MICROSECONDS_MAX, JobSubmitter
from hanse.live.disk_space import NO_SPACE_ERRNOS
from hanse.model.attempt_key_derivation import derive_attempt_key
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import SECOND, JobId, TaskId, index_of, job_of, job_text, task_text
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.resources import Resources
from hanse.security.wall_time import wall_now

KEPT_BYTES_MAX: Final = 1 << 30
"""Output of forgotten attempts that is kept, oldest dropped first."""
KEPT_COUNT_MAX: Final = 10_000
UNSTABLE_MICROSECONDS: Final = 60 * SECOND
"""Time after its return in which a controller may still end jobs that it does not remember, or remembers
wrongly: it waits for nodes that are slow to answer."""
DUPLICATE_JOB_REASON: Final = "duplicate jobid"
"""Slurm's reason for draining a node to which it sent a job that runs there already. Slurm cancels that job;
others were seen to be cancelled as well."""
CLOSE_SECONDS_MAX: Final = 5.0
"""Time limit for writing the last orders."""
OUTPUT_THREADS_MAX: Final = 8
"""Reads of outputs at once. All of them wait while the shared file system hangs."""

log = logging.getLogger(__name__)


class SlurmBackend:
    """Runner of the tasks of one runner on one Slurm cluster; see ``interface.Backend``.

    ``directory`` belongs to the runner. ``nodes`` may be empty: then ``capacity`` asks Slurm. A node with the
    attribute ``slurm.node`` is that node; Slurm chooses the node for tasks of the others.
    """

    kept_bytes_max = KEPT_BYTES_MAX
    kept_count_max = KEPT_COUNT_MAX
    start_max = START_MICROSECONDS_MAX

    def __init__(
        self,
        directory: Path,
        cluster: str,
        nodes: tuple[NodeConfig, ...],
        driver: SlurmDriver,
        settings: SlurmSettings,
        user: TaskUser,
    ) -> None:
        self._directory = directory.absolute()
        self._cluster = cluster
        self._nodes = nodes
        self._driver = driver
        self._settings = settings
        shared_path = (
            Path(settings.shared_dir) / cluster if settings.shared_dir else self._directory / "shared"
        )
        self._shared = SharedDirectory(shared_path.absolute(), user)
        self._store = AttemptStore(self._directory)
        self._scripts = BatchScriptWriter(self._shared.path, cluster)
        self._fs_thread = FsThread()
        self._output_reader = OutputReader(self._shared.output, ThreadedFiles(OUTPUT_THREADS_MAX, "outputs"))
        self._kept_outputs = KeptOutputs(self.kept_bytes_max, self.kept_count_max)
        self._follow_counts: dict[AttemptId, int] = {}
        self._tracker = SlurmAttemptTracker(
            self._shared, self._store, self._fs_thread, self._poll_soon, self._output_reader.wake_followers
        )
        self._submitter = JobSubmitter(
            self._tracker, driver, self._scripts, settings.array_max, self._spawn, self._on_unavailable
        )
        self._reconciler = SlurmReconciler(self._tracker, self._submitter.submit, settings.begin_max)
        self._slurm_capacity = SlurmCapacity(nodes, settings.partition)
        self._just_started: list[AttemptId] = []
        self._jobs: dict[AttemptId, list[SlurmJob]] = {}
        """Jobs in the latest poll."""
        self._is_unavailable = False
        self._unstable_until = 0
        self._poller: SlurmPoller | None = None
        self._directory_watch: DirectoryWatch | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cancelling = False
        self._lock = -1

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """Return the nodes as configured, or as Slurm lists them; raise ``OSError`` if it does not answer."""
        if not self._nodes:
            self._nodes = await wait_for_nodes(self._driver, self._settings)
            self._slurm_capacity = SlurmCapacity(self._nodes, self._settings.partition)
        return self._nodes

    async def reconcile(self, listener: BackendListener) -> ReconcileResult:
        """Take over the directories, from their content alone: Slurm may be unavailable.

        Raises ``OSError`` if another daemon has them, or if they cannot be used.
        """
        tracker = self._tracker
        assert tracker.listener is None, "reconcile is called once"
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._lock = self._store.lock()
        self._store.make_directories()
        instance = await asyncio.to_thread(self._shared.make_directories)
        await asyncio.to_thread(tracker.load, self._scripts)
        self._submitter.prefix = name_prefix(self._cluster, instance)
        self._submitter.node_names = self._slurm_capacity.node_names
        tracker.listener = listener
        running, ended = [], []
        for attempt in tracker.attempts.values():
            if attempt.end is not None:
                ended.append(attempt.end)
            else:
                launch = attempt.launch
                running.append(RunningAttempt(launch.task, launch.attempt, launch.shard, launch.is_movable))
        await asyncio.to_thread(self._load_kept_outputs)
        self._fs_thread.start()
        with contextlib.suppress(OSError):  # then the polls of Slurm find new records
            inotify = await asyncio.to_thread(make_inotify, self._shared.records)
            self._directory_watch = DirectoryWatch(inotify, tracker.on_files_created)
        tracker.on_files_created(None)
        self._poller = SlurmPoller(
            self._driver, self._submitter.prefix, self._interval, self._on_poll, self._on_unavailable
        )
        self._spawn(self._poller.run())
        tracker.set_timer()
        return ReconcileResult(tuple(running), tuple(ended))

    def start(self, launch: LaunchAttempt) -> None:
        """Record an attempt; one submission follows for all that start in one turn of the loop."""
        key = (launch.task, launch.attempt)
        tracker = self._tracker
        assert key not in tracker.attempts, f"start called twice for {task_text(key[0])} attempt {key[1]}"
        program = self._scripts.read_program(launch)
        if isinstance(program, LaunchRefusal):
            attempt = tracker.attempts[key] = SlurmAttempt(launch, NO_PROGRAM, 0)
            end = AttemptEnd(*key, Outcome.FAILED, 126, note=program.note)
            asyncio.get_running_loop().call_soon(tracker.finish, attempt, end)
            return
        attempt = tracker.attempts[key] = SlurmAttempt(launch, program, now() + self.start_max, wall_now())
        try:
            self._store.save_launch(launch)
        except OSError as error:
            outcome = Outcome.UNSTARTED if error.errno in NO_SPACE_ERRNOS else Outcome.LOST
            end = end_without_record(attempt, EndReason(outcome, f"it cannot be put on record: {error}"))
            asyncio.get_running_loop().call_soon(tracker.finish, attempt, end)
            return
        if tracker.is_lease_over():
            attempt.end_reason = EndReason(Outcome.UNSTARTED, "no lease to start it under")
            tracker.revoke(attempt)
            return
        if not self._just_started:
            asyncio.get_running_loop().call_soon(self._submit_started)
        self._just_started.append(key)

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Write the request into the attempt's orders, which its script reads every second."""
        record = self._tracker.attempts.get((task, attempt))
        if record is None or record.end is not None:
            return
        at = now() + max(grace, 0)
        jobs = self._jobs.get(record.key)
        pending = find_pending_attempt(record, jobs, "", self._is_unavailable) if jobs else None
        if pending is not None:
            record.pending_reason = pending.reason
        if record.stop_at is None or at < record.stop_at:
            record.stop_at = at
            self._tracker.stop(record, max(grace, 0))

    def extend_watchdog(self, until: int) -> None:
        """Move the lease in the shared directory."""
        assert self._tracker.listener is not None, "guard before reconcile"
        self._tracker.extend_lease(until)

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop the records; the output stays for a while."""
        key = (task, attempt)
        record = self._tracker.attempts.get(key)
        if record is None or record.end is None:
            return
        del self._tracker.attempts[key]
        self._store.drop(key)

        def on_dropped(size: int | OSError) -> None:
            for old in self._kept_outputs.add(key, size if isinstance(size, int) else 0):
                self._fs_thread.submit(partial(self._shared.drop_output, old))

        self._fs_thread.submit(lambda: self._shared.drop_records(key), on_dropped)

    def pending_attempts(self, job: JobId) -> tuple[PendingAttempt, ...]:
        """Return a job's tasks that wait in Slurm's queue, as of the latest poll."""
        found = []
        names = dict(enumerate(self._slurm_capacity.node_names))  # a record may name a node that is gone
        for key, attempt in self._tracker.attempts.items():
            if job_of(key[0]) == job:
                node_name = names.get(attempt.launch.node, "")
                pending = find_pending_attempt(
                    attempt, self._jobs.get(key, ()), node_name, self._is_unavailable
                )
                if pending is not None:
                    found.append(pending)
        return tuple(sorted(found, key=lambda pending: (pending.task, pending.attempt)))

    def closed_nodes(self) -> Mapping[int, str]:
        """Return the nodes that Slurm has closed, or all while it does not answer."""
        return self._slurm_capacity.closed_nodes

    async def output(
        self, task: TaskId, attempt: int, stream: Stream, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the attempt's output; see ``interface.Backend.output``. Where the file system does not report
        writes of other nodes, growth shows at the next poll of Slurm."""
        key = (task, attempt)
        attempts = self._tracker.attempts
        if key not in attempts and key not in self._kept_outputs:
            raise FileNotFoundError(f"no output of {task_text(task)} attempt {attempt} is kept here")

        def is_alive() -> bool:
            record = attempts.get(key)
            return record is not None and record.end is None and not self._tracker.closed

        chunks = self._output_reader.read(key, stream, offset, follow, is_alive)
        self._follow_counts[key] = self._follow_counts.get(key, 0) + 1
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            self._follow_counts[key] -= 1
            if not self._follow_counts[key]:
                del self._follow_counts[key]
            await chunks.aclose()

    async def close(self) -> None:
        """Write the orders that wait, and release all resources. Jobs go on under their scripts' watch."""
        self._tracker.close()
        if self._directory_watch is not None:
            self._directory_watch.close()
        await self._fs_thread.drain(CLOSE_SECONDS_MAX)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._driver.close()
        for key in self._tracker.attempts:
            self._output_reader.wake_followers(key)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- internals ------------------------------------------------------------------------------------------

    def _load_kept_outputs(self) -> None:
        """Register the outputs of forgotten attempts, and drop those that are too many. Blocks."""
        attempts = self._tracker.attempts
        for dropped in self._kept_outputs.load(self._shared.output, lambda key: key in attempts):
            self._shared.drop_output(dropped)

    def _submit_started(self) -> None:
        """Write the orders of all attempts started in one turn, then submit them."""
        keys, self._just_started = self._just_started, []

        secrets = {attempt.key: attempt.program.secret for attempt in self._tracker.find_live(keys)}

        def write() -> None:
            for key in keys:
                if secrets.get(key):
                    task, attempt = key
                    own = derive_attempt_key(secrets[key], job_text(job_of(task)), index_of(task), attempt)
                    self._shared.write_key(key, own.hex())
                self._shared.write_orders(key, "run")

        def on_written(result: OSError | None) -> None:
            if isinstance(result, OSError):
                outcome = Outcome.UNSTARTED if result.errno in NO_SPACE_ERRNOS else Outcome.LOST
                for attempt in self._tracker.find_live(keys):  # none of them was submitted
                    end_reason = EndReason(outcome, f"the shared directory cannot be used: {result}")
                    self._tracker.finish(attempt, end_without_record(attempt, end_reason))
            else:
                self._submitter.submit(keys)
                self._poll_soon()
                self._tracker.set_timer()

        self._fs_thread.submit(write, on_written)

    def _interval(self) -> float:
        busy = any(attempt.end is None for attempt in self._tracker.attempts.values())
        return self._settings.poll / SECOND * (1 if busy else IDLE_FACTOR)

    def _poll_soon(self) -> None:
        if self._poller is not None:
            self._poller.poll_soon()

    def _mark_outage(self) -> None:
        """Mark all attempts: an absent or just returned controller may end them."""
        for attempt in self._tracker.attempts.values():
            attempt.saw_outage = True

    def _on_unavailable(self, reason: str) -> None:
        self._mark_outage()
        for attempt in self._tracker.attempts.values():
            attempt.stalled_since = 0  # a start hangs as long as every poll shows it
            attempt.has_live_job = False
        if not self._is_unavailable:
            log.warning("Slurm does not answer: %s", reason)
        self._is_unavailable = True
        self._report_withheld(self._slurm_capacity.withhold_all())

    def _on_poll(self, result: PollResult) -> None:
        if self._is_unavailable:
            log.warning("Slurm answers again")
        if self._is_unavailable or any(
            node.reason.lower().startswith(DUPLICATE_JOB_REASON) for node in result.nodes
        ):
            self._unstable_until = result.at + UNSTABLE_MICROSECONDS
        self._is_unavailable, self._jobs = False, result.by_key
        if result.at < self._unstable_until:
            self._mark_outage()
        self._reconciler.reconcile(result, self._slurm_capacity.find_closed(result.nodes))
        useless = self._reconciler.find_useless_jobs(result)
        if useless and not self._is_cancelling:
            self._is_cancelling = True
            self._spawn(self._cancel(useless))
        sizes: dict[int, list[Resources]] = {}
        for key, jobs in result.by_key.items():
            attempt = self._tracker.attempts.get(key)
            if attempt is not None and any(job.holds_resources for job in jobs):
                sizes.setdefault(attempt.launch.node, []).append(attempt.launch.size)
        lingering = self._reconciler.lingering_jobs
        own_jobs = [job for job in result.jobs if (job.number, job.element) not in lingering]
        self._report_withheld(self._slurm_capacity.update(result.nodes, own_jobs, sizes, result.partitions))
        self._tracker.on_files_created(None)
        for key in self._follow_counts:
            self._output_reader.wake_followers(key)  # this only wakes them: they read on

    async def _cancel(self, jobs: list[SlurmJob]) -> None:
        try:
            await self._driver.cancel(jobs)
        except (SlurmUnavailableError, SlurmRefusedError) as error:
            log.warning("Slurm did not cancel %d jobs: %s", len(jobs), error)
        finally:
            self._is_cancelling = False

    def _report_withheld(self, changes: list[tuple[int, Resources]]) -> None:
        listener = self._tracker.listener
        assert listener is not None, "news before reconcile"
        if not self._tracker.closed:
            for node, amount in changes:
                listener.on_capacity_withheld(node, amount)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_failure)
