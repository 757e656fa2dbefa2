"""How fast the edge environment steps and how long a trained network takes to decide, each beside its twin.

``python bench/edge.py --json FILE`` writes what it prints.

``environment``: sub-steps per second of CPU time, with the published observation after every one, the time
of the (random) policy not counted. The twin is the same environment written as plain Python over lists, one
episode at a time; it is given the same choices, and both must agree on every task's completion, on the room
and on the pending slots after every round, before anything is reported.

``decision``: milliseconds of CPU time and of wall time (median, and 95th percentile) of one decision for ten
clusters, from the state to task and size: features, network, guard. The twin is the same network in torch on
the same features (absent where torch is not installed); the odds of its choices must be the same.
"""

import platform
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from figures import as_program

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env.keyed_random import derive_key, uniform
from hanse.learning.edge.env.policy_interface import NONE, Choice
from hanse.learning.edge.env.published_observation import observe
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.speeds import CONVERGENCE
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.env.world import EdgeWorld
from hanse.learning.edge.network import network_file
from hanse.learning.edge.network.features import encode
from hanse.learning.edge.network.network import EdgeNetwork, choose_from_features
from hanse.learning.edge.players.play import priced_player, true_durations
from hanse.learning.edge.policies.baselines import choose_random
from hanse.learning.edge.policies.priced import Prices, compile_rule, shared_room

EPISODES = 512
EPISODES_TWIN = 4
ROUNDS = 200
CLUSTERS = 10
DECISIONS = 60
REPEATS = 3
BAR_SUB_STEPS = 100_000
"""Sub-steps per CPU-second that the environment must reach, with three clusters and with six."""
BAR_DECISION_MS = 1.0
"""Milliseconds within which ten clusters must have decided."""

ODDS_TOLERANCE = 1e-5

Answer = list[tuple[int, int, int]]
"""Slot, CPUs and GPUs of every cluster."""


class PlainEpisode:
    """One episode of the published environment (multi-task mode, no noise) in plain Python."""

    def __init__(self, setting: Setting, seed: int) -> None:
        """Begin at time 0 with the arrivals of time 0."""
        streams = make_streams(setting, [seed])
        self.setting, self.seed = setting, seed
        self.arrival = streams.arrival[0].tolist()
        self.kind = streams.kind[0].tolist()
        self.reach = [[n for n, flag in enumerate(row) if flag] for row in streams.connected[0].tolist()]
        self.rate, self.base = setting.speed_table.rate.tolist(), setting.speed_table.base.tolist()
        self.minimum = setting.speed_table.minimum.tolist()
        self.free = [list(room) for room in setting.capacity]
        self.pending = [[NONE] * setting.window for _ in setting.capacity]
        self.queue: list[list[int]] = [[] for _ in setting.capacity]
        self.running: list[list[list[float]]] = [[] for _ in setting.capacity]
        self.time, self.rounds, self.arrived, self.done = 0, 0, 0, 0
        self.finish = [NONE] * setting.task_count
        self.arrive()

    def step(self, answer: Answer) -> None:
        """One round of simultaneous choices."""
        chosen: dict[int, list[int]] = {}
        for n, (slot, cpus, gpus) in enumerate(answer):
            if slot != NONE and cpus + gpus > 0:
                chosen.setdefault(self.pending[n][slot], []).append(n)
        for task, clusters in chosen.items():
            n = clusters[0] if len(clusters) == 1 else self.winner(task, clusters)
            _, cpus, gpus = answer[n]
            self.free[n][0] -= cpus
            self.free[n][1] -= gpus
            self.running[n].append([task, cpus, gpus, 0.0, self.time])
            self.forget(task)
        self.rounds += 1
        if not chosen:
            self.walk()
            self.time, self.rounds = self.time + 1, 0
            self.arrive()
            self.refill()

    def winner(self, task: int, clusters: list[int]) -> int:
        """The cluster with the most headroom; ties by lot, then to the lower index."""
        least = self.minimum[self.kind[task]]

        def rank(n: int) -> tuple[float, float, int]:
            headroom = min(self.free[n][0] / least[0], self.free[n][1] / least[1])
            key = derive_key(np.array([self.seed], dtype=np.uint64), np.array([2 + self.time * 1_000]))
            lot = uniform(derive_key(key, np.array([self.rounds * self.setting.clusters + n])))
            return headroom, float(lot[0]), -n

        return max(clusters, key=rank)

    def forget(self, task: int) -> None:
        """Take a started task out of every cluster's sight."""
        for n in self.reach[task]:
            if task in self.queue[n]:
                self.queue[n].remove(task)
            else:
                self.pending[n][self.pending[n].index(task)] = NONE

    def walk(self) -> None:
        """One step's progress of everything that runs."""
        for n, tasks in enumerate(self.running):
            going = []
            for one in tasks:
                kind, cpus, gpus = self.kind[int(one[0])], int(one[1]), int(one[2])
                bend = max(CONVERGENCE - one[3], 0.0) ** 0.5
                one[3] += self.rate[kind][cpus][gpus] * bend + self.base[kind][cpus][gpus]
                if one[3] >= 1.0:
                    self.finish[int(one[0])] = self.time + 1
                    self.free[n][0] += cpus
                    self.free[n][1] += gpus
                    self.done += 1
                else:
                    going.append(one)
            self.running[n] = going

    def arrive(self) -> None:
        """Show the tasks of this step: the first empty slot of every cluster they reach, else its queue."""
        while self.arrived < self.setting.task_count and self.arrival[self.arrived] <= self.time:
            for n in self.reach[self.arrived]:
                if NONE in self.pending[n]:
                    self.pending[n][self.pending[n].index(NONE)] = self.arrived
                else:
                    self.queue[n].append(self.arrived)
            self.arrived += 1

    def refill(self) -> None:
        """Load the oldest queued tasks into empty slots."""
        for n, queue in enumerate(self.queue):
            while queue and NONE in self.pending[n]:
                self.pending[n][self.pending[n].index(NONE)] = queue.pop(0)

    def observe(self) -> list[tuple[list[int], list[list[float]], list[list[float]], list[bool]]]:
        """The published observation: per cluster its room, pending slots, running tasks and mask."""
        kinds = range(len(self.setting.speed_table.names))
        seen = []
        for n, free in enumerate(self.free):
            pending: list[list[float]] = []
            mask = []
            for task in self.pending[n]:
                kind = self.kind[task] if task != NONE else NONE
                least = self.minimum[kind] if task != NONE else (0, 0)
                pending.append([*least, float(task == NONE), *(float(kind == k) for k in kinds)])
                mask.append(task != NONE and least[0] <= free[0] and least[1] <= free[1])
            running = [
                [one[1], one[2], *(float(self.kind[int(one[0])] == k) for k in kinds), self.time - one[4]]
                for one in self.running[n]
            ]
            seen.append(([*free, len(self.queue[n])], pending, running, mask))
        return seen


def random_choice(world: EdgeWorld, number: int) -> Choice:
    """A random choice for round ``number``."""
    book = world.setting.speed_table
    key = derive_key(world.streams.seed.astype(np.uint64)[:, None], np.arange(world.setting.clusters)[None])
    return choose_random(world.view(), book.minimum, book.limit, derive_key(key, np.full((1, 1), number)))


def answers(choice: Choice, episode: int) -> Answer:
    """One episode's part of a choice."""
    columns = (choice.slot[episode], choice.cpus[episode], choice.gpus[episode])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def environment(setting: Setting) -> dict[str, float]:
    """Sub-steps per CPU-second of the arrays and of the twin, which must agree."""
    best = 0.0
    for _ in range(REPEATS):
        world = EdgeWorld(setting, make_streams(setting, list(range(EPISODES))))
        twins = [PlainEpisode(setting, seed) for seed in range(EPISODES_TWIN)]
        spent, spent_twin = 0.0, 0.0
        for number in range(ROUNDS):
            choice = random_choice(world, number)
            theirs = [answers(choice, episode) for episode in range(EPISODES_TWIN)]
            begin = time.process_time()
            world.step(choice)
            observe(world)
            middle = time.process_time()
            for twin, answer in zip(twins, theirs, strict=True):
                twin.step(answer)
                twin.observe()
            spent, spent_twin = spent + middle - begin, spent_twin + time.process_time() - middle
            for episode, twin in enumerate(twins):
                assert world.state.free[episode].tolist() == twin.free, "the twin has other room"
                assert world.state.pend[episode].tolist() == twin.pending, "the twin has other pending tasks"
        for episode, twin in enumerate(twins):
            assert world.state.finish[episode].tolist() == twin.finish, "the twin's tasks ended otherwise"
        if world.sub_steps / spent > best:
            best, beside = world.sub_steps / spent, EPISODES_TWIN * ROUNDS / spent_twin
    return {
        "arrays": round(best),
        "twin": round(beside),
        "times": round(best / beside, 1),
        "bar": BAR_SUB_STEPS,
    }


def measured(decide: Callable[[int], Choice]) -> dict[str, float]:
    """CPU and wall milliseconds of the decisions of a series, after one for warming up."""
    decide(0)
    cpu, wall = [], []
    for number in range(DECISIONS):
        begin, clock = time.perf_counter(), time.process_time()
        decide(number)
        cpu.append(time.process_time() - clock)
        wall.append(time.perf_counter() - begin)
    return {
        "cpu_ms": round(1e3 * float(np.median(cpu)), 3),
        "wall_ms": round(1e3 * float(np.median(wall)), 3),
        "wall_ms_p95": round(1e3 * float(np.percentile(wall, 95)), 3),
    }


def decision() -> dict[str, Any]:
    """Milliseconds of one decision for ten clusters, NumPy and torch, which must agree."""
    loaded = network_file.load_network(network_file.shipped_path())
    assert not isinstance(loaded, str), loaded
    network = loaded[0]
    setting = msgspec.structs.replace(
        settings.syn3(), capacity=((16, 16),) * CLUSTERS, arrival_rate=1.0 * CLUSTERS, tasks_per_cluster=16
    )
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    world, player, views = EdgeWorld(setting, make_streams(setting, [1])), priced_player(setting), []
    for _ in range(DECISIONS):
        view = world.view()
        copies = {name: np.array(getattr(view, name)) for name in view.__struct_fields__}
        views.append(type(view)(**copies))
        player(world)

    def by_arrays(number: int) -> Choice:
        view = views[number]
        return choose_from_features(network, rule, view, encode(rule, view, shared_room(view)))

    out: dict[str, Any] = {"numpy": measured(by_arrays), "bar_ms": BAR_DECISION_MS}
    out["features_alone"] = measured(lambda number: _encoded(rule, views[number]))
    twin = torch_twin(network, loaded[1].recipe)
    if twin is None:
        return out | {"torch": None}
    for number, view in enumerate(views):
        ours, theirs = by_arrays(number), twin(rule, view)
        # tasks that look alike tie, and rounding may break the tie otherwise: the odds are what counts
        odds = np.abs(ours.preference - theirs.preference)[theirs.slot != NONE]
        assert odds.max(initial=0.0) < ODDS_TOLERANCE, "torch chose otherwise"
        assert ((ours.slot == NONE) == (theirs.slot == NONE)).all(), "torch passed otherwise"
    return out | {"torch": measured(lambda number: twin(rule, views[number]))}


def _encoded(rule: Any, view: Any) -> Choice:
    """The features alone, as something that takes a view and is timed like a decision."""
    encode(rule, view, shared_room(view))
    return Choice(slot=view.time, cpus=view.time, gpus=view.time, preference=np.zeros(1))


def torch_twin(network: EdgeNetwork, recipe: dict[str, object]) -> Callable[[Any, Any], Choice] | None:
    """The same network in torch, or None without torch."""
    try:
        import torch  # noqa: PLC0415 - an extra that need not be there
    except ImportError:
        return None
    from hanse.learning.edge.training.greedy_player import choose_by_net  # noqa: PLC0415 - needs torch
    from hanse.learning.edge.training.net import EdgeNet, NetConfig  # noqa: PLC0415 - needs torch

    torch.set_num_threads(1)
    net = EdgeNet(msgspec.convert(recipe["net"], NetConfig))
    kept = {name: torch.from_numpy(np.array(value)) for name, value in network.weights.items()}
    net.load_state_dict(kept, strict=False)
    return lambda rule, view: choose_by_net(net, rule, view)


def run() -> dict[str, Any]:
    """Every figure."""
    return {
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "cpu": platform.machine()},
        "environment": {
            "unit": "sub-steps per CPU-second, with observations",
            "three clusters": environment(settings.syn3()),
            "six unequal clusters": environment(settings.hetero6()),
        },
        "decision": decision(),
    }


if __name__ == "__main__":
    as_program(run, "The edge environment and its network beside their twins.")
