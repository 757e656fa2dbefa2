"""Client of the policy process: requests for advice on the sizes of elastic tasks, and use of the replies.

The broker sizes every group by the rule at once and never waits for advice. One request at a time is open.
Advice that arrives while the group still waits replaces its size. Late, stale, invalid or unwanted advice is
counted and ignored. The size of a request is bounded, and so is the rate: no request is sent before the last
one was answered or a heartbeat has passed, nor within ``ASK_PAUSE`` of the last one.
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
"""Minimum time between two requests."""

Group = tuple[JobId, int]


class AdviceOutcome(msgspec.Struct, frozen=True, array_like=True):
    """Decision on the advice for a group."""

    advice: Advice | None
    """None: the group is left to the rule and ignores advice."""


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
    """State of the advice client, as it is dumped."""

    last_asked: int = 0
    """Number of the latest request."""
    last_answered: int = 0
    """Number of the latest request that was answered."""
    asked_at: int = 0
    is_due: bool = False
    """True if something has changed since the latest request."""
    is_open: bool = False
    """True if a reply is expected."""
    outcomes: dict[int, dict[int, AdviceOutcome]] = {}
    """Job -> group -> decision on its advice."""
    comparisons: dict[str, PolicyComparison] = {}


class AdviceClient:
    """Requests of one broker, and the advice that it follows."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.guard = AdviceGuard()
        self.state = AdviceState(outcomes={}, comparisons=self.guard.comparisons)
        self.is_ready = False
        """True if a request is due and none is open."""

    # --- asking --------------------------------------------------------------------------------------------

    def request_soon(self) -> None:
        """Mark a request as due: something has changed that advice may depend on."""
        if self.context.sizer.takes_advice:
            self.state.is_due = True
            self.is_ready = not self.state.is_open

    def on_heartbeat(self, waiting: bool) -> None:
        """Close the open request at a heartbeat, and make the next one due if a group waits for room."""
        state = self.state
        state.is_open = False
        state.is_due = self.is_ready = waiting and self.context.sizer.takes_advice
        if state.outcomes:
            for job in [job for job in state.outcomes if job not in self.context.jobs]:
                del state.outcomes[job]

    def boot(self) -> None:
        """Close the open request: the process that received it is gone."""
        self.state.is_open = False
        self.is_ready = self.state.is_due

    def next_number(self) -> int:
        """Open a request and return its number."""
        state = self.state
        state.last_asked += 1
        state.asked_at = self.context.now
        state.is_due, state.is_open, self.is_ready = False, True, False
        return state.last_asked

    def clear_request(self) -> None:
        """Cancel a due request: no group waits."""
        self.state.is_due = self.is_ready = False

    @property
    def is_pausing(self) -> bool:
        """True if the last request was sent less than ``ASK_PAUSE`` ago."""
        return self.state.last_asked > 0 and self.context.now < self.state.asked_at + ASK_PAUSE

    # --- taking --------------------------------------------------------------------------------------------

    def is_current(self, event: AdviceReceived) -> bool:
        """Note a reply; True if its request was sent and neither it nor a later one was answered."""
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
        """Decide whether valid advice for a waiting group is followed, and remember the decision."""
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
        """Return the decision on the advice for a group; None: no advice came."""
        groups = self.state.outcomes.get(job)
        return groups.get(group) if groups is not None else None

    def forget(self, groups: Iterable[Group]) -> None:
        """Drop the decisions for these groups."""
        for job, group in groups:
            self.state.outcomes.get(job, {}).pop(group, None)

    def restore(self, state: AdviceState) -> None:
        """Restore a dumped state."""
        self.state = state
        self.guard.comparisons = state.comparisons
        self.is_ready = state.is_due and not state.is_open

    def check(self) -> None:
        """Assert bounds."""
        self.guard.check()
        assert self.state.last_answered <= self.state.last_asked
        assert self.state.comparisons is self.guard.comparisons
