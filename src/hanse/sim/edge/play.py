"""Playing episodes to their end and measuring them, with one player per policy."""

from collections.abc import Callable

import msgspec
import numpy as np

from hanse.policy.edge import baselines, preemptive, priced
from hanse.policy.edge.draws import mixed
from hanse.policy.edge.optimus_fit import fitted_speed
from hanse.policy.edge.view import NONE, Choice, Floats, Ints, View
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.speeds import CONVERGENCE, durations
from hanse.sim.edge.streams import Streams
from hanse.sim.edge.world import ROUNDING, Stepped, World

Player = Callable[[World], Stepped]
"""Function that looks at a world and steps it once."""


class Outcome(msgspec.Struct, frozen=True, eq=False):
    """Results of a policy on some streams."""

    completion: Ints
    """(E, T) steps from arrival to completion."""
    kind: Ints
    """(E, T)."""
    size: Ints
    """(E, T, 2) CPUs and GPUs of the last start."""
    ran: Ints
    """(E, T) steps from the last start to completion; ``NONE`` where the task was ever stopped."""
    late: Floats
    """(E,) share of tasks that missed their deadline; 0 without deadlines."""
    conflicts: Ints
    """(E,) choices that lost their task to another cluster."""
    choices: Ints
    """(E,) choices of a task, won or lost."""
    sub_steps: int

    @property
    def mean(self) -> Floats:
        """Mean completion of each episode (E,), in steps."""
        return np.asarray(self.completion.mean(axis=1))


def play(setting: Setting, streams: Streams, player: Player, rounds_max: int = 1_000_000) -> Outcome:
    """Step all episodes to their end.

    More than ``rounds_max`` rounds means a policy that lets tasks starve.
    """
    world = World(setting, streams)
    episodes = len(streams.seed)
    finish, begun = np.zeros_like(streams.arrival), np.zeros_like(streams.arrival)
    size = np.zeros((*streams.arrival.shape, 2), dtype=np.int64)
    moved = np.zeros(streams.arrival.shape, dtype=np.bool_)
    conflicts, choices = np.zeros(episodes, dtype=np.int64), np.zeros(episodes, dtype=np.int64)
    for _ in range(rounds_max):
        stepped = player(world)
        rows = world.state.episode
        lost = stepped.conflicts.sum(axis=1)
        conflicts[rows] += lost
        choices[rows] += lost + stepped.started.sum(axis=1)
        over = ~world.live
        if over.any():
            ended = rows[over]
            finish[ended], begun[ended] = world.state.finish[over], world.state.begun[over]
            size[ended], moved[ended] = world.state.size[over], world.state.moved[over]
            world.drop_finished()
            if not world.episodes:
                break
    assert not world.episodes, "a policy let tasks starve"
    completion = finish - streams.arrival
    slack = setting.variants.deadline_slack
    best = np.ceil(durations(setting.book, ROUNDING).min(axis=(1, 2)) * slack)
    late = (completion > best[streams.kind]).mean(axis=1) if slack > 0 else np.zeros(episodes)
    return Outcome(
        completion=completion,
        kind=streams.kind,
        size=size,
        ran=np.where(moved, NONE, finish - begun),
        late=late,
        conflicts=conflicts,
        choices=choices,
        sub_steps=world.sub_steps,
    )


def by_choice(choose: Callable[[View], Choice]) -> Player:
    """Return the player of a policy that maps a view to a choice."""
    return lambda world: world.step(choose(world.view()))


def true_durations(setting: Setting) -> Floats:
    """Return the noise-free durations in this setting."""
    return durations(setting.book, ROUNDING if setting.corrected else 0.0)


def by_chance(setting: Setting, *, minimum_only: bool) -> Player:
    """Return the player of Random, or of Min where the size is not drawn.

    Draws depend on the stream, the cluster, the time and the round.
    """
    book = setting.book

    def player(world: World) -> Stepped:
        view = world.view()
        key = mixed(world.streams.seed.astype(np.uint64)[:, None], np.arange(setting.clusters)[None, :] + 4)
        key = mixed(mixed(key, view.time[:, None]), world.state.rounds[:, None])
        if minimum_only:
            return world.step(baselines.choose_min(view, book.minimum, key))
        return world.step(baselines.choose_random(view, book.minimum, book.limit, key))

    return player


def by_tiresias(setting: Setting, *, elastic: bool) -> Player:
    """Return the player of Tiresias with two levels; not elastic: every task keeps its minimum of GPUs."""
    minimum = setting.book.minimum
    gpus_max = setting.book.limit[1] if elastic else 0

    def allocate(world: World) -> tuple[Ints, Ints]:
        s = world.state
        least = minimum[s.run_kind, 1]
        return preemptive.tiresias(s.run != NONE, s.run_start, s.run, s.time, world.capacity, least, gpus_max)

    return lambda world: world.step_preemptive(preemptive.admit_first(world.view(), minimum), allocate)


def by_optimus(setting: Setting, *, transposed: bool) -> Player:
    """Return the player of Optimus, with its fit as published (axes exchanged) or corrected."""
    book = setting.book
    speed = fitted_speed(book.rate * np.sqrt(CONVERGENCE) + book.base, transposed=transposed)

    def allocate(world: World) -> tuple[Ints, Ints]:
        s = world.state
        running = s.run != NONE
        return preemptive.optimus(running, s.run_kind, s.progress, world.capacity, book.minimum, speed)

    return lambda world: world.step_preemptive(preemptive.admit_first(world.view(), book.minimum), allocate)


def by_rule(setting: Setting, prices: priced.Prices | None = None, believed: Floats | None = None) -> Player:
    """Return the player of the priced rule on the true durations, or on ``believed`` ones."""
    steps = true_durations(setting) if believed is None else believed
    rule = priced.compile_rule(steps, setting.book.minimum, prices or priced.Prices())
    return by_choice(lambda view: priced.choose_priced(rule, view))


def baseline(name: str, setting: Setting) -> Player | None:
    """Return the player of a baseline by name; None for another name."""
    book = setting.book
    free_of_charge = priced.Prices(gpu_price=0.0, cpu_price=0.0, patience=np.inf)
    fastest = priced.compile_rule(true_durations(setting), book.minimum, free_of_charge)
    makers: dict[str, Callable[[], Player]] = {
        "random": lambda: by_chance(setting, minimum_only=False),
        "min": lambda: by_chance(setting, minimum_only=True),
        "fifo": lambda: by_choice(lambda view: baselines.choose_fifo(view, book.minimum, fastest)),
        "sjf": lambda: by_choice(lambda view: baselines.choose_sjf(view, book.minimum, fastest)),
        "drf": lambda: by_choice(lambda view: baselines.choose_drf(view, book.minimum, book.limit)),
        "tiresias": lambda: by_tiresias(setting, elastic=False),
        "tiresias-elastic": lambda: by_tiresias(setting, elastic=True),
        "optimus-published": lambda: by_optimus(setting, transposed=True),
        "optimus": lambda: by_optimus(setting, transposed=False),
        "priced": lambda: by_rule(setting),
    }
    maker = makers.get(name)
    return None if maker is None else maker()
