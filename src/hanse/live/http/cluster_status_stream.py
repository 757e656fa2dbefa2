"""How the clusters are, for those who watch: looked at only while somebody does, and told only if changed.

A cluster's state is not history: nobody wants to hear what its room was a minute ago. So there are no serials
here, only the latest word on each cluster and a count of how often it has changed.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.api.records import ClusterAnswer
from hanse.live.readmodel.feeder import Item
from hanse.model.events import MessageReceived

LOOK_SECONDS: Final = 1.0
"""How long news of clusters are collected: room comes and goes with every task."""

Look = Callable[[str], ClusterAnswer]
"""How a cluster is now."""
Silent = Callable[[], float | None]
"""Seconds until the next cluster counts as out of reach if it says nothing; None: none will."""


class ClusterWatch:
    """The latest word on each cluster."""

    def __init__(self, names: tuple[str, ...], look: Look, silent: Silent) -> None:
        self._look = look
        self._silent = silent
        self.changed: Callable[[], None] = lambda: None
        """Called when there is a new word on some cluster."""
        self._dirty = dict.fromkeys(names, False)
        self._last: dict[str, ClusterAnswer] = {}
        self._counts = dict.fromkeys(names, 0)
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Somebody begins to watch."""
        self._watchers += 1
        if self._watchers == 1:
            self._look_at(list(self._dirty))

    def leave(self) -> None:
        """Somebody watches no longer."""
        self._watchers -= 1
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hear(self, batch: list[Item]) -> None:
        """Something has happened at this broker."""
        if not self._watchers:
            return
        news = False
        for _, event, _ in batch:
            if type(event) is MessageReceived and event.envelope.source in self._dirty:
                self._dirty[event.envelope.source] = news = True
        if news:
            self._within(LOOK_SECONDS)

    def since(self, seen: dict[str, int]) -> list[ClusterAnswer]:
        """The clusters that have changed since ``seen``, which is brought up to date."""
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
        self._look_at(list(self._dirty))  # silence is no news of anybody's: all are looked at

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
    """Without what changes by itself."""
    return msgspec.structs.replace(answer, seen_seconds=None)
