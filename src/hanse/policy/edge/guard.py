"""The guards around a learned policy.

Nobody starves, and a policy that does worse than the rule is put aside.
"""

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

SAMPLES_MIN: Final = 50
"""Completed tasks on each side before the guard judges."""

FORGET: Final = 0.99
"""Weight of the past at each completed task: about the last hundred count."""


class Watch(msgspec.Struct, frozen=True):
    """Running means of (completion / believed best) under the learned policy and under the rule."""

    learned: float = 0.0
    learned_count: int = 0
    rule: float = 0.0
    rule_count: int = 0


def watched(watch: Watch, slowdown: float, *, by_learned: bool) -> Watch:
    """The watch after one completed task; ``slowdown`` is its completion over its believed best duration."""
    if by_learned:
        keep = FORGET if watch.learned_count else 0.0
        mean = keep * watch.learned + (1 - keep) * slowdown
        return msgspec.structs.replace(watch, learned=mean, learned_count=watch.learned_count + 1)
    keep = FORGET if watch.rule_count else 0.0
    mean = keep * watch.rule + (1 - keep) * slowdown
    return msgspec.structs.replace(watch, rule=mean, rule_count=watch.rule_count + 1)


def trusted(watch: Watch, margin: float = MARGIN) -> bool:
    """Whether the learned policy may go on.

    Not seen enough of both, or not worse than the rule by the margin.
    """
    if min(watch.learned_count, watch.rule_count) < SAMPLES_MIN:
        return True
    return watch.learned <= watch.rule * (1.0 + margin)
