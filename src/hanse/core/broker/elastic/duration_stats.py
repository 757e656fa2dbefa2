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

    def add(self, kind: str, cpu: int, gpu: int, ran: int) -> None:
        """Count a task of this size that succeeded after ``run_time`` microseconds."""
        state = self.state
        known = state.own.get(kind)
        seen = {(one.cpu, one.gpu): one for one in known.sizes} if known is not None else {}
        before = seen.get((cpu, gpu), DurationStats(cpu, gpu, 0, 0))
        if (not before.count and len(seen) >= SIZES_MAX) or before.total + ran > TOTAL_MAX:
            return
        seen[cpu, gpu] = DurationStats(cpu, gpu, before.total + ran, before.count + 1)
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
        told = [self.state.own.get(kind)]
        told += [self.state.peers[peer].kinds.get(kind) for peer in self._peers if peer in self.state.peers]
        sums: dict[Size, tuple[int, int]] = {}
        for learned in told:
            for one in learned.sizes if learned is not None else ():
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
        said: list[tuple[str, DurationStatsUpdate]] = []
        for peer in self._peers:
            shared = peers.get(peer)
            confirmed = shared.confirmed if shared is not None else 0
            owed = shared is not None and shared.is_ack_due
            if (confirmed < version or owed) and alive(peer):
                said.append((peer, self._make_update(self._peer_stats(peer))))
        return said

    def _peer_stats(self, peer: str) -> PeerStats:
        shared = self.state.peers.get(peer)
        if shared is None:
            shared = self.state.peers[peer] = PeerStats({})
        return shared

    def _make_update(self, shared: PeerStats) -> DurationStatsUpdate:
        shared.is_ack_due = False
        since, until = shared.confirmed, self.state.version
        fresh: list[KindStats] = []
        for learned in reversed(self.state.own.values()):
            if learned.version <= since:
                break
            fresh.append(learned)
        fresh.reverse()
        if len(fresh) > KINDS_PER_MESSAGE_MAX:  # the oldest first; the rest after these are confirmed
            del fresh[KINDS_PER_MESSAGE_MAX:]
            until = fresh[-1].version
        return DurationStatsUpdate(since, until, tuple(fresh), shared.until)

    def on_duration_stats_update(self, peer: str, told: DurationStatsUpdate) -> list[str]:
        """Apply a peer's update; return the kinds that changed."""
        shared = self._peer_stats(peer)
        shared.confirmed = max(shared.confirmed, min(told.acked_version, self.state.version))
        changed = []
        for learned in told.kinds:
            known = shared.kinds.get(learned.kind)
            if known is None or learned.version > known.version:
                shared.kinds[learned.kind] = learned
                self._combined.pop(learned.kind, None)
                changed.append(learned.kind)
        while len(shared.kinds) > KINDS_MAX:
            oldest = min(shared.kinds.values(), key=lambda learned: (learned.version, learned.kind))
            del shared.kinds[oldest.kind]
            self._combined.pop(oldest.kind, None)
        if told.since <= shared.until < told.until:
            shared.until = told.until
        shared.is_ack_due = shared.is_ack_due or told.until > told.since
        return changed

    def restore(self, state: DurationStatsState) -> None:
        """Restore a dumped state."""
        self.state = state
        self._combined.clear()

    def check(self) -> None:
        """Assert bounds, and that the own sums are in the order of their versions."""
        state = self.state
        versions = [learned.version for learned in state.own.values()]
        assert versions == sorted(versions)
        assert len(versions) <= KINDS_MAX
        assert not versions or versions[-1] <= state.version
        for shared in state.peers.values():
            assert len(shared.kinds) <= KINDS_MAX
            assert shared.confirmed <= state.version
