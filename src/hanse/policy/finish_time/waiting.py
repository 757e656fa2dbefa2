"""Wait or go: when a task that could start is better left waiting for a better node.

Its *ideal* is the least expected finish on an empty league. A place whose expected finish is more than
WAIT_RATIO times as long is refused, while the task has waited for less than WAIT_SHARE of its ideal since it
was ready. So a task that waits in vain loses at most its ideal time once more, and nobody waits for ever.

Both were chosen on training stretches: a bad place holds its node for longer than a good one would.
"""

from math import inf
from typing import Final

WAIT_RATIO: Final = 1.3
"""Most that an expected finish may exceed the ideal, as a factor."""
WAIT_SHARE: Final = 1.0
"""Longest wait since the task was ready, in ideals."""


def cost_limit(
    ideal: float, waited: float, wait_ratio: float = WAIT_RATIO, wait_share: float = WAIT_SHARE
) -> float:
    """Return the largest expected finish, in seconds, that a task accepts after ``waited`` seconds."""
    return wait_ratio * ideal if waited < wait_share * ideal else inf


def wait_until(ready: float, ideal: float, wait_share: float = WAIT_SHARE) -> float:
    """Return the moment, in seconds, from which on a task that was ready at ``ready`` accepts any place."""
    return ready + wait_share * ideal
