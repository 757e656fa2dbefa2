"""Chaos runs: the run of one seed in a simulated league, and of many seeds on all cores.

A seed draws a league and its faults. The run has a *safety phase* in which no promise may break, heals the
league, gives it a bounded time to finish everything, and checks that nothing is left over.
"""

import gc
from collections.abc import Iterator
from hashlib import sha256
from multiprocessing import get_context
from random import Random
from time import process_time
from traceback import format_exc
from typing import Final

import msgspec

from hanse.model.effects import RequestAdvice, TaskSettled, TasksSettled, for_each_task
from hanse.model.ids import INDEX_BITS, SECOND
from hanse.sim.checkers.idle_league import check_idle, check_shard_owners
from hanse.sim.checkers.job_routing import check_job_routing
from hanse.sim.checkers.journal_replay import check_replay
from hanse.sim.checkers.oracle import Oracle
from hanse.sim.clients import Clients
from hanse.sim.event_text import resources_text
from hanse.sim.fake_policy_process import FakePolicyProcess
from hanse.sim.injector import FaultInjector
from hanse.sim.league import LeagueDesign, LeagueFactories, SimulatedLeague
from hanse.sim.member_changes import MemberChanger, draw_changes
from hanse.sim.network import SimulatedNetwork
from hanse.sim.restored_members import DiskRestores
from hanse.sim.seed_options import SeedOptions, draw_clock, draw_options
from hanse.sim.task_story import Story
from hanse.sim.workload import draw_workload
from hanse.sim.world import Violation, VirtualWorld

REPEAT_EVERY: Final = 20
"""Every seed divisible by this number runs twice; both runs must give the same digest."""
HEALED_BASE: Final = 120 * SECOND
HEALED_WORK: Final = 3
"""Time to finish after the heal: ``HEALED_BASE`` plus this many times the serial run time of all tasks."""
POLL_INTERVAL: Final = 500_000
GANG_WINDOW: Final = 2 * SECOND
"""Largest time between the starts of a gang's tasks when nothing goes wrong."""


class Finding(msgspec.Struct, frozen=True):
    """Broken promise found by a run."""

    promise: str
    message: str
    task: int = 0
    at: int = 0
    """True time in microseconds."""
    trace: str = ""
    """Traceback, for an assertion of a machine."""


class SeedResult(msgspec.Struct, frozen=True):
    """Result of one seed."""

    seed: int
    digest: str
    events: int
    """Events that were handed to machines."""
    happened: int
    """Everything that happened in virtual time, these events included."""
    cpu: float
    """CPU-seconds."""
    simulated: int
    """Simulated microseconds."""
    tasks: int
    finding: Finding | None
    marks: dict[str, int]
    rejected: dict[str, int]
    """Rejection reason of submissions -> number of rejections."""


class SeedRun:
    """Run of one seed."""

    def __init__(self, seed: int, factories: LeagueFactories, story: Story | None = None) -> None:
        root = Random(seed)

        def child_rng() -> Random:
            return Random(root.getrandbits(64))

        self.options: SeedOptions = draw_options(seed, child_rng())
        options = self.options
        changes = draw_changes(seed, options)
        brokers = options.brokers + ((changes.broker,) if changes.broker else ())
        wardens = options.wardens + (() if changes.cluster is None else (changes.cluster,))
        self.world = VirtualWorld(story)
        network = SimulatedNetwork(self.world, child_rng(), options.network.encodes)
        clocks = child_rng()
        design = LeagueDesign(
            brokers, wardens, options.timings, options.durability, options.policies, options.lost_max,
            options.decisions, changes.joins,
        )  # fmt: skip
        self.league = SimulatedLeague(
            self.world, network, factories, design, child_rng(), lambda: draw_clock(clocks, options.clocks)
        )
        self.workload = draw_workload(child_rng(), options.workload, brokers, options.wardens)
        self.oracle = Oracle(self.world, self.workload, wardens, options.lost_max)
        self.league.add_backends(self.workload.planned_end, self.oracle, options.poll_interval)
        for broker in self.league.brokers.values():
            broker.set_performers(
                {
                    TaskSettled: self.oracle.on_task_settled,
                    TasksSettled: for_each_task(self.oracle.on_task_settled),
                }
            )
        self.clients = Clients(self.world, child_rng(), self.workload, self.league.brokers, self.oracle)
        self.injector = FaultInjector(self.league, self.clients, options, child_rng())
        safety = 0 if options.scenario == "calm" else options.safety
        self.disk_restores = DiskRestores(self.league, seed, safety, self.injector.add_to_story)
        self.member_changes = MemberChanger(
            self.league, self.clients, self.oracle, changes, seed, safety, self.injector.add_to_story
        )
        for broker in self.league.brokers.values():
            policy_process = FakePolicyProcess(self.world, child_rng(), broker.on_advice)
            broker.set_performers({**broker.performers, RequestAdvice: policy_process.on_request})

    def run(self) -> None:
        """Run all phases; raise the first violation."""
        options, world = self.options, self.world
        self.league.start()
        world.run(options.safety)
        self.member_changes.finish()
        self.injector.heal()
        self._await_all_ends()
        self._await_quiet()
        self._check_end()

    def _await_all_ends(self) -> None:
        """Let every acknowledged task end within the bounded time."""
        world, oracle = self.world, self.oracle
        bound = HEALED_BASE + HEALED_WORK * self.workload.serial_time
        latest = world.now + bound
        while oracle.open_tasks or self.clients.unanswered_count:
            if world.now >= latest:
                oracle.check_terminal(f"{bound // SECOND} s after the heal")
                raise Violation(
                    "every submission answered",
                    f"{self.clients.unanswered_count} clients still wait for a reply",
                )
            world.run(world.now + POLL_INTERVAL)

    def _await_quiet(self) -> None:
        """Wait until every lease has run out and every last message has been repeated."""
        timings = self.options.timings
        self.world.run(
            self.world.now + 2 * timings.cluster_lease + 2 * timings.resend_max + timings.grant_lease
        )

    def _check_end(self) -> None:
        league = self.league
        self.oracle.check_terminal("after the league has come to rest")
        calm = self.options.scenario == "calm"
        lease = self.options.timings.cluster_lease
        self.oracle.check_gangs(0 if calm else self.options.safety + 2 * lease, GANG_WINDOW)
        for process in league.processes:
            process.machine.check()
        brokers = {name: process for name, process in league.brokers.items() if process.is_member}
        wardens = {name: process for name, process in league.wardens.items() if process.is_member}
        check_idle(
            brokers, wardens, [backend for backend in league.backends.values() if backend.runner.is_member]
        )
        check_shard_owners(brokers, wardens, self.member_changes.version.retired)
        check_job_routing(brokers, self.oracle.jobs)
        for process in league.journalled_processes:
            if process.is_member:
                check_replay(process)
        self.oracle.check_terminal("in the journals")


def run_seed(seed: int, factories: LeagueFactories, story: Story | None = None) -> SeedResult:
    """Run a seed once; return a violation, or an exception of a machine, as the result's finding."""
    begun = process_time()
    gc.disable()  # a run makes few cycles; reference counting frees almost all garbage
    try:
        trial = SeedRun(seed, factories, story)
        finding = _find_violation(trial)
        world = trial.world
        reasons: dict[str, int] = {}
        for reason in trial.clients.replies.values():
            if reason:
                reasons[reason] = reasons.get(reason, 0) + 1
        return SeedResult(
            seed=seed,
            digest=world.digest(trial.oracle.outcomes()),
            events=world.event_count,
            happened=world.happened,
            cpu=process_time() - begun,
            simulated=world.now,
            tasks=sum(plan.spec.task_count for plan in trial.workload.plans),
            finding=finding,
            marks=trial.league.count_marks(),
            rejected=dict(sorted(reasons.items())),
        )
    finally:
        gc.enable()


def _find_violation(trial: SeedRun) -> Finding | None:
    try:
        trial.run()
    except Violation as violation:
        return Finding(violation.promise, violation.message, _task_of(violation), trial.world.now)
    except Exception as error:  # noqa: BLE001  a machine's bug may raise anything, which is the finding
        traceback = format_exc()
        return Finding("machines keep their own rules", repr(error)[:500], 0, trial.world.now, traceback)
    return None


def _task_of(violation: Violation) -> int:
    return violation.task or (violation.job << INDEX_BITS if violation.job else 0)


def check_seed(seed: int, factories: LeagueFactories) -> SeedResult:
    """Run a seed, and every ``REPEAT_EVERY``-th seed twice: the same seed must give the same digest."""
    result = run_seed(seed, factories)
    if seed % REPEAT_EVERY or result.finding is not None:
        return result
    again = run_seed(seed, factories)
    if again.digest == result.digest:
        return result
    message = f"two runs of seed {seed} gave {result.digest[:16]} and {again.digest[:16]}"
    return msgspec.structs.replace(result, finding=Finding("same seed, same run", message))


def check_seeds(seeds: range, factories: LeagueFactories, processes: int) -> Iterator[SeedResult]:
    """Yield the results of many seeds, in the order of the seeds."""
    if processes <= 1:
        for seed in seeds:
            yield check_seed(seed, factories)
        return
    context = get_context("fork")
    with context.Pool(processes, _set_worker_factories, (factories,)) as pool:
        yield from pool.imap(_check_in_worker, seeds, chunksize=4)


_worker_factories: list[LeagueFactories] = []


def _set_worker_factories(factories: LeagueFactories) -> None:
    _worker_factories[:] = [factories]


def _check_in_worker(seed: int) -> SeedResult:
    return check_seed(seed, _worker_factories[0])


def combined_digest(results: list[SeedResult]) -> str:
    """Return one digest over the digests of all seeds, in the order of the seeds."""
    return sha256(
        "".join(result.digest for result in sorted(results, key=lambda it: it.seed)).encode()
    ).hexdigest()


def explain_seed(seed: int, factories: LeagueFactories, task: int = 0) -> tuple[SeedResult, list[str]]:
    """Run a seed and return the story of this task, else of the violation's task, else the busiest one."""
    story = Story()
    result = run_seed(seed, factories, story)
    subject = task or (result.finding.task if result.finding else 0) or story.find_busiest_task()
    lines = story.describe_task(subject) if subject else ["no task ever ran"]
    return result, lines


def describe_options(seed: int) -> list[str]:
    """Return everything that a seed draws, one line per item."""
    options = draw_options(seed, Random(Random(seed).getrandbits(64)))
    changes = draw_changes(seed, options)
    lines = [
        f"{verb}: {', '.join(names)}"
        for verb, names in (("joins later", changes.joins), ("retires", changes.retires))
        if names
    ]
    if changes.abandons:
        when = "after every warden has agreed" if changes.awaits_all else "at any moment of it"
        lines.append(f"retires by force: a broker in the middle of a takeover, {when}")
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if name == "wardens":
            for warden in value:
                nodes = "; ".join(
                    f"{resources_text(node.capacity)} {dict(node.attributes)} at {node.runner}"
                    for node in warden.nodes
                )
                lines.append(f"cluster {warden.name} (reserve {warden.reserve}): {nodes}")
        elif isinstance(value, msgspec.Struct):
            fields = ", ".join(f"{field}={getattr(value, field)}" for field in value.__struct_fields__)
            lines.append(f"{name}: {fields}")
        else:
            lines.append(f"{name}: {value}")
    return lines
