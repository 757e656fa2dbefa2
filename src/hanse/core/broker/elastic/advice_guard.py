"""The guard around advice: whether the policy process does worse than the rule, kind by kind.

Two things are noted of a completed task. Its *cost*: what it took, marked up by the price of what it held,
over the least believed of any size that had been tried. And its *slowdown*: the time from its job's
acceptance to its end, over the believed duration at that least cost. Cost alone would not do: the rule takes
the size of the least cost, so whoever takes less in order to leave room for others seems to do worse. Advice
does worse when its tasks cost more than the rule's by the margin, beyond doubt, and do not end sooner by the
margin either. Then the kind is the rule's for a while, and after that the advised side begins anew. Until
there is enough of both they take turns, group by group; later one group of several is left to the rule, so
that its figures stay fresh.
"""

import math
from typing import Final

import msgspec

from hanse.model.ids import MINUTE
from hanse.policy.edge.guard import DOUBT, MARGIN

ENDS_MIN: Final = 10
"""Advised tasks that have ended before a kind is judged."""
RULE_ENDS_MIN: Final = 5
"""The same of the rule's."""
ENDS_KEPT: Final = 100
"""Ends that a tally weighs; at so many it is halved, so that the past fades."""
SUSPENSION: Final = 10 * MINUTE
"""How long a kind is left to the rule."""
RULE_EVERY: Final = 8
"""One group of so many is left to the rule, once there is enough of both; before, every second."""
RATIO_MAX: Final = 20.0
"""A task counts as this bad at most: one that hung says little about its size."""
KINDS_MAX: Final = 1_000
"""Kinds watched; the one that was longest without an end is forgotten first."""


class RatioStats(msgspec.Struct, frozen=True, array_like=True):
    """Ratios of some tasks."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Of the ratios; 1 of none."""
        return self.total / self.count if self.count else 1.0

    @property
    def variance(self) -> float:
        """Variance of the mean; never below 0, whatever rounding does."""
        spread = max(self.squares / self.count - self.mean**2, 0.0) if self.count else 0.0
        return spread / max(self.count - 1, 1)

    def with_ratio(self, ratio: float) -> "RatioStats":
        """And one more."""
        if self.count >= ENDS_KEPT:
            return RatioStats(self.count // 2, self.total / 2, self.squares / 2).with_ratio(ratio)
        ratio = min(ratio, RATIO_MAX)
        return RatioStats(self.count + 1, self.total + ratio, self.squares + ratio**2)


class ComparisonArm(msgspec.Struct, frozen=True, array_like=True):
    """What one of the two made of a kind."""

    cost: RatioStats = RatioStats()
    slowdown: RatioStats = RatioStats()

    def with_task(self, cost: float, slowdown: float) -> "ComparisonArm":
        """And one task more."""
        return ComparisonArm(self.cost.with_ratio(cost), self.slowdown.with_ratio(slowdown))


class PolicyComparison(msgspec.Struct, rename={"suspended_until": "aside_until"}):
    """What both sides made of one kind."""

    advice: ComparisonArm = ComparisonArm()
    rule: ComparisonArm = ComparisonArm()
    turns: int = 0
    """Groups that were advised on."""
    suspended_until: int = 0
    """On the broker's clock."""
    verdict: str = ""
    """Why it was put aside, in numbers."""

    @property
    def is_judged(self) -> bool:
        """Whether there is enough of both."""
        return self.advice.cost.count >= ENDS_MIN and self.rule.cost.count >= RULE_ENDS_MIN


class AdviceGuard:
    """The guard of one broker."""

    def __init__(self) -> None:
        self.comparisons: dict[str, PolicyComparison] = {}

    def comparison_of(self, kind: str) -> PolicyComparison:
        """A kind's, made at the first mention; it is the latest mentioned now."""
        found = self.comparisons.pop(kind, None) or PolicyComparison()
        self.comparisons[kind] = found
        if len(self.comparisons) > KINDS_MAX:
            del self.comparisons[next(iter(self.comparisons))]
        return found

    def find_suspension(self, kind: str, now: int) -> str:
        """Why a kind is left to the rule now; empty if it is not."""
        found = self.comparisons.get(kind)
        return found.verdict if found is not None and now < found.suspended_until else ""

    def take_turn(self, kind: str) -> bool:
        """A group is advised on for the first time: whether the advice counts, or it is the rule's turn."""
        found = self.comparison_of(kind)
        found.turns += 1
        return found.turns % (RULE_EVERY if found.is_judged else 2) != 0

    def on_task_ended(self, kind: str, cost: float, slowdown: float, advised: bool, now: int) -> str:
        """A task has succeeded. If that puts the kind aside: why, in numbers."""
        found = self.comparison_of(kind)
        if advised:
            found.advice = found.advice.with_task(cost, slowdown)
        else:
            found.rule = found.rule.with_task(cost, slowdown)
        if now < found.suspended_until or not is_worse(found):
            return ""
        found.suspended_until = now + SUSPENSION
        found.verdict = (
            f"{describe_comparison(found)}: they cost more than {MARGIN:.0%} more "
            f"beyond doubt, and end no sooner"
        )
        found.advice = ComparisonArm()
        return found.verdict

    def describe(self, kind: str) -> str:
        """The figures so far, for an explanation."""
        found = self.comparisons.get(kind)
        if found is None or not found.advice.cost.count:
            return "no advised task has ended yet"
        return describe_comparison(found)

    def check(self) -> None:
        """Bounds."""
        assert len(self.comparisons) <= KINDS_MAX
        for watch in self.comparisons.values():
            assert max(watch.advice.cost.count, watch.rule.cost.count) <= ENDS_KEPT


def is_worse(watch: PolicyComparison) -> bool:
    """Whether advice does worse than the rule, beyond doubt; False before judging."""
    if not watch.is_judged:
        return False
    advice, rule = watch.advice, watch.rule
    if advice.slowdown.mean < (1.0 - MARGIN) * rule.slowdown.mean:
        return False
    excess = advice.cost.mean - (1.0 + MARGIN) * rule.cost.mean
    return excess > DOUBT * math.sqrt(advice.cost.variance + (1.0 + MARGIN) ** 2 * rule.cost.variance)


def describe_comparison(watch: PolicyComparison) -> str:
    """Both sides in a sentence."""
    advice, rule = watch.advice, watch.rule
    text = f"{advice.cost.count} advised tasks cost {advice.cost.mean:.2f} of the least believed and took "
    text += f"{advice.slowdown.mean:.2f} of the best time in all, "
    if not rule.cost.count:
        return f"{text}none of the rule's has ended"
    return f"{text}{rule.cost.count} of the rule's {rule.cost.mean:.2f} and {rule.slowdown.mean:.2f}"
