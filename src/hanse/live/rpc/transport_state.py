"""State that the connections of one member share: counters, refusals, background tasks."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from hanse.live.rpc.bounds import TransportBounds
from hanse.live.rpc.peer_permissions import AddressBook
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

REFUSALS_MAX: Final = 100
"""Refusals kept as texts; all are counted."""


log: Final = logging.getLogger(__name__)


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
