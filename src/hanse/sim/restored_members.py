"""Members that restart with an older disk, or with none, as after an operator's restore or a disk loss.

Here a member asks its peers at once and over no network what they remember of it (``core.history_check``), or
will remember when its messages have arrived: a live member's connections end with it. If a peer contradicts,
the member is refused and gets its newest disk back. Else it goes on from the older disk, and every promise
must still hold. No peer may ever contradict a member's own newest disk.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final, Protocol, cast

from hanse.core.broker.broker import Broker
from hanse.core.history_check import LinkHistory, answer_history_query
from hanse.core.machine import Machine
from hanse.core.messaging.link import LinkSet
from hanse.core.runner.runner import Runner
from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.messages import Envelope
from hanse.model.messages.history_check import HistoryReply
from hanse.sim.league import League
from hanse.sim.process import Past, Process
from hanse.sim.world import Violation

DOWNTIME_MAX: Final = 3 * SECOND
EMPTY: Final = 0.25
"""Share of the cases in which the disk is empty."""
RESTORING: Final = 0x9A57
"""Mask that makes these draws independent of all others, so that seeds without such faults stay the same."""
SEEDS_RARE: Final = 4
"""One seed in this many has such faults."""
RESTORES_MAX: Final = 3


class Linked(Protocol):
    """Broker or warden."""

    links: LinkSet


class Restoring:
    """Disk copies of one seed and their restores."""

    def __init__(self, league: League, seed: int, safety: int, tell: Callable[[str, str], None]) -> None:
        self._league = league
        self._world = league.world
        self._rng = rng = Random(seed ^ RESTORING)
        self._safety = safety
        self._tell = tell
        self.refused = self.taken = 0
        alone = len(league.brokers) == 1  # no other broker knows what it has acknowledged
        self._candidates = list(league.wardens.values()) if alone else league.journalled
        for process in league.journalled:
            process.witness = self._own
        if safety and rng.randrange(SEEDS_RARE) == 0:
            for _ in range(rng.randint(1, RESTORES_MAX)):
                self._world.at(rng.randrange(safety), self._copy)

    def _copy(self, _: object) -> None:
        """Copy a disk now, or choose to lose it, and schedule the restore."""
        process = self._rng.choice(self._candidates)
        past = Past(None, (), 0) if self._rng.random() < EMPTY else process.disk()
        later = self._rng.randrange(self._world.now, self._safety)
        self._world.at(later, self._put_back, (process, past))

    def _put_back(self, struck: tuple[Process, Past]) -> None:
        process, past = struck
        if isinstance(process.machine, Broker) and process.machine.is_without_standby():
            return  # no other member can know what it has promised
        process.crash()
        machine = process.lived(past)
        told = contradiction(self._league, process, machine)
        if told is None:
            self._tell(process.name, "restarts with an older disk; no peer contradicts")
            self.taken += 1
            process.rewind(past)
        else:
            self._tell(process.name, f"is refused with an older disk: {told}")
            self.refused += 1
        pause = self._rng.randint(MILLISECOND, DOWNTIME_MAX)
        self._world.at(min(self._world.now + pause, self._safety), process.restart)

    def _own(self, process: Process) -> None:
        """Check that no peer contradicts a member that recovers from its own disk."""
        told = contradiction(self._league, process, process.machine)
        if told is not None:
            raise Violation("a member's own history is accepted", f"{process.name} is contradicted: {told}")


def contradiction(league: League, process: Process, machine: Machine) -> str | None:
    """Return what a peer remembers of a member and this machine of the member does not; None if nothing."""
    remembered = LinkHistory(cast(Linked, machine).links)
    for peer in league.processes:
        if peer.name not in process.links or not peer.is_member:
            continue
        session = 0
        if isinstance(peer.machine, Runner):
            envelope = peer.machine.answer_history_query(0)
            session, answer = envelope.session, cast(HistoryReply, envelope.body)
        else:
            answer = answer_history_query(cast(Linked, peer.machine).links, process.name, 0)
        told = remembered.find_contradiction(peer.name, answer.received, answer.acked, session)
        if told is not None:
            return told
    there = {peer.name for peer in league.processes if peer.is_member}
    for sent in _on_the_way(league):
        if sent.source == process.name and sent.target in there:
            told = remembered.find_contradiction(sent.target, abs(sent.seq), sent.ack, sent.session)
            if told is not None:
                return told
    return None


def _on_the_way(league: League) -> Iterator[Envelope]:
    """Yield messages that have not arrived, or that wait for a paused process."""
    waiting = (payload for process in league.processes for _, payload in process.inbox)
    flying = (entry[3] for entry in league.world.heap)
    return (payload for payload in (*flying, *waiting) if isinstance(payload, Envelope))
