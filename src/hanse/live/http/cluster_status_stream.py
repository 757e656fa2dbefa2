"""The status of each cluster, for watchers: read only while somebody watches, sent only if changed.

The status of a cluster is no history: nobody needs its free room of a minute ago. So there are no serials
here, only the latest status of each cluster and a count of its changes.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.api.records import ClusterAnswer
from hanse.live.readmodel.feeder import FeedItem
from hanse.model.events import MessageReceived

REFRESH_SECONDS: Final = 1.0
"""Seconds between two reads of the status: room changes with every task."""

ReadStatus = Callable[[str], ClusterAnswer]
"""Returns the current status of a cluster."""
SecondsUntilSilent = Callable[[], float | None]
"""Returns the seconds until the next silent cluster counts as unreachable; None: no cluster will."""


class ClusterStatusTracker:
    """The latest status of each cluster."""

    def __init__(
        self, names: tuple[str, ...], read_status: ReadStatus, seconds_until_silent: SecondsUntilSilent
    ) -> None:
        self._read_status = read_status
        self._seconds_until_silent = seconds_until_silent
        self.on_change: Callable[[], None] = lambda: None
        """Called when the status of some cluster has changed."""
        self._dirty = dict.fromkeys(names, False)
        self._latest: dict[str, ClusterAnswer] = {}
        self._counts = dict.fromkeys(names, 0)
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None

    def add_watcher(self) -> None:
        """Add a watcher."""
        self._watchers += 1
        if self._watchers == 1:
            self._refresh(list(self._dirty))

    def remove_watcher(self) -> None:
        """Remove a watcher."""
        self._watchers -= 1
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_events(self, batch: list[FeedItem]) -> None:
        """Note the clusters that sent messages in this batch of events, and schedule a refresh."""
        if not self._watchers:
            return
        changed = False
        for _, event, _ in batch:
            if type(event) is MessageReceived and event.envelope.source in self._dirty:
                self._dirty[event.envelope.source] = changed = True
        if changed:
            self._refresh_within(REFRESH_SECONDS)

    def changes_since(self, seen: dict[str, int]) -> list[ClusterAnswer]:
        """Return the clusters that have changed since ``seen``, and update ``seen``."""
        changed = [self._latest[name] for name, count in self._counts.items() if count > seen.get(name, 0)]
        seen.update(self._counts)
        return changed

    def _refresh_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._refresh(list(self._dirty))  # silence comes with no event: refresh all

    def _refresh(self, names: list[str]) -> None:
        changed = False
        for name in names:
            self._dirty[name] = False
            now, last = self._read_status(name), self._latest.get(name)
            if last is None or _without_age(now) != _without_age(last):
                self._latest[name] = now
                self._counts[name] += 1
                changed = True
        if changed:
            self.on_change()
        remaining = self._seconds_until_silent()
        if remaining is not None:
            self._refresh_within(max(remaining, REFRESH_SECONDS))


def _without_age(answer: ClusterAnswer) -> ClusterAnswer:
    """Return the status without the field that changes with time."""
    return msgspec.structs.replace(answer, seen_seconds=None)
