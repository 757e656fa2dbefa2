"""Guard around advice: compares, kind by kind, advised tasks with tasks that the rule sized.

The guard notes two ratios of each completed task. *Cost* is its run time, multiplied by the price of its
resources, over the least believed cost of any size that was tried. *Slowdown* is the time from the job's
acceptance to the task's end, over the believed duration at that cheapest size. Cost alone would be unfair:
the rule takes the cheapest size, so a policy that takes less in order to leave room for others would look
worse. Advice is worse when its tasks cost more than the rule's by the margin, beyond doubt, and do not end
sooner by the margin either. Then the rule sizes the kind for a while, and the advised side starts again from
nothing. Until there are enough ends of both sides they take turns, group by group. Later one group of several
is left to the rule, to keep its figures up to date.
"""

import math
from typing import Final

import msgspec

from hanse.model.ids import MINUTE

MARGIN: Final = 0.05
"""Share by which advised tasks may cost more than the rule's."""
STANDARD_ERRORS: Final = 2.0
"""Standard errors by which the margin must be exceeded: an unlucky hour proves nothing."""
ENDS_MIN: Final = 10
"""Advised tasks that must have ended before a kind is judged."""
RULE_ENDS_MIN: Final = 5
"""Tasks sized by the rule that must have ended before a kind is judged."""
ENDS_KEPT: Final = 100
"""Ends in one tally. At this number the tally is halved, so that old ends lose weight."""
SUSPENSION: Final = 10 * MINUTE
"""Time for which a kind is left to the rule."""
RULE_EVERY: Final = 8
"""One group of this many is left to the rule once a kind can be judged; before that, every second group."""
RATIO_MAX: Final = 20.0
"""Upper bound of a counted ratio: a task that hung says little about its size."""
KINDS_MAX: Final = 1_000
"""Kinds tracked. The kind that was longest without an end is dropped first."""


class RatioStats(msgspec.Struct, frozen=True, array_like=True):
    """Tally of the ratios of some tasks."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Mean of the ratios; 1 if there are none."""
        return self.total / self.count if self.count else 1.0

    @property
    def variance(self) -> float:
        """Variance of the mean; never negative, also after rounding."""
        spread = max(self.squares / self.count - self.mean**2, 0.0) if self.count else 0.0
        return spread / max(self.count - 1, 1)

    def with_ratio(self, ratio: float) -> "RatioStats":
        """Return the tally with one more ratio."""
        if self.count >= ENDS_KEPT:
            return RatioStats(self.count // 2, self.total / 2, self.squares / 2).with_ratio(ratio)
        ratio = min(ratio, RATIO_MAX)
        return RatioStats(self.count + 1, self.total + ratio, self.squares + ratio**2)


class ComparisonArm(msgspec.Struct, frozen=True, array_like=True):
    """Tallies of one side of the comparison for a kind."""

    cost: RatioStats = RatioStats()
    slowdown: RatioStats = RatioStats()

    def with_task(self, cost: float, slowdown: float) -> "ComparisonArm":
        """Return the tallies with one more task."""
        return ComparisonArm(self.cost.with_ratio(cost), self.slowdown.with_ratio(slowdown))


class PolicyComparison(msgspec.Struct, rename={"suspended_until": "aside_until"}):
    """Comparison of both sides for one kind."""

    advice: ComparisonArm = ComparisonArm()
    rule: ComparisonArm = ComparisonArm()
    turns: int = 0
    """Groups for which advice came."""
    suspended_until: int = 0
    """Time on the broker's clock."""
    verdict: str = ""
    """Reason of the latest suspension, in numbers."""

    @property
    def is_judged(self) -> bool:
        """True if both sides have enough ends."""
        return self.advice.cost.count >= ENDS_MIN and self.rule.cost.count >= RULE_ENDS_MIN


class AdviceGuard:
    """Guard of one broker."""

    def __init__(self) -> None:
        self.comparisons: dict[str, PolicyComparison] = {}

    def comparison_of(self, kind: str) -> PolicyComparison:
        """Return the comparison for a kind, created at the first call, and make it the most recent one."""
        found = self.comparisons.pop(kind, None) or PolicyComparison()
        self.comparisons[kind] = found
        if len(self.comparisons) > KINDS_MAX:
            del self.comparisons[next(iter(self.comparisons))]
        return found

    def find_suspension(self, kind: str, now: int) -> str:
        """Return why a kind is left to the rule now; empty if it is not."""
        found = self.comparisons.get(kind)
        return found.verdict if found is not None and now < found.suspended_until else ""

    def take_turn(self, kind: str) -> bool:
        """Count a group's first advice; True if the advice counts, False if it is the rule's turn."""
        found = self.comparison_of(kind)
        found.turns += 1
        return found.turns % (RULE_EVERY if found.is_judged else 2) != 0

    def on_task_ended(self, kind: str, cost: float, slowdown: float, advised: bool, now: int) -> str:
        """Count a task that succeeded. If that suspends the kind, return why, in numbers."""
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
        """Return the figures so far, for an explanation."""
        found = self.comparisons.get(kind)
        if found is None or not found.advice.cost.count:
            return "no advised task has ended yet"
        return describe_comparison(found)

    def check(self) -> None:
        """Assert bounds."""
        assert len(self.comparisons) <= KINDS_MAX
        for comparison in self.comparisons.values():
            assert max(comparison.advice.cost.count, comparison.rule.cost.count) <= ENDS_KEPT


def is_worse(comparison: PolicyComparison) -> bool:
    """True if advice does worse than the rule, beyond doubt; False before the kind is judged."""
    if not comparison.is_judged:
        return False
    advice, rule = comparison.advice, comparison.rule
    if advice.slowdown.mean < (1.0 - MARGIN) * rule.slowdown.mean:
        return False
    excess = advice.cost.mean - (1.0 + MARGIN) * rule.cost.mean
    return excess > STANDARD_ERRORS * math.sqrt(
        advice.cost.variance + (1.0 + MARGIN) ** 2 * rule.cost.variance
    )


def describe_comparison(comparison: PolicyComparison) -> str:
    """Return both sides in a sentence."""
    advice, rule = comparison.advice, comparison.rule
    text = f"{advice.cost.count} advised tasks cost {advice.cost.mean:.2f} of the least believed and took "
    text += f"{advice.slowdown.mean:.2f} of the best time in all, "
    if not rule.cost.count:
        return f"{text}none of the rule's has ended"
    return f"{text}{rule.cost.count} of the rule's {rule.cost.mean:.2f} and {rule.slowdown.mean:.2f}"
