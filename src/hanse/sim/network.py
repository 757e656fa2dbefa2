"""Network that delays, loses, duplicates, reorders and cuts.

A link connects two processes in one direction and has conditions of its own. Delays come from a table of
quantiles, not from a formula for every message: that is faster, and the same with every mathematics library.
"""

# ruff: noqa: PLR1730  runs for every message: a call of max() costs more than the comparison

from functools import lru_cache
from heapq import heapify, heappush
from math import log
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from hanse.model.ids import SECOND
from hanse.model.messages import Envelope
from hanse.sim.world import Action, VirtualWorld

if TYPE_CHECKING:
    from hanse.sim.process import Process

QUANTILES: Final = 256
DELAY_MAX: Final = 30 * SECOND
"""Longest delay in microseconds: without a bound a message of a heavy tail might outlive the run."""
HEALED_MAX: Final = 2 * SECOND
"""Longest time after the heal until a message that was sent before arrives."""
DELAY_KINDS: Final = ("constant", "uniform", "exponential", "heavy")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


@lru_cache(maxsize=64)
def delay_table(kind: str, mean: int) -> tuple[int, ...]:
    """Return equally likely delays in microseconds, with this distribution and about this mean."""
    middles = [(2 * step + 1) / (2 * QUANTILES) for step in range(QUANTILES)]
    if kind == "constant":
        return (mean,) * QUANTILES
    if kind == "uniform":
        return tuple(int(mean * 2 * middle) for middle in middles)
    if kind == "exponential":
        return tuple(int(-mean * log(1 - middle)) for middle in middles)
    assert kind == "heavy", kind
    return tuple(int(min(mean / 4 / (1 - middle), DELAY_MAX)) for middle in middles)


class SimulatedLink:
    """Link from one process to another."""

    __slots__ = ("clogged_until", "cuts", "delays", "duplication", "in_order", "latest_arrival", "loss",
                 "receive", "source", "target")  # fmt: skip

    def __init__(self, source: str, target: str, receive: Action) -> None:
        self.source = source
        self.target = target
        self.receive = receive
        self.delays: tuple[int, ...] = delay_table("constant", 500)
        self.loss = 0.0
        """Probability that a message is lost."""
        self.duplication = 0.0
        """Probability that a message arrives twice."""
        self.in_order = False
        self.latest_arrival = 0
        """Arrival of the last message of an in-order link."""
        self.cuts = 0
        """Number of partitions that cut this link now."""
        self.clogged_until = 0
        """Time at which a clogged link clears; its messages arrive then."""


class SimulatedNetwork:
    """All links of a league, and the path of every message."""

    __slots__ = ("_links_by_ends", "_random", "encodes", "links", "rng", "world")

    def __init__(self, world: VirtualWorld, rng: Random, encodes: bool = False) -> None:
        self.world = world
        self.rng = rng
        self._random = rng.random
        self._links_by_ends: dict[tuple[str, str], SimulatedLink] = {}
        self.links: list[SimulatedLink] = []
        """Every link, in the order of creation."""
        self.encodes = encodes
        """True if every message is encoded and decoded in transit, as in a live league."""

    def add_link(self, source: "Process", target: "Process") -> SimulatedLink:
        """Create the link from one process to another."""
        link = SimulatedLink(source.name, target.name, target.receive)
        source.links[target.name] = link
        self._links_by_ends[source.name, target.name] = link
        self.links.append(link)
        return link

    def link_between(self, source: str, target: str) -> SimulatedLink:
        """Return the link from one process to another."""
        return self._links_by_ends[source, target]

    def send(self, link: SimulatedLink, envelope: Envelope) -> None:
        """Send a message under the present conditions of the link."""
        world, random = self.world, self._random
        if link.cuts or (link.loss and random() < link.loss):
            if world.story is not None:
                world.story.on_message_lost(world.now, envelope, "cut off" if link.cuts else "lost")
            return
        if self.encodes:
            envelope = _decode(_encode(envelope))
        twice = link.duplication and random() < link.duplication
        at = world.now + link.delays[int(random() * QUANTILES)]
        if at < link.clogged_until or link.in_order:
            at = self._ordered_arrival(link, at)
        heappush(world.heap, (at, world.next_number(), link.receive, envelope))
        if twice:
            at = world.now + link.delays[int(random() * QUANTILES)]
            heappush(
                world.heap, (self._ordered_arrival(link, at), world.next_number(), link.receive, envelope)
            )

    @staticmethod
    def _ordered_arrival(link: SimulatedLink, at: int) -> int:
        """Return the arrival of a message on a link that is clogged or keeps order."""
        if at < link.clogged_until:
            at = link.clogged_until
        if link.in_order:
            if at < link.latest_arrival:
                return link.latest_arrival
            link.latest_arrival = at
        return at

    def cut(self, links: list[SimulatedLink]) -> None:
        """Begin a partition. Partitions may overlap; a link works when none cuts it."""
        for link in links:
            link.cuts += 1

    def end_cut(self, links: list[SimulatedLink]) -> None:
        """End a partition, unless a heal has ended it."""
        for link in links:
            link.cuts = max(0, link.cuts - 1)

    def heal(self, delays: tuple[int, ...]) -> None:
        """Make every link fast and reliable for good; messages in transit arrive within ``HEALED_MAX``."""
        world = self.world
        latest = world.now + HEALED_MAX
        world.heap[:] = [
            (min(at, latest) if isinstance(payload, Envelope) else at, number, action, payload)
            for at, number, action, payload in world.heap
        ]
        heapify(world.heap)
        for link in self.links:
            link.loss = link.duplication = 0.0
            link.cuts = link.clogged_until = link.latest_arrival = 0
            link.delays = delays
