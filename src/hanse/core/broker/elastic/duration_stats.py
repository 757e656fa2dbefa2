"""What a broker has learned of elastic tasks, and what its peers have: sums and counts per kind and size.

Every broker keeps its *own* sums, of the tasks that it placed itself, and the latest sums that each peer has
told of its own. What is believed is all of these together. Nobody passes on what others told, and a peer's
sums replace its earlier ones, so nothing is counted twice however often it arrives. An adopted job brings no
experience: who placed an attempt counts its end, and an adopter did not place what it finds running.

Telling is soft and bounded. With every beat a peer is told of the kinds that changed since the version that
it has confirmed; its own telling confirms ours. What was lost is told again with the next beat, and when all
have heard all, nothing is said.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from hanse.model.duration_stats import DurationStats, DurationStatsUpdate, KindStats

KINDS_MAX: Final = 1_000
"""Kinds remembered of each broker; the one that was longest without an end is forgotten first."""
SIZES_MAX: Final = 64
"""Sizes remembered of one kind."""
KINDS_PER_MESSAGE_MAX: Final = 32
"""Kinds in one message: about 64 KiB at the most, and usually a few hundred bytes."""
TOTAL_MAX: Final = 1 << 60
"""Microseconds in one sum; what would exceed it is not counted."""

Size = tuple[int, int]
"""GPUs and milli-CPU."""


class PeerStats(msgspec.Struct, gc=False, rename={"is_ack_due": "owed"}):
    """What one peer has told, and what it was told."""

    kinds: dict[str, KindStats]
    """The latest of its own sums."""
    until: int = 0
    """All of its changes up to this version are here."""
    confirmed: int = 0
    """All of ours up to this version are there."""
    is_ack_due: bool = False
    """Whether it waits to hear what has arrived."""


class DurationStatsState(msgspec.Struct):
    """All of it, as it is dumped."""

    version: int
    """How often the own sums have changed."""
    own: dict[str, KindStats]
    """By kind, the latest changed last."""
    peers: dict[str, PeerStats]


class DurationStatsStore:
    """One broker's, and its peers' as it knows them."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._peers = tuple(peers)
        self.state = DurationStatsState(0, {}, {})
        self._combined: dict[str, tuple[DurationStats, ...]] = {}
        """Sums over all brokers, as far as somebody has asked since they changed."""

    def add(self, kind: str, cpu: int, gpu: int, ran: int) -> None:
        """A task of this size has succeeded after so many microseconds."""
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
        """What all brokers together have seen of a kind, by GPUs and CPUs, the least first."""
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

    # --- telling and hearing -------------------------------------------------------------------------------

    def make_updates(self, alive: Callable[[str], bool]) -> list[tuple[str, DurationStatsUpdate]]:
        """What to say to whom with this beat; nothing to those who know all, and to the dead."""
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
        if len(fresh) > KINDS_PER_MESSAGE_MAX:  # the oldest first; the rest when these have arrived
            del fresh[KINDS_PER_MESSAGE_MAX:]
            until = fresh[-1].version
        return DurationStatsUpdate(since, until, tuple(fresh), shared.until)

    def on_duration_stats_update(self, peer: str, told: DurationStatsUpdate) -> list[str]:
        """A peer tells; the kinds of which more is known now."""
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
        """Take a dumped state."""
        self.state = state
        self._combined.clear()

    def check(self) -> None:
        """Bounds, and that the own sums stand in the order of their versions."""
        state = self.state
        versions = [learned.version for learned in state.own.values()]
        assert versions == sorted(versions)
        assert len(versions) <= KINDS_MAX
        assert not versions or versions[-1] <= state.version
        for shared in state.peers.values():
            assert len(shared.kinds) <= KINDS_MAX
            assert shared.confirmed <= state.version
