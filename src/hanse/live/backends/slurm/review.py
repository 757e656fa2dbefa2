"""Brings together what was asked of Slurm and what Slurm has, at every look at it.

1. The controller acknowledges a job and crashes before it is saved. 2. Another comes up, does not know the
job, and gives its number to somebody else's. So jobs are known by name alone, and one that is missing is
submitted again if it has not begun: should the first be alive somewhere, only one of the two begins.

1. A node falls silent; Slurm calls it down and its jobs failed. 2. The step goes on there, and its task with
it. So an attempt on such a node is ordered to end, and counts as lost when its script says so, or when the
lease that the script could have read has run out.
"""

import logging
from collections.abc import Callable
from typing import Final

from hanse.live.backends.slurm.attempts import Attempt, Fate, Phase
from hanse.live.backends.slurm.driver import PENDING, SlurmJob
from hanse.live.backends.slurm.ends import NEVER_BEGAN, UNEXPLAINED, explained, untold
from hanse.live.backends.slurm.keeper import SLACK_MICROSECONDS, Keeper, now
from hanse.live.backends.slurm.lookout import Look
from hanse.live.backends.slurm.shared import Known
from hanse.live.backends.slurm.submitter import START_MICROSECONDS_MAX
from hanse.live.backends.slurm.tags import Key
from hanse.model.ids import SECOND, task_text
from hanse.model.messages import Outcome

SUBMITS_MAX: Final = 5
"""How often an attempt is submitted that Slurm forgets."""
MISSING_MAX: Final = 2
"""Looks in a row without a job, after which Slurm has forgotten it."""
SETTLE_MICROSECONDS: Final = 3 * SECOND
"""How much later than Slurm's word a script's may be seen."""
LINGER_MICROSECONDS: Final = 5 * SECOND
"""How long a job that is of no use any more may run on."""

log = logging.getLogger(__name__)


class Review:
    """Looks through the attempts that a keeper keeps. ``submit``: have these submitted."""

    def __init__(self, keeper: Keeper, submit: Callable[[list[Key]], None]) -> None:
        self._keeper = keeper
        self._submit = submit
        self._judging: dict[Key, None] = {}
        self._useless: dict[tuple[int, int], int] = {}

    def compare(self, look: Look) -> None:
        """See to every attempt; what waits to be submitted is."""
        waiting = []
        for key, attempt in self._keeper.attempts.items():
            if attempt.end is None:
                self._compare(attempt, look.by_key.get(key, []), look.at)
                if attempt.phase is Phase.WAITING and attempt.submits:
                    waiting.append(key)
        self._submit(waiting)

    def useless(self, look: Look) -> list[SlurmJob]:
        """Jobs of ours to cancel: of attempts that are over, or that do not obey. Those that run have a while
        to go by themselves: a script tells its end before Slurm does."""
        found: list[SlurmJob] = []
        since: dict[tuple[int, int], int] = {}
        for key, jobs in look.by_key.items():
            attempt = self._keeper.attempts.get(key)
            if attempt is not None and attempt.end is None and not _disobeys(attempt, look.at):
                continue
            for job in jobs:
                if job.is_over or job.state == "COMPLETING":
                    continue
                which = (job.number, job.element)
                since[which] = self._useless.get(which, look.at)
                if job.state in PENDING or look.at - since[which] >= LINGER_MICROSECONDS:
                    found.append(job)
        self._useless = since
        return found

    def _compare(self, attempt: Attempt, jobs: list[SlurmJob], at: int) -> None:
        if jobs and attempt.phase is Phase.WAITING:
            attempt.phase, attempt.submitted_at = Phase.SUBMITTED, at  # it was taken, and we were not told
        if attempt.phase is not Phase.SUBMITTED or attempt.submitted_at > at:
            return
        if not jobs:
            attempt.missing += 1
            if attempt.missing >= MISSING_MAX:
                self._judge(attempt, lambda known: self._forgotten(attempt, known))
            return
        attempt.missing = 0
        if not all(job.is_over for job in jobs):
            attempt.over_state = ""
            return
        if not attempt.over_state:
            attempt.over_since = at
        attempt.over_state = max(jobs, key=lambda job: job.number).state
        if attempt.ended is not None:
            self._keeper.conclude(attempt, attempt.over_state)
        elif at - attempt.over_since >= SETTLE_MICROSECONDS:
            self._judge(attempt, lambda known: self._silent(attempt, known, len(jobs)))

    def _judge(self, attempt: Attempt, verdict: Callable[[Known], None]) -> None:
        """Read its records once more, and decide unless they do."""
        if attempt.fate is not None or attempt.key in self._judging:
            return
        self._judging[attempt.key] = None

        def read(known: Known | OSError) -> None:
            del self._judging[attempt.key]
            self._keeper.learn(attempt, known)
            if not isinstance(known, OSError) and attempt.end is None and attempt.ended is None:
                verdict(known)

        self._keeper.read(attempt, read)

    def _forgotten(self, attempt: Attempt, _known: Known) -> None:
        """Slurm has no such job."""
        if attempt.started:
            self._keeper.doom(attempt, Fate(Outcome.LOST, "Slurm forgot it while it ran"))
        elif attempt.submits >= SUBMITS_MAX:
            self._keeper.doom(attempt, Fate(Outcome.LOST, f"Slurm forgot it {SUBMITS_MAX} times"))
        else:
            task, number = attempt.key
            log.warning("Slurm forgot %s attempt %d: submitting it again", task_text(task), number)
            attempt.phase, attempt.missing = Phase.WAITING, 0
            attempt.start_by = now() + START_MICROSECONDS_MAX  # the next look submits all of them together

    def _silent(self, attempt: Attempt, known: Known, jobs: int) -> None:
        """Slurm says that it is over, and its script says nothing. On a node that Slurm has lost sight of the
        step may live; so it may when another execution was refused."""
        fate = explained(attempt, attempt.over_state) or UNEXPLAINED
        if attempt.over_state == "CANCELLED" and not attempt.started:
            fate = NEVER_BEGAN
        unseen = attempt.over_state in ("NODE_FAIL", "BOOT_FAIL") or known.refused or jobs > 1
        if unseen or not attempt.started:
            self._keeper.doom(attempt, fate)
        else:
            self._keeper.finish(attempt, untold(attempt, fate))


def _disobeys(attempt: Attempt, at: int) -> bool:
    return attempt.stop_at is not None and attempt.stop_at + SLACK_MICROSECONDS < at
