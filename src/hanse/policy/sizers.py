"""Sizers: how much an elastic task gets. The sizes to try, largest first; the least it asks for is always
the last."""

from typing import Final

from hanse.model.resources import Resources
from hanse.policy.interface import Chosen, ElasticFacts, Sizer
from hanse.policy.priced_sizer import Networked, Priced


class Least:
    """Just what it needs: most tasks at once."""

    name = "least"
    advised = False

    def ladder(self, least: Resources, most: Resources | None) -> tuple[Resources, ...]:
        """One size."""
        return (least,)

    def choose(self, facts: ElasticFacts) -> tuple[Chosen, ...]:
        """Nothing in advance."""
        return ()


class Generous:
    """As much as fits, halving the surplus down to the least: fastest single task."""

    name = "generous"
    advised = False

    def ladder(self, least: Resources, most: Resources | None) -> tuple[Resources, ...]:
        """``most``, then half of the surplus over ``least``, and so on."""
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

    def choose(self, facts: ElasticFacts) -> tuple[Chosen, ...]:
        """Nothing in advance."""
        return ()


SIZERS: Final[dict[str, type[Sizer]]] = {sizer.name: sizer for sizer in (Least, Generous, Priced, Networked)}
"""Every sizer by its name."""
