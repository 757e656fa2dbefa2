"""Sizers: choice of the size of elastic tasks. Sizes to try come largest first and end with the least."""

from hanse.model.resources import Resources
from hanse.policy.interface import ElasticFacts, SizeChoice


class LeastSizer:
    """Sizer that takes the least size: most tasks at once."""

    name = "least"
    takes_advice = False
    model = ""

    def sizes_to_try(self, least: Resources, most: Resources | None) -> tuple[Resources, ...]:
        """Return the least size."""
        return (least,)

    def preferred_sizes(self, facts: ElasticFacts) -> tuple[SizeChoice, ...]:
        """Return no size in advance."""
        return ()


class GenerousSizer:
    """Sizer that takes as much as fits, halving the surplus down to the least: fastest single task."""

    name = "generous"
    takes_advice = False
    model = ""

    def sizes_to_try(self, least: Resources, most: Resources | None) -> tuple[Resources, ...]:
        """Return ``most``, then ``least`` plus half of the surplus, and so on."""
        sizes: list[Resources] = []
        surplus = most.minus(least) if most is not None else Resources()
        while surplus != Resources():
            sizes.append(least.plus(surplus))
            surplus = Resources(
                surplus.cpu // 2,
                surplus.memory // 2,
                surplus.gpu // 2,
                tuple((name, amount // 2) for name, amount in surplus.custom if amount // 2),
            )
        return (*sizes, least)

    def preferred_sizes(self, facts: ElasticFacts) -> tuple[SizeChoice, ...]:
        """Return no size in advance."""
        return ()
