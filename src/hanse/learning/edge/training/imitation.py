"""Warm start: training the network to answer as the priced rule does, before policy gradients."""

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from hanse.learning.edge.env.policy_interface import NONE
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import Streams
from hanse.learning.edge.env.world import EdgeWorld
from hanse.learning.edge.network.features import encode
from hanse.learning.edge.policies.priced import PricedRule, choose_in_turn, shared_room
from hanse.learning.edge.training.net import MASKED, EdgeNet, FeatureBatch
from hanse.learning.edge.training.policy_gradient import minibatches, select_states
from hanse.learning.edge.training.rollout import Decisions, make_batch, run_pointer, sizes_by_slot


class RuleSamples(msgspec.Struct, frozen=True, eq=False):
    """States, and the rule's choices in them."""

    batch: FeatureBatch
    decided: Decisions


def collect_rule_samples(net: EdgeNet, setting: Setting, streams: Streams, rule: PricedRule) -> RuleSamples:
    """Play the rule and collect its choices in every state in which some cluster could choose.

    The network is not asked; what it takes unchanged from the rule is not collected.
    """
    world = EdgeWorld(setting, streams)
    batches: list[FeatureBatch] = []
    notes: list[dict[str, Tensor]] = []
    states = 0
    while world.episodes:
        view = world.view()
        features = encode(rule, view, shared_room(view))
        choice = choose_in_turn(rule, view)
        rows = np.flatnonzero(features.may_choose.any(axis=(1, 2)))
        if len(rows):
            batch = make_batch(features, rows)
            e, n = torch.nonzero(batch.may_choose.any(dim=2), as_tuple=True)
            where = rows[e.numpy()], n.numpy()
            window = view.task.shape[2]
            slot = torch.from_numpy(np.where(choice.slot[where] == NONE, window, choice.slot[where]))
            at = slot.clamp(max=window - 1)
            masks = sizes_by_slot(net, rule, view, rows)
            notes.append(
                {
                    "row": e + states,
                    "col": n,
                    "slot": slot,
                    "cpus": torch.from_numpy(np.maximum(choice.cpus[where] - 1, 0)),
                    "gpus": torch.from_numpy(np.maximum(choice.gpus[where] - 1, 0)),
                    "cpu_mask": masks[0][e, n, at],
                    "gpu_mask": masks[1][e, n, at],
                    "log_point": torch.zeros(len(slot)),
                    "log_size": torch.zeros(len(slot)),
                }
            )
            batches.append(batch)
            states += len(rows)
        world.step(choice)
        world.drop_finished()
    fields = Decisions.__struct_fields__
    decided = Decisions(**{name: torch.cat([note[name] for note in notes]) for name in fields})
    names = FeatureBatch.__struct_fields__
    return RuleSamples(
        batch=FeatureBatch(**{name: torch.cat([getattr(b, name) for b in batches]) for name in names}),
        decided=decided,
    )


def imitate(
    net: EdgeNet,
    optimiser: torch.optim.Optimizer,
    samples: RuleSamples,
    epochs: int,
    generator: torch.Generator,
) -> float:
    """Run some epochs of cross-entropy to the rule's choices; return the mean loss of the last epoch."""
    decided, losses = samples.decided, [0.0]
    window = samples.batch.task.shape[2]
    row_of = torch.zeros(samples.batch.cluster.shape[0], dtype=torch.long)
    for _ in range(epochs):
        losses = []
        for rows in minibatches(samples.batch.cluster.shape[0], 128, generator):
            batch, at = select_states(decided, samples.batch, rows)
            row_of[rows] = torch.arange(len(rows))
            row, col = row_of[decided.row[at]], decided.col[at]
            pointed = run_pointer(net, batch, row, col)
            slot = decided.slot[at]
            loss = nn.functional.cross_entropy(pointed.logits, slot)
            took = torch.nonzero(slot < window)[:, 0]
            if len(took) and not net.uses_rule_sizes:
                raw = batch.task[row[took], col[took], slot[took]]
                cpu_logits, gpu_logits = net.size_logits(pointed.slot_states(took, slot[took]), raw)
                chosen = at[took]
                cpu_logits = cpu_logits.masked_fill(~decided.cpu_mask[chosen], MASKED)
                gpu_logits = gpu_logits.masked_fill(~decided.gpu_mask[chosen], MASKED)
                loss = loss + nn.functional.cross_entropy(cpu_logits, decided.cpus[chosen])
                loss = loss + nn.functional.cross_entropy(gpu_logits, decided.gpus[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            losses.append(float(loss.detach()))
    return float(np.mean(losses))
