"""The status of each cluster, for watchers: read only while somebody watches, sent only if changed.

The status of a cluster is no history: nobody needs its free room of a minute ago. So there are no serials
here, only the latest status of each cluster and a count of its changes.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.api.records import ClusterAnswer
from hanse.live.readmodel.feeder import Item
from hanse.model.events import MessageReceived

LOOK_SECONDS: Final = 1.0
"""Seconds between two reads of the status: room changes with every task."""

Look = Callable[[str], ClusterAnswer]
"""Returns the current status of a cluster."""
Silent = Callable[[], float | None]
"""Returns the seconds until the next silent cluster counts as unreachable; None: no cluster will."""


class ClusterWatch:
    """The latest status of each cluster."""

    def __init__(self, names: tuple[str, ...], look: Look, silent: Silent) -> None:
        self._look = look
        self._silent = silent
        self.changed: Callable[[], None] = lambda: None
        """Called when the status of some cluster has changed."""
        self._dirty = dict.fromkeys(names, False)
        self._last: dict[str, ClusterAnswer] = {}
        self._counts = dict.fromkeys(names, 0)
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Add a watcher."""
        self._watchers += 1
        if self._watchers == 1:
            self._look_at(list(self._dirty))

    def leave(self) -> None:
        """Remove a watcher."""
        self._watchers -= 1
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hear(self, batch: list[Item]) -> None:
        """Note the clusters that sent messages in this batch of events, and schedule a refresh."""
        if not self._watchers:
            return
        news = False
        for _, event, _ in batch:
            if type(event) is MessageReceived and event.envelope.source in self._dirty:
                self._dirty[event.envelope.source] = news = True
        if news:
            self._within(LOOK_SECONDS)

    def since(self, seen: dict[str, int]) -> list[ClusterAnswer]:
        """Return the clusters that have changed since ``seen``, and update ``seen``."""
        found = [self._last[name] for name, count in self._counts.items() if count > seen.get(name, 0)]
        seen.update(self._counts)
        return found

    def _within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._look_at(list(self._dirty))  # silence comes with no event: refresh all

    def _look_at(self, names: list[str]) -> None:
        news = False
        for name in names:
            self._dirty[name] = False
            now, last = self._look(name), self._last.get(name)
            if last is None or _lasting(now) != _lasting(last):
                self._last[name] = now
                self._counts[name] += 1
                news = True
        if news:
            self.changed()
        left = self._silent()
        if left is not None:
            self._within(max(left, LOOK_SECONDS))


def _lasting(answer: ClusterAnswer) -> ClusterAnswer:
    """Return the status without the field that changes with time."""
    return msgspec.structs.replace(answer, seen_seconds=None)
