"""Policy gradients: clipped PPO, with the same-stream group baseline or with a central critic (MAPPO)."""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from hanse.learning.edge.env.policy_interface import Floats
from hanse.learning.edge.training.net import MASKED, Critic, EdgeNet, FeatureBatch
from hanse.learning.edge.training.rollout import Decisions, RolloutBuffer, log_probability, run_pointer

RIDGE: Final = 1e-3
"""Ridge added to the squares of the fit, per step of an episode: it decides only where all replicas are
alike."""


class PpoConfig(msgspec.Struct, frozen=True):
    """Constants of the update."""

    gamma: float = 0.9
    """Discount per step of time (choices inside one step are not discounted)."""
    trace: float = 0.95
    """Lambda of the generalised advantage; for the critic only."""
    group_trace: float = 0.9
    """Lambda for the same-stream group, which predicts from the backlog; no other value was tried."""
    clip: float = 0.2
    epochs: int = 3
    minibatch: int = 512
    """States per update."""
    entropy: float = 0.003
    """Weight of a nat of entropy at the beginning of a run."""
    gradient_max: float = 0.5
    divergence_max: float = 0.03
    """Mean approximate KL after which the remaining epochs are skipped."""


def cost_to_go(cost: Floats, gamma: float) -> Floats:
    """Return (E, steps) discounted cost from each step of time on."""
    out = np.zeros_like(cost)
    running = np.zeros(len(cost))
    for t in range(cost.shape[1] - 1, -1, -1):
        running = cost[:, t] + gamma * running
        out[:, t] = running
    return out


def group_advantage(buffer: RolloutBuffer, replicas: int, config: PpoConfig) -> Floats:
    """Return (B,) by how much a state's episode cost less from then on than its replicas on the same stream.

    Arrivals are luck that no critic can predict; replicas of one stream share that luck, so their mean at the
    same time is a baseline that removes it. Episode ``e`` belongs to group ``e // replicas``.

    A good part of the remainder comes from earlier choices: an episode with a larger backlog than its
    replicas will cost more, whatever it chooses now. That part is predicted from the backlog and removed, and
    by the generalised advantage also most of what later choices will do.
    """
    cost, backlog = (
        difference_from_group(buffer.cost, replicas),
        difference_from_group(buffer.backlog, replicas),
    )
    expected = predict_from_backlog(cost_to_go(cost, config.gamma), backlog)
    after = np.zeros_like(expected)
    after[:, :-1] = expected[:, 1:]
    surprise = cost + config.gamma * after - expected
    advantage = -cost_to_go(surprise, config.gamma * config.group_trace)
    return np.asarray(advantage[buffer.episode, buffer.time])


def difference_from_group(column: Floats, replicas: int) -> Floats:
    """Return (E, steps, ...) the distance of each episode from the mean of its replicas at the same time."""
    groups = column.reshape(-1, replicas, *column.shape[1:])
    return np.asarray((groups - groups.mean(axis=1, keepdims=True)).reshape(column.shape))


def predict_from_backlog(to_go: Floats, backlog: Floats) -> Floats:
    """Return (E, steps) the cost to go that the backlog predicts, both as distances from the group.

    One linear least-squares fit over all episodes and steps: a handful of numbers from thousands, so that a
    state's own outcome hardly shows in its prediction. Sums in a fixed order, not by BLAS.
    """
    square = np.einsum("eti,etj->ij", backlog, backlog)
    square += RIDGE * to_go.size * np.eye(len(square))
    weight = np.linalg.solve(square, np.einsum("eti,et->i", backlog, to_go))
    return np.asarray(np.einsum("eti,i->et", backlog, weight))


def critic_advantage(buffer: RolloutBuffer, value: Floats, config: PpoConfig) -> tuple[Floats, Floats]:
    """Return (B,) generalised advantages of states in order of rounds, and (B,) targets of the critic.

    Costs between two recorded states of an episode are ``C(t) - gamma^(t' - t) C(t')`` with the cost to go C.
    """
    to_go = cost_to_go(buffer.cost, config.gamma)
    here = to_go[buffer.episode, buffer.time]
    advantage = np.zeros(len(here))
    last = np.full(buffer.cost.shape[0], -1, dtype=np.int64)
    for i in range(len(here) - 1, -1, -1):
        e = buffer.episode[i]
        j = last[e]
        if j < 0:
            advantage[i] = value[i] - here[i]
        else:
            discount = config.gamma ** (buffer.time[j] - buffer.time[i])
            between = here[i] - discount * here[j]
            advantage[i] = value[i] - between - discount * value[j] + discount * config.trace * advantage[j]
        last[e] = i
    return advantage, value - advantage


def select_states(decided: Decisions, batch: FeatureBatch, rows: Tensor) -> tuple[FeatureBatch, Tensor]:
    """Return the states in ``rows`` and the decisions in them (indices into ``decided``)."""
    place = torch.full((batch.cluster.shape[0],), -1, dtype=torch.long)
    place[rows] = torch.arange(len(rows))
    index = torch.nonzero(place[decided.row] >= 0)[:, 0]
    names = FeatureBatch.__struct_fields__
    return FeatureBatch(**{name: getattr(batch, name).index_select(0, rows) for name in names}), index


def log_and_entropy(
    net: EdgeNet, batch: FeatureBatch, decided: Decisions, at: Tensor, row: Tensor
) -> tuple[Tensor, ...]:
    """Return log-probabilities of the pointer and of the size, and the entropy, of the decisions ``at``."""
    col = decided.col[at]
    pointed = run_pointer(net, batch, row, col)
    logits, slot = pointed.logits, decided.slot[at]
    if net.uses_rule_sizes:
        return log_probability(logits, slot), torch.zeros(len(slot)), _entropy(logits)
    window = batch.task.shape[2]
    passed = slot == window
    place = slot.clamp(max=window - 1)
    chosen = pointed.slot_states(torch.arange(len(slot)), place)
    cpu_logits, gpu_logits = net.size_logits(chosen, batch.task[row, col, place])
    cpu_logits = cpu_logits.masked_fill(~decided.cpu_mask[at], MASKED)
    gpu_logits = gpu_logits.masked_fill(~decided.gpu_mask[at], MASKED)
    log_size = log_probability(cpu_logits, decided.cpus[at]) + log_probability(gpu_logits, decided.gpus[at])
    spread = _entropy(cpu_logits) + _entropy(gpu_logits)
    entropy = _entropy(logits) + spread.masked_fill(passed, 0.0)
    return log_probability(logits, slot), log_size.masked_fill(passed, 0.0), entropy


def _entropy(logits: Tensor) -> Tensor:
    log = torch.log_softmax(logits, dim=-1)
    return -(log.exp() * log).sum(dim=-1)


def minibatches(states: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield random disjoint sets of states."""
    order = torch.randperm(states, generator=generator)
    for start in range(0, states, size):
        yield order[start : start + size]


def update_policy(
    net: EdgeNet,
    optimiser: torch.optim.Optimizer,
    buffer: RolloutBuffer,
    advantage: Floats,
    config: PpoConfig,
    generator: torch.Generator,
) -> dict[str, float]:
    """Run some epochs of clipped PPO on one buffer; return figures for the log."""
    scale = float(advantage[buffer.decided.row.numpy()].std()) + 1e-8
    better = torch.from_numpy(advantage / scale).float()
    row_of = torch.zeros(buffer.batch.cluster.shape[0], dtype=torch.long)
    divergences: list[float] = []
    entropies: list[float] = []
    for _ in range(config.epochs):
        for rows in minibatches(buffer.batch.cluster.shape[0], config.minibatch, generator):
            batch, at = select_states(buffer.decided, buffer.batch, rows)
            row_of[rows] = torch.arange(len(rows))
            decided = buffer.decided
            row = decided.row[at]
            log_point, log_size, entropy = log_and_entropy(net, batch, decided, at, row_of[row])
            kept = buffer.took_effect[at]
            change = log_point - decided.log_point[at]
            change = change + torch.where(kept, log_size - decided.log_size[at], 0.0)
            ratio = torch.exp(change)
            gain = better[row]
            clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
            loss = -torch.minimum(ratio * gain, clipped * gain).mean() - config.entropy * entropy.mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), config.gradient_max)
            optimiser.step()
            divergences.append(float(((ratio - 1) - change).mean().detach()))
            entropies.append(float(entropy.mean().detach()))
        if np.mean(divergences[-4:]) > config.divergence_max:
            break
    return {"divergence": float(np.mean(divergences[-4:])), "entropy": float(np.mean(entropies))}


def update_critic(
    critic: Critic,
    optimiser: torch.optim.Optimizer,
    batch: FeatureBatch,
    target: Floats,
    generator: torch.Generator,
) -> float:
    """Run two epochs of regression of the critic to its targets; return the last loss."""
    goal = torch.from_numpy(target).float()
    loss_value = 0.0
    for _ in range(2):
        for rows in minibatches(len(goal), 512, generator):
            names = FeatureBatch.__struct_fields__
            part = FeatureBatch(**{name: getattr(batch, name)[rows] for name in names})
            loss = nn.functional.smooth_l1_loss(critic(part), goal[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
            optimiser.step()
            loss_value = float(loss.detach())
    return loss_value
