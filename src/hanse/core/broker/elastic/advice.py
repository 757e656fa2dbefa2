"""Asking a policy process how elastic tasks should be sized, and taking its advice for what it is worth.

The broker sizes every group by the rule at once and never waits: a question goes out beside, one at a time,
and advice that comes while the group still waits replaces its size. Advice that is late, stale, absurd or
not wanted is counted and changes nothing. What a question shows is bounded, and so is how often one is asked:
not before the last was answered, or a beat has passed, and not within ``ASK_PAUSE``.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.elastic.advice_guard import AdviceGuard, PolicyComparison
from hanse.model.advice import Advice
from hanse.model.events import AdviceReceived
from hanse.model.ids import MILLISECOND, JobId

ASK_PAUSE: Final = 100 * MILLISECOND
"""The least time between two questions."""

Group = tuple[JobId, int]


class AdviceOutcome(msgspec.Struct, frozen=True, array_like=True):
    """What was made of the advice for a group."""

    advice: Advice | None
    """None: it is the rule's turn, whatever is advised."""


class AdviceState(
    msgspec.Struct,
    rename={
        "last_asked": "asked",
        "last_answered": "answered",
        "is_due": "due",
        "is_open": "open",
        "outcomes": "given",
        "comparisons": "watches",
    },
):
    """All of it, as it is dumped."""

    last_asked: int = 0
    """Number of the latest question."""
    last_answered: int = 0
    """Number of the latest that was answered."""
    asked_at: int = 0
    is_due: bool = False
    """Whether something has changed since."""
    is_open: bool = False
    """Whether an answer is awaited."""
    outcomes: dict[int, dict[int, AdviceOutcome]] = {}
    """Job -> group -> what came of the advice for it."""
    comparisons: dict[str, PolicyComparison] = {}


class AdviceClient:
    """One broker's questions and the advice that it follows."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.guard = AdviceGuard()
        self.state = AdviceState(outcomes={}, comparisons=self.guard.comparisons)
        self.is_ready = False
        """Whether a question is due and none is open."""

    # --- asking --------------------------------------------------------------------------------------------

    def request_soon(self) -> None:
        """Something has changed that advice may depend on."""
        if self.context.sizer.takes_advice:
            self.state.is_due = True
            self.is_ready = not self.state.is_open

    def on_heartbeat(self, waiting: bool) -> None:
        """A beat has passed: nobody waits for an answer any longer; ask again if anybody waits for room."""
        state = self.state
        state.is_open = False
        state.is_due = self.is_ready = waiting and self.context.sizer.takes_advice
        if state.outcomes:
            for job in [job for job in state.outcomes if job not in self.context.jobs]:
                del state.outcomes[job]

    def boot(self) -> None:
        """Whoever was asked is gone."""
        self.state.is_open = False
        self.is_ready = self.state.is_due

    def next_number(self) -> int:
        """The number of a question that is asked now."""
        state = self.state
        state.last_asked += 1
        state.asked_at = self.context.now
        state.is_due, state.is_open, self.is_ready = False, True, False
        return state.last_asked

    def clear_request(self) -> None:
        """Nobody waits: there is nothing to ask."""
        self.state.is_due = self.is_ready = False

    @property
    def is_pausing(self) -> bool:
        """Whether the last question was asked just now."""
        return self.state.last_asked > 0 and self.context.now < self.state.asked_at + ASK_PAUSE

    # --- taking --------------------------------------------------------------------------------------------

    def is_current(self, event: AdviceReceived) -> bool:
        """An answer has come: whether it is to the latest question that was not answered yet."""
        state = self.state
        if not state.last_answered < event.number <= state.last_asked:
            self.context.mark("broker.advice_stale")
            return False
        state.last_answered = event.number
        if event.number == state.last_asked:
            state.is_open = False
            self.is_ready = state.is_due
        return True

    def follow(self, kind: str, advice: Advice) -> bool:
        """Sensible advice for a group that waits: whether it is followed."""
        if self.guard.find_suspension(kind, self.context.now):
            self.context.mark("broker.advice_put_aside")
            return False
        groups = self.state.outcomes.setdefault(advice.job, {})
        known = groups.get(advice.group)
        if known is None and not self.guard.take_turn(kind):
            groups[advice.group] = known = AdviceOutcome(None)
        if known is not None and known.advice is None:
            self.context.mark("broker.advice_left_to_rule")
            return False
        self.context.mark("broker.advice_taken")
        groups[advice.group] = AdviceOutcome(advice)
        return True

    def find_outcome(self, job: JobId, group: int) -> AdviceOutcome | None:
        """What came of the advice for a group; None: there was none."""
        groups = self.state.outcomes.get(job)
        return groups.get(group) if groups is not None else None

    def forget(self, groups: Iterable[Group]) -> None:
        """The advice for these is not followed any more."""
        for job, group in groups:
            self.state.outcomes.get(job, {}).pop(group, None)

    def restore(self, state: AdviceState) -> None:
        """Take a dumped state."""
        self.state = state
        self.guard.comparisons = state.comparisons
        self.is_ready = state.is_due and not state.is_open

    def check(self) -> None:
        """Bounds."""
        self.guard.check()
        assert self.state.last_answered <= self.state.last_asked
        assert self.state.comparisons is self.guard.comparisons
