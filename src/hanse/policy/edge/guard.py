"""The guards around a learned policy.

Nobody starves, and a policy that does worse than the rule is put aside.
"""

import math
from typing import Final

import msgspec
import numpy as np

from hanse.policy.edge.baselines import feasible
from hanse.policy.edge.priced import PricedRule, order_slots, sized
from hanse.policy.edge.view import NONE, Choice, View


def without_starvation(rule: PricedRule, view: View, choice: Choice) -> Choice:
    """The choice, but a cluster that passes takes a task that fits and has waited too long."""
    late = feasible(view, rule.minimum) & (view.waited >= rule.prices.wait_max)
    idle = (choice.slot == NONE) & late.any(axis=2)
    if not idle.any():
        return choice
    episodes, clusters, window = view.task.shape
    flat = (episodes * clusters, window)
    options = np.bitwise_count(view.reach).astype(np.int64).reshape(flat)
    slot = order_slots(options, view.waited.reshape(flat), view.task.reshape(flat), late.reshape(flat))
    rescue = sized(rule, view, slot.reshape(episodes, clusters))
    return Choice(
        slot=np.where(idle, rescue.slot, choice.slot),
        cpus=np.where(idle, rescue.cpus, choice.cpus),
        gpus=np.where(idle, rescue.gpus, choice.gpus),
        preference=np.where(idle, 0.0, choice.preference),
    )


MARGIN: Final = 0.05
"""A learned policy may be this much worse than the rule before it is put aside."""

CLUMP: Final = 25
"""Tasks that make one sample: tasks that come together meet the same load, and are not independent."""

SAMPLES_MIN: Final = 4
"""Samples on each side before the guard judges."""

FORGET: Final = 0.9
"""Weight of the past at each sample."""

SAMPLES_COUNTED: Final = (1 + FORGET) / (1 - FORGET)
"""Independent samples that a mean with this memory is worth at most: 19."""

DOUBT: Final = 2.0
"""Standard errors by which the margin must be exceeded: an unlucky hour is not a bad policy."""

ALARM: Final = 3.0
"""Mean slowdown at which a learned policy is put aside whatever the rule's figures are.

A policy that lets work pile up spoils the rule's turns too, and the two look alike; and where the load is to
blame, nothing is lost by leaving it to the rule.
"""

ALARM_SAMPLES: Final = 2
"""Samples of the learned policy before there can be an alarm."""

BLOCK_STEPS: Final = 80
"""Steps for which one policy decides before the other may: a policy is judged by what it makes of a while."""

WASHOUT: Final = 0.5
"""Share of a block whose arrivals count for nobody: they meet what the other policy left behind."""

SLOWDOWN_MAX: Final = 8.0
"""A task counts as this slow at most, and as soon as it is: one that never ends must count too."""

RULE_EVERY: Final = 8
"""While the learned policy is trusted, the rule decides in one block of so many: its figures stay fresh."""

RETRY_EVERY: Final = 32
"""While it is not, it is tried again in one block of so many: loads change, and so do trained files."""


class Side(msgspec.Struct, frozen=True):
    """What one of the two policies made of its tasks.

    A sample is a clump's slowdown: the sum of its completions over the sum of its believed best durations.
    """

    mean: float = 0.0
    """Of the samples, the older the lighter."""
    square: float = 0.0
    """Running mean of the samples' squares, for the doubt about the mean."""
    samples: int = 0
    took: float = 0.0
    best: float = 0.0
    count: int = 0
    """Completions, believed bests and number of the tasks that do not make a sample yet."""

    @property
    def doubt(self) -> float:
        """Variance of the mean; never below 0, whatever rounding does."""
        return max(self.square - self.mean**2, 0.0) / max(min(self.samples, SAMPLES_COUNTED) - 1.0, 1.0)


class Watch(msgspec.Struct, frozen=True):
    """What the learned policy and the rule made of their tasks, and whose turn it is."""

    learned: Side = Side()
    rule: Side = Side()
    block: int = 0
    """Number of the current block; see :func:`at_step`."""
    aside: bool = False
    """Whether the learned policy was put aside and has not been as good as the rule since."""


def at_step(watch: Watch, step: int, block_steps: int = BLOCK_STEPS) -> Watch:
    """The watch at a time, in steps (the unit of the durations) since any fixed moment.

    A block should be a few times the usual duration of a task.
    """
    block = step // block_steps
    return watch if block == watch.block else msgspec.structs.replace(watch, block=block)


def counts(step: int, block_steps: int = BLOCK_STEPS) -> bool:
    """Whether a task that arrives at this step counts, for the policy whose turn it is."""
    return step % block_steps >= WASHOUT * block_steps


def watched(watch: Watch, took: float, best: float, *, by_learned: bool, margin: float = MARGIN) -> Watch:
    """The watch after one task that took so long from arrival to end; ``best`` is its believed best duration.

    A task counts for the policy that decided when it *arrived* (if it counts: :func:`counts`): to count it
    for the one that started it would flatter a policy that leaves the slow ones to the other. It is told when
    it ends or when it has taken ``SLOWDOWN_MAX`` times its best, whichever comes first, and once.
    """
    took = min(took, SLOWDOWN_MAX * best)
    learned = _with(watch.learned, took, best) if by_learned else watch.learned
    rule = watch.rule if by_learned else _with(watch.rule, took, best)
    after = msgspec.structs.replace(watch, learned=learned, rule=rule)
    # who was put aside must be as good as the rule to come back: a policy on the edge does not flap
    aside = worse(after, margin) or (watch.aside and learned.mean > rule.mean)
    return msgspec.structs.replace(after, aside=aside) if aside != watch.aside else after


def _with(side: Side, took: float, best: float) -> Side:
    """A side with one task more."""
    took, best, count = side.took + took, side.best + best, side.count + 1
    if count < CLUMP:
        return msgspec.structs.replace(side, took=took, best=best, count=count)
    sample = took / best
    # plain means at first, so that the first sample is not remembered for ever
    keep = min(FORGET, side.samples / (side.samples + 1))
    return Side(
        mean=keep * side.mean + (1 - keep) * sample,
        square=keep * side.square + (1 - keep) * sample**2,
        samples=side.samples + 1,
    )


def trusted(watch: Watch) -> bool:
    """Whether the learned policy may go on: it was not put aside, and there is no alarm."""
    return not (watch.aside or alarmed(watch))


def worse(watch: Watch, margin: float = MARGIN) -> bool:
    """Whether the learned policy is worse than the rule by the margin, beyond doubt; False before judging."""
    if not judged(watch):
        return False
    excess = watch.learned.mean - watch.rule.mean * (1.0 + margin)
    doubt = watch.learned.doubt + (1.0 + margin) ** 2 * watch.rule.doubt
    return excess > DOUBT * math.sqrt(doubt)


def alarmed(watch: Watch) -> bool:
    """Whether the learned policy was so bad that it is not even tried again: a new watch lifts it."""
    return watch.learned.samples >= ALARM_SAMPLES and watch.learned.mean >= ALARM


def judged(watch: Watch) -> bool:
    """Whether enough of both was seen to judge."""
    return min(watch.learned.samples, watch.rule.samples) >= SAMPLES_MIN


def decides(watch: Watch) -> bool:
    """Whether the learned policy decides in this block.

    Until it is judged the two take turns; then the trusted one decides, and now and then the other.
    """
    if alarmed(watch):
        return False
    if not trusted(watch):
        return watch.block % RETRY_EVERY == RETRY_EVERY - 1
    if not judged(watch):
        return watch.block % 2 == 0
    return watch.block % RULE_EVERY != RULE_EVERY - 1
