"""Numbers that look random, for a machine that draws none itself: a hash of its seed and its step."""

from hanse.policy.hashing import hash_numbers


class StepRandom:
    """Random positions of one machine: the same during a step, new with every step."""

    __slots__ = ("seed", "steps")

    def __init__(self, seed: int = 0, steps: int = 0) -> None:
        self.seed = seed
        """Seed of this start of the machine."""
        self.steps = steps
        """Number of events handled."""

    def position(self, count: int) -> int:
        """Return one of ``count`` positions, from 0; 0 if there is none."""
        return hash_numbers(self.seed, self.steps) % max(1, count)
