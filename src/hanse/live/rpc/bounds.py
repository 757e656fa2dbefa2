"""Bounds of the transport in one record, and the state that all connections of a member share."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

import msgspec

from hanse.live.rpc.frames import FRAME_BYTES_MAX
from hanse.live.rpc.peer_permissions import AddressBook
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

REFUSALS_MAX: Final = 100
"""Refusals kept as texts; all are counted."""
log: Final = logging.getLogger(__name__)


class TransportBounds(msgspec.Struct, frozen=True):
    """Sizes, numbers and times (in seconds) of the transport."""

    frame_bytes: int = FRAME_BYTES_MAX
    frame_seconds: float = 30.0
    """From the first byte of a frame to its last; then the connection is closed."""
    handshake_seconds: float = 5.0
    handshakes: int = 128
    """Handshakes under way; more connections are turned away."""
    handshakes_per_host: int = 32
    """The same from one address: one host must not keep all others out."""
    connections: int = 1_024
    """Inbound connections, including those under handshake."""
    connections_per_peer: int = 4
    """The same of one identity; the oldest is closed for a new one, because it may be dead."""
    outbox_envelopes: int = 16_384
    """Envelopes that wait for one peer; further ones are dropped. Twice a link's window."""
    outbox_seconds: float = 30.0
    """The outbox of a peer that is unreachable for this long is emptied: links repeat."""
    write_bytes: int = 1 << 20
    """Bytes written and not yet sent by the kernel; above it envelopes wait in the outbox."""
    write_seconds: float = 30.0
    """A peer that accepts no data for this long is dialled again."""
    connect_seconds: float = 2.0
    """Time that a peer may take to answer the first SYN, which the kernel repeats after one second; then a
    new connection is tried, so that a healed network is noticed within a second."""
    dial_seconds: float = 10.0
    """The same, including the handshake."""
    redial_first: float = 0.05
    """First pause before a peer is dialled again, from the start of one attempt to the next; it doubles up to
    ``redial_most``."""
    redial_most: float = 1.0
    silence_seconds: float = 3.0
    """A connection without acknowledgements for this long, although the kernel has retransmitted, is replaced
    by a new one."""
    silence_check_seconds: float = 0.5
    """Longest time between two checks for silence, while there is data to send."""
    close_seconds: float = 2.0
    """Time for a connection to send its last data."""


class SharedTransportState:
    """State that the connections of one member share."""

    def __init__(
        self,
        book: AddressBook,
        credentials: Credentials,
        bounds: TransportBounds,
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
        """Wall clock in microseconds since 1970: certificates expire by it."""
        self.on_peer_connected: Callable[[Identity], None] = lambda _: None
        """Called when a peer has opened a connection to us."""
        self.refusals: deque[str] = deque(maxlen=REFUSALS_MAX)
        """Latest refusals as texts, to explain the counters."""
        self._incompatible: set[Identity] = set()
        """Peers without a common version when last connected; at most as many as the address book has."""
        self._tasks: dict[asyncio.Task[None], None] = {}

    def record_refusal(self, reason: str, peer: object = "", detail: str = "") -> None:
        """Count a refusal, and keep its text."""
        self.counters[f"refused_{reason}"] += 1
        self.refusals.append(f"{reason}: {peer or 'unknown peer'}{': ' if detail else ''}{detail}")

    def check_version(self, peer: Identity, problem: str) -> bool:
        """Return True if a peer has a common version: no ``problem``. The peer is tried again and again, so
        the log names it once, until a version is common."""
        if not problem:
            self._incompatible.discard(peer)
            return True
        self.record_refusal("version", peer, problem)
        if peer not in self._incompatible:
            self._incompatible.add(peer)
            log.error("%s is refused: %s", peer, problem)
        return False

    def start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; its error goes to the loop's exception handler."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "a task of the transport failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    async def cancel_tasks(self) -> None:
        """Cancel all background tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
