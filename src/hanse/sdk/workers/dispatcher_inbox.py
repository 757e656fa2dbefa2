"""Inbox of the dispatcher: calls and functions put by other threads, and the socket that wakes its thread."""

import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from hanse.sdk.errors import SdkError
from hanse.sdk.workers.worker_pool import RemoteCall

WAKE_BYTE: Final = b"\0"
WAKE_BYTES_MAX: Final = 4_096
"""Bytes read at once from the socket that wakes; one is enough to wake."""

Item = RemoteCall | Callable[[], None]


class DispatcherInbox:
    """Inbox of one thread that others fill, and its state: asleep, awake or ended.

    Other threads add an item and then read ``_awake``; the owner clears ``_awake`` and then reads the items.
    So one of them sees what the other has written, and no item waits behind a sleeping owner.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        """Filled by other threads; executors limit the calls in it."""
        self._awake = False
        self.wake_receiver, self._wake_sender = socket.socketpair()
        """Readable when there is something to do. For the owner."""
        self.wake_receiver.setblocking(False)
        self.end_reason = ""
        """Reason why the owner has ended; empty while it runs."""

    def __len__(self) -> int:
        """Number of items."""
        return len(self._items)

    # --- for other threads

    def put(self, item: Item) -> None:
        """Add an item, and wake the owner if it sleeps."""
        self._items.append(item)
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):  # it has ended meanwhile
                self._wake_sender.send(WAKE_BYTE)

    def put_call(self, call: RemoteCall) -> None:
        """Add a call; if the owner has ended, the call fails."""
        self.put(call)
        if self.end_reason:
            self._fail_calls()

    def _fail_calls(self) -> None:
        """Fail all calls, because the owner has ended. Runs in any thread."""
        for item in self.take_items():
            if isinstance(item, RemoteCall) and (item.begun or item.future._set_running()):
                item.future.set_exception(SdkError(self.end_reason))

    # --- for the owner

    def take_items(self) -> Iterator[Item]:
        """Remove and yield the items, also those that come meanwhile."""
        items = self._items
        while items:
            try:
                yield items.popleft()
            except IndexError:  # another thread has failed it
                return

    def prepare_sleep(self) -> bool:
        """Have new items wake the owner from now on; False if some are there, so that it must not sleep."""
        self._awake = False
        return not self._items

    def end_sleep(self) -> None:
        """Have new items no longer wake the owner."""
        self._awake = True

    def drain_wakeups(self, _: int) -> None:
        """Read what has woken the owner."""
        self.wake_receiver.recv(WAKE_BYTES_MAX)

    def end(self, reason: str, calls: list[RemoteCall]) -> None:
        """Fail these calls and those in the inbox, and from now on every call that is put."""
        self._awake = True
        self.end_reason = reason
        self._items.extendleft(calls)
        self._fail_calls()

    def close(self) -> None:
        """Close the sockets."""
        self.wake_receiver.close()
        self._wake_sender.close()
