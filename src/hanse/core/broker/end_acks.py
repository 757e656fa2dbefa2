"""Acknowledgements of ends that are safe with a broker, so that its wardens may forget them.

The next claim to the warden carries them, which in a busy league is sent soon; otherwise a message of its own
follows. Only the warden's memory waits for them.
"""

from typing import Final

import msgspec

from hanse.core.messaging.link import NEVER, LinkSet
from hanse.model.effects import Effect
from hanse.model.ids import TaskId
from hanse.model.messages import AckEnds

ACKS_PER_MESSAGE_MAX: Final = 2_000
"""Ends in one message."""

Entries = list[tuple[TaskId, int]]
"""Tasks and their attempts."""


class EndAcksState(msgspec.Struct):
    """State of the acknowledgements, as it is dumped."""

    entries: dict[str, Entries]
    due: int = NEVER
    """Time at which the entries must be sent."""


class EndAcks:
    """Unsent acknowledgements of one broker."""

    def __init__(self, links: LinkSet, linger: int) -> None:
        self._links = links
        self._linger = linger
        self.state = EndAcksState({})

    def add(self, now: int, cluster: str, entries: Entries) -> None:
        """Add ends that a cluster's warden may forget."""
        waiting = self.state.entries.get(cluster)
        if waiting is None:
            self.state.entries[cluster] = entries
        else:
            waiting += entries
        if now + self._linger < self.state.due:  # noqa: PLR1730  hot: min() costs more
            self.state.due = now + self._linger

    def take(self, cluster: str) -> tuple[tuple[TaskId, int], ...]:
        """Remove and return the acknowledgements that a claim to this cluster carries."""
        waiting = self.state.entries.pop(cluster, None)
        if waiting is None:
            return ()
        if len(waiting) > ACKS_PER_MESSAGE_MAX:
            self.state.entries[cluster] = waiting[ACKS_PER_MESSAGE_MAX:]
            del waiting[ACKS_PER_MESSAGE_MAX:]
        elif not self.state.entries:
            self.state.due = NEVER
        return tuple(waiting)

    def tick(self, effects: list[Effect], now: int) -> None:
        """Send what no claim carried. A cluster with a crowded link is postponed."""
        state = self.state
        state.due = NEVER
        postponed: dict[str, Entries] = {}
        for cluster, waiting in state.entries.items():
            if self._links.is_crowded(cluster):
                postponed[cluster] = waiting
                state.due = now + self._linger
                continue
            for at in range(0, len(waiting), ACKS_PER_MESSAGE_MAX):
                tasks, attempts = zip(*waiting[at : at + ACKS_PER_MESSAGE_MAX], strict=True)
                self._links.send(effects, now, cluster, AckEnds(tasks, attempts))
        state.entries = postponed
