"""How many hands an executor has: when to ask the league for more, and when to let some go.

The pool grows while more work waits than the hands it has (or will have) do in half a second, and shrinks
when hands have been idle for a while. Hands are asked for one request at a time. That hands never come to
life is found out by looking at the tasks of their job, ever more rarely, as long as one is missing.
"""

from typing import Final

from hanse.sdk.workers.provisioner import HANDS_PER_JOB_MAX, Ending, Hired, Refusal
from hanse.sdk.workers.worker_pool import Crew, Member

GROW_SECONDS: Final = 0.5
"""Work that waits longer than this is worth another hand."""
UNKNOWN_SECONDS: Final = 1.0
"""How long a call is thought to take before one has ended."""
HANDS_MAX: Final = 10_000
"""Of one executor."""
LOOK_SECONDS_FIRST: Final = 0.5
LOOK_SECONDS_MAX: Final = 10.0
START_FAILURES_MAX: Final = 3
"""Hands that end before they take a call, one after the other, until waiting calls are given up."""
JOBS_MAX: Final = 1_000
"""Jobs of hands that are remembered."""
NO_ROOM_SECONDS: Final = 5.0
"""How long to wait before asking again when the league has no room, or gave no hands."""


class Missing:
    """Hands of one job that have not come yet."""

    def __init__(self, indices: set[int], at: float) -> None:
        self.indices = indices
        self.pause = LOOK_SECONDS_FIRST
        self.look_at = at + LOOK_SECONDS_FIRST
        self.looking = False


class Muster:
    """The numbers. Used by the executor's thread only; tells what to do and does nothing itself."""

    def __init__(self, least: int, most: int | None, idle_seconds: float) -> None:
        self.least = least
        self.most = most
        """None: as many as the league has room for when they are asked for."""
        self.idle_seconds = idle_seconds
        self.missing: dict[str, Missing] = {}
        """By job."""
        self.jobs: dict[str, int] = {}
        """The latest jobs of hands, and how many each has."""
        self.asking = False
        self.failures = 0
        self.refused = ""
        """Why there are no hands, if that will not change."""
        self._admitted: dict[str, dict[int, int]] = {}
        """By job and index: the latest attempt that was let in."""
        self._unanswered = False
        """Whether a request for hands was given up without an answer: its job may be there all the same."""
        self._early: set[tuple[str, int]] = set()
        """Hands that came before the answer that names their job."""
        self._ask_at = 0.0
        self._given_up = False
        """Whether hands do not come to life: then only calls that wait are a reason to try again."""

    def starting(self) -> int:
        """Hands that the league has promised and that have not come."""
        return sum(len(missing.indices) for missing in self.missing.values())

    def wanted(self, crew: Crew, now: float) -> int:
        """How many more hands to ask for now."""
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
        """The league has answered."""
        self.asking = False
        if not answer.job:
            self._ask_at = now + NO_ROOM_SECONDS
            return
        indices = {index for index in range(answer.hands) if (answer.job, index) not in self._early}
        self._early.clear()  # one request at a time: they were all of this job
        self.jobs[answer.job] = answer.hands
        if len(self.jobs) > JOBS_MAX:
            oldest = next(iter(self.jobs))
            del self.jobs[oldest]
            self._admitted.pop(oldest, None)
        if indices:
            self.missing[answer.job] = Missing(indices, now)

    def not_hired(self, refusal: Refusal, now: float) -> str:
        """The league gave none; why waiting calls must be given up, if they must."""
        self.asking = False
        self._ask_at = now + NO_ROOM_SECONDS
        if refusal.lasting:
            self.refused = refusal.reason
        else:
            self._unanswered = True
        return refusal.reason

    def admit(self, job: str, index: int, attempt: int) -> str:
        """Let a hand in that has proved its key, each attempt once; or a sentence saying why not."""
        hands = self.jobs.get(job)
        if hands is None and (self.asking or self._unanswered):
            hands = HANDS_PER_JOB_MAX  # it came before the answer that names its job
        name = f"hand {job[:32]}.{index}, attempt {attempt}"
        if hands is None or not 0 <= index < hands:
            return f"{name}, which this executor did not ask for"
        seen = self._admitted.setdefault(job, {})
        if attempt <= seen.get(index, -1):
            return f"a further connection of {name}, when attempt {seen[index]} was here already"
        seen[index] = attempt
        return ""

    def came(self, job: str, index: int) -> None:
        """A hand has come to life."""
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
        """Jobs whose missing hands should be looked at."""
        due = []
        for job, missing in self.missing.items():
            if not missing.looking and now >= missing.look_at:
                missing.looking = True
                due.append((job, frozenset(missing.indices)))
        return due

    def looked(self, job: str, endings: list[tuple[int, Ending]], now: float) -> str:
        """Hands have ended before they came; why waiting calls must be given up, if they must."""
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
        """Hands to let go."""
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
        """When something is to be done even if nothing happens."""
        times = [missing.look_at for missing in self.missing.values() if not missing.looking]
        if self._ask_at > now and not self.asking and not self.refused:
            times.append(self._ask_at)
        staying = [member for member in crew.members if not member.closing]
        if len(staying) > self.least and not len(crew):
            times += [member.idle_since + self.idle_seconds for member in staying if not member.outstanding]
        return min(times) if times else None
