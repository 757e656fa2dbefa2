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

from hanse.model.effects import RequestAdvice, TaskSettled, TasksSettled
from hanse.model.ids import INDEX_BITS, SECOND
from hanse.sim.checkers import Oracle, check_estates, check_quiet, check_replay, check_speakers
from hanse.sim.clients import Clients
from hanse.sim.fake_policy_process import Adviser
from hanse.sim.faults import Options, draw_clock, draw_options
from hanse.sim.injector import Injector
from hanse.sim.league import Design, Factories, League
from hanse.sim.member_changes import Membership, draw_changes
from hanse.sim.network import Network
from hanse.sim.render import resources_text
from hanse.sim.restored_members import Restoring
from hanse.sim.settled_tasks import one_by_one
from hanse.sim.story import Story
from hanse.sim.workload import draw_workload
from hanse.sim.world import Violation, World

TWICE_EVERY: Final = 20
"""Every seed divisible by this number runs twice; both runs must give the same digest."""
HEALED_BASE: Final = 120 * SECOND
HEALED_WORK: Final = 3
"""Time to finish after the heal: ``HEALED_BASE`` plus this many times the serial run time of all tasks."""
POLL: Final = 500_000
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


class Result(msgspec.Struct, frozen=True):
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


class Trial:
    """Run of one seed."""

    def __init__(self, seed: int, factories: Factories, story: Story | None = None) -> None:
        root = Random(seed)

        def branch() -> Random:
            return Random(root.getrandbits(64))

        self.options: Options = draw_options(seed, branch())
        options = self.options
        changes = draw_changes(seed, options)
        brokers = options.brokers + ((changes.broker,) if changes.broker else ())
        wardens = options.wardens + (() if changes.cluster is None else (changes.cluster,))
        self.world = World(story)
        network = Network(self.world, branch(), options.network.wire)
        clocks = branch()
        design = Design(
            brokers, wardens, options.timings, options.durability, options.policies, options.lost_max,
            options.decisions, changes.joins,
        )  # fmt: skip
        self.league = League(
            self.world, network, factories, design, branch(), lambda: draw_clock(clocks, options.clocks)
        )
        self.workload = draw_workload(branch(), options.workload, brokers, options.wardens)
        self.oracle = Oracle(self.world, self.workload, wardens, options.lost_max)
        self.league.equip(self.workload.fate, self.oracle)
        for broker in self.league.brokers.values():
            broker.connect({TaskSettled: self.oracle.settle, TasksSettled: one_by_one(self.oracle.settle)})
        self.clients = Clients(self.world, branch(), self.workload, self.league.brokers, self.oracle)
        self.injector = Injector(self.league, self.clients, options, branch())
        safety = 0 if options.scenario == "calm" else options.safety
        self.restoring = Restoring(self.league, seed, safety, self.injector.tell)
        self.membership = Membership(
            self.league, self.clients, self.oracle, changes, seed, safety, self.injector.tell
        )
        for broker in self.league.brokers.values():
            adviser = Adviser(self.world, branch(), broker.advise)
            broker.connect({**broker.performers, RequestAdvice: adviser.ask})

    def run(self) -> None:
        """Run all phases; raise the first violation."""
        options, world = self.options, self.world
        self.league.boot()
        world.run(options.safety)
        self.membership.end()
        self.injector.heal()
        self._finish()
        self._settle_down()
        self._check_end()

    def _finish(self) -> None:
        """Let every acknowledged task end within the bounded time."""
        world, oracle = self.world, self.oracle
        bound = HEALED_BASE + HEALED_WORK * self.workload.serial_time
        latest = world.now + bound
        while oracle.open or self.clients.waiting:
            if world.now >= latest:
                oracle.check_terminal(f"{bound // SECOND} s after the heal")
                raise Violation(
                    "every submission answered", f"{self.clients.waiting} clients still wait for a reply"
                )
            world.run(world.now + POLL)

    def _settle_down(self) -> None:
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
        check_quiet(brokers, wardens, [one for one in league.backends.values() if one.runner.is_member])
        check_estates(brokers, wardens, self.membership.members.retired)
        check_speakers(brokers, self.oracle.jobs)
        for process in league.journalled:
            if process.is_member:
                check_replay(process)
        self.oracle.check_terminal("in the journals")


def run_seed(seed: int, factories: Factories, story: Story | None = None) -> Result:
    """Run a seed once; return a violation, or an exception of a machine, as the result's finding."""
    begun = process_time()
    gc.disable()  # a run makes few cycles; reference counting frees almost all garbage
    try:
        trial = Trial(seed, factories, story)
        finding = _judge(trial)
        world = trial.world
        reasons: dict[str, int] = {}
        for reason in trial.clients.replied.values():
            if reason:
                reasons[reason] = reasons.get(reason, 0) + 1
        return Result(
            seed=seed,
            digest=world.digest(trial.oracle.outcomes()),
            events=world.events,
            happened=world.happened,
            cpu=process_time() - begun,
            simulated=world.now,
            tasks=sum(plan.spec.tasks for plan in trial.workload.plans),
            finding=finding,
            marks=trial.league.marks(),
            rejected=dict(sorted(reasons.items())),
        )
    finally:
        gc.enable()


def _judge(trial: Trial) -> Finding | None:
    try:
        trial.run()
    except Violation as violation:
        return Finding(violation.promise, violation.message, _task_of(violation), trial.world.now)
    except Exception as error:  # noqa: BLE001  a machine's bug may raise anything, which is the finding
        where = format_exc()
        return Finding("machines keep their own rules", repr(error)[:500], 0, trial.world.now, where)
    return None


def _task_of(violation: Violation) -> int:
    return violation.task or (violation.job << INDEX_BITS if violation.job else 0)


def check_seed(seed: int, factories: Factories) -> Result:
    """Run a seed, and every ``REPEAT_EVERY``-th seed twice: the same seed must give the same digest."""
    result = run_seed(seed, factories)
    if seed % TWICE_EVERY or result.finding is not None:
        return result
    again = run_seed(seed, factories)
    if again.digest == result.digest:
        return result
    message = f"two runs of seed {seed} gave {result.digest[:16]} and {again.digest[:16]}"
    return msgspec.structs.replace(result, finding=Finding("same seed, same run", message))


def check_seeds(seeds: range, factories: Factories, processes: int) -> Iterator[Result]:
    """Yield the results of many seeds, in the order of the seeds."""
    if processes <= 1:
        for seed in seeds:
            yield check_seed(seed, factories)
        return
    context = get_context("fork")
    with context.Pool(processes, _enlist, (factories,)) as pool:
        yield from pool.imap(_check, seeds, chunksize=4)


_enlisted: list[Factories] = []


def _enlist(factories: Factories) -> None:
    _enlisted[:] = [factories]


def _check(seed: int) -> Result:
    return check_seed(seed, _enlisted[0])


def whole_digest(results: list[Result]) -> str:
    """Return one digest over the digests of all seeds, in the order of the seeds."""
    return sha256(
        "".join(result.digest for result in sorted(results, key=lambda it: it.seed)).encode()
    ).hexdigest()


def explain(seed: int, factories: Factories, task: int = 0) -> tuple[Result, list[str]]:
    """Run a seed and return the story of this task, else of the violation's task, else the busiest one."""
    story = Story()
    result = run_seed(seed, factories, story)
    subject = task or (result.finding.task if result.finding else 0) or story.busiest_task()
    lines = story.tell(subject) if subject else ["no task ever ran"]
    return result, lines


def options_of(seed: int) -> list[str]:
    """Return everything that a seed draws, one line per item."""
    options = draw_options(seed, Random(Random(seed).getrandbits(64)))
    changes = draw_changes(seed, options)
    lines = [
        f"{verb}: {', '.join(names)}"
        for verb, names in (("joins later", changes.joins), ("retires", changes.retires))
        if names
    ]
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
