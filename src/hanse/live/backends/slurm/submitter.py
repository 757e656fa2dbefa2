"""Submission of attempts to Slurm, equal ones as one array, with retries while the controller is away."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hanse.live.backends.slurm.attempt_store import Attempt, Fate, Phase
from hanse.live.backends.slurm.attempt_tracker import Keeper, now
from hanse.live.backends.slurm.batch_script import ScriptMaker
from hanse.live.backends.slurm.capacity import asked
from hanse.live.backends.slurm.driver import (
    SlurmAwayError,
    SlurmDriver,
    SlurmLaterError,
    SlurmRefusedError,
    Submission,
)
from hanse.live.backends.slurm.job_names import Key, parts, title, write_tasks
from hanse.model.ids import SECOND
from hanse.model.messages import Outcome
from hanse.model.resources import Resources

START_MICROSECONDS_MAX: Final = 10 * SECOND
"""Time that a start waits for a controller that is away, before it is given back."""

log = logging.getLogger(__name__)


class Submitter:
    """Submitter of a tracker's attempts. ``on_unavailable`` is called when Slurm does not answer."""

    def __init__(
        self,
        keeper: Keeper,
        driver: SlurmDriver,
        scripts: ScriptMaker,
        array_max: int,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        away: Callable[[str], None],
    ) -> None:
        self.prefix = ""
        """Prefix of the names of the runner's jobs."""
        self.names: tuple[str, ...] = ()
        """Slurm's names of the nodes; empty: Slurm chooses."""
        self._keeper = keeper
        self._driver = driver
        self._scripts = scripts
        self._array_max = max(1, array_max) if driver.arrays else 1
        self._spawn = spawn
        self._away = away

    def submit(self, keys: list[Key]) -> None:
        """Submit those of ``keys`` that wait, in their order."""
        groups: dict[tuple[bytes, int, Resources], list[Key]] = {}
        for attempt in self._keeper.living(keys):
            if _waits(attempt):
                launch = attempt.launch
                groups.setdefault((launch.payload, launch.node, launch.size), []).append(attempt.key)
        for group in groups.values():
            for part in parts(group, self._array_max):
                self._spawn(self._submit(part))

    async def _submit(self, keys: list[Key]) -> None:
        attempts = [attempt for attempt in self._keeper.living(keys) if _waits(attempt)]
        if not attempts:
            return
        for attempt in attempts:
            attempt.phase = Phase.SUBMITTING
            attempt.submits += 1
            attempt.missing = attempt.unsure_since = 0
        try:
            await self._driver.submit(self._submission(attempts))
        except SlurmAwayError as error:
            for attempt in attempts:
                attempt.unsure_since = now()
            log.warning("Slurm may or may not have taken %s: %s", title([a.key for a in attempts]), error)
            self._set_back(attempts)
            self._away(str(error))
        except SlurmLaterError as error:
            for attempt in attempts:
                attempt.trouble = str(error)
            self._set_back(attempts)
        except SlurmRefusedError as error:
            self._set_back(attempts)
            await self._refused(attempts, str(error))
        else:
            for attempt in attempts:
                attempt.phase = Phase.SUBMITTED
                attempt.submitted_at = now()

    def _submission(self, attempts: list[Attempt]) -> Submission:
        keys = [attempt.key for attempt in attempts]
        launch = attempts[0].launch
        cpus, memory, gres = asked(launch.size)
        return Submission(
            name=self.prefix + write_tasks(keys),
            comment=title(keys),
            script=self._scripts.script(launch, attempts[0].command, keys),
            count=len(keys),
            cpus=cpus,
            memory_mib=memory,
            gres=gres,
            node=self.names[launch.node] if launch.node < len(self.names) else "",
        )

    def _set_back(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            if attempt.phase is Phase.SUBMITTING:
                attempt.phase = Phase.WAITING
        self._keeper.rest()

    async def _refused(self, attempts: list[Attempt], why: str) -> None:
        """Handle a refused job. An array may have been too large; otherwise the fault is not the task's, and
        another cluster may take it."""
        if len(attempts) > 1:
            log.warning("Slurm refused an array of %d (%s): submitting one by one", len(attempts), why)
            for attempt in attempts:
                await self._submit([attempt.key])
        elif attempts[0].fate is None:
            self._keeper.doom(attempts[0], Fate(Outcome.LOST, f"Slurm refused it: {why}"))


def _waits(attempt: Attempt) -> bool:
    return attempt.phase is Phase.WAITING and attempt.stop_at is None and attempt.fate is None
