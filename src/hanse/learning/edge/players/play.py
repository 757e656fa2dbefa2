"""Playing episodes to their end and measuring them, with one player per policy."""

from collections.abc import Callable

import msgspec
import numpy as np

from hanse.learning.edge.env.keyed_random import derive_key
from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Floats, Ints
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.speeds import CONVERGENCE, durations
from hanse.learning.edge.env.streams import Streams
from hanse.learning.edge.env.world import ROUNDING, EdgeWorld, StepResult
from hanse.learning.edge.network.network import EdgeNetwork, choose_by_network
from hanse.learning.edge.policies import baselines, preemptive, priced
from hanse.learning.edge.policies.optimus_fit import fit_speed

Player = Callable[[EdgeWorld], StepResult]
"""Function that looks at a world and steps it once."""


class EpisodeOutcome(msgspec.Struct, frozen=True, eq=False):
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


def play(setting: Setting, streams: Streams, player: Player, rounds_max: int = 1_000_000) -> EpisodeOutcome:
    """Step all episodes to their end.

    More than ``rounds_max`` rounds means a policy that lets tasks starve.
    """
    world = EdgeWorld(setting, streams)
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
        over = ~world.unfinished
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
    best = np.ceil(durations(setting.speed_table, ROUNDING).min(axis=(1, 2)) * slack)
    late = (completion > best[streams.kind]).mean(axis=1) if slack > 0 else np.zeros(episodes)
    return EpisodeOutcome(
        completion=completion,
        kind=streams.kind,
        size=size,
        ran=np.where(moved, NONE, finish - begun),
        late=late,
        conflicts=conflicts,
        choices=choices,
        sub_steps=world.sub_steps,
    )


def choice_player(choose: Callable[[EdgeView], Choice]) -> Player:
    """Return the player of a policy that maps a view to a choice."""
    return lambda world: world.step(choose(world.view()))


def true_durations(setting: Setting) -> Floats:
    """Return the noise-free durations in this setting."""
    return durations(setting.speed_table, ROUNDING if setting.corrected else 0.0)


def random_player(setting: Setting, *, minimum_only: bool) -> Player:
    """Return the player of Random, or of Min where the size is not drawn.

    Draws depend on the stream, the cluster, the time and the round.
    """
    speed_table = setting.speed_table

    def player(world: EdgeWorld) -> StepResult:
        view = world.view()
        key = derive_key(
            world.streams.seed.astype(np.uint64)[:, None], np.arange(setting.clusters)[None, :] + 4
        )
        key = derive_key(derive_key(key, view.time[:, None]), world.state.rounds[:, None])
        if minimum_only:
            return world.step(baselines.choose_min(view, speed_table.minimum, key))
        return world.step(baselines.choose_random(view, speed_table.minimum, speed_table.limit, key))

    return player


def tiresias_player(setting: Setting, *, elastic: bool) -> Player:
    """Return the player of Tiresias with two levels; not elastic: every task keeps its minimum of GPUs."""
    minimum = setting.speed_table.minimum
    gpus_max = setting.speed_table.limit[1] if elastic else 0

    def allocate(world: EdgeWorld) -> tuple[Ints, Ints]:
        s = world.state
        least = minimum[s.run_kind, 1]
        return preemptive.tiresias(s.run != NONE, s.run_start, s.run, s.time, world.capacity, least, gpus_max)

    return lambda world: world.step_preemptive(preemptive.admit_first(world.view(), minimum), allocate)


def optimus_player(setting: Setting, *, transposed: bool) -> Player:
    """Return the player of Optimus, with its fit as published (axes exchanged) or corrected."""
    speed_table = setting.speed_table
    speed = fit_speed(speed_table.rate * np.sqrt(CONVERGENCE) + speed_table.base, transposed=transposed)

    def allocate(world: EdgeWorld) -> tuple[Ints, Ints]:
        s = world.state
        running = s.run != NONE
        return preemptive.optimus(running, s.run_kind, s.progress, world.capacity, speed_table.minimum, speed)

    return lambda world: world.step_preemptive(
        preemptive.admit_first(world.view(), speed_table.minimum), allocate
    )


def priced_player(
    setting: Setting, prices: priced.Prices | None = None, believed: Floats | None = None
) -> Player:
    """Return the player of the priced rule on the true durations, or on ``believed`` ones."""
    steps = true_durations(setting) if believed is None else believed
    rule = priced.compile_rule(steps, setting.speed_table.minimum, prices or priced.Prices())
    return choice_player(lambda view: priced.choose_in_turn(rule, view))


def network_player(network: EdgeNetwork, rule: priced.PricedRule) -> Player:
    """Return the player of a trained network with everything shared."""
    return choice_player(lambda view: choose_by_network(network, rule, view, priced.shared_room(view)))


def baseline_player(name: str, setting: Setting) -> Player | None:
    """Return the player of a baseline by name; None for another name."""
    speed_table = setting.speed_table
    no_prices = priced.Prices(gpu_price=0.0, cpu_price=0.0, patience=np.inf)
    fastest = priced.compile_rule(true_durations(setting), speed_table.minimum, no_prices)
    makers: dict[str, Callable[[], Player]] = {
        "random": lambda: random_player(setting, minimum_only=False),
        "min": lambda: random_player(setting, minimum_only=True),
        "fifo": lambda: choice_player(lambda view: baselines.choose_fifo(view, speed_table.minimum, fastest)),
        "sjf": lambda: choice_player(lambda view: baselines.choose_sjf(view, speed_table.minimum, fastest)),
        "drf": lambda: choice_player(
            lambda view: baselines.choose_drf(view, speed_table.minimum, speed_table.limit)
        ),
        "tiresias": lambda: tiresias_player(setting, elastic=False),
        "tiresias-elastic": lambda: tiresias_player(setting, elastic=True),
        "optimus-published": lambda: optimus_player(setting, transposed=True),
        "optimus": lambda: optimus_player(setting, transposed=False),
        "priced": lambda: priced_player(setting),
    }
    maker = makers.get(name)
    return None if maker is None else maker()
