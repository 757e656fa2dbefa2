from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hanse.model.messages import Ack, Envelope
from hanse.sim.network import DELAY_KINDS, SimulatedNetwork, delay_table
from hanse.sim.process import Process
from hanse.sim.process_clock import MILLION, ProcessClock
from hanse.sim.world import ENTRIES_BETWEEN_FLUSH_CHECKS, TRACE_NUMBERS_MAX, VirtualWorld
from tests.sim.toys import Tally, received


def test_things_happen_in_order_of_time_then_of_scheduling() -> None:
    world = VirtualWorld()
    happened: list[tuple[int, str]] = []

    def note(what: str) -> None:
        happened.append((world.now, what))

    for time, what in ((5, "c"), (1, "a"), (5, "d"), (9, "late"), (1, "b")):
        world.call_at(time, note, what)
    world.run(8)
    assert happened == [(1, "a"), (1, "b"), (5, "c"), (5, "d")]
    assert (world.now, world.happened) == (8, 4)


def test_all_that_happens_is_counted_once_whatever_the_length_of_a_run() -> None:
    world = VirtualWorld()
    for time in range(ENTRIES_BETWEEN_FLUSH_CHECKS + 10):
        world.call_at(time, lambda _: None)
    for until, happened in (
        (0, 1),
        (0, 1),
        (ENTRIES_BETWEEN_FLUSH_CHECKS - 1, ENTRIES_BETWEEN_FLUSH_CHECKS),
        (ENTRIES_BETWEEN_FLUSH_CHECKS + 1, ENTRIES_BETWEEN_FLUSH_CHECKS + 2),
        (2 * ENTRIES_BETWEEN_FLUSH_CHECKS, ENTRIES_BETWEEN_FLUSH_CHECKS + 10),
    ):
        world.run(until)
        assert world.happened == happened


def test_digest_depends_on_every_number_and_on_the_outcomes() -> None:
    def digest(last: int, outcomes: list[int]) -> str:
        world = VirtualWorld()
        world.trace.extend(range(TRACE_NUMBERS_MAX * 2))
        world.run(0)
        world.trace.extend((1, 2, 3, last))
        return world.digest(outcomes)

    assert digest(4, [1]) == digest(4, [1])
    assert digest(4, [1]) != digest(5, [1])
    assert digest(4, [1]) != digest(4, [2])


@given(st.integers(0, 10**9), st.integers(980_000, 1_020_000), st.integers(0, 10**12))
def test_a_clock_is_exact_both_ways(offset: int, rate: int, wanted: int) -> None:
    clock = ProcessClock(offset, rate)
    true = clock.true_time(wanted)
    assert clock.local_time(true) >= wanted
    assert clock.local_time(true - 1) < wanted


def test_delays_have_their_shapes() -> None:
    for kind in DELAY_KINDS:
        table = delay_table(kind, 1_000)
        assert all(delay >= 0 for delay in table)
        assert 800 <= sum(table) / len(table) <= 2_000
    assert max(delay_table("heavy", 1_000)) > 20 * max(delay_table("uniform", 1_000))


def _pair(seed: int = 1, wire: bool = False) -> tuple[VirtualWorld, SimulatedNetwork, Process, Process]:
    world = VirtualWorld()
    network = SimulatedNetwork(world, Random(seed), wire)
    left = Process("left", 1, lambda: Tally("left", "right", MILLION), network, Random(2))
    right = Process("right", 2, lambda: Tally("right"), network, Random(3))
    network.add_link(left, right)
    left.restart()
    right.restart()
    return world, network, left, right


def _seen(process: Process) -> int:
    machine = process.machine
    assert isinstance(machine, Tally)
    return received(machine.seen)


def test_a_true_link_delivers_everything_once() -> None:
    for wire in (False, True):
        world, _, _, right = _pair(wire=wire)
        world.run(100 * MILLION + 1_000)
        assert _seen(right) == 100


def test_links_lose_double_and_cut() -> None:
    world, network, _, right = _pair()
    link = network.link_between("left", "right")
    link.loss = 0.3
    world.run(1_000 * MILLION + 1_000)
    assert 600 < _seen(right) < 800
    link.loss, link.duplication = 0.0, 0.5
    before = _seen(right)
    world.run(2_000 * MILLION + 1_000)
    assert 1_400 < _seen(right) - before < 1_600
    network.cut([link])
    before = _seen(right)
    world.run(3_000 * MILLION + 1_000)
    assert _seen(right) == before
    network.end_cut([link])
    world.run(3_010 * MILLION + 1_000)
    assert _seen(right) > before


def test_overlapping_partitions_count() -> None:
    _, network, _, _ = _pair()
    link = network.link_between("left", "right")
    network.cut([link])
    network.cut([link])
    network.end_cut([link])
    assert link.cuts == 1
    network.heal(delay_table("constant", 1))
    network.end_cut([link])
    assert link.cuts == 0


def _arrivals(in_order: bool) -> list[int]:
    world = VirtualWorld()
    network = SimulatedNetwork(world, Random(5))
    source = Process("left", 1, lambda: Tally("left"), network, Random(2))
    target = Process("right", 2, lambda: Tally("right"), network, Random(3))
    link = network.add_link(source, target)
    link.delays, link.in_order = delay_table("heavy", 10_000), in_order
    target.restart()
    for seq in range(1, 200):
        network.send(link, Envelope("left", "right", 0, seq, 0, Ack()))
    world.run(10**9)
    machine = target.machine
    assert isinstance(machine, Tally)
    return [event.envelope.seq for event in machine.seen if hasattr(event, "envelope")]


def test_messages_overtake_each_other_unless_the_link_keeps_order() -> None:
    assert _arrivals(in_order=True) == list(range(1, 200))
    mixed = _arrivals(in_order=False)
    assert mixed != sorted(mixed)
    assert sorted(mixed) == list(range(1, 200))


def test_a_clogged_link_delivers_when_it_clears() -> None:
    world, network, _, right = _pair()
    network.link_between("left", "right").clogged_until = 5 * MILLION
    world.run(5 * MILLION - 1)
    assert _seen(right) == 0
    world.run(5 * MILLION)
    assert _seen(right) == 4
