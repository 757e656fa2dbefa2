"""Guards around a learned policy.

No task starves, and a policy that does worse than the rule is put aside.
"""

import math
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView
from hanse.learning.edge.policies.baselines import feasible_tasks
from hanse.learning.edge.policies.priced import PricedRule, at_rule_sizes, order_slots


def without_starvation(rule: PricedRule, view: EdgeView, choice: Choice) -> Choice:
    """Return the choice, but a cluster that passes takes a task that fits and has waited too long."""
    late = feasible_tasks(view, rule.minimum) & (view.waited >= rule.prices.wait_max)
    idle = (choice.slot == NONE) & late.any(axis=2)
    if not idle.any():
        return choice
    episodes, clusters, window = view.task.shape
    flat = (episodes * clusters, window)
    options = np.bitwise_count(view.reach).astype(np.int64).reshape(flat)
    slot = order_slots(options, view.waited.reshape(flat), view.task.reshape(flat), late.reshape(flat))
    rescue = at_rule_sizes(rule, view, slot.reshape(episodes, clusters))
    return Choice(
        slot=np.where(idle, rescue.slot, choice.slot),
        cpus=np.where(idle, rescue.cpus, choice.cpus),
        gpus=np.where(idle, rescue.gpus, choice.gpus),
        preference=np.where(idle, 0.0, choice.preference),
    )


MARGIN: Final = 0.05
"""Share by which a learned policy may be worse than the rule before it is put aside."""

SAMPLE_TASKS: Final = 25
"""Tasks of one sample: tasks that arrive together meet the same load, and are not independent."""

SAMPLES_MIN: Final = 4
"""Samples of each policy before the guard judges."""

DECAY: Final = 0.9
"""Weight of the past at each sample."""

SAMPLES_COUNTED: Final = (1 + DECAY) / (1 - DECAY)
"""Most independent samples that a mean with this decay is worth: 19."""

STANDARD_ERRORS: Final = 2.0
"""Standard errors by which the margin must be exceeded: an unlucky hour proves nothing."""

ALARM_SLOWDOWN: Final = 3.0
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


class GuardArm(msgspec.Struct, frozen=True):
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
    def mean_variance(self) -> float:
        """Variance of the mean; never below 0, whatever rounding does."""
        return max(self.square - self.mean**2, 0.0) / max(min(self.samples, SAMPLES_COUNTED) - 1.0, 1.0)


class GuardState(msgspec.Struct, frozen=True):
    """Results of the learned policy and the rule, and whose turn it is."""

    learned: GuardArm = GuardArm()
    rule: GuardArm = GuardArm()
    block: int = 0
    """Number of the current block; see :func:`at_step`."""
    is_set_aside: bool = False
    """True if the learned policy was put aside and has not been as good as the rule since."""


def at_step(state: GuardState, step: int, block_steps: int = BLOCK_STEPS) -> GuardState:
    """Return the state at a time, in steps (the unit of the durations) since any fixed moment.

    A block should be a few times the usual duration of a task.
    """
    block = step // block_steps
    return state if block == state.block else msgspec.structs.replace(state, block=block)


def is_counted(step: int, block_steps: int = BLOCK_STEPS) -> bool:
    """True if a task that arrives at this step counts, for the policy whose turn it is."""
    return step % block_steps >= WASHOUT * block_steps


def record_task(
    state: GuardState, took: float, best: float, *, by_learned: bool, margin: float = MARGIN
) -> GuardState:
    """Return the state after a task with completion ``took`` and believed best duration ``best``.

    A task counts for the policy that decided when it *arrived* (if it counts: :func:`is_counted`): counting
    it for its starter would favour a policy that leaves slow tasks to the other. Record a task once: when it
    ends or has taken ``SLOWDOWN_MAX`` times its best, whichever comes first.
    """
    took = min(took, SLOWDOWN_MAX * best)
    learned = _add_task(state.learned, took, best) if by_learned else state.learned
    rule = state.rule if by_learned else _add_task(state.rule, took, best)
    after = msgspec.structs.replace(state, learned=learned, rule=rule)
    # to come back, a policy put aside must be as good as the rule: this prevents flapping
    aside = is_worse(after, margin) or (state.is_set_aside and learned.mean > rule.mean)
    return msgspec.structs.replace(after, is_set_aside=aside) if aside != state.is_set_aside else after


def _add_task(arm: GuardArm, took: float, best: float) -> GuardArm:
    """Return the arm with one task more."""
    took, best, count = arm.took + took, arm.best + best, arm.count + 1
    if count < SAMPLE_TASKS:
        return msgspec.structs.replace(arm, took=took, best=best, count=count)
    sample = took / best
    # plain means at first, so that the first sample does not dominate for ever
    keep = min(DECAY, arm.samples / (arm.samples + 1))
    return GuardArm(
        mean=keep * arm.mean + (1 - keep) * sample,
        square=keep * arm.square + (1 - keep) * sample**2,
        samples=arm.samples + 1,
    )


def is_trusted(state: GuardState) -> bool:
    """True if the learned policy may go on: it was not put aside, and there is no alarm."""
    return not (state.is_set_aside or is_alarmed(state))


def is_worse(state: GuardState, margin: float = MARGIN) -> bool:
    """True if the learned policy is significantly worse than the rule by the margin; False before judging."""
    if not is_judged(state):
        return False
    excess = state.learned.mean - state.rule.mean * (1.0 + margin)
    doubt = state.learned.mean_variance + (1.0 + margin) ** 2 * state.rule.mean_variance
    return excess > STANDARD_ERRORS * math.sqrt(doubt)


def is_alarmed(state: GuardState) -> bool:
    """True if the learned policy was so bad that it is not even tried again; a new state resets this."""
    return state.learned.samples >= ALARM_SAMPLES and state.learned.mean >= ALARM_SLOWDOWN


def is_judged(state: GuardState) -> bool:
    """True if both policies have enough samples to judge."""
    return min(state.learned.samples, state.rule.samples) >= SAMPLES_MIN


def is_learned_turn(state: GuardState) -> bool:
    """True if the learned policy decides in this block.

    Until it is judged the two take turns; then the trusted one decides, and now and then the other.
    """
    if is_alarmed(state):
        return False
    if not is_trusted(state):
        return state.block % RETRY_EVERY == RETRY_EVERY - 1
    if not is_judged(state):
        return state.block % 2 == 0
    return state.block % RULE_EVERY != RULE_EVERY - 1
