"""Learned durations of elastic tasks: sums and counts per kind and size, of this broker and its peers.

Every broker keeps its *own* sums, of the tasks that it placed itself, and the latest sums of each peer. The
believed durations combine all of them. No broker forwards the sums of others, and a peer's sums replace its
earlier ones, so nothing is counted twice however often it arrives. A takeover transfers no sums: the broker
that placed an attempt counts its end, and the new owner did not place the attempts that it finds running.

Updates are soft and bounded. With every heartbeat a peer receives the kinds that changed since the version
that it has confirmed; its own update confirms ours. What was lost is repeated with the next heartbeat.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from hanse.model.duration_stats import DurationStats, DurationStatsUpdate, KindStats

KINDS_MAX: Final = 1_000
"""Kinds kept for each broker. The kind that was longest without an end is dropped first."""
SIZES_MAX: Final = 64
"""Sizes kept for one kind."""
KINDS_PER_MESSAGE_MAX: Final = 32
"""Kinds in one message: about 64 KiB at most, and usually a few hundred bytes."""
TOTAL_MAX: Final = 1 << 60
"""Microseconds in one sum; a task that would exceed it is not counted."""

Size = tuple[int, int]
"""GPUs and milli-CPU."""


class PeerStats(msgspec.Struct, gc=False, rename={"is_ack_due": "owed"}):
    """Exchange of sums with one peer."""

    kinds: dict[str, KindStats]
    """Latest sums of the peer."""
    until: int = 0
    """Version of the peer up to which all of its changes have arrived here."""
    confirmed: int = 0
    """Our version up to which all of our changes have arrived at the peer."""
    is_ack_due: bool = False
    """True if the peer waits for an acknowledgement."""


class DurationStatsState(msgspec.Struct):
    """State of the store, as it is dumped."""

    version: int
    """Number of changes of the own sums."""
    own: dict[str, KindStats]
    """Own sums by kind, the latest changed last."""
    peers: dict[str, PeerStats]


class DurationStatsStore:
    """Sums of one broker, and the latest known sums of its peers."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = tuple(peers)
        self.state = DurationStatsState(0, {}, {})
        self._combined: dict[str, tuple[DurationStats, ...]] = {}
        """Cache of sums over all brokers, dropped when a sum changes."""

    def add(self, kind: str, cpu: int, gpu: int, run_time: int) -> None:
        """Count a task of this size that succeeded after ``run_time`` microseconds."""
        state = self.state
        known = state.own.get(kind)
        seen = {(one.cpu, one.gpu): one for one in known.sizes} if known is not None else {}
        before = seen.get((cpu, gpu), DurationStats(cpu, gpu, 0, 0))
        if (not before.count and len(seen) >= SIZES_MAX) or before.total + run_time > TOTAL_MAX:
            return
        seen[cpu, gpu] = DurationStats(cpu, gpu, before.total + run_time, before.count + 1)
        state.version += 1
        state.own.pop(kind, None)  # the latest last
        state.own[kind] = KindStats(kind, state.version, tuple(seen.values()))
        if len(state.own) > KINDS_MAX:
            del state.own[next(iter(state.own))]
        self._combined.pop(kind, None)

    def combined_stats(self, kind: str) -> tuple[DurationStats, ...]:
        """Return the sums of a kind over all brokers, by GPUs and CPUs, the smallest size first."""
        found = self._combined.get(kind)
        if found is None:
            if len(self._combined) >= KINDS_MAX:
                self._combined.clear()
            found = self._combined[kind] = self._sum(kind)
        return found

    def _sum(self, kind: str) -> tuple[DurationStats, ...]:
        stats = [self.state.own.get(kind)]
        stats += [self.state.peers[peer].kinds.get(kind) for peer in self._peers if peer in self.state.peers]
        sums: dict[Size, tuple[int, int]] = {}
        for kind_stats in stats:
            for one in kind_stats.sizes if kind_stats is not None else ():
                total, count = sums.get((one.gpu, one.cpu), (0, 0))
                sums[one.gpu, one.cpu] = (total + one.total, count + one.count)
        sizes = sorted(sums)
        if len(sizes) > SIZES_MAX:
            often = sorted(sizes, key=lambda size: (-sums[size][1], size))
            sizes = sorted(often[:SIZES_MAX])
        return tuple([DurationStats(cpu, gpu, *sums[gpu, cpu]) for gpu, cpu in sizes])

    # --- exchange with peers -------------------------------------------------------------------------------

    def make_updates(self, alive: Callable[[str], bool]) -> list[tuple[str, DurationStatsUpdate]]:
        """Return the updates for this heartbeat, by peer; none for peers that have everything or are dead."""
        version, peers = self.state.version, self.state.peers
        updates: list[tuple[str, DurationStatsUpdate]] = []
        for peer in self._peers:
            peer_stats = peers.get(peer)
            confirmed = peer_stats.confirmed if peer_stats is not None else 0
            is_ack_due = peer_stats is not None and peer_stats.is_ack_due
            if (confirmed < version or is_ack_due) and alive(peer):
                updates.append((peer, self._make_update(self._peer_stats(peer))))
        return updates

    def _peer_stats(self, peer: str) -> PeerStats:
        peer_stats = self.state.peers.get(peer)
        if peer_stats is None:
            peer_stats = self.state.peers[peer] = PeerStats({})
        return peer_stats

    def _make_update(self, peer_stats: PeerStats) -> DurationStatsUpdate:
        peer_stats.is_ack_due = False
        since, until = peer_stats.confirmed, self.state.version
        changed: list[KindStats] = []
        for kind_stats in reversed(self.state.own.values()):
            if kind_stats.version <= since:
                break
            changed.append(kind_stats)
        changed.reverse()
        if len(changed) > KINDS_PER_MESSAGE_MAX:  # the oldest first; the rest after these are confirmed
            del changed[KINDS_PER_MESSAGE_MAX:]
            until = changed[-1].version
        return DurationStatsUpdate(since, until, tuple(changed), peer_stats.until)

    def on_duration_stats_update(self, peer: str, update: DurationStatsUpdate) -> list[str]:
        """Apply a peer's update; return the kinds that changed."""
        peer_stats = self._peer_stats(peer)
        peer_stats.confirmed = max(peer_stats.confirmed, min(update.acked_version, self.state.version))
        changed = []
        for kind_stats in update.kinds:
            known = peer_stats.kinds.get(kind_stats.kind)
            if known is None or kind_stats.version > known.version:
                peer_stats.kinds[kind_stats.kind] = kind_stats
                self._combined.pop(kind_stats.kind, None)
                changed.append(kind_stats.kind)
        while len(peer_stats.kinds) > KINDS_MAX:
            oldest = min(
                peer_stats.kinds.values(), key=lambda kind_stats: (kind_stats.version, kind_stats.kind)
            )
            del peer_stats.kinds[oldest.kind]
            self._combined.pop(oldest.kind, None)
        if update.since <= peer_stats.until < update.until:
            peer_stats.until = update.until
        peer_stats.is_ack_due = peer_stats.is_ack_due or update.until > update.since
        return changed

    def restore(self, state: DurationStatsState) -> None:
        """Restore a dumped state."""
        self.state = state
        self._combined.clear()

    def check(self) -> None:
        """Assert bounds, and that the own sums are in the order of their versions."""
        state = self.state
        versions = [kind_stats.version for kind_stats in state.own.values()]
        assert versions == sorted(versions)
        assert len(versions) <= KINDS_MAX
        assert not versions or versions[-1] <= state.version
        for peer_stats in state.peers.values():
            assert len(peer_stats.kinds) <= KINDS_MAX
            assert peer_stats.confirmed <= state.version
