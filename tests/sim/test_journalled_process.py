from collections.abc import Callable
from random import Random

import pytest

from hanse.core.machine import Machine
from hanse.model.effects import Effect, JobAccepted
from hanse.model.events import Booted, Tick
from hanse.model.job import JobSpec, TaskGroup
from hanse.sim.disk import Durability
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.network import SimulatedNetwork
from hanse.sim.process_clock import MILLION, ProcessClock
from hanse.sim.world import Violation, VirtualWorld
from tests.sim.toys import Forgetful, Tally

AT_ONCE, TRUE_TIME = Durability(), ProcessClock()
SPEC = JobSpec(groups=(TaskGroup(),))


class Bench:
    """One process, one world, and the acknowledgements that got out."""

    def __init__(
        self, durability: Durability = AT_ONCE, clock: ProcessClock = TRUE_TIME, seed: int = 1,
        kind: type[JournalledProcess] = JournalledProcess, machine: Callable[[], Machine] | None = None,
    ) -> None:  # fmt: skip
        self.world = VirtualWorld()
        network = SimulatedNetwork(self.world, Random(seed))
        factory = machine or (lambda: Tally("it", period=MILLION))
        self.process = kind("it", 1, factory, network, Random(seed), clock, durability)
        self.acknowledged: list[int] = []
        self.process.set_performers({JobAccepted: self._hear})
        self.process.restart()

    def _hear(self, command: JobAccepted) -> None:
        self.acknowledged.append(command.request)

    def submit(self, request: int) -> None:
        self.process.submit(("client", request, SPEC))

    @property
    def machine(self) -> Tally:
        machine = self.process.machine
        assert isinstance(machine, Tally)
        return machine


def test_events_carry_the_local_clock() -> None:
    bench = Bench(clock=ProcessClock(7 * MILLION, MILLION + 20_000))
    bench.world.run(100 * MILLION)
    ticks = [event.at for event in bench.machine.seen if isinstance(event, Tick)]
    assert len(ticks) in (101, 102)  # the clock runs two percent fast, in steps of a microsecond
    assert ticks[0] - 8 * MILLION in (0, 1)
    assert bench.process.local_now() == 109 * MILLION


def test_a_restart_replays_snapshot_and_journal_and_boots_with_a_new_epoch() -> None:
    bench = Bench(Durability(snapshot_every=40, check_every=10))
    bench.world.run(55 * MILLION)
    before = bench.machine.dump()
    bench.process.crash()
    bench.process.restart()
    first, last = bench.machine.seen[0], bench.machine.seen[-1]
    assert isinstance(first, Tick)  # what came before is in the snapshot
    assert isinstance(last, Booted)
    assert last.epoch == 2
    assert bench.machine.state.taken == 57
    assert before != bench.machine.dump()
    assert bench.process.marks == {"ticked": 55}
    assert bench.machine.marks == {}


def test_a_state_that_replay_does_not_give_is_a_violation() -> None:
    bench = Bench(
        Durability(snapshot_every=40, check_every=10), machine=lambda: Forgetful("it", period=MILLION)
    )
    bench.world.run(55 * MILLION)
    bench.process.crash()
    with pytest.raises(Violation, match="ledger equals journal replay"):
        bench.process.restart()


def test_a_dead_process_hears_nothing_and_its_clock_runs_on() -> None:
    bench = Bench()
    bench.process.crash()
    bench.submit(1)
    bench.world.run(10 * MILLION)
    assert bench.acknowledged == []
    bench.process.restart()
    assert bench.machine.seen[-1].at == 10 * MILLION
    bench.world.run(20 * MILLION)
    assert bench.machine.state.ticks == 10


def test_a_paused_process_takes_everything_late_and_in_order() -> None:
    bench = Bench()
    bench.process.pause()
    bench.world.run(3 * MILLION)
    bench.submit(1)
    bench.submit(2)
    assert bench.acknowledged == []
    bench.process.resume()
    assert bench.acknowledged == [1, 2]
    assert [event.at for event in bench.machine.seen[1:]] == [3 * MILLION] * 3


def test_commands_wait_for_the_group_commit() -> None:
    bench = Bench(Durability(commit_min=1_000, commit_max=1_000))
    bench.world.run(10_000)
    bench.submit(1)
    bench.world.run(10_500)
    bench.submit(2)
    assert bench.machine.state.accepted == 2
    assert bench.acknowledged == []
    bench.world.run(11_000)
    assert bench.acknowledged == [1, 2]


def test_a_torn_tail_takes_only_what_was_never_told() -> None:
    for kept in (0, 1, 2):
        bench = Bench(Durability(commit_min=1_000, commit_max=1_000))
        bench.world.run(10_000)
        bench.submit(1)
        bench.submit(2)
        bench.process.crash(kept)
        bench.process.restart()
        bench.world.run(MILLION // 2)
        assert bench.acknowledged == []
        assert bench.machine.state.accepted == kept


def test_a_torn_boot_does_not_count_as_an_epoch() -> None:
    bench = Bench(Durability(commit_min=1_000, commit_max=1_000))
    bench.process.crash(0)
    bench.process.restart()
    assert bench.process.epoch == 1
    bench.world.run(10_000)
    bench.process.crash()
    bench.process.restart()
    assert bench.process.epoch == 2


class AckFirst(JournalledProcess):
    """The planted bug: performs commands before the journal's write has come back."""

    def _delay_effects(self, commands: list[Effect]) -> None:
        self.perform(commands)
        super()._delay_effects([])


def _lost_acknowledgements(kind: type[JournalledProcess], durability: Durability) -> tuple[int, int]:
    lost = died = 0
    for seed in range(60):
        bench = Bench(durability, seed=seed, kind=kind)
        bench.world.run(10_000)
        bench.submit(1)
        bench.process.schedule_crash(50_000)
        bench.submit(2)
        died += not bench.process.is_up
        told = len(bench.acknowledged)
        bench.world.run(bench.world.now + 100_000)
        assert bench.process.is_up
        lost += bench.machine.state.accepted < told
    return lost, died


@pytest.mark.parametrize("durability", [Durability(), Durability(commit_min=100, commit_max=5_000)])
def test_no_crash_point_loses_what_was_acknowledged(durability: Durability) -> None:
    assert _lost_acknowledgements(JournalledProcess, durability) == (0, 60)


def test_acknowledging_before_journalling_is_caught() -> None:
    lost, died = _lost_acknowledgements(AckFirst, Durability(commit_min=100, commit_max=5_000))
    assert died == 60
    assert lost > 10


def test_crash_points_are_before_within_and_after_the_effects() -> None:
    results: set[tuple[int, int]] = set()
    for seed in range(40):
        bench = Bench(seed=seed)
        bench.process.schedule_crash(50_000)
        bench.submit(1)
        told = len(bench.acknowledged)
        bench.world.run(100_000)
        results.add((told, bench.machine.state.accepted))
    assert results == {(0, 0), (0, 1), (1, 1)}


def test_a_process_can_die_as_it_comes_up() -> None:
    bench = Bench()
    bench.process.crash()
    bench.process.restart(MILLION)
    assert not bench.process.is_up
    bench.world.run(2 * MILLION)
    assert bench.process.is_up


def test_machines_are_checked_every_so_often() -> None:
    bench = Bench(Durability(check_every=10))
    bench.world.run(100 * MILLION)
    assert bench.machine.checks == 10


def test_snapshots_keep_the_journal_short_however_seldom_machines_are_checked() -> None:
    bench = Bench(Durability(snapshot_every=7, check_every=50))
    lengths = []
    for second in range(1, 201):
        bench.world.run(second * MILLION)
        lengths.append(len(bench.process.journal))
    assert (min(lengths), max(lengths)) == (0, 6)
    assert bench.machine.checks == 4
