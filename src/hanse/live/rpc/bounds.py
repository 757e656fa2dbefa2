"""Every bound of the wire in one record, and what all its connections share."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

import msgspec

from hanse.live.rpc.frames import FRAME_BYTES_MAX
from hanse.live.rpc.peer_permissions import Book
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

REFUSALS_KEPT: Final = 100
"""Refusals told in words; all are counted."""
log: Final = logging.getLogger(__name__)


class Bounds(msgspec.Struct, frozen=True):
    """How much of everything, and how long. Times in seconds."""

    frame_bytes: int = FRAME_BYTES_MAX
    frame_seconds: float = 30.0
    """From the first byte of a frame to its last; then its sender is cut off."""
    handshake_seconds: float = 5.0
    handshakes: int = 128
    """Newcomers that have not shown who they are; more are turned away."""
    handshakes_per_host: int = 32
    """The same, from one address: one host must not keep all others out."""
    connections: int = 1_024
    """Connections that others have opened, newcomers included."""
    connections_per_peer: int = 4
    """The same, of one identity; its oldest is closed for a new one, for it may be dead."""
    outbox_envelopes: int = 16_384
    """Envelopes that wait for one peer; further ones are dropped. Twice a link's window."""
    outbox_seconds: float = 30.0
    """A peer that cannot be reached for this long has its outbox emptied: links repeat."""
    write_bytes: int = 1 << 20
    """Written and not yet taken by the network; beyond it envelopes wait in the outbox."""
    write_seconds: float = 30.0
    """A peer that takes nothing for this long is dialled anew."""
    connect_seconds: float = 2.0
    """How long a peer may take to answer the first knock of a dialling, which the kernel repeats after one
    second; then it is knocked at anew, so that a network that is whole again is noticed within a second."""
    dial_seconds: float = 10.0
    """The same, with the handshake that follows."""
    redial_first: float = 0.05
    """The first pause before a peer is dialled again, from the beginning of one dialling to the next; it
    doubles up to ``redial_most``."""
    redial_most: float = 1.0
    unheard_seconds: float = 3.0
    """A connection over which nothing has come back for this long, although the kernel has repeated what we
    said, is given up for a new one."""
    look_seconds: float = 0.5
    """How long to leave it at most before looking for that again, while there is something to say."""
    close_seconds: float = 2.0
    """How long the last words of a connection may take."""


class Office:
    """What the connections of one member share."""

    def __init__(
        self,
        book: Book,
        credentials: Credentials,
        bounds: Bounds,
        counters: Counter[str],
        random: Random,
        clock: Callable[[], int],
    ) -> None:
        self.book = book
        self.credentials = credentials
        self.bounds = bounds
        self.counters = counters
        self.random = random
        self.clock = clock
        """The wall clock in microseconds since 1970: certificates end by it."""
        self.heard: Callable[[Identity], None] = lambda _: None
        """Called when a peer has opened a connection to us."""
        self.refusals: deque[str] = deque(maxlen=REFUSALS_KEPT)
        """The latest refusals in words, for whoever asks why a count rises."""
        self._foreign: set[Identity] = set()
        """Peers with whom we had no version in common when last seen; at most as many as the book has."""
        self._errands: dict[asyncio.Task[None], None] = {}

    def refuse(self, reason: str, who: object = "", detail: str = "") -> None:
        """Count a refusal, and note it in words."""
        self.counters[f"refused_{reason}"] += 1
        self.refusals.append(f"{reason}: {who or 'somebody'}{': ' if detail else ''}{detail}")

    def understands(self, peer: Identity, problem: str) -> bool:
        """Whether a peer of the book can be understood: no ``problem`` with its version. It is tried again
        and again, so the log says it once, until they have understood each other."""
        if not problem:
            self._foreign.discard(peer)
            return True
        self.refuse("version", peer, problem)
        if peer not in self._foreign:
            self._foreign.add(peer)
            log.error("%s is refused: %s", peer, problem)
        return False

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; what goes wrong with it is told to the loop's exception handler."""
        task = asyncio.get_running_loop().create_task(work)
        self._errands[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        del self._errands[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "an errand of the wire failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    async def finish(self) -> None:
        """End all errands."""
        errands = list(self._errands)
        for task in errands:
            task.cancel()
        await asyncio.gather(*errands, return_exceptions=True)
