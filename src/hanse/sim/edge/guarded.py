"""Player of a learned policy behind its guard; every episode has its own guard state, as a warden would."""

import numpy as np

from hanse.policy.edge.guard import (
    BLOCK_STEPS,
    SLOWDOWN_MAX,
    Watch,
    at_step,
    counts,
    decides,
    trusted,
    watched,
)
from hanse.policy.edge.network import Network, choose_by_network
from hanse.policy.edge.priced import PricedRule, choose_priced, shared_room
from hanse.policy.edge.view import NONE, Choice, Flags, Ints, View
from hanse.sim.edge.world import Stepped, World


class Guarded:
    """Player that uses the network where its guard lets it decide, else the rule."""

    def __init__(self, network: Network, rule: PricedRule, episodes: int) -> None:
        """Begin without samples. ``episodes`` is the number in the world at the start."""
        self.network = network
        self.rule = rule
        self.watch = [Watch() for _ in range(episodes)]
        self.rounds = np.zeros(episodes, dtype=np.int64)
        self.learned_rounds = np.zeros(episodes, dtype=np.int64)
        self._told: Flags = np.zeros((episodes, 0), dtype=np.bool_)
        self._turns: list[dict[int, bool]] = [{} for _ in range(episodes)]
        """Turns by episode: True if the network decided in a block."""
        self._best = np.where(np.isfinite(rule.durations), rule.durations, np.inf).min(axis=(1, 2))

    @property
    def learned_share(self) -> float:
        """Share of the rounds in which the network decided."""
        return float(self.learned_rounds.sum() / max(int(self.rounds.sum()), 1))

    @property
    def put_aside(self) -> float:
        """Share of the episodes at whose end the network was not trusted."""
        return float(np.mean([not trusted(watch) for watch in self.watch]))

    def __call__(self, world: World) -> Stepped:
        """Choose in every episode with one of the two policies, step, and record the ended tasks."""
        view, episode = world.view(), world.state.episode
        if not self._told.shape[1]:
            self._told = np.zeros((len(self.watch), world.setting.tasks), dtype=np.bool_)
        learned = np.zeros(len(episode), dtype=np.bool_)
        for row, (number, now) in enumerate(zip(episode.tolist(), view.time.tolist(), strict=True)):
            watch = self.watch[number] = at_step(self.watch[number], now)
            # a turn lasts its whole block, whatever is recorded meanwhile
            learned[row] = self._turns[number].setdefault(watch.block, decides(watch))
        self.rounds[episode] += 1
        self.learned_rounds[episode] += learned
        stepped = world.step(self._choice(view, learned))
        self._note(world, np.flatnonzero(stepped.moved))
        return stepped

    def _choice(self, view: View, learned: Flags) -> Choice:
        """Return the network's choice where it decides, the rule's elsewhere."""
        if learned.all():
            return choose_by_network(self.network, self.rule, view, shared_room(view))
        plain = choose_priced(self.rule, view)
        if not learned.any():
            return plain
        other = choose_by_network(self.network, self.rule, view, shared_room(view))
        pick = learned[:, None]
        return Choice(
            slot=np.where(pick, other.slot, plain.slot),
            cpus=np.where(pick, other.cpus, plain.cpus),
            gpus=np.where(pick, other.gpus, plain.gpus),
            preference=np.where(pick, other.preference, plain.preference),
        )

    def _note(self, world: World, rows: Ints) -> None:
        """Record tasks that ended or are overdue, in order of their number, each once."""
        episode = world.state.episode[rows]
        arrival, finish = world.streams.arrival[rows], world.state.finish[rows]
        shown = np.arange(arrival.shape[1]) < world.state.arrived[rows, None]
        took = np.where(finish != NONE, finish, world.state.time[rows, None]) - arrival
        slowdown = took / self._best[world.streams.kind[rows]]
        told = shown & ~self._told[episode] & ((finish != NONE) | (slowdown >= SLOWDOWN_MAX))
        self._told[episode] |= told
        counted = np.array([counts(step) for step in range(BLOCK_STEPS)])[arrival % BLOCK_STEPS]
        best = self._best[world.streams.kind[rows]]
        for row, task in zip(*(index.tolist() for index in np.nonzero(told & counted)), strict=True):
            number = int(episode[row])
            learned = self._turns[number].get(int(arrival[row, task]) // BLOCK_STEPS, False)
            known = float(took[row, task]), float(best[row, task])
            self.watch[number] = watched(self.watch[number], *known, by_learned=learned)
