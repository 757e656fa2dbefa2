"""A network that delays, loses, doubles, reorders and cuts.

A link joins two processes in one direction and has its own moods. Delays come from a table of quantiles, not
from a formula for every message: it is faster, and the same on every machine's mathematics library.
"""

# ruff: noqa: PLR1730  on the way of every message: a call of max() costs more than all it compares

from functools import lru_cache
from heapq import heapify, heappush
from math import log
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from hanse.model.ids import SECOND
from hanse.model.messages import Envelope
from hanse.sim.world import Action, World

if TYPE_CHECKING:
    from hanse.sim.process import Process

QUANTILES: Final = 256
DELAY_MAX: Final = 30 * SECOND
"""The longest delay: without a bound a message of a heavy tail might outlive the run."""
HEALED_MAX: Final = 2 * SECOND
"""How long after the heal a message may still arrive that was sent before."""
DELAY_KINDS: Final = ("constant", "uniform", "exponential", "heavy")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


@lru_cache(maxsize=64)
def delay_table(kind: str, mean: int) -> tuple[int, ...]:
    """Delays in microseconds, each as likely as the next, with this shape and about this mean in all."""
    middles = [(2 * step + 1) / (2 * QUANTILES) for step in range(QUANTILES)]
    if kind == "constant":
        return (mean,) * QUANTILES
    if kind == "uniform":
        return tuple(int(mean * 2 * middle) for middle in middles)
    if kind == "exponential":
        return tuple(int(-mean * log(1 - middle)) for middle in middles)
    assert kind == "heavy", kind
    return tuple(int(min(mean / 4 / (1 - middle), DELAY_MAX)) for middle in middles)


class Link:
    """One direction between two processes."""

    __slots__ = ("clogged_until", "cuts", "delays", "double", "in_order", "latest", "loss", "receive",
                 "source", "target")  # fmt: skip

    def __init__(self, source: str, target: str, receive: Action) -> None:
        self.source = source
        self.target = target
        self.receive = receive
        self.delays: tuple[int, ...] = delay_table("constant", 500)
        self.loss = 0.0
        """Probability that a message vanishes."""
        self.double = 0.0
        """Probability that it arrives twice."""
        self.in_order = False
        self.latest = 0
        """When the last message of an in-order link arrives."""
        self.cuts = 0
        """Partitions that this link crosses at the moment."""
        self.clogged_until = 0
        """Messages of a clogged link arrive when it clears."""


class Network:
    """All links of a league, and the one way a message takes."""

    __slots__ = ("_pair", "_random", "links", "rng", "wire", "world")

    def __init__(self, world: World, rng: Random, wire: bool = False) -> None:
        self.world = world
        self.rng = rng
        self._random = rng.random
        self._pair: dict[tuple[str, str], Link] = {}
        self.links: list[Link] = []
        """Every link, in the order of joining."""
        self.wire = wire
        """Whether every message is encoded and decoded on its way, as a live one is."""

    def join(self, source: "Process", target: "Process") -> Link:
        """Make the link from one process to another."""
        link = Link(source.name, target.name, target.receive)
        source.links[target.name] = link
        self._pair[source.name, target.name] = link
        self.links.append(link)
        return link

    def between(self, source: str, target: str) -> Link:
        """The link from one process to another."""
        return self._pair[source, target]

    def send(self, link: Link, envelope: Envelope) -> None:
        """Pass a message on, as this link treats messages today."""
        world, random = self.world, self._random
        if link.cuts or (link.loss and random() < link.loss):
            if world.story is not None:
                world.story.lost(world.now, envelope, "cut off" if link.cuts else "lost")
            return
        if self.wire:
            envelope = _decode(_encode(envelope))
        twice = link.double and random() < link.double
        at = world.now + link.delays[int(random() * QUANTILES)]
        if at < link.clogged_until or link.in_order:
            at = self._in_turn(link, at)
        heappush(world.heap, (at, world.number(), link.receive, envelope))
        if twice:
            at = world.now + link.delays[int(random() * QUANTILES)]
            heappush(world.heap, (self._in_turn(link, at), world.number(), link.receive, envelope))

    @staticmethod
    def _in_turn(link: Link, at: int) -> int:
        """When a message that could arrive at a time arrives, on a link that is clogged or keeps order."""
        if at < link.clogged_until:
            at = link.clogged_until
        if link.in_order:
            if at < link.latest:
                return link.latest
            link.latest = at
        return at

    def cut(self, links: list[Link]) -> None:
        """A partition begins. Partitions may overlap; a link works when none crosses it."""
        for link in links:
            link.cuts += 1

    def mend(self, links: list[Link]) -> None:
        """That partition ends (unless everything was healed before)."""
        for link in links:
            link.cuts = max(0, link.cuts - 1)

    def heal(self, delays: tuple[int, ...]) -> None:
        """Make every link quick and true for good; what is still on its way arrives within ``HEALED_MAX``."""
        world = self.world
        latest = world.now + HEALED_MAX
        world.heap[:] = [
            (min(at, latest) if isinstance(payload, Envelope) else at, number, action, payload)
            for at, number, action, payload in world.heap
        ]
        heapify(world.heap)
        for link in self.links:
            link.loss = link.double = 0.0
            link.cuts = link.clogged_until = link.latest = 0
            link.delays = delays
