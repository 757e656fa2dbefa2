"""Expected seconds to read an input, from the nearest replica, through links that others use, too.

A flow gets at most its own maximum, and of each link on its way an equal share: the link's rate over the
flows there and itself. Rates are estimates, which a league measures; nothing is known of flows that will
come.
"""

from collections.abc import Sequence

import msgspec


class LinkEstimate(msgspec.Struct, frozen=True):
    """Believed rate of a link, and the flows there now."""

    rate: float
    """Bytes per second."""
    flows: int = 0

    def find_share(self, newcomers: int = 1) -> float:
        """Return the bytes per second of each flow with this many more of them."""
        return self.rate / (self.flows + newcomers)


class PathEstimate(msgspec.Struct, frozen=True):
    """Believed way from one replica."""

    flow_max: float
    """Bytes per second that one flow has at most."""
    round_trip: float = 0.0
    """Seconds."""
    links: tuple[LinkEstimate, ...] = ()

    def find_rate(self, newcomers: int = 1) -> float:
        """Return the expected bytes per second of each of this many new flows."""
        rate = self.flow_max
        for link in self.links:
            rate = min(rate, link.find_share(newcomers))
        return rate


def transfer_seconds(input_bytes: float, paths: Sequence[PathEstimate], newcomers: int = 1) -> float:
    """Return the expected seconds to read an input over the best of the paths; 0.0 if there is nothing to
    read, or nowhere to read it from.

    ``newcomers``: flows that start together, each with an input of this size.
    """
    if input_bytes <= 0.0 or not paths:
        return 0.0
    return min(path.round_trip + input_bytes / path.find_rate(newcomers) for path in paths)


def wan_flow_rate(rate: float, window_bytes: float, round_trip: float) -> float:
    """Return the most that one flow over a long way has: its window once every round trip, at most
    ``rate``."""
    return min(rate, window_bytes / round_trip) if round_trip > 0.0 else rate
