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
from hanse.sim.disk import DiskCopy
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.league import SimulatedLeague
from hanse.sim.world import Violation

DOWNTIME_MAX: Final = 3 * SECOND
EMPTY_SHARE: Final = 0.25
"""Share of the cases in which the disk is empty."""
RESTORES_SEED_MASK: Final = 0x9A57
"""Mask that makes these draws independent of all others, so that seeds without such faults stay the same."""
RESTORES_EVERY: Final = 4
"""One seed in this many has such faults."""
RESTORES_MAX: Final = 3


class LinkedMachine(Protocol):
    """Broker or warden."""

    links: LinkSet


class DiskRestores:
    """Disk copies of one seed and their restores."""

    def __init__(
        self, league: SimulatedLeague, seed: int, safety: int, add_to_story: Callable[[str, str], None]
    ) -> None:
        self._league = league
        self._world = league.world
        self._rng = rng = Random(seed ^ RESTORES_SEED_MASK)
        self._safety = safety
        self._add_to_story = add_to_story
        self.refused = self.accepted = 0
        is_single_broker = len(league.brokers) == 1  # no other broker knows what it has acknowledged
        self._candidates = list(league.wardens.values()) if is_single_broker else league.journalled_processes
        for process in league.journalled_processes:
            process.on_recovered = self._check_own_history
        if safety and rng.randrange(RESTORES_EVERY) == 0:
            for _ in range(rng.randint(1, RESTORES_MAX)):
                self._world.call_at(rng.randrange(safety), self._copy_disk)

    def _copy_disk(self, _: object) -> None:
        """Copy a disk now, or choose to lose it, and schedule the restore."""
        process = self._rng.choice(self._candidates)
        disk = DiskCopy(None, (), 0) if self._rng.random() < EMPTY_SHARE else process.copy_disk()
        restore_at = self._rng.randrange(self._world.now, self._safety)
        self._world.call_at(restore_at, self._restore_disk, (process, disk))

    def _restore_disk(self, choice: tuple[JournalledProcess, DiskCopy]) -> None:
        process, disk = choice
        if isinstance(process.machine, Broker) and process.machine.is_without_standby():
            return  # no other member can know what it has promised
        process.crash()
        machine = process.machine_from(disk)
        contradiction = find_contradiction(self._league, process, machine)
        if contradiction is None:
            self._add_to_story(process.name, "restarts with an older disk; no peer contradicts")
            self.accepted += 1
            process.replace_disk(disk)
        else:
            self._add_to_story(process.name, f"is refused with an older disk: {contradiction}")
            self.refused += 1
        pause = self._rng.randint(MILLISECOND, DOWNTIME_MAX)
        self._world.call_at(min(self._world.now + pause, self._safety), process.restart)

    def _check_own_history(self, process: JournalledProcess) -> None:
        """Check that no peer contradicts a member that recovers from its own disk."""
        contradiction = find_contradiction(self._league, process, process.machine)
        if contradiction is not None:
            raise Violation(
                "a member's own history is accepted", f"{process.name} is contradicted: {contradiction}"
            )


def find_contradiction(league: SimulatedLeague, process: JournalledProcess, machine: Machine) -> str | None:
    """Return what a peer remembers of a member and this machine of the member does not; None if nothing."""
    remembered = LinkHistory(cast(LinkedMachine, machine).links)
    for peer in league.processes:
        if peer.name not in process.links or not peer.is_member:
            continue
        session = 0
        if isinstance(peer.machine, Runner):
            envelope = peer.machine.answer_history_query(0)
            session, answer = envelope.session, cast(HistoryReply, envelope.body)
        else:
            answer = answer_history_query(cast(LinkedMachine, peer.machine).links, process.name, 0)
        found = remembered.find_contradiction(peer.name, answer.received, answer.acked, session)
        if found is not None:
            return found
    members = {peer.name for peer in league.processes if peer.is_member}
    for sent in _messages_in_transit(league):
        if sent.source == process.name and sent.target in members:
            found = remembered.find_contradiction(sent.target, abs(sent.seq), sent.ack, sent.session)
            if found is not None:
                return found
    return None


def _messages_in_transit(league: SimulatedLeague) -> Iterator[Envelope]:
    """Yield messages that have not arrived, or that wait for a paused process."""
    waiting = (payload for process in league.processes for _, payload in process.inbox)
    in_transit = (entry[3] for entry in league.world.heap)
    return (payload for payload in (*in_transit, *waiting) if isinstance(payload, Envelope))
