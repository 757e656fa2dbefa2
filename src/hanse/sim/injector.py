"""Injector of a seed's faults: at random times of the safety phase, with a heal at the end."""

from random import Random
from typing import Final

from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.resources import Resources
from hanse.sim.clients import Clients
from hanse.sim.league import SimulatedLeague
from hanse.sim.network import SimulatedLink, delay_table
from hanse.sim.process import Process
from hanse.sim.seed_options import SeedOptions

HEALED_DELAY: Final = 1 * MILLISECOND
PARTITION_MIN: Final = 500 * MILLISECOND
PARTITION_MAX: Final = 30 * SECOND
PAUSE_MAX: Final = 10 * SECOND
RESTART_INTERVAL_MAX: Final = 2 * SECOND
"""Longest time between the restarts of two processes in turn."""
CLOG_MAX: Final = 5 * SECOND
CRASH_DELAY_MAX: Final = 30 * MILLISECOND
"""Longest time between a submission and the crash of its broker."""


class FaultInjector:
    """Faults of one seed. Every fault with a length ends with the safety phase at the latest."""

    def __init__(self, league: SimulatedLeague, clients: Clients, options: SeedOptions, rng: Random) -> None:
        self._league = league
        self._world = league.world
        self._clients = clients
        self._options = options
        self._rng = rng
        self._set_network_conditions()
        rates = options.rates
        for count, strike in (
            (rates.broker_crashes, self._crash_broker),
            (rates.warden_crashes, self._crash_warden),
            (rates.runner_crashes, self._crash_runner),
            (rates.host_losses, self._lose_host),
            (rates.pauses, self._pause),
            (rates.partitions, self._partition),
            (rates.clogs, self._clog),
            (rates.drains, self._drain),
            (rates.foreign_loads, self._withhold),
            (rates.output_hangs, self._hang_output),
            (rates.rolling_restarts, self._restart_all),
        ):
            for _ in range(count):
                self._world.call_at(rng.randrange(options.safety), strike)
        for _ in range(rates.broker_crashes):
            plan = rng.choice(clients.plans)
            broker = league.brokers[plan.broker]
            self._world.call_at(
                plan.at + rng.randint(0, CRASH_DELAY_MAX), self._crash_after_submission, broker
            )

    def heal(self) -> None:
        """End all faults: every process is up, every link is fast and reliable, every node is open."""
        self._league.network.heal(delay_table("uniform", HEALED_DELAY))
        self._clients.loss = 0.0
        for process in self._league.processes:
            process.cancel_planned_crash()
            process.resume()
            process.restart()
        for warden in self._league.wardens.values():
            warden.drain(((), False, 0))
        for backend in self._league.backends.values():
            backend.resume_output()
            for node in list(backend.withheld):
                backend.withhold((node, Resources()))
        self.add_to_story("the league", "is healed")

    def _set_network_conditions(self) -> None:
        """Give most links the seed's conditions, one in ten long delays; none if the seed is calm."""
        conditions, rng = self._options.network, self._rng
        slow_share = 0.0 if self._options.scenario == "calm" else 0.1
        usual = delay_table(conditions.delay_kind, conditions.delay_mean)
        slow = delay_table("heavy", conditions.delay_mean * 4)
        for link in self._league.network.links:
            link.delays = slow if rng.random() < slow_share else usual
            link.loss = conditions.loss / 100
            link.duplication = conditions.duplication / 100
            link.in_order = conditions.in_order
        self._clients.loss = conditions.loss / 100

    def _draw_length(self, least: int, most: int) -> int:
        """Draw a length, more often short than long, that ends within the safety phase."""
        draw = self._rng.random()
        length = least + int((most - least) * draw * draw)
        return max(1, min(length, self._options.safety - self._world.now - 1))

    def _crash_broker(self, _: object) -> None:
        long = self._options.scenario == "adoption"
        self._schedule_crash(self._rng.choice(list(self._league.brokers.values())), long)

    def _crash_after_submission(self, broker: Process) -> None:
        """Crash the broker while it may be making a promise."""
        if self._world.now < self._options.safety:
            self._schedule_crash(broker)

    def _crash_warden(self, _: object) -> None:
        self._schedule_crash(self._rng.choice(list(self._league.wardens.values())))

    def _crash_runner(self, _: object) -> None:
        self._schedule_crash(self._rng.choice(list(self._league.runners.values())))

    def _schedule_crash(self, process: Process, long: bool = False) -> None:
        least = 2 * self._options.timings.suspect_after if long else MILLISECOND
        most = max(2 * least, self._options.rates.downtime_max)
        if process.is_up:
            process.schedule_crash(self._draw_length(least, most))
        elif self._rng.random() < 0.5:
            process.restart(
                self._draw_length(MILLISECOND, most)
            )  # the process crashes again at its first event

    def _lose_host(self, _: object) -> None:
        backend = self._rng.choice(list(self._league.backends.values()))
        self.add_to_story(backend.runner.name, "loses its host with everything on it")
        backend.lose_host()
        self._world.call_at(
            self._world.now + self._draw_length(MILLISECOND, 20 * SECOND), backend.runner.restart
        )

    def _restart_all(self, _: object) -> None:
        """Restart every process, one after the other, as for an upgrade."""
        self.add_to_story("the league", "restarts, one process after the other")
        at = self._world.now
        for process in self._league.processes:
            at += self._rng.randint(MILLISECOND, RESTART_INTERVAL_MAX)
            self._world.call_at(at, self._restart_one, process)

    def _restart_one(self, process: Process) -> None:
        if self._world.now < self._options.safety:
            self._schedule_crash(process)

    def _pause(self, _: object) -> None:
        process = self._rng.choice(self._league.processes)
        length = self._draw_length(50 * MILLISECOND, PAUSE_MAX)
        self.add_to_story(process.name, f"is paused for {length / SECOND:.3f} s")
        process.pause()
        self._world.call_at(self._world.now + length, process.resume)

    def _hang_output(self, _: object) -> None:
        """Make the output of a runner's tasks hang; in half of the cases the runner too, as with one shared
        disk."""
        backend = self._rng.choice(list(self._league.backends.values()))
        length, both = self._draw_partition_length(), self._rng.random() < 0.5
        if backend.is_output_hanging:
            return
        what = "and its tasks' output hang" if both else "sees its tasks' output hang"
        self.add_to_story(backend.runner.name, f"{what} for {length / SECOND:.3f} s")
        backend.hang_output()
        self._world.call_at(self._world.now + length, backend.resume_output)
        if both:
            backend.runner.pause()
            self._world.call_at(self._world.now + length, backend.runner.resume)

    def _partition(self, _: object) -> None:
        rng = self._rng
        names = [process.name for process in self._league.processes]
        group = dict.fromkeys(rng.sample(names, rng.randint(1, max(1, len(names) // 2))))
        one_way = rng.randrange(100) < self._options.rates.one_way
        inwards = rng.random() < 0.5
        crossing = [
            link
            for link in self._league.network.links
            if (link.source in group) != (link.target in group)
            and (not one_way or (link.target in group) == inwards)
        ]
        length = self._draw_partition_length()
        kind = ("nothing reaches" if inwards else "nothing leaves") if one_way else "cut off:"
        self.add_to_story(" ".join(group), f"{kind} this group for {length / SECOND:.3f} s")
        self._league.network.cut(crossing)
        self._world.call_at(self._world.now + length, self._end_partition, crossing)

    def _draw_partition_length(self) -> int:
        """Draw a length; half of them are about as long as the time after which a member is given up."""
        timings = self._options.timings
        patience = timings.cluster_lease + timings.runner_lease + 2 * timings.lease_grace
        if self._rng.random() < 0.5:
            return self._draw_length(PARTITION_MIN, PARTITION_MAX)
        return min(
            self._rng.randint(patience, 2 * patience), max(1, self._options.safety - self._world.now - 1)
        )

    def _end_partition(self, crossing: list[SimulatedLink]) -> None:
        self.add_to_story("the network", "a partition ends")
        self._league.network.end_cut(crossing)

    def _clog(self, _: object) -> None:
        """Hold back the messages of some links until the links clear."""
        rng = self._rng
        if self._options.scenario == "leases" or rng.random() < 0.5:
            self._delay_then_silence()
            return
        length = self._draw_length(100 * MILLISECOND, CLOG_MAX)
        links = rng.sample(self._league.network.links, max(1, len(self._league.network.links) // 4))
        for link in links:
            link.clogged_until = self._world.now + length
        self.add_to_story("the network", f"{len(links)} links are clogged for {length / SECOND:.3f} s")

    def _delay_then_silence(self) -> None:
        """Delay what one process hears, and cut what it sends one beat later.

        This exposes leases that count from the wrong moment: an old renewal arrives late, then silence.
        """
        rng, now, timings = self._rng, self._world.now, self._options.timings
        leases = self._options.scenario == "leases"
        process = rng.choice(list(self._league.runners.values()) if leases else self._league.processes)
        beat = timings.runner_beat
        late = 2 * beat + int((timings.runner_lease - 2 * beat) * rng.random())
        for link in self._league.network.links:
            if link.target == process.name:
                link.clogged_until = now + late
        self.add_to_story(process.name, f"receives nothing for {late / SECOND:.3f} s, then everything")
        self._world.call_at(now + beat + beat // 8, self._silence, process)

    def _silence(self, process: Process) -> None:
        timings = self._options.timings
        left = self._options.safety - self._world.now - 1
        length = min(timings.runner_lease + 2 * timings.cluster_lease, left)
        if length <= 0:
            return
        cut = [link for link in self._league.network.links if link.source == process.name]
        self.add_to_story(process.name, f"cannot send for {length / SECOND:.3f} s")
        self._league.network.cut(cut)
        self._world.call_at(self._world.now + length, self._end_partition, cut)

    def _drain(self, _: object) -> None:
        rng = self._rng
        warden = rng.choice(self._options.wardens)
        count = len(warden.nodes)
        nodes = tuple(sorted(rng.sample(range(count), rng.randint(1, count)))) if rng.random() < 0.8 else ()
        process = self._league.wardens[warden.name]
        length = self._draw_length(SECOND, 20 * SECOND)
        if rng.random() < 0.5:
            process.drain((nodes, True, length))
            return
        process.drain((nodes, True, 0))
        self._world.call_at(self._world.now + length, process.drain, (nodes, False, 0))

    def _withhold(self, _: object) -> None:
        """Withhold a part of a node, or all of it, for a while, because others use it."""
        rng = self._rng
        warden = rng.choice(self._options.wardens)
        node = rng.randrange(len(warden.nodes))
        config = warden.nodes[node]
        amount = config.capacity
        if rng.random() < 0.7:
            amount = Resources(rng.randint(0, amount.cpu), rng.randint(0, amount.memory))
        backend = self._league.backends[config.runner]
        self.add_to_story(backend.runner.name, f"others use {amount.cpu} milli-CPU of node {node}")
        backend.withhold((node, amount))
        end = self._world.now + self._draw_length(SECOND, 20 * SECOND)
        self._world.call_at(end, backend.withhold, (node, Resources()))

    def add_to_story(self, who: str, what: str) -> None:
        """Add a fault to the story."""
        if self._world.story is not None:
            self._world.story.on_fault(self._world.now, who, what)
