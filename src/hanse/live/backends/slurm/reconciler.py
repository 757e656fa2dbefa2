"""Reconciliation of requested attempts with Slurm's jobs, at every poll.

1. The controller acknowledges a job and crashes before it is saved. 2. Another one starts, does not know the
job, and gives its number to a job of others. So only names identify jobs, and a missing job is submitted
again if it has not begun: should the first be alive somewhere, only one of the two begins.

1. A node falls silent; Slurm calls it down and its jobs failed. 2. The step goes on there, and its task with
it. So an attempt on such a node is ordered to end, and counts as lost when its script records that, or when
the lease that the script could have read has run out.
"""

import logging
from collections.abc import Callable
from typing import Final

from hanse.live.backends.slurm.attempt_store import Attempt, Fate, Phase
from hanse.live.backends.slurm.attempt_tracker import SLACK_MICROSECONDS, Keeper, now
from hanse.live.backends.slurm.driver import PENDING, SlurmJob
from hanse.live.backends.slurm.exit_status import NEVER_BEGAN, UNEXPLAINED, explained, untold
from hanse.live.backends.slurm.job_names import Key, title
from hanse.live.backends.slurm.poller import Look
from hanse.live.backends.slurm.shared_directory import Known
from hanse.live.backends.slurm.stalled_starts import SETTLE_MICROSECONDS, stall, went_back
from hanse.live.backends.slurm.submitter import START_MICROSECONDS_MAX
from hanse.model.ids import SECOND, task_text
from hanse.model.messages import Outcome

SUBMITS_MAX: Final = 5
"""Submissions of an attempt that Slurm forgets."""
MISSING_MAX: Final = 2
"""Polls in a row without a job, after which Slurm has forgotten it."""
LINGER_MICROSECONDS: Final = 5 * SECOND
"""Time that a useless job may run on."""

log = logging.getLogger(__name__)


class Review:
    """Reconciler of a tracker's attempts. ``submit``: submits these; ``begin_max``: see ``settings``."""

    def __init__(self, keeper: Keeper, submit: Callable[[list[Key]], None], begin_max: int) -> None:
        self._keeper = keeper
        self._submit = submit
        self._begin_max = begin_max
        self._judging: dict[Key, None] = {}
        self._useless: dict[tuple[int, int], int] = {}
        self.outstaying: frozenset[tuple[int, int]] = frozenset()
        """Useless jobs (number, element) that Slurm does not let go: their resources are not free."""

    def compare(self, look: Look, closed: frozenset[int] = frozenset()) -> None:
        """Check every attempt, and submit those that wait. ``closed_nodes``: nodes that take no jobs now.

        A submission without an answer may have been taken. So it is repeated only after later polls that do
        not show it. An overloaded controller can take it even then; then there are two jobs, and the second
        to begin finds the attempt taken.
        """
        waiting = []
        for key, attempt in self._keeper.attempts.items():
            if attempt.end is None:
                jobs = look.by_key.get(key, [])
                self._compare(attempt, jobs, look.at)
                self._hurry(attempt, jobs, attempt.launch.node in closed, look.at)
                if _is_due(attempt, look.at):
                    waiting.append(key)
        self._submit(waiting)

    def _hurry(self, attempt: Attempt, jobs: list[SlurmJob], closed: bool, at: int) -> None:
        """Withdraw a start that hangs in Slurm for too long."""
        found = None
        if attempt.phase is Phase.SUBMITTED and attempt.stop_at is None and attempt.ended is None:
            if attempt.started:
                found = went_back(_begun(attempt, jobs), self._begin_max)
            else:
                found = stall(jobs, closed, self._begin_max, attempt.launch.attempt)
        if found is None:
            attempt.stalled_since = 0
            return
        attempt.stalled_since = attempt.stalled_since or at
        if at - attempt.stalled_since >= found.limit:
            end_it = self._keeper.doom if attempt.started else self._keeper.recall
            self._judge(attempt, lambda known: self._hangs(attempt, found.why, known, end_it))

    def _hangs(
        self, attempt: Attempt, why: str, known: Known, end_it: Callable[[Attempt, Fate], None]
    ) -> None:
        if known.began is not None and end_it == self._keeper.recall:
            return  # it has begun meanwhile
        task, number = attempt.key
        log.warning("%s attempt %d is taken back from Slurm: %s", task_text(task), number, why)
        end_it(attempt, Fate(Outcome.LOST, why))

    def useless(self, look: Look) -> list[SlurmJob]:
        """Return the jobs to cancel: of attempts that have ended, or that do not obey. Running ones get some
        time to end alone: a script records its end before Slurm does."""
        found: list[SlurmJob] = []
        since: dict[tuple[int, int], int] = {}
        outstaying: list[tuple[int, int]] = []
        for key, jobs in look.by_key.items():
            attempt = self._keeper.attempts.get(key)
            if attempt is not None and attempt.end is None and not _disobeys(attempt, look.at):
                continue
            for job in jobs:
                if job.is_over:
                    continue
                which = (job.number, job.element)
                since[which] = self._useless.get(which, look.at)
                outstays = look.at - since[which] >= LINGER_MICROSECONDS
                if job.state in PENDING or (outstays and job.state != "COMPLETING"):
                    found.append(job)
                if outstays and (attempt is None or attempt.end is not None):
                    outstaying.append(which)  # the league counts its resources as free
        self._useless, self.outstaying = since, frozenset(outstaying)
        return found

    def _compare(self, attempt: Attempt, jobs: list[SlurmJob], at: int) -> None:
        if jobs and attempt.phase is Phase.WAITING:
            attempt.phase, attempt.submitted_at = Phase.SUBMITTED, at  # the answer was lost
            log.warning("Slurm has taken %s, though its answer was lost", title([attempt.key]))
        if attempt.phase is not Phase.SUBMITTED or attempt.submitted_at > at:
            return
        if not jobs:
            attempt.missing += 1
            if attempt.missing >= MISSING_MAX:
                self._judge(attempt, lambda known: self._forgotten(attempt, known))
            return
        attempt.missing = 0
        attempt.launches = {job.own: job.launched for job in jobs}
        attempt.lingers = not all(job.is_over for job in jobs)
        if attempt.lingers:
            attempt.over_state = ""
            mine = _begun(attempt, jobs)
            if attempt.ended is not None and all(job.state in PENDING for job in mine):
                self._keeper.conclude(attempt, mine[0].state)  # Slurm will launch it anew
            return
        if not attempt.over_state:
            attempt.over_since = at
        attempt.over_state = max(jobs, key=lambda job: job.number).state
        if attempt.ended is not None:
            self._keeper.conclude(attempt, attempt.over_state)
        elif at - attempt.over_since >= SETTLE_MICROSECONDS:
            self._judge(attempt, lambda known: self._silent(attempt, known, len(jobs)))

    def _judge(self, attempt: Attempt, verdict: Callable[[Known], None]) -> None:
        """Read its records once more, and decide if they do not."""
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
        """Submit again, or end, an attempt whose job Slurm does not have."""
        if attempt.started:
            self._keeper.doom(attempt, Fate(Outcome.LOST, "Slurm forgot it while it ran"))
        elif attempt.submits >= SUBMITS_MAX:
            self._keeper.doom(attempt, Fate(Outcome.LOST, f"Slurm forgot it {SUBMITS_MAX} times"))
        else:
            task, number = attempt.key
            log.warning("Slurm forgot %s attempt %d: submitting it again", task_text(task), number)
            attempt.phase, attempt.missing = Phase.WAITING, 0
            attempt.start_by = now() + START_MICROSECONDS_MAX  # the next poll submits all of them together

    def _silent(self, attempt: Attempt, known: Known, jobs: int) -> None:
        """End an attempt that has ended in Slurm and has no end record. The step may live on a node that
        Slurm has lost; it may live too when another execution was refused."""
        fate = explained(attempt, attempt.over_state) or UNEXPLAINED
        if attempt.over_state == "CANCELLED" and attempt.stop_at is not None:
            fate = Fate(Outcome.CANCELLED)  # by this daemon, because it did not obey
        elif attempt.over_state == "CANCELLED" and not attempt.started:
            fate = NEVER_BEGAN
        unseen = attempt.over_state in ("NODE_FAIL", "BOOT_FAIL") or known.refused or jobs > 1
        if unseen or not attempt.started:
            self._keeper.doom(attempt, fate)
        else:
            self._keeper.finish(attempt, untold(attempt, fate))


def _begun(attempt: Attempt, jobs: list[SlurmJob]) -> list[SlurmJob]:
    """Return the job that took an attempt; all of its jobs if none is known to have taken it."""
    number = attempt.began.job if attempt.began is not None else 0
    return [job for job in jobs if job.own == number] or jobs


def _is_due(attempt: Attempt, at: int) -> bool:
    """True if it should be submitted again, after a poll that began ``at``."""
    if attempt.phase is not Phase.WAITING or not attempt.submits or at < attempt.unsure_since:
        return False
    attempt.missing += 1
    return not attempt.unsure_since or attempt.missing >= MISSING_MAX


def _disobeys(attempt: Attempt, at: int) -> bool:
    return attempt.stop_at is not None and attempt.stop_at + SLACK_MICROSECONDS < at
