"""The network: a heterogeneous attention encoder with a shortcut node, a pointer head, and two size heads.

Node types are clusters, their pending tasks, their running tasks and one shortcut node. A cluster attends to
its pending and to its running tasks (node-level attention, one set of weights per relation), the two
messages are fused with its own state (semantic level), and a summary of 62 numbers goes to the shortcut
node, which every cluster reads back. All weights are shared by all clusters, so any number of them will do.
With two numbers of free room a summary is 64 floats: what clusters gossip.
"""

from typing import Final, Literal

import msgspec
import torch
from torch import Tensor, nn

from hanse.policy.edge.features import (
    CLUSTER_FEATURES,
    RUNNING_FEATURES,
    SIZES_MAX,
    TASK_FEATURES,
)

SUMMARY: Final = 62
"""Floats of a cluster's summary; its free CPUs and GPUs make it 64."""

MASKED: Final = -1e9


class NetConfig(msgspec.Struct, frozen=True):
    """Shape of the network and the ablations of source 002."""

    hidden: int = 64
    heads: int = 2
    encoder: Literal["attention", "mean", "none"] = "attention"
    """``mean``: plain averages instead of attention. ``none``: a cluster sees itself and each task alone."""
    pointer: bool = True
    """False: the task is the oldest that fits, and only the pass and the size are learned."""
    flat: bool = False
    """True: no shared scorer at all, one perceptron over all slots at once (vanilla MARL)."""
    window: int = 10
    """Pending slots; only the flat network depends on it."""


class Batch(msgspec.Struct, frozen=True, eq=False):
    """Features as tensors; shapes as in :class:`hanse.policy.edge.features.Features`."""

    cluster: Tensor
    task: Tensor
    running: Tensor
    may_choose: Tensor
    known: Tensor


class EdgeNet(nn.Module):
    """Pointer logits over pending slots and a pass, and size logits for a chosen slot."""

    def __init__(self, config: NetConfig) -> None:
        """Make the layers; names are those of the exported file."""
        super().__init__()
        h = config.hidden
        self.config = config
        self.cluster_in = nn.Linear(CLUSTER_FEATURES, h)
        self.task_in = nn.Linear(TASK_FEATURES, h)
        self.running_in = nn.Linear(RUNNING_FEATURES, h)
        self.query = nn.Linear(h, 2 * config.heads * h)
        self.value_task = nn.Linear(config.heads * h, h)
        self.value_running = nn.Linear(config.heads * h, h)
        self.fuse = nn.Linear(3 * h, h)
        self.summary = nn.Linear(h, SUMMARY)
        self.shortcut_score = nn.Linear(SUMMARY, config.heads)
        self.shortcut_value = nn.Linear(SUMMARY, h)
        self.back = nn.Linear(2 * h, h)
        self.head_task = nn.Linear(h, h)
        self.head_cluster = nn.Linear(h, h)
        self.head = nn.Linear(h, h)
        self.point = nn.Linear(h, 1)
        self.pass_hidden = nn.Linear(2 * h, h)
        self.pass_point = nn.Linear(h, 1)
        self.gpus = nn.Linear(h, SIZES_MAX)
        self.cpus = nn.Linear(h, SIZES_MAX)
        flat_inputs = CLUSTER_FEATURES + config.window * TASK_FEATURES
        self.flat_hidden = nn.Linear(flat_inputs if config.flat else 1, 2 * h)
        self.flat_point = nn.Linear(2 * h, config.window + 1)
        self.flat_size = nn.Linear(2 * h, h)

    def states(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B, N, H) cluster states after messages, and (B, N, P, H) task states before them."""
        task = _filled(self.task_in, batch.task)
        own = torch.relu(self.cluster_in(batch.cluster))
        if self.config.encoder == "none":
            return own, task
        local = self.local(batch, own, task)
        return self.heard(local, self.summary(local), batch.known), task

    def local(self, batch: Batch, own: Tensor, task: Tensor) -> Tensor:
        """(B, N, H) what a cluster makes of its own tasks."""
        running = _filled(self.running_in, batch.running)
        here = batch.task[..., 0] > 0
        busy = batch.running[..., 0] > 0
        if self.config.encoder == "mean":
            messages = [_mean(task, here), _mean(running, busy)]
        else:
            query = self.query(own).chunk(2, dim=-1)
            messages = [
                self.value_task(self.attend(query[0], task, here)),
                self.value_running(self.attend(query[1], running, busy)),
            ]
        return torch.relu(self.fuse(torch.cat([own, *messages], dim=-1)))

    def attend(self, query: Tensor, token: Tensor, there: Tensor) -> Tensor:
        """What each head of each cluster gathers from its (B, N, S, H) tokens: (B, N, heads * H); zero over
        nothing.

        The key matrix is folded into the query and the value matrix is applied after the sum: the same
        function as ordinary multi-head attention with linear keys and values, for a fraction of the work per
        token.
        """
        b, n, _, h = token.shape
        score = query.view(b, n, self.config.heads, h) @ token.transpose(2, 3) / h**0.5
        weight = torch.softmax(score.masked_fill(~there[:, :, None], MASKED), dim=3) * there[:, :, None]
        return (weight @ token).flatten(2)

    def heard(self, local: Tensor, summary: Tensor, known: Tensor) -> Tensor:
        """(B, N, H) cluster states after the shortcut node, which holds the summaries each cluster knows."""
        b, n, _ = summary.shape
        heads, size = self.config.heads, self.config.hidden // self.config.heads
        value = self.shortcut_value(summary).view(b, 1, n, heads, size)
        if self.config.encoder == "mean":
            share = known.float() / known.float().sum(dim=2, keepdim=True)
            weight = share[..., None].expand(b, n, n, heads)
        else:
            score = self.shortcut_score(summary).view(b, 1, n, heads)
            weight = torch.softmax(score.masked_fill(~known[..., None], MASKED), dim=2)
        message = (weight[..., None] * value).sum(dim=2).reshape(b, n, heads * size)
        return torch.relu(self.back(torch.cat([local, message], dim=-1)))

    def point_at(self, cluster: Tensor, task: Tensor, raw: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        """For D deciders: (D, P+1) masked logits, the last being the pass, and (D, P, H) states of the slots.

        ``cluster`` (D, H), ``task`` (D, P, H), ``raw`` (D, CLUSTER_FEATURES + P * TASK_FEATURES),
        ``allowed`` (D, P).
        """
        d, window = allowed.shape
        if self.config.flat:
            hidden = torch.tanh(self.flat_hidden(raw))
            state = torch.relu(self.flat_size(hidden))[:, None].expand(-1, window, -1)
            open_ = torch.cat([allowed, torch.ones_like(allowed[:, :1])], dim=1)
            return self.flat_point(hidden).masked_fill(~open_, MASKED), state
        who, slot = torch.nonzero(allowed, as_tuple=True)  # most slots are empty: work on the others only
        packed = torch.relu(self.head_task(task[who, slot]) + self.head_cluster(cluster)[who])
        packed = torch.relu(self.head(packed))
        count = allowed.sum(dim=1, keepdim=True).clamp(min=1)
        near = torch.zeros(d, packed.shape[1]).index_add(0, who, packed) / count
        passing = torch.relu(self.pass_hidden(torch.cat([cluster, near], dim=-1)))
        logits = torch.full((d, window), MASKED).index_put((who, slot), self.point(packed)[:, 0])
        state = torch.zeros(d, window, packed.shape[1]).index_put((who, slot), packed)
        return torch.cat([logits, self.pass_point(passing)], dim=-1), state

    def size(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """CPU and GPU logits (sizes 1 to 16, unmasked) from the states of chosen slots."""
        return self.cpus(state), self.gpus(state)


def _filled(layer: nn.Linear, token: Tensor) -> Tensor:
    """A layer over the tokens that are there (their first feature is 1), zero for the others."""
    there = torch.nonzero(token[..., 0] > 0, as_tuple=True)
    out = torch.zeros(*token.shape[:-1], layer.out_features)
    return out.index_put(there, torch.relu(layer(token[there])))


def _mean(values: Tensor, there: Tensor) -> Tensor:
    """Mean over the third axis of what is there; zero over nothing."""
    weight = there.float()[..., None]
    return (values * weight).sum(dim=2) / weight.sum(dim=2).clamp(min=1.0)


class Critic(nn.Module):
    """A central critic for MAPPO: the cost to come, from all clusters' features pooled."""

    def __init__(self, hidden: int = 64) -> None:
        """Make the layers."""
        super().__init__()
        self.task = nn.Linear(TASK_FEATURES, hidden)
        self.running = nn.Linear(RUNNING_FEATURES, hidden)
        self.cluster = nn.Linear(CLUSTER_FEATURES + 2 * hidden, hidden)
        self.first = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 1)

    def forward(self, batch: Batch) -> Tensor:
        """(B,) value."""
        task = torch.relu(self.task(batch.task)).sum(dim=2)
        running = torch.relu(self.running(batch.running)).sum(dim=2)
        cluster = torch.relu(self.cluster(torch.cat([batch.cluster, task, running], dim=-1)))
        value: Tensor = self.last(torch.relu(self.first(cluster.sum(dim=1))))[:, 0]
        return value
