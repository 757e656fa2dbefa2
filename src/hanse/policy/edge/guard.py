"""Guards around a learned policy.

No task starves, and a policy that does worse than the rule is put aside.
"""

import math
from typing import Final

import msgspec
import numpy as np

from hanse.policy.edge.baselines import feasible
from hanse.policy.edge.priced import PricedRule, order_slots, sized
from hanse.policy.edge.view import NONE, Choice, View


def without_starvation(rule: PricedRule, view: View, choice: Choice) -> Choice:
    """Return the choice, but a cluster that passes takes a task that fits and has waited too long."""
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
"""Share by which a learned policy may be worse than the rule before it is put aside."""

CLUMP: Final = 25
"""Tasks of one sample: tasks that arrive together meet the same load, and are not independent."""

SAMPLES_MIN: Final = 4
"""Samples of each policy before the guard judges."""

FORGET: Final = 0.9
"""Weight of the past at each sample."""

SAMPLES_COUNTED: Final = (1 + FORGET) / (1 - FORGET)
"""Most independent samples that a mean with this decay is worth: 19."""

DOUBT: Final = 2.0
"""Standard errors by which the margin must be exceeded: an unlucky hour proves nothing."""

ALARM: Final = 3.0
"""Mean slowdown at which a learned policy is put aside whatever the rule's figures are.

A policy that lets tasks pile up spoils the rule's turns too, and the two look alike; and where the load is
the cause, leaving it to the rule loses nothing.
"""

ALARM_SAMPLES: Final = 2
"""Samples of the learned policy before there can be an alarm."""

BLOCK_STEPS: Final = 80
"""Steps for which one policy decides before the other may: a policy is judged over a period."""

WASHOUT: Final = 0.5
"""Share of a block whose arrivals do not count: they meet the state that the other policy left."""

SLOWDOWN_MAX: Final = 8.0
"""Largest slowdown of a task; it counts as soon as it is reached, so a task that never ends counts too."""

RULE_EVERY: Final = 8
"""Blocks, while the learned policy is trusted, of which the rule decides one, to stay fresh."""

RETRY_EVERY: Final = 32
"""Blocks, while it is not trusted, of which it decides one: loads and trained files change."""


class Side(msgspec.Struct, frozen=True):
    """Results of one of the two policies.

    A sample is a slowdown: the sum of ``SAMPLE_TASKS`` completions over that of their best durations.
    """

    mean: float = 0.0
    """Mean of the samples; older samples weigh less."""
    square: float = 0.0
    """Running mean of the samples' squares, for the variance of the mean."""
    samples: int = 0
    took: float = 0.0
    best: float = 0.0
    count: int = 0
    """Sums and number of the tasks that do not make a sample yet."""

    @property
    def doubt(self) -> float:
        """Variance of the mean; never below 0, whatever rounding does."""
        return max(self.square - self.mean**2, 0.0) / max(min(self.samples, SAMPLES_COUNTED) - 1.0, 1.0)


class Watch(msgspec.Struct, frozen=True):
    """Results of the learned policy and the rule, and whose turn it is."""

    learned: Side = Side()
    rule: Side = Side()
    block: int = 0
    """Number of the current block; see :func:`at_step`."""
    aside: bool = False
    """True if the learned policy was put aside and has not been as good as the rule since."""


def at_step(watch: Watch, step: int, block_steps: int = BLOCK_STEPS) -> Watch:
    """Return the state at a time, in steps (the unit of the durations) since any fixed moment.

    A block should be a few times the usual duration of a task.
    """
    block = step // block_steps
    return watch if block == watch.block else msgspec.structs.replace(watch, block=block)


def counts(step: int, block_steps: int = BLOCK_STEPS) -> bool:
    """True if a task that arrives at this step counts, for the policy whose turn it is."""
    return step % block_steps >= WASHOUT * block_steps


def watched(watch: Watch, took: float, best: float, *, by_learned: bool, margin: float = MARGIN) -> Watch:
    """Return the state after a task with completion ``took`` and believed best duration ``best``.

    A task counts for the policy that decided when it *arrived* (if it counts: :func:`is_counted`): counting
    it for its starter would favour a policy that leaves slow tasks to the other. Record a task once: when it
    ends or has taken ``SLOWDOWN_MAX`` times its best, whichever comes first.
    """
    took = min(took, SLOWDOWN_MAX * best)
    learned = _with(watch.learned, took, best) if by_learned else watch.learned
    rule = watch.rule if by_learned else _with(watch.rule, took, best)
    after = msgspec.structs.replace(watch, learned=learned, rule=rule)
    # to come back, a policy put aside must be as good as the rule: this prevents flapping
    aside = worse(after, margin) or (watch.aside and learned.mean > rule.mean)
    return msgspec.structs.replace(after, aside=aside) if aside != watch.aside else after


def _with(side: Side, took: float, best: float) -> Side:
    """Return the arm with one task more."""
    took, best, count = side.took + took, side.best + best, side.count + 1
    if count < CLUMP:
        return msgspec.structs.replace(side, took=took, best=best, count=count)
    sample = took / best
    # plain means at first, so that the first sample does not dominate for ever
    keep = min(FORGET, side.samples / (side.samples + 1))
    return Side(
        mean=keep * side.mean + (1 - keep) * sample,
        square=keep * side.square + (1 - keep) * sample**2,
        samples=side.samples + 1,
    )


def trusted(watch: Watch) -> bool:
    """True if the learned policy may go on: it was not put aside, and there is no alarm."""
    return not (watch.aside or alarmed(watch))


def worse(watch: Watch, margin: float = MARGIN) -> bool:
    """True if the learned policy is significantly worse than the rule by the margin; False before judging."""
    if not judged(watch):
        return False
    excess = watch.learned.mean - watch.rule.mean * (1.0 + margin)
    doubt = watch.learned.doubt + (1.0 + margin) ** 2 * watch.rule.doubt
    return excess > DOUBT * math.sqrt(doubt)


def alarmed(watch: Watch) -> bool:
    """True if the learned policy was so bad that it is not even tried again; a new state resets this."""
    return watch.learned.samples >= ALARM_SAMPLES and watch.learned.mean >= ALARM


def judged(watch: Watch) -> bool:
    """True if both policies have enough samples to judge."""
    return min(watch.learned.samples, watch.rule.samples) >= SAMPLES_MIN


def decides(watch: Watch) -> bool:
    """True if the learned policy decides in this block.

    Until it is judged the two take turns; then the trusted one decides, and now and then the other.
    """
    if alarmed(watch):
        return False
    if not trusted(watch):
        return watch.block % RETRY_EVERY == RETRY_EVERY - 1
    if not judged(watch):
        return watch.block % 2 == 0
    return watch.block % RULE_EVERY != RULE_EVERY - 1
