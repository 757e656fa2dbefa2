"""Submission of attempts to Slurm, equal ones as one array, with retries while the controller is away."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hanse.live.backends.place_variables import rank_text, without_rank
from hanse.live.backends.slurm.attempt_store import EndReason, SlurmAttempt, SubmitPhase
from hanse.live.backends.slurm.attempt_tracker import SlurmAttemptTracker, now
from hanse.live.backends.slurm.batch_script import BatchScriptWriter
from hanse.live.backends.slurm.capacity import requested_amounts
from hanse.live.backends.slurm.driver import (
    SlurmDriver,
    SlurmRefusedError,
    SlurmRetryLaterError,
    SlurmSubmission,
    SlurmUnavailableError,
)
from hanse.live.backends.slurm.job_names import AttemptId, format_tasks, job_comment, split_tasks
from hanse.model.ids import SECOND
from hanse.model.messages import Outcome, TaskPlace
from hanse.model.resources import Resources

START_MICROSECONDS_MAX: Final = 10 * SECOND
"""Time that a start waits for a controller that is away, before it is given back."""

log = logging.getLogger(__name__)


class JobSubmitter:
    """Submitter of a tracker's attempts. ``on_unavailable`` is called when Slurm does not answer."""

    def __init__(
        self,
        tracker: SlurmAttemptTracker,
        driver: SlurmDriver,
        scripts: BatchScriptWriter,
        array_max: int,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_unavailable: Callable[[str], None],
    ) -> None:
        self.prefix = ""
        """Prefix of the names of the runner's jobs."""
        self.node_names: tuple[str, ...] = ()
        """Slurm's names of the nodes; empty: Slurm chooses."""
        self._tracker = tracker
        self._driver = driver
        self._scripts = scripts
        self._array_max = max(1, array_max) if driver.has_arrays else 1
        self._spawn = spawn
        self._on_unavailable = on_unavailable

    def submit(self, keys: list[AttemptId]) -> None:
        """Submit those of ``keys`` that wait, in their order."""
        groups: dict[tuple[bytes, int, Resources, TaskPlace | None], list[AttemptId]] = {}
        for attempt in self._tracker.find_live(keys):
            if _is_waiting(attempt):
                launch = attempt.launch
                kind = (launch.payload, launch.node, launch.size, without_rank(launch.place))
                groups.setdefault(kind, []).append(attempt.key)
        for group in groups.values():
            for part in split_tasks(group, self._array_max):
                self._spawn(self._submit(part))

    async def _submit(self, keys: list[AttemptId]) -> None:
        attempts = [attempt for attempt in self._tracker.find_live(keys) if _is_waiting(attempt)]
        if not attempts:
            return
        for attempt in attempts:
            attempt.phase = SubmitPhase.SUBMITTING
            attempt.submit_count += 1
            attempt.missing_polls = attempt.uncertain_since = 0
        try:
            await self._driver.submit(self._submission(attempts))
        except SlurmUnavailableError as error:
            for attempt in attempts:
                attempt.uncertain_since = now()
            log.warning(
                "Slurm may or may not have taken %s: %s", job_comment([a.key for a in attempts]), error
            )
            self._reset_to_waiting(attempts)
            self._on_unavailable(str(error))
        except SlurmRetryLaterError as error:
            for attempt in attempts:
                attempt.submit_error = str(error)
            self._reset_to_waiting(attempts)
        except SlurmRefusedError as error:
            self._reset_to_waiting(attempts)
            await self._on_refused(attempts, str(error))
        else:
            for attempt in attempts:
                attempt.phase = SubmitPhase.SUBMITTED
                attempt.submitted_at = now()

    def _submission(self, attempts: list[SlurmAttempt]) -> SlurmSubmission:
        keys = [attempt.key for attempt in attempts]
        launch = attempts[0].launch
        ranks = [rank_text(attempt.launch) for attempt in attempts]
        cpus, memory, gres = requested_amounts(launch.size)
        return SlurmSubmission(
            name=self.prefix + format_tasks(keys),
            comment=job_comment(keys),
            script=self._scripts.write_script(launch, attempts[0].program, keys, ranks),
            count=len(keys),
            cpus=cpus,
            memory_mib=memory,
            gres=gres,
            node=self.node_names[launch.node] if launch.node < len(self.node_names) else "",
        )

    def _reset_to_waiting(self, attempts: list[SlurmAttempt]) -> None:
        for attempt in attempts:
            if attempt.phase is SubmitPhase.SUBMITTING:
                attempt.phase = SubmitPhase.WAITING
        self._tracker.set_timer()

    async def _on_refused(self, attempts: list[SlurmAttempt], reason: str) -> None:
        """Handle a refused job. An array may have been too large; otherwise the fault is not the task's, and
        another cluster may take it."""
        if len(attempts) > 1:
            log.warning("Slurm refused an array of %d (%s): submitting one by one", len(attempts), reason)
            for attempt in attempts:
                await self._submit([attempt.key])
        elif attempts[0].end_reason is None:
            self._tracker.force_end(attempts[0], EndReason(Outcome.LOST, f"Slurm refused it: {reason}"))


def _is_waiting(attempt: SlurmAttempt) -> bool:
    return attempt.phase is SubmitPhase.WAITING and attempt.stop_at is None and attempt.end_reason is None
