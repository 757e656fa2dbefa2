"""Ends that are safe with a broker: what its wardens may forget, on its way to them.

It is told with the next claim to the warden, which in a busy league goes out soon; a message of its own
follows only when none did. Nothing waits for it but the wardens' memory.
"""

from typing import Final

import msgspec

from hanse.core.messaging.link import NEVER, Post
from hanse.model.effects import Command
from hanse.model.ids import TaskId
from hanse.model.messages import Settle

SETTLE_MAX: Final = 2_000
"""Ends in one message."""

Entries = list[tuple[TaskId, int]]
"""Tasks and their attempts."""


class SettlingState(msgspec.Struct):
    """All of it, as it is dumped."""

    entries: dict[str, Entries]
    due: int = NEVER
    """When what waits must be told."""


class Settling:
    """What one broker has still to tell of this."""

    def __init__(self, post: Post, linger: int) -> None:
        self._post = post
        self._linger = linger
        self.state = SettlingState({})

    def add(self, now: int, cluster: str, entries: Entries) -> None:
        """A cluster's warden may forget these."""
        waiting = self.state.entries.get(cluster)
        if waiting is None:
            self.state.entries[cluster] = entries
        else:
            waiting += entries
        if now + self._linger < self.state.due:  # noqa: PLR1730  hot: min() costs more
            self.state.due = now + self._linger

    def take(self, cluster: str) -> tuple[tuple[TaskId, int], ...]:
        """What a claim to this cluster carries."""
        waiting = self.state.entries.pop(cluster, None)
        if waiting is None:
            return ()
        if len(waiting) > SETTLE_MAX:
            self.state.entries[cluster] = waiting[SETTLE_MAX:]
            del waiting[SETTLE_MAX:]
        elif not self.state.entries:
            self.state.due = NEVER
        return tuple(waiting)

    def tick(self, out: list[Command], now: int) -> None:
        """Nothing went there: tell it. Who is far behind is told later."""
        state = self.state
        state.due = NEVER
        late: dict[str, Entries] = {}
        for cluster, waiting in state.entries.items():
            if self._post.crowded(cluster):
                late[cluster] = waiting
                state.due = now + self._linger
                continue
            for at in range(0, len(waiting), SETTLE_MAX):
                tasks, attempts = zip(*waiting[at : at + SETTLE_MAX], strict=True)
                self._post.send(out, now, cluster, Settle(tasks, attempts))
        state.entries = late
