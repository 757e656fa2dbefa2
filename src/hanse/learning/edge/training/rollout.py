"""Rollouts: playing episodes with the network and recording the data of a policy gradient."""

from typing import Final

import msgspec
import numpy as np
import torch
from torch import Tensor

from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Flags, Floats, Ints
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import Streams
from hanse.learning.edge.env.world import EdgeWorld
from hanse.learning.edge.network.features import RULE_PICK_COLUMN, Features, encode, size_masks
from hanse.learning.edge.policies.feature_table import SIZES_MAX
from hanse.learning.edge.policies.priced import PricedRule, shared_room
from hanse.learning.edge.training.net import MASKED, EdgeNet, FeatureBatch, PointerOutput

BACKLOG: Final = 4
"""Columns of a backlog: waiting tasks, running tasks, the tens of steps these are believed to need still (at
most two each), and the same times their GPUs."""


class Decisions(msgspec.Struct, frozen=True, eq=False):
    """Choices of D deciders (cluster ``col`` of batch row ``row``) and their distributions."""

    row: Tensor
    col: Tensor
    slot: Tensor
    """(D,) pending slot; P for a pass."""
    cpus: Tensor
    gpus: Tensor
    """(D,) size minus 1; 0 for a pass."""
    cpu_mask: Tensor
    gpu_mask: Tensor
    """(D, 16); (D, 0) where sizes are the rule's."""
    log_point: Tensor
    log_size: Tensor


class RolloutBuffer(msgspec.Struct, frozen=True, eq=False):
    """Recorded episodes, flattened: B states and D decisions in them."""

    batch: FeatureBatch
    decided: Decisions
    took_effect: Tensor
    """(D,) True if the choice took effect; the size of a lost conflict teaches nothing."""
    time: Ints
    """(B,) step of each state; ``episode`` (B,) is its episode."""
    episode: Ints
    cost: Floats
    """(E, steps) tasks in the system at each step of time."""
    backlog: Floats
    """(E, steps, BACKLOG) backlog at the beginning of each step of time, before its choices."""
    completion: Floats
    """(E,) mean completion of each episode."""
    sub_steps: int
    conflicts: float
    """Share of the choices of a task that lost it."""


def make_batch(features: Features, rows: Ints | None = None) -> FeatureBatch:
    """Return tensors of all rows, or of some."""

    def tensor(column: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
        chosen = column if rows is None else column[rows]
        return torch.from_numpy(np.ascontiguousarray(chosen))

    return FeatureBatch(
        cluster=tensor(features.cluster),
        task=tensor(features.task),
        running=tensor(features.running),
        may_choose=tensor(features.may_choose),
        known=tensor(features.known),
    )


def restrict_to_oldest(net: EdgeNet, features: Features, view: EdgeView) -> Features:
    """Without the pointer, allow only the oldest task that fits."""
    if net.config.pointer:
        return features
    age = np.where(features.may_choose, view.waited, -1)
    oldest = np.argmax(age, axis=2)[..., None] == np.arange(age.shape[2])
    return msgspec.structs.replace(features, may_choose=features.may_choose & oldest)


def run_pointer(net: EdgeNet, batch: FeatureBatch, row: Tensor, col: Tensor) -> PointerOutput:
    """Return the pointer's output for the deciders, cluster ``col`` of batch row ``row``."""
    cluster, task = net.states(batch)
    raw = batch.cluster[row, col]
    if net.config.flat:
        raw = torch.cat([raw, batch.task[row, col].flatten(1)], dim=1)
    owner = row * batch.cluster.shape[1] + col
    rules = batch.task[row, col, :, RULE_PICK_COLUMN]
    return net.pointer_logits(cluster[row, col], task, raw, batch.may_choose[row, col], rules, owner)


def pick(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw one entry per row, by the Gumbel trick; without a generator take the largest."""
    if generator is None:
        return logits.argmax(dim=-1)
    noise = torch.rand(logits.shape, generator=generator).clamp(min=1e-12)
    return (logits - torch.log(-torch.log(noise))).argmax(dim=-1)


def log_probability(logits: Tensor, chosen: Tensor) -> Tensor:
    """Return the log-probability of the chosen entry of each row."""
    return torch.log_softmax(logits, dim=-1).gather(1, chosen[:, None])[:, 0]


def decide(
    net: EdgeNet, batch: FeatureBatch, masks: tuple[Tensor, Tensor], generator: torch.Generator | None
) -> Decisions:
    """Choose for all clusters that may choose something.

    ``masks``: (B, N, P, 16) CPUs and GPUs per slot; not read where sizes are the rule's.
    """
    row, col = torch.nonzero(batch.may_choose.any(dim=2), as_tuple=True)
    pointed = run_pointer(net, batch, row, col)
    logits = pointed.logits
    slot = pick(logits, generator)
    window = batch.task.shape[2]
    passed = slot == window
    at = slot.clamp(max=window - 1)
    index = torch.arange(len(slot))
    raw = batch.task[row, col, at]
    if net.uses_rule_sizes:
        cpus, gpus = (size.masked_fill(passed, 0) for size in net.rule_sizes(raw))
        cpu_mask = gpu_mask = torch.zeros(len(slot), 0, dtype=torch.bool)
        log_size = torch.zeros(len(slot))
    else:
        cpu_logits, gpu_logits = net.size_logits(pointed.slot_states(index, at), raw)
        cpu_mask = masks[0][row, col, at] | passed[:, None]
        gpu_mask = masks[1][row, col, at] | passed[:, None]
        cpu_logits = cpu_logits.masked_fill(~cpu_mask, MASKED)
        gpu_logits = gpu_logits.masked_fill(~gpu_mask, MASKED)
        cpus, gpus = pick(cpu_logits, generator), pick(gpu_logits, generator)
        log_size = (log_probability(cpu_logits, cpus) + log_probability(gpu_logits, gpus)).masked_fill(
            passed, 0.0
        )
    return Decisions(
        row=row,
        col=col,
        slot=slot,
        cpus=cpus,
        gpus=gpus,
        cpu_mask=cpu_mask,
        gpu_mask=gpu_mask,
        log_point=log_probability(logits, slot),
        log_size=log_size,
    )


def make_choice(decided: Decisions, shape: tuple[int, int], rows: Ints, window: int) -> Choice:
    """Return the choice of all episodes and clusters; those that did not decide pass."""
    slot = np.full(shape, NONE, dtype=np.int64)
    cpus, gpus = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    preference = np.zeros(shape)
    where = rows[decided.row.numpy()], decided.col.numpy()
    taken = decided.slot.numpy() < window
    slot[where] = np.where(taken, decided.slot.numpy(), NONE)
    cpus[where] = np.where(taken, decided.cpus.numpy() + 1, 0)
    gpus[where] = np.where(taken, decided.gpus.numpy() + 1, 0)
    preference[where] = decided.log_point.numpy()
    return Choice(slot=slot, cpus=cpus, gpus=gpus, preference=preference)


def sizes_by_slot(net: EdgeNet, rule: PricedRule, view: EdgeView, rows: Ints) -> tuple[Tensor, Tensor]:
    """Return (B, N, P, 16) masks of CPUs and GPUs for every slot of some episodes.

    (B, N, P, 0) where sizes are the rule's: the masks are not read, and they cost time.
    """
    if net.uses_rule_sizes:
        nothing = torch.zeros(len(rows), *view.task.shape[1:], 0, dtype=torch.bool)
        return nothing, nothing
    cpu, gpu = size_masks(rule, view.kind[rows], view.free[rows][:, :, None, :])
    return torch.from_numpy(cpu), torch.from_numpy(gpu)


def backlog_of(features: Features, in_system: Ints) -> Floats:
    """Return (E, BACKLOG) the backlog of episodes with (E,) tasks in the system."""
    there, gpus, left = (features.running[..., column].astype(np.float64) for column in _RUNNING)
    running = there.sum(axis=(1, 2))
    gpu_steps = (gpus * left).sum(axis=(1, 2)) * SIZES_MAX
    return np.stack([in_system - running, running, left.sum(axis=(1, 2)), gpu_steps], axis=1)


_RUNNING: Final = (0, 2, 4)
"""Columns of a running task's features: presence, its share of 16 GPUs, its tens of steps left."""


class _RolloutRecorder:
    """Recorder of episodes; its lists are joined at their end."""

    def __init__(self, episodes: int, clusters: int) -> None:
        self.batches: list[FeatureBatch] = []
        self.decided: list[Decisions] = []
        self.took_effect: list[Tensor] = []
        self.time: list[Ints] = []
        self.episode: list[Ints] = []
        self.rows = 0
        self.cost: list[list[float]] = [[] for _ in range(episodes)]
        self.backlog: list[list[Floats]] = [[] for _ in range(episodes)]
        self.completion = np.zeros(episodes)
        self.lost = 0
        self.chosen = 0
        self.clusters = clusters

    def record_backlog(self, episode: Ints, backlog: Floats) -> None:
        """Record the backlog of the episodes in which a step of time begins."""
        for e, held in zip(episode, backlog, strict=True):
            if len(self.backlog[e]) == len(self.cost[e]):
                self.backlog[e].append(held)

    def record_round(self, batch: FeatureBatch, decided: Decisions, started: Flags) -> None:
        """Record the states and decisions of one round. ``started`` is (B, N)."""
        window = batch.task.shape[2]
        took = torch.from_numpy(started)[decided.row, decided.col]
        self.took_effect.append(took | (decided.slot == window))
        self.lost += int((~self.took_effect[-1]).sum())
        self.chosen += int((decided.slot < window).sum())
        self.batches.append(batch)
        self.decided.append(msgspec.structs.replace(decided, row=decided.row + self.rows))
        self.rows += batch.cluster.shape[0]


@torch.no_grad()
def collect(
    net: EdgeNet, setting: Setting, streams: Streams, rule: PricedRule, generator: torch.Generator
) -> RolloutBuffer:
    """Play every stream to its end with sampled choices, and record them."""
    world = EdgeWorld(setting, streams)
    notes = _RolloutRecorder(len(streams.seed), setting.clusters)
    while world.episodes:
        view = world.view()
        features = restrict_to_oldest(net, encode(rule, view, shared_room(view)), view)
        rows = np.flatnonzero(features.may_choose.any(axis=(1, 2)))
        in_system = world.state.arrived - world.state.done
        notes.record_backlog(world.state.episode, backlog_of(features, in_system))
        shape = view.task.shape[:2]
        batch = make_batch(features, rows)
        decided = decide(net, batch, sizes_by_slot(net, rule, view, rows), generator)
        time, episode = view.time[rows].copy(), world.state.episode[rows].copy()
        stepped = world.step(make_choice(decided, shape, rows, view.task.shape[2]))
        if len(rows):
            notes.record_round(batch, decided, stepped.started[rows])
            notes.time.append(time)
            notes.episode.append(episode)
        for e in np.flatnonzero(stepped.moved):
            notes.cost[world.state.episode[e]].append(float(in_system[e]))
        over = ~world.unfinished
        if over.any():
            completion = world.state.finish[over] - world.streams.arrival[over]
            notes.completion[world.state.episode[over]] = completion.mean(axis=1)
            world.drop_finished()
    return _make_buffer(notes, world.sub_steps)


def _make_buffer(notes: _RolloutRecorder, sub_steps: int) -> RolloutBuffer:
    """Return one buffer with the records of all rounds."""

    def cat(parts: list[Tensor]) -> Tensor:
        return torch.cat(parts)

    names = FeatureBatch.__struct_fields__
    batch = FeatureBatch(**{name: cat([getattr(b, name) for b in notes.batches]) for name in names})
    fields = Decisions.__struct_fields__
    decided = Decisions(**{name: cat([getattr(d, name) for d in notes.decided]) for name in fields})
    longest = max(len(costs) for costs in notes.cost)
    cost = np.zeros((len(notes.cost), longest + 1))
    for e, costs in enumerate(notes.cost):
        cost[e, : len(costs)] = costs
    backlog = np.zeros((*cost.shape, BACKLOG))
    for e, held in enumerate(notes.backlog):
        backlog[e, : len(held)] = held
    return RolloutBuffer(
        batch=batch,
        decided=decided,
        took_effect=cat(notes.took_effect),
        time=np.concatenate(notes.time),
        episode=np.concatenate(notes.episode),
        cost=cost,
        backlog=backlog,
        completion=notes.completion,
        sub_steps=sub_steps,
        conflicts=notes.lost / max(notes.chosen, 1),
    )
