"""Asking a policy process how elastic tasks should be sized, and taking its advice for what it is worth.

The broker sizes every group by the rule at once and never waits: a question goes out beside, one at a time,
and advice that comes while the group still waits replaces its size. Advice that is late, stale, absurd or
not wanted is counted and changes nothing. What a question shows is bounded, and so is how often one is asked:
not before the last was answered, or a beat has passed, and not within ``ASK_PAUSE``.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from hanse.core.broker.context import Desk
from hanse.core.broker.elastic.advice_guard import Guarding, Watch
from hanse.model.advice import Advice
from hanse.model.events import Advised
from hanse.model.ids import MILLISECOND, JobId

ASK_PAUSE: Final = 100 * MILLISECOND
"""The least time between two questions."""

Group = tuple[JobId, int]


class Given(msgspec.Struct, frozen=True, array_like=True):
    """What was made of the advice for a group."""

    advice: Advice | None
    """None: it is the rule's turn, whatever is advised."""


class AdviceState(msgspec.Struct):
    """All of it, as it is dumped."""

    asked: int = 0
    """Number of the latest question."""
    answered: int = 0
    """Number of the latest that was answered."""
    asked_at: int = 0
    due: bool = False
    """Whether something has changed since."""
    open: bool = False
    """Whether an answer is awaited."""
    given: dict[int, dict[int, Given]] = {}
    """Job -> group -> what came of the advice for it."""
    watches: dict[str, Watch] = {}


class Advising:
    """One broker's questions and the advice that it follows."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.guard = Guarding()
        self.state = AdviceState(given={}, watches=self.guard.watches)
        self.ready = False
        """Whether a question is due and none is open."""

    # --- asking --------------------------------------------------------------------------------------------

    def want(self) -> None:
        """Something has changed that advice may depend on."""
        if self.desk.sizer.advised:
            self.state.due = True
            self.ready = not self.state.open

    def beat(self, waiting: bool) -> None:
        """A beat has passed: nobody waits for an answer any longer; ask again if anybody waits for room."""
        state = self.state
        state.open = False
        state.due = self.ready = waiting and self.desk.sizer.advised
        if state.given:
            for job in [job for job in state.given if job not in self.desk.jobs]:
                del state.given[job]

    def boot(self) -> None:
        """Whoever was asked is gone."""
        self.state.open = False
        self.ready = self.state.due

    def number(self) -> int:
        """The number of a question that is asked now."""
        state = self.state
        state.asked += 1
        state.asked_at = self.desk.now
        state.due, state.open, self.ready = False, True, False
        return state.asked

    def settled(self) -> None:
        """Nobody waits: there is nothing to ask."""
        self.state.due = self.ready = False

    @property
    def pausing(self) -> bool:
        """Whether the last question was asked just now."""
        return self.state.asked > 0 and self.desk.now < self.state.asked_at + ASK_PAUSE

    # --- taking --------------------------------------------------------------------------------------------

    def current(self, event: Advised) -> bool:
        """An answer has come: whether it is to the latest question that was not answered yet."""
        state = self.state
        if not state.answered < event.number <= state.asked:
            self.desk.mark("broker.advice_stale")
            return False
        state.answered = event.number
        if event.number == state.asked:
            state.open = False
            self.ready = state.due
        return True

    def take(self, kind: str, advice: Advice) -> bool:
        """Sensible advice for a group that waits: whether it is followed."""
        if self.guard.aside(kind, self.desk.now):
            self.desk.mark("broker.advice_put_aside")
            return False
        groups = self.state.given.setdefault(advice.job, {})
        known = groups.get(advice.group)
        if known is None and not self.guard.turn(kind):
            groups[advice.group] = known = Given(None)
        if known is not None and known.advice is None:
            self.desk.mark("broker.advice_left_to_rule")
            return False
        self.desk.mark("broker.advice_taken")
        groups[advice.group] = Given(advice)
        return True

    def given(self, job: JobId, group: int) -> Given | None:
        """What came of the advice for a group; None: there was none."""
        groups = self.state.given.get(job)
        return groups.get(group) if groups is not None else None

    def forget(self, groups: Iterable[Group]) -> None:
        """The advice for these is not followed any more."""
        for job, group in groups:
            self.state.given.get(job, {}).pop(group, None)

    def restore(self, state: AdviceState) -> None:
        """Take a dumped state."""
        self.state = state
        self.guard.watches = state.watches
        self.ready = state.due and not state.open

    def check(self) -> None:
        """Bounds."""
        self.guard.check()
        assert self.state.answered <= self.state.asked
        assert self.state.watches is self.guard.watches
