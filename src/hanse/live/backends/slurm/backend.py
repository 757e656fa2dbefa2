"""Tasks as jobs of a Slurm cluster: the backend of a warden whose cluster has administrators of its own.

The truth about an attempt is in the shared directory, where its script records start and end
(``batch_script``, ``shared_directory``). Slurm is asked to run scripts; its word counts only where scripts
cannot know. So a controller may crash, forget jobs or run them twice: an attempt begins at most once, and
none counts as lost before it certainly does not run (``attempt_tracker``, ``reconciler``).
"""

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncGenerator, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import Found, Living, Reports, Stream, Wait
from hanse.live.backends.process.launch_requests import Refused, TaskUser
from hanse.live.backends.process.output_files import KeptOutputs, Outputs
from hanse.live.backends.slurm.attempt_store import NOTHING, Attempt, AttemptStore, Fate
from hanse.live.backends.slurm.attempt_tracker import Keeper, now
from hanse.live.backends.slurm.batch_script import ScriptMaker
from hanse.live.backends.slurm.capacity import Room, discover
from hanse.live.backends.slurm.driver import SlurmAwayError, SlurmDriver, SlurmJob, SlurmRefusedError
from hanse.live.backends.slurm.exit_status import untold
from hanse.live.backends.slurm.fs_thread import Clerk, report_failure
from hanse.live.backends.slurm.inotify import DirectoryNews
from hanse.live.backends.slurm.job_names import Key, prefix_of
from hanse.live.backends.slurm.pending_report import wait_of
from hanse.live.backends.slurm.poller import IDLE_FACTOR, Look, Lookout
from hanse.live.backends.slurm.reconciler import Review
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.live.backends.slurm.submitter import START_MICROSECONDS_MAX, Submitter
from hanse.live.disk_space import NO_ROOM
from hanse.model.attempt_key import attempt_key
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import SECOND, JobId, TaskId, index_of, job_of, job_text, task_text
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.resources import Resources
from hanse.security.wall_time import wall_now

KEPT_BYTES_MAX: Final = 1 << 30
"""Output of forgotten attempts that is kept, oldest dropped first."""
KEPT_COUNT_MAX: Final = 10_000
CAPACITY_TRIES_MAX: Final = 5
SHAKY_MICROSECONDS: Final = 60 * SECOND
"""Time after its return in which a controller may still end jobs that it does not remember, or remembers
wrongly: it waits for nodes that are slow to answer."""
FORGETFUL: Final = "duplicate jobid"
"""Slurm's reason for draining a node to which it sent a job that runs there already. Slurm cancels that job;
others were seen to be cancelled as well."""
CLOSE_SECONDS_MAX: Final = 5.0
"""Time limit for writing the last orders."""

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
        place = Path(settings.shared_dir) / cluster if settings.shared_dir else self._directory / "shared"
        self._shared = SharedDirectory(place.absolute(), user)
        self._store = AttemptStore(self._directory)
        self._scripts = ScriptMaker(self._shared.path, cluster)
        self._clerk = Clerk()
        self._outputs = Outputs(self._shared.output)
        self._kept = KeptOutputs(self.kept_bytes_max, self.kept_count_max)
        self._followed: dict[Key, int] = {}
        self._keeper = Keeper(self._shared, self._store, self._clerk, self._look_again, self._outputs.ended)
        self._submitter = Submitter(
            self._keeper, driver, self._scripts, settings.array_max, self._spawn, self._away
        )
        self._review = Review(self._keeper, self._submitter.submit, settings.begin_max)
        self._room = Room(nodes, settings.partition)
        self._fresh: list[Key] = []
        self._jobs: dict[Key, list[SlurmJob]] = {}
        """Jobs in the latest poll."""
        self._is_away = False
        self._shaky_until = 0
        self._lookout: Lookout | None = None
        self._news: DirectoryNews | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelling = False
        self._lock = -1

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """Return the nodes as configured, or as Slurm lists them; raise ``OSError`` if it does not answer."""
        for left in reversed(range(CAPACITY_TRIES_MAX)):
            if self._nodes:
                break
            try:
                found = await self._driver.nodes()
            except (SlurmAwayError, SlurmRefusedError) as error:
                if not left:
                    raise OSError(f"Slurm does not list its nodes: {error}") from None
                await asyncio.sleep(self._settings.poll / SECOND)
                continue
            self._nodes = discover(found, self._settings.partition)
            if not self._nodes:
                raise OSError(f"Slurm has no nodes in {self._settings.partition or 'any partition'}")
            self._room = Room(self._nodes, self._settings.partition)
        return self._nodes

    async def reconcile(self, reports: Reports) -> Found:
        """Take over the directories, from their content alone: Slurm may be unavailable.

        Raises ``OSError`` if another daemon has them, or if they cannot be used.
        """
        keeper = self._keeper
        assert keeper.reports is None, "reconcile is called once"
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._lock = _lock(self._directory)
        self._store.prepare()
        instance = await asyncio.to_thread(self._shared.prepare)
        await asyncio.to_thread(keeper.load, self._scripts)
        self._submitter.prefix = prefix_of(self._cluster, instance)
        self._submitter.names = self._room.names
        keeper.reports = reports
        running, ended = [], []
        for attempt in keeper.attempts.values():
            if attempt.end is not None:
                ended.append(attempt.end)
            else:
                launch = attempt.launch
                running.append(Living(launch.task, launch.attempt, launch.shard, launch.is_movable))
        for dropped in self._kept.load(self._shared.output, lambda key: key in keeper.attempts):
            self._shared.drop_output(dropped)
        self._clerk.start()
        with contextlib.suppress(OSError):  # then the polls of Slurm find new records
            self._news = DirectoryNews(self._shared.records, keeper.heard)
        keeper.heard(None)
        self._lookout = Lookout(self._driver, self._submitter.prefix, self._interval, self._seen, self._away)
        self._spawn(self._lookout.run())
        keeper.rest()
        return Found(tuple(running), tuple(ended))

    def start(self, launch: LaunchAttempt) -> None:
        """Record an attempt; one submission follows for all that start in one turn of the loop."""
        key = (launch.task, launch.attempt)
        keeper = self._keeper
        assert key not in keeper.attempts, f"start called twice for {task_text(key[0])} attempt {key[1]}"
        command = self._scripts.check(launch)
        if isinstance(command, Refused):
            attempt = keeper.attempts[key] = Attempt(launch, NOTHING, 0)
            end = AttemptEnd(*key, Outcome.FAILED, 126, note=command.note)
            asyncio.get_running_loop().call_soon(keeper.finish, attempt, end)
            return
        attempt = keeper.attempts[key] = Attempt(launch, command, now() + self.start_max, wall_now())
        try:
            self._store.save_launch(launch)
        except OSError as error:
            outcome = Outcome.UNSTARTED if error.errno in NO_ROOM else Outcome.LOST
            end = untold(attempt, Fate(outcome, f"it cannot be put on record: {error}"))
            asyncio.get_running_loop().call_soon(keeper.finish, attempt, end)
            return
        if keeper.lease_over():
            attempt.fate = Fate(Outcome.UNSTARTED, "no lease to start it under")
            keeper.revoke(attempt)
            return
        if not self._fresh:
            asyncio.get_running_loop().call_soon(self._gather)
        self._fresh.append(key)

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Write the request into the attempt's orders, which its script reads every second."""
        live = self._keeper.attempts.get((task, attempt))
        if live is None or live.end is not None:
            return
        at = now() + max(grace, 0)
        jobs = self._jobs.get(live.key)
        wait = wait_of(live, jobs, "", self._is_away) if jobs else None
        if wait is not None:
            live.waited_for = wait.reason
        if live.stop_at is None or at < live.stop_at:
            live.stop_at = at
            self._keeper.stop(live, max(grace, 0))

    def guard(self, until: int) -> None:
        """Move the lease in the shared directory."""
        assert self._keeper.reports is not None, "guard before reconcile"
        self._keeper.guard(until)

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop the records; the output stays for a while."""
        key = (task, attempt)
        over = self._keeper.attempts.get(key)
        if over is None or over.end is None:
            return
        del self._keeper.attempts[key]
        self._store.drop(key)

        def dropped(size: int | OSError) -> None:
            for old in self._kept.add(key, size if isinstance(size, int) else 0):
                self._clerk.ask(partial(self._shared.drop_output, old))

        self._clerk.ask(lambda: self._shared.drop(key), dropped)

    def waits(self, job: JobId) -> tuple[Wait, ...]:
        """Return a job's tasks that wait in Slurm's queue, as of the latest poll."""
        found = []
        names = dict(enumerate(self._room.names))  # a record may name a node that is gone
        for key, attempt in self._keeper.attempts.items():
            if job_of(key[0]) == job:
                place = names.get(attempt.launch.node, "")
                wait = wait_of(attempt, self._jobs.get(key, ()), place, self._is_away)
                if wait is not None:
                    found.append(wait)
        return tuple(sorted(found, key=lambda wait: (wait.task, wait.attempt)))

    def closures(self) -> Mapping[int, str]:
        """Return the nodes that Slurm has closed, or all while it does not answer."""
        return self._room.closures

    async def output(
        self, task: TaskId, attempt: int, stream: Stream, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the attempt's output; see ``interface.Backend.output``. Where the file system does not report
        writes of other nodes, growth shows at the next poll of Slurm."""
        key = (task, attempt)
        attempts = self._keeper.attempts
        if key not in attempts and key not in self._kept:
            raise FileNotFoundError(f"no output of {task_text(task)} attempt {attempt} is kept here")

        def alive() -> bool:
            live = attempts.get(key)
            return live is not None and live.end is None and not self._keeper.closed

        pieces = self._outputs.read(key, stream, offset, follow, alive)
        self._followed[key] = self._followed.get(key, 0) + 1
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._followed[key] -= 1
            if not self._followed[key]:
                del self._followed[key]
            await pieces.aclose()

    async def close(self) -> None:
        """Write the orders that wait, and release all resources. Jobs go on under their scripts' watch."""
        self._keeper.close()
        if self._news is not None:
            self._news.close()
        await self._clerk.finish(CLOSE_SECONDS_MAX)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._driver.close()
        for key in self._keeper.attempts:
            self._outputs.ended(key)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- internals ------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Write the orders of all attempts started in one turn, then submit them."""
        keys, self._fresh = self._fresh, []

        secrets = {attempt.key: attempt.command.secret for attempt in self._keeper.living(keys)}

        def write() -> None:
            for key in keys:
                if secrets.get(key):
                    task, attempt = key
                    own = attempt_key(secrets[key], job_text(job_of(task)), index_of(task), attempt)
                    self._shared.write_key(key, own.hex())
                self._shared.order(key, "run")

        def written(result: OSError | None) -> None:
            if isinstance(result, OSError):
                outcome = Outcome.UNSTARTED if result.errno in NO_ROOM else Outcome.LOST
                for attempt in self._keeper.living(keys):  # none of them was submitted
                    fate = Fate(outcome, f"the shared directory cannot be used: {result}")
                    self._keeper.finish(attempt, untold(attempt, fate))
            else:
                self._submitter.submit(keys)
                self._look_again()
                self._keeper.rest()

        self._clerk.ask(write, written)

    def _interval(self) -> float:
        busy = any(attempt.end is None for attempt in self._keeper.attempts.values())
        return self._settings.poll / SECOND * (1 if busy else IDLE_FACTOR)

    def _look_again(self) -> None:
        if self._lookout is not None:
            self._lookout.soon()

    def _shake(self) -> None:
        """Mark all attempts: an absent or just returned controller may end them."""
        for attempt in self._keeper.attempts.values():
            attempt.shaken = True

    def _away(self, why: str) -> None:
        self._shake()
        for attempt in self._keeper.attempts.values():
            attempt.stalled_since = 0  # a start hangs as long as every poll shows it
            attempt.lingers = False
        if not self._is_away:
            log.warning("Slurm does not answer: %s", why)
        self._is_away = True
        self._tell_room(self._room.away())

    def _seen(self, look: Look) -> None:
        if self._is_away:
            log.warning("Slurm answers again")
        if self._is_away or any(node.reason.lower().startswith(FORGETFUL) for node in look.nodes):
            self._shaky_until = look.at + SHAKY_MICROSECONDS
        self._is_away, self._jobs = False, look.by_key
        if look.at < self._shaky_until:
            self._shake()
        self._review.compare(look, self._room.closed(look.nodes))
        useless = self._review.useless(look)
        if useless and not self._cancelling:
            self._cancelling = True
            self._spawn(self._cancel(useless))
        sizes: dict[int, list[Resources]] = {}
        for key, jobs in look.by_key.items():
            live = self._keeper.attempts.get(key)
            if live is not None and any(job.holds_room for job in jobs):
                sizes.setdefault(live.launch.node, []).append(live.launch.size)
        outstaying = self._review.outstaying
        ours = [job for job in look.jobs if (job.number, job.element) not in outstaying]
        self._tell_room(self._room.seen(look.nodes, ours, sizes, look.partitions))
        self._keeper.heard(None)
        for key in self._followed:
            self._outputs.ended(key)  # this only wakes them: they read on

    async def _cancel(self, jobs: list[SlurmJob]) -> None:
        try:
            await self._driver.cancel(jobs)
        except (SlurmAwayError, SlurmRefusedError) as error:
            log.warning("Slurm did not cancel %d jobs: %s", len(jobs), error)
        finally:
            self._cancelling = False

    def _tell_room(self, changes: list[tuple[int, Resources]]) -> None:
        reports = self._keeper.reports
        assert reports is not None, "news before reconcile"
        if not self._keeper.closed:
            for node, amount in changes:
                reports.withheld(node, amount)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_failure)


def _lock(directory: Path) -> int:
    """Lock the directory for this daemon."""
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise OSError(f"another daemon uses {directory}") from None
    return lock
