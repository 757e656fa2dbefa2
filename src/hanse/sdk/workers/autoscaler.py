"""Autoscaler of an executor: when to ask the league for workers, and when to release some.

The pool grows while more work waits than its workers, present and starting, do in half a second. It shrinks
when workers are idle for a while. One request for workers is open at a time. As long as workers are missing,
the tasks of their job are checked, ever more rarely, for workers that ended before they connected.
"""

from typing import Final

from hanse.sdk.workers.provisioner import HANDS_PER_JOB_MAX, Ending, Hired, Refusal
from hanse.sdk.workers.worker_pool import Crew, Member

GROW_SECONDS: Final = 0.5
"""Waiting work above which another worker is worthwhile."""
UNKNOWN_SECONDS: Final = 1.0
"""Assumed duration of a call before one has ended."""
HANDS_MAX: Final = 10_000
"""Workers of one executor."""
LOOK_SECONDS_FIRST: Final = 0.5
LOOK_SECONDS_MAX: Final = 10.0
START_FAILURES_MAX: Final = 3
"""Workers in a row that end before they connect, until the waiting calls fail."""
JOBS_MAX: Final = 1_000
"""Jobs of workers that are remembered."""
NO_ROOM_SECONDS: Final = 5.0
"""Pause before the next request when the league has no room, or started no workers."""


class Missing:
    """Workers of one job that have not connected yet."""

    def __init__(self, indices: set[int], at: float) -> None:
        self.indices = indices
        self.pause = LOOK_SECONDS_FIRST
        self.look_at = at + LOOK_SECONDS_FIRST
        self.looking = False


class Muster:
    """Autoscaler. Used by the dispatcher's thread only; it decides and performs nothing itself."""

    def __init__(self, least: int, most: int | None, idle_seconds: float) -> None:
        self.least = least
        self.most = most
        """Largest number of workers; None: as many as the league has room for at each request."""
        self.idle_seconds = idle_seconds
        self.missing: dict[str, Missing] = {}
        """Missing workers by job."""
        self.jobs: dict[str, int] = {}
        """Latest jobs of workers, with the number of workers of each."""
        self.asking = False
        self.failures = 0
        self.refused = ""
        """Reason why there are no workers, if it is permanent."""
        self._admitted: dict[str, dict[int, int]] = {}
        """Latest admitted attempt by job and index."""
        self._unanswered = False
        """True if a request for workers ended without an answer: its job may exist nevertheless."""
        self._early: set[tuple[str, int]] = set()
        """Workers that connected before the answer that names their job."""
        self._ask_at = 0.0
        self._given_up = False
        """True if workers do not start: then only waiting calls are a reason to try again."""

    def starting(self) -> int:
        """Return the number of workers that the league starts and that have not connected."""
        return sum(len(missing.indices) for missing in self.missing.values())

    def wanted(self, crew: Crew, now: float) -> int:
        """Return how many more workers to request now."""
        if self.asking or self.refused or now < self._ask_at:
            return 0
        waiting = len(crew)
        if not waiting and self._given_up:
            return 0
        worth = min(waiting, int(crew.work_seconds(UNKNOWN_SECONDS) / GROW_SECONDS))
        if waiting and all(member.closing for member in crew.members):
            worth = max(worth, 1)
        most = HANDS_MAX if self.most is None else self.most
        there = sum(not member.closing for member in crew.members)
        aim = min(most, max(self.least, there + worth))
        return max(0, aim - there - self.starting())

    def hired(self, answer: Hired, now: float) -> None:
        """Record the league's answer."""
        self.asking = False
        if not answer.job:
            self._ask_at = now + NO_ROOM_SECONDS
            return
        indices = {index for index in range(answer.hands) if (answer.job, index) not in self._early}
        self._early.clear()  # one request at a time: they all belong to this job
        self.jobs[answer.job] = answer.hands
        if len(self.jobs) > JOBS_MAX:
            oldest = next(iter(self.jobs))
            del self.jobs[oldest]
            self._admitted.pop(oldest, None)
        if indices:
            self.missing[answer.job] = Missing(indices, now)

    def not_hired(self, refusal: Refusal, now: float) -> str:
        """Record a refusal; return the reason with which waiting calls may have to fail."""
        self.asking = False
        self._ask_at = now + NO_ROOM_SECONDS
        if refusal.lasting:
            self.refused = refusal.reason
        else:
            self._unanswered = True
        return refusal.reason

    def admit(self, job: str, index: int, attempt: int) -> str:
        """Admit a worker that has proved its key, each attempt once; return the reason if it is refused."""
        hands = self.jobs.get(job)
        if hands is None and (self.asking or self._unanswered):
            hands = HANDS_PER_JOB_MAX  # it connected before the answer that names its job
        name = f"worker {job[:32]}.{index}, attempt {attempt}"
        if hands is None or not 0 <= index < hands:
            return f"{name}, which this executor did not request"
        seen = self._admitted.setdefault(job, {})
        if attempt <= seen.get(index, -1):
            return f"a further connection of {name}, after attempt {seen[index]} had connected"
        seen[index] = attempt
        return ""

    def came(self, job: str, index: int) -> None:
        """Record that a worker has connected."""
        self.failures = 0
        self._given_up = False
        missing = self.missing.get(job)
        if missing is None:
            if job not in self.jobs:
                self._early.add((job, index))
            return
        missing.indices.discard(index)
        if not missing.indices:
            del self.missing[job]

    def looks(self, now: float) -> list[tuple[str, frozenset[int]]]:
        """Return the jobs whose missing workers are to be checked."""
        due = []
        for job, missing in self.missing.items():
            if not missing.looking and now >= missing.look_at:
                missing.looking = True
                due.append((job, frozenset(missing.indices)))
        return due

    def looked(self, job: str, endings: list[tuple[int, Ending]], now: float) -> str:
        """Record workers that ended before they connected; return the reason if waiting calls must fail."""
        missing = self.missing.get(job)
        if missing is None:
            return ""
        missing.looking = False
        missing.pause = min(LOOK_SECONDS_MAX, 2 * missing.pause)
        missing.look_at = now + missing.pause
        ended = [(index, ending) for index, ending in endings if index in missing.indices]
        for index, _ in ended:
            missing.indices.discard(index)
        if not missing.indices:
            del self.missing[job]
        self.failures += len(ended)
        if self.failures < START_FAILURES_MAX or not ended:
            return ""
        self._ask_at = now + NO_ROOM_SECONDS
        self.failures = 0
        self._given_up = True
        return ended[-1][1].sentence()

    def idle(self, crew: Crew, now: float) -> list[Member]:
        """Return the workers to release."""
        if len(crew):
            return []
        staying = [member for member in crew.members if not member.closing]
        idle = [
            member
            for member in staying
            if not member.outstanding and now - member.idle_since >= self.idle_seconds
        ]
        return idle[: max(0, len(staying) - self.least)]

    def next_at(self, crew: Crew, now: float) -> float | None:
        """Return when to act next if no event comes."""
        times = [missing.look_at for missing in self.missing.values() if not missing.looking]
        if self._ask_at > now and not self.asking and not self.refused:
            times.append(self._ask_at)
        staying = [member for member in crew.members if not member.closing]
        if len(staying) > self.least and not len(crew):
            times += [member.idle_since + self.idle_seconds for member in staying if not member.outstanding]
        return min(times) if times else None
