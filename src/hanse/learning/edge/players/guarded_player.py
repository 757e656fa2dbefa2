"""Player of a learned policy behind its guard; every episode has its own guard state, as a warden would."""

import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Flags, Ints
from hanse.learning.edge.env.world import EdgeWorld, StepResult
from hanse.learning.edge.network.network import EdgeNetwork, choose_by_network
from hanse.learning.edge.policies.guard import (
    BLOCK_STEPS,
    SLOWDOWN_MAX,
    GuardState,
    at_step,
    is_counted,
    is_learned_turn,
    is_trusted,
    record_task,
)
from hanse.learning.edge.policies.priced import PricedRule, choose_in_turn, shared_room


class GuardedPlayer:
    """Player that uses the network where its guard lets it decide, else the rule."""

    def __init__(self, network: EdgeNetwork, rule: PricedRule, episodes: int) -> None:
        """Begin without samples. ``episodes`` is the number in the world at the start."""
        self.network = network
        self.rule = rule
        self.guard_states = [GuardState() for _ in range(episodes)]
        self.rounds = np.zeros(episodes, dtype=np.int64)
        self.learned_rounds = np.zeros(episodes, dtype=np.int64)
        self._recorded: Flags = np.zeros((episodes, 0), dtype=np.bool_)
        self._turns: list[dict[int, bool]] = [{} for _ in range(episodes)]
        """Turns by episode: True if the network decided in a block."""
        self._best = np.where(np.isfinite(rule.durations), rule.durations, np.inf).min(axis=(1, 2))

    @property
    def learned_share(self) -> float:
        """Share of the rounds in which the network decided."""
        return float(self.learned_rounds.sum() / max(int(self.rounds.sum()), 1))

    @property
    def untrusted_share(self) -> float:
        """Share of the episodes at whose end the network was not trusted."""
        return float(np.mean([not is_trusted(watch) for watch in self.guard_states]))

    def __call__(self, world: EdgeWorld) -> StepResult:
        """Choose in every episode with one of the two policies, step, and record the ended tasks."""
        view, episode = world.view(), world.state.episode
        if not self._recorded.shape[1]:
            self._recorded = np.zeros((len(self.guard_states), world.setting.task_count), dtype=np.bool_)
        learned = np.zeros(len(episode), dtype=np.bool_)
        for row, (number, now) in enumerate(zip(episode.tolist(), view.time.tolist(), strict=True)):
            guard_state = self.guard_states[number] = at_step(self.guard_states[number], now)
            # a turn lasts its whole block, whatever is recorded meanwhile
            learned[row] = self._turns[number].setdefault(guard_state.block, is_learned_turn(guard_state))
        self.rounds[episode] += 1
        self.learned_rounds[episode] += learned
        stepped = world.step(self._choice(view, learned))
        self._record_ended(world, np.flatnonzero(stepped.moved))
        return stepped

    def _choice(self, view: EdgeView, learned: Flags) -> Choice:
        """Return the network's choice where it decides, the rule's elsewhere."""
        if learned.all():
            return choose_by_network(self.network, self.rule, view, shared_room(view))
        plain = choose_in_turn(self.rule, view)
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

    def _record_ended(self, world: EdgeWorld, rows: Ints) -> None:
        """Record tasks that ended or are overdue, in order of their number, each once."""
        episode = world.state.episode[rows]
        arrival, finish = world.streams.arrival[rows], world.state.finish[rows]
        shown = np.arange(arrival.shape[1]) < world.state.arrived[rows, None]
        took = np.where(finish != NONE, finish, world.state.time[rows, None]) - arrival
        slowdown = took / self._best[world.streams.kind[rows]]
        reported = shown & ~self._recorded[episode] & ((finish != NONE) | (slowdown >= SLOWDOWN_MAX))
        self._recorded[episode] |= reported
        counted = np.array([is_counted(step) for step in range(BLOCK_STEPS)])[arrival % BLOCK_STEPS]
        best = self._best[world.streams.kind[rows]]
        for row, task in zip(*(index.tolist() for index in np.nonzero(reported & counted)), strict=True):
            number = int(episode[row])
            learned = self._turns[number].get(int(arrival[row, task]) // BLOCK_STEPS, False)
            durations = float(took[row, task]), float(best[row, task])
            self.guard_states[number] = record_task(self.guard_states[number], *durations, by_learned=learned)
