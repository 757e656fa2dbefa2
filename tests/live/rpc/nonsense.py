"""Well-formed nonsense for real machines: messages of a real league, changed in every way that typing allows.

A small league lives for a while; what its members said to one broker and one warden are the seeds, and those
two machines, as they were then, are the targets. A *tale* is a few changed messages from certified peers, as
an attacker with a member's certificate could send them. Every choice comes from a ``Chooser``, so that one
engine serves a random generator, hypothesis and atheris alike.
"""

from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from random import Random
from typing import Any, Protocol, get_args

import msgspec

from hanse.core.broker.broker import Broker
from hanse.core.machine import Machine
from hanse.core.warden.warden import Warden
from hanse.live.rpc.frames import decode_frame, pop_frame
from hanse.live.rpc.peer_permissions import AddressBook, Peer
from hanse.live.rpc.validation import validate_frame
from hanse.live.rpc.validation_context import (
    ValidationContext,
    broker_validation_context,
    warden_validation_context,
)
from hanse.model.constraints import Is
from hanse.model.duration_stats import DurationStats, DurationStatsUpdate, KindStats
from hanse.model.events import MessageReceived, Tick
from hanse.model.ids import SECOND, JobId, TaskId
from hanse.model.job import Affinity
from hanse.model.messages import (
    AbortTakeover,
    CancelAttempts,
    Envelope,
    Message,
    Outcome,
    OwnershipTransferred,
    ReplicaUpdate,
    RequestTakeover,
    SequencedMessage,
)
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased
from hanse.model.resources import Resources
from hanse.security.identity import Identity, Role
from tests.core.wired import Wired, job, node, tasks

MESSAGES_MAX = 6
"""Messages in one tale."""
CHANGES_MAX = 6
"""Changes of one message."""
SEEDS_MAX = 24
"""Seeds of one kind."""
NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 64, 99, 100, 255, 256, 1 << 16, 1 << 20, (1 << 20) - 1, 1 << 31, 1 << 32, 1 << 42),
    *(1 << 50, 1 << 52, 1 << 53, 1 << 61, 1 << 62, (1 << 62) - 1, (1 << 63) - 1, -(1 << 62), -(1 << 63)),
)
WORDS = ("", "b1", "b2", "b3", "c1", "c2", "c1.r1", "b1#1", "b2#1", "cpu", "fpga", "zone", "x" * 200, "\n")
RARE: dict[Role, tuple[Message, ...]] = {
    Role.BROKER: (
        DurationStatsUpdate(0, 2, (KindStats("default/job/main", 2, (DurationStats(500, 0, 7, 2),)),), 1),
        OwnershipTransferred("b1#1", (JobId(1 << 32),)),
        CloseShardReply("b1#1", 1, True),
        OwnershipReleased("b1#1", 1),
        DropReplicas("b3#1"),
        DuplicateQuery(JobId(1 << 32), "mine"),
        DuplicateReply(JobId(1 << 32), 3 << 32),
        ReplicaUpdate("b3#1", ((TaskId(3 << 52), 5, 1),), (JobId(3 << 32),), (JobId(3 << 32),)),
    ),
    Role.WARDEN: (
        AbortTakeover("b1#1", 1, 1),
        CloseShard("b1#1", 1),
        RequestTakeover("b1#1", "b1", 1, 1),
        CancelAttempts((TaskId(1 << 52), TaskId(1 << 52 | 1)), (1, 1)),
    ),
}
"""What is seldom said, so that the seeds may lack it."""


class Chooser(Protocol):
    """Where choices come from."""

    def below(self, count: int) -> int:
        """A number from 0 to ``count`` - 1."""
        ...


class Dice:
    """Choices of a random generator."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def below(self, count: int) -> int:
        return self._random.randrange(count)


class Target:
    """One machine as it was, and what was said to it."""

    def __init__(self, name: str, role: Role, make: Callable[[], Machine], state: bytes, now: int) -> None:
        self.name = name
        self.role = role
        self.make = make
        self.state = state
        self.now = now
        self.seeds: dict[str, deque[Any]] = {}
        """Envelopes said to it, as plain data, by kind."""
        self.numbers: list[int] = [*NUMBERS]
        """Numbers that mean something to it: tasks, attempts, leases, versions."""

    def add(self, plain: Any) -> None:
        self.seeds.setdefault(plain[5][0], deque(maxlen=SEEDS_MAX)).append(plain)

    def know(self, live: Iterable[tuple[int, int]]) -> None:
        """Take note of the numbers in the seeds, and of the attempts that run."""
        known = dict.fromkeys(number for pair in live for number in pair)
        for kept in self.seeds.values():
            for plain in kept:
                found = [there[key] for there, key in _places(plain)]
                known |= dict.fromkeys(value for value in found if type(value) is int)
        self.numbers += known

    def seed(self, choose: Chooser) -> Any:
        """One of the seeds: of a kind first, so that what is often said is not often chosen."""
        kept = self.seeds[sorted(self.seeds)[choose.below(len(self.seeds))]]
        return kept[choose.below(len(kept))]

    def machine(self) -> Machine:
        machine = self.make()
        machine.restore(self.state)
        return machine


class Stage:
    """A league of three brokers and two clusters in the middle of much work: its broker b1 and warden c1."""

    def __init__(self) -> None:
        clusters = {
            "c1": (node(4_000, zone="a"), node(4_000, "r2", zone="b"), node(8_000, disk=7), node(60_000)),
            "c2": (node(4_000), node(4_000)),
        }
        self.wired = Wired(
            clusters, brokers=("b1", "b2", "b3"), sizer="generous", order="fewest-remaining", boot=False
        )
        self.heard: list[Envelope] = []
        self.lost = ("", "")
        """Beginnings of the names between whom nothing arrives."""
        self.wired.loses = self._listen
        for name in self.wired.machines:
            self.wired.boot(name)
        self.wired.run(3 * SECOND)
        self._work()
        self.broker = self._cut_off("b1", Role.BROKER, ("c1", "b1"))
        self.warden = self._cut_off("c1", Role.WARDEN, ("", "c1"))

    def _listen(self, envelope: Envelope) -> bool:
        self.heard.append(envelope)
        source, target = self.lost
        return bool(target) and envelope.target == target and envelope.source.startswith(source)

    def _work(self) -> None:
        """Jobs of every kind in every state, restarts, and an estate that was adopted."""
        wired = self.wired
        first = wired.submit(job(tasks(3), client_id="one"))
        wired.submit(job(tasks(2, 3_000, affinity=(Affinity("db", apart=True),)), labels=("db",)), "b2")
        wired.submit(job(tasks(2, 1_000, ask_max=Resources(cpu=3_000)), preemptible=True))
        wired.end(first, 0, 1)
        wired.submit(job(tasks(1, 6_000), priority=5), "b1")
        wired.submit(job(tasks(6, 2_000), gang=True))
        wired.submit(job(tasks(1, name="a"), tasks(2, name="b", needs=("a",))), "b1")
        wired.submit(job(tasks(1, 500), after=(first,)), "b2")
        wired.submit(job(tasks(20, 1_000, where=Is("zone", "a")), retries=2), "b3")
        wired.cancel(wired.submit(job(tasks(2, 500))))
        wired.restart("c1")
        wired.restart("c2.r1")
        wired.deaf["b3"] = True
        wired.run(30 * SECOND)
        wired.restart("b3")
        wired.run(5 * SECOND)
        wired.submit(job(tasks(30, 1_000, where=Is("zone", "b"))), "b1")
        wired.submit(job(tasks(3, 8_000)), "b2")
        wired.cancel(wired.submit(job(tasks(1, 100))))

    def _cut_off(self, name: str, role: Role, lost: tuple[str, str]) -> Target:
        """A machine that has missed the latest of what was said to it: that is what makes good seeds."""
        wired = self.wired
        wired.run(10 * SECOND)
        wired.submit(job(tasks(4, 100)))
        self.lost = lost
        for live in list(wired.live)[:4]:
            wired.exit(*live, Outcome.SUCCEEDED, 0)
        for count in (1, 3):
            wired.hand_in(job(tasks(count, 100)))
            wired.hand_in(job(tasks(count, 100), gang=True))
            wired.run(SECOND // 5)
        target = Target(name, role, wired.makers[name], wired.machines[name].dump(), wired.now)
        self._fill(target)
        self.lost = ("", "")
        wired.run(10 * SECOND)
        return target

    def _fill(self, target: Target) -> None:
        """Seeds: the latest of every kind, to this machine or to another of its role."""
        for envelope in self.heard:
            if envelope.target[0] == target.name[0] and "." not in envelope.target:
                plain = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope))
                _readdress(plain, target.name)
                target.add(plain)
        for body in RARE[target.role]:
            plain = Envelope("b2", target.name, 0, int(type(body) in get_args(SequencedMessage)), 0, body)
            target.add(msgspec.msgpack.decode(msgspec.msgpack.encode(plain)))
        target.know(self.wired.live)


def _readdress(plain: Any, name: str) -> None:
    """What was said to a machine of the same role could have been said to this one."""
    if plain[1] != name:
        swap = {plain[1]: name, name: plain[1], "c2.r1": "c1.r1"}
        plain[:2] = swap.get(plain[0], plain[0]), name


class Harness:
    """Tells tales to a fresh copy of a target, through all the checks of the wire."""

    def __init__(self, target: Target) -> None:
        self.target = target
        own = Identity("local", target.role, target.name)
        peers = {
            name: Peer(Identity("local", role, name), "", 0)
            for name, role in (
                *((name, Role.BROKER) for name in ("b1", "b2", "b3")),
                *((name, Role.WARDEN) for name in ("c1", "c2")),
                *((name, Role.RUNNER) for name in ("c1.r1", "c1.r2")),
            )
        }
        self.book = AddressBook(own, peers)
        self.told = self.taken = 0
        """Messages made, and those that reached the machine."""

    def limits(self, machine: Machine) -> ValidationContext:
        if isinstance(machine, Broker):
            limits = broker_validation_context(machine.config)
            limits.count_tasks = lambda job: tasks_of(machine, job)
            for name in machine.config.clusters:
                snapshot = machine.view_state_of(name).snapshot
                if snapshot is not None:
                    limits.learn_layout(snapshot)
        else:
            assert isinstance(machine, Warden)
            limits = warden_validation_context(machine.config)
        limits.clock = lambda: self.target.now
        return limits

    def tale(self, choose: Chooser) -> None:
        """Tell one; whatever the machine raises is a finding."""
        machine = self.target.machine()
        limits = self.limits(machine)
        now = self.target.now
        for _ in range(1 + choose.below(MESSAGES_MAX)):
            plain = _changed(choose, self.target)
            _number(choose, plain, machine)
            self.told += 1
            try:
                content = msgspec.msgpack.encode([plain])
            except (OverflowError, UnicodeEncodeError):
                continue  # what cannot be written cannot arrive
            now += choose.below(3) * SECOND
            self.arrive(content, machine, limits, now)
        for wait in (0, SECOND, 100 * SECOND):
            machine.handle(Tick(now + wait))
        machine.check()
        machine.restore(machine.dump())
        machine.handle(Tick(now + 101 * SECOND))

    def arrive(self, content: bytes, machine: Machine, limits: ValidationContext, now: int) -> None:
        """A frame's content, from whoever it says it is: the receiving path of the wire, without sockets."""
        envelopes = decode_frame(content)
        if isinstance(envelopes, str):
            return
        for envelope in envelopes:
            peer = self.book.peers.get(envelope.source)
            allowed = (
                self.book.allowed_messages(peer.identity, envelope.source, envelope.target) if peer else ""
            )
            if isinstance(allowed, str) or type(envelope.body) not in allowed:
                return
        good, _, _ = validate_frame(envelopes, lambda _: limits)
        for envelope in good:
            self.taken += 1
            machine.handle(MessageReceived(now, envelope))


def tasks_of(machine: Broker, job: JobId) -> int | None:
    """How many tasks a job has that a broker owns or keeps for a peer."""
    record = machine._context.jobs.get(job)
    if record is not None:
        return len(record.state)
    for ward in machine._standby.shards.values():
        if job in ward.jobs:
            return ward.jobs[job].spec.task_count
    return None


# --- changing ----------------------------------------------------------------------------------------------


def _changed(choose: Chooser, target: Target) -> Any:
    """A seed with some changes."""
    plain = _copy(target.seed(choose))
    for _ in range(choose.below(1 + choose.below(CHANGES_MAX + 1) + 1)):
        places = _places(plain)
        if not places:
            break  # nothing is left of it
        holder, key = places[choose.below(len(places))]
        _change(choose, target, holder, key)
    return plain


def _number(choose: Chooser, plain: Any, machine: Machine) -> None:
    """Mostly let a sequenced message be the next one in its turn, or nobody would look at it."""
    if not isinstance(plain, list) or len(plain) != 6 or choose.below(8) == 0:
        return
    post = machine._context.links if isinstance(machine, Broker) else machine._links  # type: ignore[attr-defined]
    link = post.links.get(plain[0]) if isinstance(plain[0], str) else None
    if link is not None and isinstance(plain[3], int):
        plain[2] = link.session
        plain[3] = link.received + 1 if plain[3] > 0 else -link.received
        plain[4] = (link.acked, link.sent, plain[4])[choose.below(3)]


def _places(plain: Any) -> list[tuple[Any, Any]]:
    """Every place in the data: its holder and the key there."""
    found: list[tuple[Any, Any]] = []
    waiting = deque([plain])
    while waiting and len(found) < 2_000:
        holder = waiting.popleft()
        keys: Any = range(len(holder)) if isinstance(holder, list) else list(holder)
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], list | dict):
                waiting.append(holder[key])
    return found


def _change(choose: Chooser, target: Target, holder: Any, key: Any) -> None:
    value = holder[key]
    kind = choose.below(7)
    if kind == 6 and isinstance(holder, list) and isinstance(value, list) and value:
        # the same item once more in all columns of one record: lengths still agree
        at, length = choose.below(len(value)), len(value)
        for column in [other for other in holder if isinstance(other, list) and len(other) == length]:
            column.append(_copy(column[at]))
    elif kind == 0:  # something from elsewhere in another message
        other = _places(target.seed(choose))
        there, at = other[choose.below(len(other))]
        holder[key] = _copy(there[at])
    elif kind == 1 and isinstance(holder, list) and holder:
        _reorder(choose, holder, key)
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        more = (value + 1, value - 1, -value, value << 20, value >> 20, value ^ 1)
        at = choose.below(len(target.numbers) + 4 * len(more))
        holder[key] = target.numbers[at] if at < len(target.numbers) else more[at % len(more)]
    elif isinstance(value, str):
        holder[key] = WORDS[choose.below(len(WORDS))]
    elif isinstance(value, list) and value:
        _reorder(choose, value, choose.below(len(value)))
    else:
        holder[key] = (None, [], 0, "", b"", {})[choose.below(6)]


def _reorder(choose: Chooser, values: list[Any], at: int) -> None:
    """Double, drop, swap or repeat an item of a list."""
    kind = choose.below(4)
    if kind == 0:
        values.insert(at, _copy(values[at]))
    elif kind == 1:
        del values[at]
    elif kind == 2:
        other = choose.below(len(values))
        values[at], values[other] = values[other], values[at]
    else:
        values.extend(_copy(values[at]) for _ in range(1 + choose.below(5)))


def _copy(plain: Any) -> Any:
    return deepcopy(plain)


def as_frame_of(envelope: Envelope) -> bytes:
    """An envelope as a frame."""
    made, _ = pop_frame(deque((envelope,)))
    assert made is not None
    return bytes(made)
